//! A thread that allocates the memory of slots before their first lease.
//!
//! Hosts use slots in ascending order, so the next slots are those after the one leased last. If there is no thread, or
//! it comes too late, a slot gets its memory at its lease.

use super::memory::SlotMemory;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Number of slots allocated beyond the one leased last.
const SLOTS_AHEAD: usize = 4;

/// Handle of the thread, which ends when the handle is dropped.
#[derive(Debug)]
pub(super) struct Ahead(Sender<usize>);

impl Ahead {
    /// Starts the thread with the first slots.
    pub fn start(memory: Arc<SlotMemory>) -> Self {
        let (sender, leased) = channel();
        let ahead = Self(sender);
        ahead.next(0);
        let thread = std::thread::Builder::new().name("slots".into());
        if let Err(error) = thread.spawn(move || get_ready(&memory, &leased)) {
            tracing::debug!(%error, "no thread to allocate slots: each gets its memory when it is leased");
        }
        ahead
    }

    /// Tells the thread that a slot was leased.
    pub fn leased(&self, slot: u32) {
        self.next(slot as usize + 1);
    }

    fn next(&self, slot: usize) {
        // Fails only if the thread did not start; slots then get their memory at their leases.
        let _ = self.0.send(slot);
    }
}

/// Allocates slots until the channel closes. If the system refuses memory, the lease reports it.
fn get_ready(memory: &SlotMemory, leased: &Receiver<usize>) {
    while let Ok(first) = leased.recv() {
        let slots = (first..first + SLOTS_AHEAD).filter(|&slot| slot < memory.count() && !memory.is_present(slot));
        for slot in slots {
            if let Err(error) = memory.make_present(slot) {
                tracing::debug!(slot, %error, "no memory for a slot yet");
                break;
            }
        }
    }
}
