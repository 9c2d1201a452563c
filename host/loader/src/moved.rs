//! Samples that came out of order, and so moved from one batch to another: what a state has to say of them.
//!
//! The delivered batches have other samples than the order names for them: some samples are extra, and equally many are
//! missing. A run that resumes delivers the missing samples where the order has the extra ones. No I/O.

use crate::schedule::BatchId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// Samples of one rank that moved between the batches of an epoch, up to a position.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedSamples {
    /// The rank. Other ranks have moved other samples.
    pub rank: u32,
    /// Sample ids in pairs: one that was delivered although the order has it later, and one that has to be delivered in
    /// its place.
    pub pairs: Vec<(u64, u64)>,
}

/// The moved samples of the epoch that is being delivered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moved {
    epoch: u32,
    /// How many times more than the order says a sample was delivered, if that is not 0.
    beyond: BTreeMap<u64, i64>,
    /// What takes the place of a sample that was delivered before the run resumed.
    places: HashMap<u64, u64>,
}

impl Moved {
    /// Begins in an epoch with samples that were moved before.
    pub fn of(epoch: u32, moved: &MovedSamples) -> Self {
        let beyond = moved.pairs.iter().flat_map(|&(delivered, owed)| [(delivered, 1), (owed, -1)]).collect();
        Self { epoch, beyond, places: moved.pairs.iter().copied().collect() }
    }

    /// Puts the samples that have to be delivered in place of those that were.
    pub fn place(&self, id: BatchId, sample_ids: &mut [u64]) {
        if self.places.is_empty() || id.epoch != self.epoch {
            return;
        }
        sample_ids.iter_mut().for_each(|sample| *sample = *self.places.get(sample).unwrap_or(sample));
    }

    /// Records the delivery of a batch: the samples that the order names for it, and those that it has.
    pub fn delivered(&mut self, id: BatchId, ordered: &[u64], actual: impl Iterator<Item = u64>) {
        if id.epoch != self.epoch {
            *self = Self { epoch: id.epoch, ..Self::default() };
        }
        let counted = actual.map(|sample| (sample, 1)).chain(ordered.iter().map(|&sample| (sample, -1)));
        for (sample, more) in counted {
            let beyond = self.beyond.entry(sample).or_default();
            *beyond += more;
            if *beyond == 0 {
                self.beyond.remove(&sample);
            }
        }
    }

    /// Returns what a state says in an epoch.
    pub fn pairs(&self, epoch: u32) -> Vec<(u64, u64)> {
        if epoch != self.epoch {
            return Vec::new();
        }
        let of_sign = |sign: i64| self.beyond.iter().filter(move |(_, beyond)| **beyond == sign).map(|(&id, _)| id);
        of_sign(1).zip(of_sign(-1)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(epoch: u32, batch: u32) -> BatchId {
        BatchId { epoch, batch }
    }

    #[test]
    fn a_run_that_resumes_delivers_what_is_owed_in_place_of_what_came_early() {
        let mut moved = Moved::default();
        moved.delivered(id(0, 0), &[0, 1, 2], [0, 7, 2].into_iter());
        assert_eq!(moved.pairs(0), [(7, 1)]);
        moved.delivered(id(0, 1), &[3, 4, 5], [3, 8, 1].into_iter());
        let state = MovedSamples { rank: 0, pairs: moved.pairs(0) };
        assert_eq!(state.pairs, [(7, 4), (8, 5)]);
        let mut resumed = Moved::of(0, &state);
        assert_eq!(resumed.pairs(0), state.pairs, "a state before the first batch is the same");
        let mut last = [6, 7, 8];
        resumed.place(id(0, 2), &mut last);
        assert_eq!(last, [6, 4, 5]);
        resumed.delivered(id(0, 2), &[6, 7, 8], last.into_iter());
        assert!(resumed.pairs(0).is_empty(), "at the end of an epoch all samples were delivered");
        let mut next = [7, 8];
        resumed.place(id(1, 0), &mut next);
        assert_eq!((next, resumed.pairs(1)), ([7, 8], vec![]), "another epoch has its own");
    }
}
