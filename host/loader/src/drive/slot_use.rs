//! The slots that a drive accepts: those that it refuses are left alone for a while.

use crate::delivery::SlotTable;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long to leave a slot alone that another host holds.
const FOREIGN_LOOK: Duration = Duration::from_secs(1);

/// The slots of a drive, and those that the drive has refused.
pub(super) struct SlotUse {
    pub table: Arc<SlotTable>,
    /// Slots that another host holds or that the drive has no memory for, each with the time of that answer.
    foreign: Vec<(u32, Instant)>,
    /// Time since which the drive has refused every slot.
    without_since: Option<Instant>,
}

impl SlotUse {
    pub fn new(table: Arc<SlotTable>) -> Self {
        Self { table, foreign: Vec::new(), without_since: None }
    }

    /// Notes that the drive refuses a slot. While another slot holds a result or is at work, the drive is still useful.
    pub fn refused(&mut self, slot: u32) {
        self.foreign.push((slot, Instant::now()));
        if self.foreign.len() >= self.table.count() as usize {
            self.without_since.get_or_insert_with(Instant::now);
        }
    }

    /// Leaves all free slots alone that have never held a result.
    pub fn leave_unproven(&mut self) {
        let now = Instant::now();
        self.foreign.extend(self.table.take_unproven().into_iter().map(|slot| (slot, now)));
    }

    /// Notes that the drive has put a result into a slot.
    pub fn filled(&mut self, slot: u32) {
        self.table.prove(slot);
        self.without_since = None;
    }

    /// Puts back slots that were left alone long enough, to be tried when no other slot is free: the drive may accept
    /// them by now.
    pub fn look_at_foreign(&mut self) {
        let old = self.foreign.extract_if(.., |(_, seen)| seen.elapsed() > FOREIGN_LOOK);
        self.table.put_last(old.map(|(slot, _)| slot));
    }

    /// Puts all refused slots back.
    pub fn put_foreign(&mut self) {
        self.foreign.drain(..).for_each(|(slot, _)| self.table.put(slot));
    }

    /// Returns whether the drive accepts all slots, as far as is known.
    pub fn are_all_accepted(&self) -> bool {
        self.foreign.is_empty()
    }

    /// Returns how long the drive has refused every slot.
    pub fn without_for(&self) -> Option<Duration> {
        self.without_since.map(|since| since.elapsed())
    }

    /// Forgets that the drive refuses every slot. Returns whether it did.
    pub fn forget_refusal(&mut self) -> bool {
        self.without_since.take().is_some()
    }
}
