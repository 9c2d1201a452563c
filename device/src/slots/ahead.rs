//! A thread that gets the memory of slots ready before their first lease.
//!
//! Hosts take slots from the first one on, so the slots behind the one that was leased last are the next ones. Without the
//! thread, or where it comes too late, a slot gets its memory when it is leased.

use super::memory::SlotMemory;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Slots that are got ready beyond the one that was leased last.
const SLOTS_AHEAD: usize = 4;

/// The way to the thread, which ends when this is dropped.
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
            tracing::debug!(%error, "slots get their memory when they are leased");
        }
        ahead
    }

    /// Says that a slot was leased.
    pub fn leased(&self, slot: u32) {
        self.next(slot as usize + 1);
    }

    fn next(&self, slot: usize) {
        // Without the thread nobody receives, and nothing is lost.
        let _ = self.0.send(slot);
    }
}

/// Gets slots ready until the channel ends. A refusal of memory is left to the lease.
fn get_ready(memory: &SlotMemory, leased: &Receiver<usize>) {
    while let Ok(first) = leased.recv() {
        let slots = (first..first + SLOTS_AHEAD).filter(|&slot| slot < memory.count() && !memory.is_present(slot));
        for slot in slots {
            match memory.make_present(slot) {
                Ok(()) => memory.clear_ahead(slot),
                Err(error) => {
                    tracing::debug!(slot, %error, "no memory for a slot yet");
                    break;
                }
            }
        }
    }
}
