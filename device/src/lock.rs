//! Locks of files that one agent at a time may use.

use std::fs::{File, TryLockError};
use std::thread;
use std::time::Duration;

/// Pause between two attempts to lock a file, and their number: 2 s in all. A killed agent keeps its locks until the
/// system has freed its memory, which takes longer than the start of the next agent.
const PAUSE: Duration = Duration::from_millis(20);
const ATTEMPTS: u32 = 100;

/// Locks a file for this process alone. Waits up to 2 s for a holder that is just ending.
pub(crate) fn lock(file: &File) -> Result<(), TryLockError> {
    lock_after(file, || thread::sleep(PAUSE))
}

fn lock_after(file: &File, mut pause: impl FnMut()) -> Result<(), TryLockError> {
    for _ in 0..ATTEMPTS {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => pause(),
            done => return done,
        }
    }
    file.try_lock()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_whose_holder_is_ending_is_waited_for_and_no_other() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let open = || File::options().write(true).open(path.path()).unwrap();
        let mut holder = Some(open());
        holder.as_ref().unwrap().try_lock().unwrap();
        let (next, mut pauses) = (open(), 0);
        assert!(matches!(lock_after(&next, || pauses += 1), Err(TryLockError::WouldBlock)));
        assert_eq!(pauses, ATTEMPTS, "the wait is bounded");
        lock_after(&next, || holder = None).unwrap();
    }
}
