//! The slots that a drive accepts: those that it refuses are left alone for a while.

use std::time::{Duration, Instant};

/// How long to leave a slot alone that another host holds.
const FOREIGN_LOOK: Duration = Duration::from_secs(1);

/// The slots of a drive that the drive has refused.
pub(super) struct SlotUse {
    /// Number of the drive's slots; 0 until the drive is reached.
    count: u32,
    /// Slots that another host holds or that the drive has no memory for, each with the time of that answer.
    refused: Vec<(u32, Instant)>,
    /// Time since which the drive has refused every slot.
    without_since: Option<Instant>,
}

impl SlotUse {
    pub fn new(count: u32) -> Self {
        Self { count, refused: Vec::new(), without_since: None }
    }

    pub fn count(&self) -> u32 {
        self.count
    }

    /// Learns the number of slots when the drive is first reached.
    pub fn know(&mut self, count: u32) {
        if self.count == 0 {
            self.count = count;
        }
    }

    /// Notes that the drive refuses slots. While another slot holds a result or is at work, the drive is still useful.
    pub fn refused(&mut self, slots: impl IntoIterator<Item = u32>, now: Instant) {
        self.refused.extend(slots.into_iter().map(|slot| (slot, now)));
        if self.refused.len() >= self.count as usize {
            self.without_since.get_or_insert(now);
        }
    }

    /// Notes that the drive has put a result into a slot.
    pub fn accepted(&mut self) {
        self.without_since = None;
    }

    /// Takes the slots that were left alone long enough: the drive may accept them by now.
    pub fn take_rested(&mut self, now: Instant) -> Vec<u32> {
        let is_rested = |&mut (_, seen): &mut (u32, Instant)| now.saturating_duration_since(seen) > FOREIGN_LOOK;
        self.refused.extract_if(.., is_rested).map(|(slot, _)| slot).collect()
    }

    /// Takes all refused slots.
    pub fn take_refused(&mut self) -> Vec<u32> {
        self.refused.drain(..).map(|(slot, _)| slot).collect()
    }

    /// Returns whether the drive accepts all slots, as far as is known.
    pub fn are_all_accepted(&self) -> bool {
        self.refused.is_empty()
    }

    /// Returns how long the drive has refused every slot.
    pub fn without_for(&self, now: Instant) -> Option<Duration> {
        self.without_since.map(|since| now.saturating_duration_since(since))
    }

    /// Forgets that the drive refuses every slot. Returns whether it did.
    pub fn forget_refusal(&mut self) -> bool {
        self.without_since.take().is_some()
    }
}
