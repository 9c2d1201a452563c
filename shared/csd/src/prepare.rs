//! One sample, from the dataset to its row of a batch, under the corrupt-sample policy.
//!
//! Both prongs use this module, so a batch does not depend on the prong that prepared it. A sample that makes the
//! dataset or the decoder panic counts as corrupt. The corrupt-sample policy does not apply to an unavailable dataset:
//! preparation then fails, whatever the policy.

use crate::program::{CorruptPolicy, Program};
use crate::slot::{Outcome, SampleRecord};
use ddlp_dataset::{Dataset, Half, ReadError, Unavailable};
use ddlp_pixels::{CorruptReason, Draw, PixelError, Preparer};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Least number of neighbours that a preparer tries before it reports a corrupt sample as irreplaceable.
pub const NEIGHBOURS_MIN: u64 = 4096;

/// Returns the index in the dataset of a sample of an epoch. A dataset shorter than the epoch is repeated.
pub fn stored_at(dataset: &dyn Dataset, sample_id: u64) -> u64 {
    sample_id % dataset.len()
}

/// Tells the dataset which samples of an epoch will be read soon, unless the list is empty. A panic of the dataset is
/// ignored: the hint is optional.
pub fn announce(dataset: &dyn Dataset, sample_ids: &[u64]) {
    if !sample_ids.is_empty() {
        let indices: Vec<u64> = sample_ids.iter().map(|&sample_id| stored_at(dataset, sample_id)).collect();
        advise(|| dataset.announce(&indices));
    }
}

/// Tells the dataset that this thread will probably read this sample of an epoch next, and which half of it to prefetch
/// now.
pub fn prefetch(dataset: &dyn Dataset, sample_id: u64, half: Half) {
    advise(|| dataset.prefetch(stored_at(dataset, sample_id), half));
}

/// Returns how many neighbours a preparer tries in place of a corrupt sample, if the caller asks for `asked`.
pub fn neighbours(dataset: &dyn Dataset, asked: u64) -> u64 {
    asked.max(NEIGHBOURS_MIN).min(dataset.len() - 1)
}

/// Checks that the dataset is still the one that was opened. Call it once per batch, after all its samples were read. A
/// panic of the dataset counts as success: its samples may still be readable.
pub fn check(dataset: &dyn Dataset) -> Result<(), Unavailable> {
    catch_unwind(AssertUnwindSafe(|| dataset.check())).unwrap_or(Ok(()))
}

/// Gives the dataset a hint, and ignores a panic: nothing depends on a hint, and the panic hook has reported the panic.
fn advise(advice: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(advice));
}

/// Context of all random draws in an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochContext {
    /// Seed of the run.
    pub seed: u64,
    /// The epoch.
    pub epoch: u32,
}

/// Time spent in each stage of preparation.
#[derive(Clone, Copy, Debug, Default)]
pub struct StageTimes {
    /// Reading of bytes, except those of uncompressed images, which are read during preparation.
    pub read: Duration,
    /// Decoding and augmentation.
    pub prepare: Duration,
}

/// Largest buffer for encoded bytes that is kept; a larger one is freed after the sample that needed it.
const KEPT_ENCODED_BYTES: usize = 1 << 20;

/// One worker's decoder and its buffer for encoded bytes, reused from sample to sample.
pub struct SamplePreparer {
    preparer: Preparer,
    encoded: Vec<u8>,
    /// Sums of the stage times, if the caller wants them.
    times: Option<StageTimes>,
    /// Neighbours to try in place of a corrupt sample, if more than [`NEIGHBOURS_MIN`].
    neighbours: u64,
}

impl SamplePreparer {
    /// Creates a preparer that keeps to the program's limits.
    pub fn new(program: &Program) -> Self {
        Self { preparer: Preparer::new(program.limits), encoded: Vec::new(), times: None, neighbours: 0 }
    }

    /// Adds up stage times from now on. That reads the clock three times per sample, a noticeable cost for small
    /// images.
    pub fn timed(self) -> Self {
        Self { times: Some(StageTimes::default()), ..self }
    }

    /// Tries this many neighbours in place of a corrupt sample, but at least [`NEIGHBOURS_MIN`].
    pub fn trying(self, neighbours: u64) -> Self {
        Self { neighbours, ..self }
    }

    /// Prepares sample `sample_id` into `row` (as long as the pipeline's output). The returned record tells the
    /// outcome; the row is valid exactly when [`SampleRecord::has_row`] is true.
    ///
    /// The sample is read from the index at which it is [stored](stored_at). The draws depend on `sample_id`, even if a
    /// neighbour replaces the sample. A sample that makes reading or decoding panic is corrupt
    /// ([`CorruptReason::DecoderPanic`]); if reading its label panics too, the record's label is 0.
    ///
    /// # Errors
    /// When the dataset is unavailable. The policy does not apply then; the caller records [`Outcome::Unavailable`] for
    /// the sample.
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
    ) -> Result<SampleRecord, Unavailable> {
        let samples = dataset.len();
        let own = stored_at(dataset, sample_id);
        let draw = Draw { seed: context.seed, epoch: context.epoch, sample_id };
        let (label, attempted) = self.attempt(dataset, program, own, draw, row)?;
        let mut record = SampleRecord { sample_id, index: own, label, outcome: Outcome::Prepared, warned: false };
        let reason = match attempted {
            Ok(warned) => {
                record.warned = warned;
                return Ok(record);
            }
            Err(reason) => reason,
        };
        record.outcome = match program.policy {
            CorruptPolicy::Fail => Outcome::Failed(reason),
            CorruptPolicy::Skip => Outcome::Skipped(reason),
            CorruptPolicy::Replace => {
                for step in 1..=neighbours(dataset, self.neighbours) {
                    let index = (own + step) % samples;
                    if let (label, Ok(warned)) = self.attempt(dataset, program, index, draw, row)? {
                        record.index = index;
                        record.label = label;
                        record.warned = warned;
                        record.outcome = Outcome::Replaced(reason);
                        return Ok(record);
                    }
                }
                Outcome::Failed(reason)
            }
        };
        Ok(record)
    }

    /// Returns the stage times since the last call. They are zero unless the preparer is [`timed`](Self::timed).
    pub fn take_times(&mut self) -> StageTimes {
        self.times.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Returns a stored sample's label, and whether its decoder warned. Catches any panic that the sample causes, and
    /// discards the decoder and buffer that the panic interrupted.
    fn attempt(
        &mut self,
        dataset: &dyn Dataset,
        program: &Program,
        index: u64,
        draw: Draw,
        row: &mut [u8],
    ) -> Result<(u32, Result<bool, CorruptReason>), Unavailable> {
        let mut label = 0;
        let attempted = catch_unwind(AssertUnwindSafe(|| {
            label = dataset.label(index);
            self.read_and_decode(dataset, program, index, draw, &mut *row)
        }));
        let outcome = attempted.unwrap_or_else(|_| {
            // Panics again if the row's length is wrong: that is the caller's defect, not the sample's.
            assert_eq!(row.len(), program.pipeline.output().bytes(), "the row has the pipeline's shape");
            self.preparer = Preparer::new(self.preparer.limits());
            self.encoded = Vec::new();
            Ok(Err(CorruptReason::DecoderPanic))
        });
        if self.encoded.capacity() > KEPT_ENCODED_BYTES {
            self.encoded = Vec::new();
        }
        Ok((label, outcome?))
    }

    fn read_and_decode(
        &mut self,
        dataset: &dyn Dataset,
        program: &Program,
        index: u64,
        draw: Draw,
        row: &mut [u8],
    ) -> Result<Result<bool, CorruptReason>, Unavailable> {
        let Self { preparer, encoded, times, .. } = self;
        let start = times.as_ref().map(|_| Instant::now());
        let source = match dataset.sample(index, encoded) {
            Ok(source) => Ok(source),
            Err(ReadError::Corrupt(error)) => Err(error.reason()),
            Err(ReadError::Unavailable(error)) => return Err(error),
        };
        let read = start.map(|_| Instant::now());
        let prepared = source.map(|source| preparer.prepare(source, &program.pipeline, draw, row));
        if let (Some(times), Some(start), Some(read)) = (times, start, read) {
            times.read += read - start;
            times.prepare += read.elapsed();
        }
        Ok(match prepared {
            Ok(Ok(prepared)) => Ok(prepared.warnings > 0),
            Ok(Err(error)) => {
                // The bytes may not decode because the file was replaced.
                dataset.check_damage()?;
                match error {
                    PixelError::Io { os_error: Some(number), .. } => {
                        let source = io::Error::from_raw_os_error(number);
                        match ReadError::of_sample(dataset.name(index), dataset.location(index), source) {
                            ReadError::Corrupt(error) => Err(error.reason()),
                            ReadError::Unavailable(error) => return Err(error),
                        }
                    }
                    error => Err(error.reason()),
                }
            }
            Err(reason) => Err(reason),
        })
    }
}

/// Moves the rows of a batch together, so that samples without a row leave no gap. Returns the number of rows left.
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
    use ddlp_dataset::{Corrupt, Identity, Location};
    use ddlp_pixels::{Limits, Pipeline, RawImage, ReadAt, Source};

    /// Dataset of eight images that panics when asked for the label of 2 or the bytes of 4 or 5.
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
    fn a_panicking_sample_is_corrupt_and_leaves_the_next_one_alone() {
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
            let record = preparer.prepare(&Trapped, &program, context, id, &mut row).unwrap();
            assert_eq!((record.index, record.label, record.outcome), expected, "{policy:?} {id}");
            let record = preparer.prepare(&Trapped, &program, context, 7, &mut row).unwrap();
            let again = SamplePreparer::new(&program).prepare(&Trapped, &program, context, 7, &mut fresh);
            assert_eq!(record, again.unwrap());
            assert_eq!(record.outcome, Outcome::Prepared);
            assert!(row == fresh, "{policy:?} {id}: a panic leaves nothing behind");
        }
    }

    #[test]
    #[should_panic(expected = "the row has the pipeline's shape")]
    fn a_row_of_the_wrong_length_panics() {
        let program = program(CorruptPolicy::Skip);
        let context = EpochContext { seed: 1, epoch: 2 };
        let _ = SamplePreparer::new(&program).prepare(&Trapped, &program, context, 0, &mut [0; 5]);
    }

    /// Dataset of grey images. Samples from 1 to before `readable` were rejected when they were packed; from `gone` on,
    /// the file is gone.
    struct Holed {
        samples: u64,
        readable: u64,
        gone: u64,
    }

    impl Dataset for Holed {
        fn len(&self) -> u64 {
            self.samples
        }

        fn classes(&self) -> &[String] {
            &[]
        }

        fn label(&self, index: u64) -> u32 {
            index as u32
        }

        fn name(&self, index: u64) -> String {
            index.to_string()
        }

        fn location(&self, _index: u64) -> Location {
            Location { file: "memory".into(), offset: 0, length: 3072 }
        }

        fn sample<'a>(&'a self, index: u64, buf: &'a mut Vec<u8>) -> Result<Source<'a>, ReadError> {
            if index >= self.gone {
                let source = std::io::ErrorKind::NotFound.into();
                return Err(Unavailable::Gone { path: "memory".into(), source }.into());
            }
            if (1..self.readable).contains(&index) {
                let (name, location, reason) = (self.name(index), self.location(index), CorruptReason::Truncated);
                return Err(Corrupt::Rejected { name, location, reason }.into());
            }
            buf.clear();
            buf.resize(3072, index as u8);
            Ok(Source::Planar { width: 32, height: 32, bytes: buf })
        }

        fn identity(&self) -> Identity {
            Identity::from_bytes([0; 32])
        }

        fn kind(&self) -> &'static str {
            "holed"
        }
    }

    fn prepare_1_of(dataset: &Holed, policy: CorruptPolicy, neighbours: u64) -> Result<SampleRecord, Unavailable> {
        let program = program(policy);
        let mut row = vec![0; program.pipeline.output().bytes()];
        let mut preparer = SamplePreparer::new(&program).trying(neighbours);
        preparer.prepare(dataset, &program, EpochContext { seed: 1, epoch: 2 }, 1, &mut row)
    }

    #[test]
    fn the_next_readable_sample_replaces_a_corrupt_one_within_the_bound() {
        let replaced = |samples, readable, neighbours| {
            let dataset = Holed { samples, readable, gone: samples };
            let record = prepare_1_of(&dataset, CorruptPolicy::Replace, neighbours).unwrap();
            (record.index, record.outcome)
        };
        let reason = CorruptReason::Truncated;
        assert_eq!(replaced(10_000, 100, 0), (100, Outcome::Replaced(reason)), "more than 64 neighbours are tried");
        let last = 1 + NEIGHBOURS_MIN;
        assert_eq!(replaced(10_000, last, 0), (last, Outcome::Replaced(reason)));
        assert_eq!(replaced(10_000, last + 1, 0), (1, Outcome::Failed(reason)), "the bound");
        assert_eq!(
            replaced(10_000, last + 1, last),
            (last + 1, Outcome::Replaced(reason)),
            "the caller may raise the bound"
        );
        assert_eq!(replaced(1000, 1000, 0), (0, Outcome::Replaced(reason)), "the search wraps round");
    }

    #[test]
    fn no_policy_applies_to_an_unavailable_dataset() {
        for policy in [CorruptPolicy::Fail, CorruptPolicy::Skip, CorruptPolicy::Replace] {
            let gone = prepare_1_of(&Holed { samples: 100, readable: 1, gone: 1 }, policy, 0);
            assert!(matches!(gone, Err(Unavailable::Gone { .. })), "{policy:?}: {gone:?}");
        }
        let gone = prepare_1_of(&Holed { samples: 100, readable: 9, gone: 5 }, CorruptPolicy::Replace, 0);
        assert!(gone.is_err(), "a neighbour that is gone is not skipped: {gone:?}");
    }

    /// A dataset of one raw image whose pixels cannot be read, for the reason of this error number.
    struct Unread(i32);

    impl ReadAt for Unread {
        fn read_at(&self, _offset: u64, _out: &mut [u8]) -> io::Result<()> {
            Err(io::Error::from_raw_os_error(self.0))
        }
    }

    impl Dataset for Unread {
        fn len(&self) -> u64 {
            1
        }

        fn classes(&self) -> &[String] {
            &[]
        }

        fn label(&self, _index: u64) -> u32 {
            0
        }

        fn name(&self, _index: u64) -> String {
            "raw".into()
        }

        fn location(&self, _index: u64) -> Location {
            Location { file: "memory".into(), offset: 0, length: 3072 }
        }

        fn sample<'a>(&'a self, _index: u64, _buf: &'a mut Vec<u8>) -> Result<Source<'a>, ReadError> {
            Ok(Source::Raw(RawImage {
                width: 32,
                height: 32,
                orientation: 1,
                was_shrunk: false,
                file: self,
                offset: 0,
                group_rows: 32,
                checksums: &[0; 4],
            }))
        }

        fn identity(&self) -> Identity {
            Identity::from_bytes([0; 32])
        }

        fn kind(&self) -> &'static str {
            "unread"
        }
    }

    #[test]
    fn raw_pixels_that_cannot_be_read_now_are_unavailable() {
        let program = program(CorruptPolicy::Skip);
        let prepare = |number| {
            let mut row = vec![0; program.pipeline.output().bytes()];
            let context = EpochContext { seed: 1, epoch: 2 };
            SamplePreparer::new(&program).prepare(&Unread(number), &program, context, 0, &mut row)
        };
        for number in [libc::ETIMEDOUT, libc::ENOMEM, libc::ESTALE, libc::EACCES] {
            assert!(matches!(prepare(number), Err(Unavailable::Io { .. })), "{number}");
        }
        let broken = prepare(libc::EIO).map(|record| record.outcome);
        assert!(matches!(broken, Ok(Outcome::Skipped(CorruptReason::Io))), "{broken:?}");
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
