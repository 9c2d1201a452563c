//! The deliveries of an epoch, as a plan records them and a schedule replays them.

use super::ProngId;
use serde::{Deserialize, Serialize};

/// The deliveries of one epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanEpoch {
    /// Number of the epoch.
    pub epoch: u32,
    /// Batches in the order of delivery, each with the prong that prepared it (0 is the CPU).
    pub deliveries: Vec<(u32, ProngId)>,
}

impl PlanEpoch {
    /// Returns whether the deliveries name each of the epoch's `batches` batches exactly once.
    pub(crate) fn names_each_once(&self, batches: u32) -> bool {
        let mut named = vec![false; batches as usize];
        let is_new = |&(batch, _): &(u32, ProngId)| {
            named.get_mut(batch as usize).is_some_and(|seen| !std::mem::replace(seen, true))
        };
        self.deliveries.len() == batches as usize && self.deliveries.iter().all(is_new)
    }
}
