//! Read-ahead hints to the dataset: the samples of the batches that the CPU prong will claim next.

use crate::schedule::{BatchId, Schedule};
use std::collections::BTreeSet;

/// Batches announced to the dataset before the CPU claims them. Two are enough: reading them takes less time than
/// preparing one.
const ANNOUNCED_BATCHES: usize = 2;

/// Batches that were announced and that no prong has claimed yet.
#[derive(Default)]
pub(crate) struct Announced(BTreeSet<BatchId>);

impl Announced {
    /// Returns the batches to announce when the CPU has claimed batch `id`: that batch and the next ones of its epoch,
    /// except those announced before.
    pub fn ahead_of(&mut self, id: BatchId, schedule: &Schedule) -> Vec<BatchId> {
        let next = schedule.ahead_of_cpu(id.epoch).take(ANNOUNCED_BATCHES);
        let ahead = [id].into_iter().chain(next).filter(|&id| self.0.insert(id)).collect();
        // Other batches are claimed again only if a drive fails.
        self.0.retain(|&id| schedule.is_open(id));
        ahead
    }
}

#[cfg(test)]
mod tests;
