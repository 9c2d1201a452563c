//! One sample, from the dataset to its row of a batch, under the corrupt-sample policy.
//!
//! Both prongs prepare through this module, so a batch does not depend on which of them made it.

use crate::program::{CorruptPolicy, Program};
use crate::slot::{Outcome, SampleRecord};
use ddlp_dataset::Dataset;
use ddlp_pixels::{CorruptReason, Draw, Preparer};
use std::time::{Duration, Instant};

/// How many neighbours are tried before a corrupt sample counts as irreplaceable.
pub const REPLACEMENTS_MAX: u64 = 64;

/// The samples of an epoch and the draws they get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochContext {
    /// Seed of the run.
    pub seed: u64,
    /// The epoch.
    pub epoch: u32,
}

/// Where the time of a sample went.
#[derive(Clone, Copy, Debug, Default)]
pub struct StageTimes {
    /// Reading bytes.
    pub read: Duration,
    /// Decoding and augmenting.
    pub prepare: Duration,
}

/// One worker's means to prepare samples: a decoder and a buffer for encoded bytes, both reused.
pub struct SamplePreparer {
    preparer: Preparer,
    encoded: Vec<u8>,
    times: StageTimes,
}

impl SamplePreparer {
    /// A preparer that keeps to the program's limits.
    pub fn new(program: &Program) -> Self {
        Self { preparer: Preparer::new(program.limits), encoded: Vec::new(), times: StageTimes::default() }
    }

    /// Prepares sample `sample_id` into `row` (as long as the pipeline's output). The record says what became of it; a
    /// row is valid exactly when [`SampleRecord::has_row`].
    ///
    /// A dataset shorter than the epoch is repeated: the sample is stored at `sample_id % dataset.len()`. The draws
    /// depend on `sample_id`, also when a neighbour stands in.
    pub fn prepare(
        &mut self,
        dataset: &dyn Dataset,
        program: &Program,
        context: EpochContext,
        sample_id: u64,
        row: &mut [u8],
    ) -> SampleRecord {
        let samples = dataset.len();
        let own = sample_id % samples;
        let draw = Draw { seed: context.seed, epoch: context.epoch, sample_id };
        let mut record = SampleRecord {
            sample_id,
            index: own,
            label: dataset.label(own),
            outcome: Outcome::Prepared,
            warned: false,
        };
        let reason = match self.attempt(dataset, program, own, draw, row) {
            Ok(warned) => {
                record.warned = warned;
                return record;
            }
            Err(reason) => reason,
        };
        record.outcome = match program.policy {
            CorruptPolicy::Fail => Outcome::Failed(reason),
            CorruptPolicy::Skip => Outcome::Skipped(reason),
            CorruptPolicy::Replace => {
                let neighbours = (1..samples.min(REPLACEMENTS_MAX + 1)).map(|step| (own + step) % samples);
                for index in neighbours {
                    if let Ok(warned) = self.attempt(dataset, program, index, draw, row) {
                        record.index = index;
                        record.label = dataset.label(index);
                        record.warned = warned;
                        record.outcome = Outcome::Replaced(reason);
                        return record;
                    }
                }
                Outcome::Failed(reason)
            }
        };
        record
    }

    /// Stage times since the last call of this function.
    pub fn take_times(&mut self) -> StageTimes {
        std::mem::take(&mut self.times)
    }

    fn attempt(
        &mut self,
        dataset: &dyn Dataset,
        program: &Program,
        index: u64,
        draw: Draw,
        row: &mut [u8],
    ) -> Result<bool, CorruptReason> {
        let start = Instant::now();
        let form = dataset.read(index, &mut self.encoded).map_err(|error| error.reason());
        let read = Instant::now();
        self.times.read += read - start;
        let source = form?;
        let prepared = self.preparer.prepare(source.source(&self.encoded), &program.pipeline, draw, row);
        self.times.prepare += read.elapsed();
        prepared.map(|prepared| prepared.warnings > 0).map_err(|error| error.reason())
    }
}

/// Moves the rows of a batch together so that samples without a row leave no hole. Returns the number of rows left.
///
/// `rows` holds one row of `row_bytes` per record.
pub fn close_gaps(records: &[SampleRecord], rows: &mut [u8], row_bytes: usize) -> usize {
    assert!(rows.len() >= records.len() * row_bytes, "one row per record");
    let mut delivered = 0;
    for (position, record) in records.iter().enumerate() {
        if !record.has_row() {
            continue;
        }
        if delivered != position {
            rows.copy_within(position * row_bytes..(position + 1) * row_bytes, delivered * row_bytes);
        }
        delivered += 1;
    }
    delivered
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(outcome: Outcome) -> SampleRecord {
        SampleRecord { sample_id: 0, index: 0, label: 0, outcome, warned: false }
    }

    #[test]
    fn gaps_are_closed_in_order() {
        let skipped = Outcome::Skipped(CorruptReason::Empty);
        let records =
            [Outcome::Prepared, skipped, Outcome::Replaced(CorruptReason::Io), skipped, Outcome::Prepared].map(record);
        let mut rows: Vec<u8> = (0..5).flat_map(|i| [i; 3]).collect();
        assert_eq!(close_gaps(&records, &mut rows, 3), 3);
        assert_eq!(&rows[..9], &[0, 0, 0, 2, 2, 2, 4, 4, 4]);
    }
}
