//! Forked processes. The threads of the loader do not exist in a forked process, and what they held at the moment of
//! the fork stays held there for ever: locks, and turns of large images. A forked process may still read the batches
//! of its parent, drop them, and build loaders of its own.

use crate::delivery::{HeldSlots, hold_slots};
use ddlp_pixels::{HeldTurns, hold_large_turns};
use std::process;

/// The locks that all loaders of a process share, held while the process forks. Dropping the value gives them back.
///
/// A program that forks without starting another program makes this value just before the fork, drops it in the parent,
/// and calls [`in_child`](Self::in_child) in the child before anything writes to a batch.
#[derive(Debug)]
pub struct Forking {
    slots: HeldSlots,
    turns: HeldTurns,
}

impl Forking {
    /// Waits for the locks, which no thread holds for long.
    pub fn begin() -> Self {
        Self { slots: hold_slots(), turns: hold_large_turns() }
    }

    /// Frees the child of its parent's threads: ends the turns of large images, and makes result slots that drives
    /// share the child's own memory. From then on, what the child writes to batches no longer reaches its parent.
    pub fn in_child(self) {
        self.slots.make_own();
        self.turns.end_all();
    }
}

/// The process that began something. In a process forked from it, that thing's locks may be held for ever.
#[derive(Clone, Copy, Debug)]
pub struct Home(u32);

impl Home {
    /// Returns the mark of this process.
    pub fn here() -> Self {
        Self(process::id())
    }

    /// Returns whether this is the process of the mark.
    pub fn is_here(self) -> bool {
        self.0 == process::id()
    }
}

#[cfg(test)]
#[allow(unsafe_code)]
pub(crate) mod tests {
    use super::*;
    use ddlp_pixels::large_turn;
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{ForkResult, alarm, fork};

    /// Time after which a child that waits for ever ends.
    const CHILD_S: u32 = 20;

    /// Does work in a forked process, and fails if the process does not end in good order.
    pub fn in_fork(work: impl FnOnce()) {
        // SAFETY: the child allocates and frees memory, which glibc and musl allow after a fork, and runs nothing of
        // the test harness.
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                alarm::set(CHILD_S);
                let is_done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_ok();
                // SAFETY: ends the child at once, without the harness's handlers.
                unsafe { libc::_exit(if is_done { 0 } else { 1 }) }
            }
            ForkResult::Parent { child } => assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0))),
        }
    }

    #[test]
    fn a_fork_has_all_turns_of_large_images() {
        const LARGE: u64 = 1 << 40;
        let turn = large_turn(LARGE);
        assert!(turn.is_some());
        let forking = Forking::begin();
        in_fork(|| {
            forking.in_child();
            drop(large_turn(LARGE));
        });
        drop(turn);
        drop(large_turn(LARGE));
    }
}
