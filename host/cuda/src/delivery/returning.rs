//! The way back of pairs and slots: one thread waits until the device is done with them.
//!
//! The thread waits for copies first, in the order in which they were queued: they depend on no consumer. Then it waits
//! for the consumers' streams. If the context is lost, everything comes back at once, and delivery ends.

use super::{Pair, Pairs};
use crate::device::ended;
use crate::error::CudaError;
use crate::queue::Event;
use ddlp_host::BatchMemory;
use std::collections::VecDeque;
use std::sync::Arc;

/// A result slot from which rows are copied to the device.
#[derive(Debug)]
pub(super) struct CopiedSlot {
    pub rows: Box<dyn BatchMemory>,
    /// Passes when the rows are on the device.
    pub copied: Event,
}

/// What comes back when an event has passed.
#[derive(Debug)]
enum Lent {
    Slot(CopiedSlot),
    /// The pair of a batch that was dropped without being finished.
    Copied(Pair),
    /// The pair of a batch that the consumer's stream uses.
    Used(Pair),
}

/// Everything that comes back by itself.
#[derive(Debug, Default)]
pub(super) struct Returning {
    /// What waits for copies.
    copied: VecDeque<Lent>,
    /// What waits for the consumers' streams.
    used: VecDeque<Lent>,
    /// What the thread waits for now.
    awaited: Awaited,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Awaited {
    #[default]
    Nothing,
    Pair,
    /// A slot at this address.
    Slot(usize),
}

impl Lent {
    fn event(&self) -> &Event {
        match self {
            Self::Slot(slot) => &slot.copied,
            Self::Copied(pair) => &pair.copied,
            Self::Used(pair) => &pair.used,
        }
    }

    fn awaited(&self) -> Awaited {
        match self {
            Self::Slot(slot) => Awaited::Slot(slot.rows.address().addr().get()),
            Self::Copied(_) | Self::Used(_) => Awaited::Pair,
        }
    }
}

impl Returning {
    pub fn add_slot(&mut self, slot: CopiedSlot) {
        self.copied.push_back(Lent::Slot(slot));
    }

    pub fn add_copied(&mut self, pair: Pair) {
        self.copied.push_back(Lent::Copied(pair));
    }

    pub fn add_used(&mut self, pair: Pair) {
        self.used.push_back(Lent::Used(pair));
    }

    /// Returns whether nothing has yet to come back.
    pub fn is_empty(&self) -> bool {
        self.awaited == Awaited::Nothing && self.used.is_empty() && self.copied.is_empty()
    }

    /// Returns the addresses of the slots that are being copied from.
    pub fn slots(&self) -> Vec<usize> {
        let all = self.copied.iter().map(Lent::awaited);
        let address = |awaited| if let Awaited::Slot(address) = awaited { Some(address) } else { None };
        let awaited = if let Awaited::Slot(address) = self.awaited { Some(address) } else { None };
        all.filter_map(address).chain(awaited).collect()
    }

    fn next(&mut self) -> Option<Lent> {
        let next = self.copied.pop_front().or_else(|| self.used.pop_front())?;
        self.awaited = next.awaited();
        Some(next)
    }
}

/// Waits for pairs and slots until the target is gone and all pairs are back.
pub(super) fn wait_for_pairs(pairs: &Arc<Pairs>) {
    while let Some(lent) = next(pairs) {
        let waited = pairs.device.enter().and_then(|entered| lent.event().wait(entered.driver()));
        if let Err(error) = waited {
            pairs.lose(error);
            // A copy may still run, unless the device does nothing more.
            ended(pairs.copies.synchronize());
        }
        pairs.take_back(lent);
    }
}

fn next(pairs: &Pairs) -> Option<Lent> {
    let mut state = pairs.lock();
    loop {
        if let Some(lent) = state.returning.next() {
            return Some(lent);
        }
        if state.is_gone && state.lent == 0 {
            return None;
        }
        state = pairs.changed.wait(state).expect("no panic while the pairs are locked");
    }
}

impl Pairs {
    /// Ends delivery after an error that leaves the state of the device unknown.
    fn lose(&self, error: CudaError) {
        let error = match error {
            CudaError::Call { call, code } => CudaError::Lost { device: self.device.name().into(), call, code },
            error => error,
        };
        self.lock().lost.get_or_insert(error);
    }

    fn take_back(&self, lent: Lent) {
        let mut state = self.lock();
        state.returning.awaited = Awaited::Nothing;
        let is_over = state.is_over;
        drop(state);
        match lent {
            Lent::Slot(slot) => {
                if is_over {
                    self.slots.forget(&*slot.rows);
                }
                // Frees the slot, for which its drive looks again and again.
                drop(slot);
            }
            Lent::Copied(pair) | Lent::Used(pair) => self.put(pair),
        }
    }
}
