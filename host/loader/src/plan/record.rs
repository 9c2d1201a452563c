//! The epochs that a loader has delivered, for its plan.

use crate::schedule::{BatchId, PlanEpoch, ProngId};

/// Deliveries of a loader. If the loader delivers an epoch again, at another position, the record keeps the latest
/// whole one.
#[derive(Debug, Default)]
pub(crate) struct PlanRecord {
    /// Batches of an epoch.
    batches: usize,
    /// Whole epochs, each once, in the order of delivery.
    whole: Vec<PlanEpoch>,
    /// The epoch that is being delivered.
    begun: PlanEpoch,
}

impl PlanRecord {
    /// Creates the record of a run with this many batches an epoch.
    pub fn new(batches: u64) -> Self {
        Self { batches: batches as usize, ..Self::default() }
    }

    /// Records the next delivery.
    pub fn delivered(&mut self, id: BatchId, prong: ProngId) {
        if self.begun.epoch != id.epoch {
            self.begun = PlanEpoch { epoch: id.epoch, deliveries: Vec::new() };
        }
        self.begun.deliveries.push((id.batch, prong));
        if self.begun.deliveries.len() == self.batches {
            self.whole.retain(|whole| whole.epoch != id.epoch);
            self.whole.push(std::mem::take(&mut self.begun));
        }
    }

    /// Records that the batch which was delivered last did not reach the consumer, and that none follows.
    pub fn taken_back(&mut self, id: BatchId) {
        self.whole
            .retain(|whole| whole.epoch != id.epoch || whole.deliveries.last().map(|last| last.0) != Some(id.batch));
        self.begun = PlanEpoch::default();
    }

    /// Records that the run goes on at another position: an epoch that has begun is not delivered to its end.
    pub fn moved(&mut self) {
        self.begun = PlanEpoch::default();
    }

    /// Returns the epochs that were delivered completely and without a move in between.
    pub fn whole_epochs(&self) -> Vec<PlanEpoch> {
        self.whole.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_epoch_is_recorded_as_it_was_delivered_last_in_whole() {
        let mut record = PlanRecord::new(2);
        let mut deliver = |deliveries: &[(u32, u32, ProngId)]| {
            record.moved();
            deliveries.iter().for_each(|&(epoch, batch, prong)| record.delivered(BatchId { epoch, batch }, prong));
            record.whole_epochs()
        };
        let epoch = |epoch, deliveries: [(u32, ProngId); 2]| PlanEpoch { epoch, deliveries: deliveries.to_vec() };
        assert_eq!(deliver(&[(0, 0, 0)]), []);
        assert_eq!(deliver(&[(0, 1, 0)]), [], "the epoch was left in between");
        assert_eq!(deliver(&[(0, 0, 0), (0, 1, 1), (1, 1, 0)]), [epoch(0, [(0, 0), (1, 1)])]);
        let both = [epoch(0, [(0, 0), (1, 1)]), epoch(1, [(1, 0), (0, 0)])];
        assert_eq!(deliver(&[(1, 1, 0), (1, 0, 0)]), both);
        let again = [epoch(1, [(1, 0), (0, 0)]), epoch(0, [(1, 2), (0, 0)])];
        assert_eq!(deliver(&[(0, 1, 2), (0, 0, 0), (0, 1, 1)]), again);
    }
}
