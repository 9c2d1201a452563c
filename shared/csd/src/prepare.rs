//! One sample, from the dataset to its row of a batch, under the corrupt-sample policy.
//!
//! Both prongs prepare through this module, so a batch does not depend on which of them made it, nor does what happens
//! to a sample that makes a dataset or a decoder panic: it is a corrupt sample like others.

use crate::program::{CorruptPolicy, Program};
use crate::slot::{Outcome, SampleRecord};
use ddlp_dataset::{Dataset, Half, ReadError};
use ddlp_pixels::{CorruptReason, Draw, Preparer};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// How many neighbours are tried before a corrupt sample counts as irreplaceable.
const REPLACEMENTS_MAX: u64 = 64;

/// Where a sample of an epoch is stored. A dataset shorter than the epoch is repeated.
pub fn stored_at(dataset: &dyn Dataset, sample_id: u64) -> u64 {
    sample_id % dataset.len()
}

/// Tells a dataset that these samples of an epoch will be read soon; of none, it hears nothing. A dataset that panics at that may still
/// read them.
pub fn announce(dataset: &dyn Dataset, sample_ids: &[u64]) {
    if !sample_ids.is_empty() {
        let indices: Vec<u64> = sample_ids.iter().map(|&sample_id| stored_at(dataset, sample_id)).collect();
        advise(|| dataset.announce(&indices));
    }
}

/// Tells a dataset that this thread likely reads a sample of an epoch next, and which half of it to bring near now.
pub fn prefetch(dataset: &dyn Dataset, sample_id: u64, half: Half) {
    advise(|| dataset.prefetch(stored_at(dataset, sample_id), half));
}

/// What nobody depends on may fail: the panic's message says what happened.
fn advise(advice: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(advice));
}

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
    /// Reading bytes, but for those of uncompressed images, which are read while they are prepared.
    pub read: Duration,
    /// Decoding and augmenting.
    pub prepare: Duration,
}

/// A buffer for encoded bytes that has become larger than this is given back after the sample that needed it.
const KEPT_ENCODED_BYTES: usize = 1 << 20;

/// One worker's means to prepare samples: a decoder and a buffer for encoded bytes, both reused.
pub struct SamplePreparer {
    preparer: Preparer,
    encoded: Vec<u8>,
    /// Where stage times are added up, if they are.
    times: Option<StageTimes>,
}

impl SamplePreparer {
    /// A preparer that keeps to the program's limits.
    pub fn new(program: &Program) -> Self {
        Self { preparer: Preparer::new(program.limits), encoded: Vec::new(), times: None }
    }

    /// Adds up stage times from now on. It looks at the clock three times a sample, which tells beside a small image.
    pub fn timed(self) -> Self {
        Self { times: Some(StageTimes::default()), ..self }
    }

    /// Prepares sample `sample_id` into `row` (as long as the pipeline's output). The record says what became of it; a
    /// row is valid exactly when [`SampleRecord::has_row`].
    ///
    /// The sample is read from where it is [stored](stored_at). The draws
    /// depend on `sample_id`, also when a neighbour stands in. A sample that makes reading or decoding panic is corrupt
    /// ([`CorruptReason::DecoderPanic`]); if its label cannot be told either, the record says 0.
    ///
    /// # Panics
    /// When `row` is not as long as the pipeline's output.
    pub fn prepare(
        &mut self,
        dataset: &dyn Dataset,
        program: &Program,
        context: EpochContext,
        sample_id: u64,
        row: &mut [u8],
    ) -> SampleRecord {
        let samples = dataset.len();
        let own = stored_at(dataset, sample_id);
        let draw = Draw { seed: context.seed, epoch: context.epoch, sample_id };
        let (label, attempted) = self.attempt(dataset, program, own, draw, row);
        let mut record = SampleRecord { sample_id, index: own, label, outcome: Outcome::Prepared, warned: false };
        let reason = match attempted {
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
                    if let (label, Ok(warned)) = self.attempt(dataset, program, index, draw, row) {
                        record.index = index;
                        record.label = label;
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

    /// Stage times since the last call of this function, of a preparer that is [`timed`](Self::timed).
    pub fn take_times(&mut self) -> StageTimes {
        self.times.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// A stored sample's label, and whether decoding it gave warnings. No panic that the sample is the cause of comes out of here; what it
    /// left half done is thrown away.
    fn attempt(
        &mut self,
        dataset: &dyn Dataset,
        program: &Program,
        index: u64,
        draw: Draw,
        row: &mut [u8],
    ) -> (u32, Result<bool, CorruptReason>) {
        let mut label = 0;
        let attempted = catch_unwind(AssertUnwindSafe(|| {
            label = dataset.label(index);
            self.read_and_decode(dataset, program, index, draw, &mut *row)
        }));
        let outcome = attempted.unwrap_or_else(|_| {
            // Not contained: that the row has its length is up to the caller, not to the sample.
            assert_eq!(row.len(), program.pipeline.output().bytes(), "the row has the pipeline's shape");
            self.preparer = Preparer::new(self.preparer.limits());
            self.encoded = Vec::new();
            Err(CorruptReason::DecoderPanic)
        });
        if self.encoded.capacity() > KEPT_ENCODED_BYTES {
            self.encoded = Vec::new();
        }
        (label, outcome)
    }

    fn read_and_decode(
        &mut self,
        dataset: &dyn Dataset,
        program: &Program,
        index: u64,
        draw: Draw,
        row: &mut [u8],
    ) -> Result<bool, CorruptReason> {
        let Self { preparer, encoded, times } = self;
        let start = times.as_ref().map(|_| Instant::now());
        let source = dataset.sample(index, encoded).map_err(|error| match error {
            ReadError::Corrupt(error) => error.reason(),
            ReadError::Unavailable(_) => CorruptReason::Io,
        });
        let read = start.map(|_| Instant::now());
        let prepared = source.map(|source| preparer.prepare(source, &program.pipeline, draw, row));
        if let (Some(times), Some(start), Some(read)) = (times, start, read) {
            times.read += read - start;
            times.prepare += read.elapsed();
        }
        prepared?.map(|prepared| prepared.warnings > 0).map_err(|error| error.reason())
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
    use ddlp_dataset::{Identity, Location};
    use ddlp_pixels::{Limits, Pipeline, Source};

    /// Eight images; the label of 2 and the bytes of 4 and 5 make it panic.
    struct Trapped;

    impl Dataset for Trapped {
        fn len(&self) -> u64 {
            8
        }

        fn classes(&self) -> &[String] {
            &[]
        }

        fn label(&self, index: u64) -> u32 {
            assert_ne!(index, 2, "no label");
            10 + index as u32
        }

        fn name(&self, index: u64) -> String {
            index.to_string()
        }

        fn location(&self, _index: u64) -> Location {
            Location { file: "memory".into(), offset: 0, length: 3072 }
        }

        fn sample<'a>(&'a self, index: u64, buf: &'a mut Vec<u8>) -> Result<Source<'a>, ReadError> {
            buf.clear();
            buf.push(0);
            assert!(index != 4 && index != 5, "half read");
            buf.resize(3072, index as u8);
            Ok(Source::Planar { width: 32, height: 32, bytes: buf })
        }

        fn identity(&self) -> Identity {
            Identity::from_bytes([0; 32])
        }

        fn kind(&self) -> &'static str {
            "trapped"
        }
    }

    fn program(policy: CorruptPolicy) -> Program {
        Program { pipeline: Pipeline::cifar_train(), limits: Limits::default(), policy }
    }

    #[test]
    fn a_panicking_sample_is_corrupt_and_the_next_one_is_not() {
        let panicked = CorruptReason::DecoderPanic;
        let (failed, skipped, replaced) =
            (Outcome::Failed(panicked), Outcome::Skipped(panicked), Outcome::Replaced(panicked));
        let cases = [
            (CorruptPolicy::Fail, 4, (4, 14, failed)),
            (CorruptPolicy::Fail, 2, (2, 0, failed)),
            (CorruptPolicy::Skip, 4, (4, 14, skipped)),
            (CorruptPolicy::Replace, 4, (6, 16, replaced)),
            (CorruptPolicy::Replace, 2, (3, 13, replaced)),
        ];
        let context = EpochContext { seed: 1, epoch: 2 };
        for (policy, id, expected) in cases {
            let program = program(policy);
            let mut row = vec![0; program.pipeline.output().bytes()];
            let mut fresh = row.clone();
            let mut preparer = SamplePreparer::new(&program);
            let record = preparer.prepare(&Trapped, &program, context, id, &mut row);
            assert_eq!((record.index, record.label, record.outcome), expected, "{policy:?} {id}");
            let record = preparer.prepare(&Trapped, &program, context, 7, &mut row);
            assert_eq!(record, SamplePreparer::new(&program).prepare(&Trapped, &program, context, 7, &mut fresh));
            assert_eq!(record.outcome, Outcome::Prepared);
            assert!(row == fresh, "{policy:?} {id}: a panic leaves nothing behind");
        }
    }

    #[test]
    #[should_panic(expected = "the row has the pipeline's shape")]
    fn a_row_of_the_wrong_length_is_no_corrupt_sample() {
        let program = program(CorruptPolicy::Skip);
        SamplePreparer::new(&program).prepare(&Trapped, &program, EpochContext { seed: 1, epoch: 2 }, 0, &mut [0; 5]);
    }

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
