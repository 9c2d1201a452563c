//! One sample, from the dataset to its row of a batch, under the corrupt-sample policy.
//!
//! Both prongs use this module, so a batch does not depend on the prong that prepared it. A sample that makes the
//! dataset or the decoder panic counts as corrupt. The corrupt-sample policy does not apply to an unavailable dataset,
//! or if the system refuses memory: preparation then waits a few seconds, and if that was in vain fails, whatever the
//! policy.

use crate::program::{CorruptPolicy, Program};
use crate::slot::{Outcome, SampleRecord, is_of_the_drive};
use ddlp_dataset::{Dataset, Half, Patience, ReadError, Unavailable};
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
/// panic of the dataset counts as success: its samples may still be readable. If the dataset does not answer, waits for
/// it a few seconds, unless the work `is_over`.
pub fn check(dataset: &dyn Dataset, is_over: &dyn Fn() -> bool) -> Result<(), Unavailable> {
    Patience::default().read(is_over, || catch_unwind(AssertUnwindSafe(|| dataset.check())).unwrap_or(Ok(())))
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
    is_drive: bool,
    patience: Patience,
}

impl SamplePreparer {
    /// Creates a preparer that keeps to the program's limits.
    pub fn new(program: &Program) -> Self {
        Self {
            preparer: Preparer::new(program.limits),
            encoded: Vec::new(),
            times: None,
            neighbours: 0,
            is_drive: false,
            patience: Patience::default(),
        }
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

    /// Prepares for a drive. A drive replaces no sample if its own storage or memory may be the cause, be it the
    /// sample's or a neighbour's: the host could read what the drive cannot, and would take another neighbour.
    pub fn for_drive(self) -> Self {
        Self { is_drive: true, ..self }
    }

    /// Prepares sample `sample_id` into `row` (as long as the pipeline's output). The returned record tells the
    /// outcome; the row is valid exactly when [`SampleRecord::has_row`] is true.
    ///
    /// The sample is read from the index at which it is [stored](stored_at). The draws depend on `sample_id`, even if a
    /// neighbour replaces the sample. A sample that makes reading or decoding panic is corrupt
    /// ([`CorruptReason::DecoderPanic`]); if reading its label panics too, the record's label is 0.
    ///
    /// # Errors
    /// When the dataset is unavailable or the system refuses memory, for some seconds. The policy does not apply then;
    /// the caller records [`Outcome::Unavailable`] for the sample.
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
        let prepared = self.prepare_unless(&|| false, dataset, program, context, sample_id, row)?;
        Ok(prepared.expect("the work is not over"))
    }

    /// Prepares a sample as [`prepare`](Self::prepare) does, unless the work `is_over`: returns `None` then. Asks that
    /// before each neighbour and while it waits for the dataset.
    pub fn prepare_unless(
        &mut self,
        is_over: &dyn Fn() -> bool,
        dataset: &dyn Dataset,
        program: &Program,
        context: EpochContext,
        sample_id: u64,
        row: &mut [u8],
    ) -> Result<Option<SampleRecord>, Unavailable> {
        let own = stored_at(dataset, sample_id);
        let draw = Draw { seed: context.seed, epoch: context.epoch, sample_id };
        let prepared = self.prepare_or_replace(is_over, dataset, program, (own, draw), row);
        match prepared {
            Err(_) if is_over() => Ok(None),
            done => done,
        }
    }

    fn prepare_or_replace(
        &mut self,
        is_over: &dyn Fn() -> bool,
        dataset: &dyn Dataset,
        program: &Program,
        (own, draw): (u64, Draw),
        row: &mut [u8],
    ) -> Result<Option<SampleRecord>, Unavailable> {
        let (label, attempted) = self.attempt(is_over, dataset, program, own, draw, row)?;
        let sample_id = draw.sample_id;
        let mut record = SampleRecord { sample_id, index: own, label, outcome: Outcome::Prepared, warned: false };
        let reason = match attempted {
            Ok(warned) => {
                record.warned = warned;
                return Ok(Some(record));
            }
            Err(reason) => reason,
        };
        record.outcome = match program.policy {
            CorruptPolicy::Fail => Outcome::Failed(reason),
            CorruptPolicy::Skip => Outcome::Skipped(reason),
            CorruptPolicy::Replace if self.is_drive && is_of_the_drive(reason) => Outcome::Failed(reason),
            CorruptPolicy::Replace => {
                for step in 1..=neighbours(dataset, self.neighbours) {
                    if is_over() {
                        return Ok(None);
                    }
                    let index = (own + step) % dataset.len();
                    let (label, attempted) = self.attempt(is_over, dataset, program, index, draw, row)?;
                    let (outcome, warned) = match attempted {
                        Ok(warned) => (Outcome::Replaced(reason), warned),
                        Err(reason) if self.is_drive && is_of_the_drive(reason) => (Outcome::Failed(reason), false),
                        Err(_) => continue,
                    };
                    return Ok(Some(SampleRecord { sample_id, index, label, outcome, warned }));
                }
                Outcome::Failed(reason)
            }
        };
        Ok(Some(record))
    }

    /// Returns the stage times since the last call. They are zero unless the preparer is [`timed`](Self::timed).
    pub fn take_times(&mut self) -> StageTimes {
        self.times.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Returns a stored sample's label, and whether its decoder warned. If the sample cannot be read now, tries again
    /// after growing pauses.
    fn attempt(
        &mut self,
        is_over: &dyn Fn() -> bool,
        dataset: &dyn Dataset,
        program: &Program,
        index: u64,
        draw: Draw,
        row: &mut [u8],
    ) -> Result<(u32, Result<bool, CorruptReason>), Unavailable> {
        let mut failed = 0;
        loop {
            match self.attempt_once(dataset, program, index, draw, row) {
                Err(error) if self.patience.wait(failed, &error, is_over) => failed += 1,
                done => return done,
            }
        }
    }

    /// Makes one attempt. Catches any panic that the sample causes, and discards the decoder and buffer that the panic
    /// interrupted.
    fn attempt_once(
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
                    PixelError::NoMemory { message: problem } => {
                        let (name, location) = (dataset.name(index), dataset.location(index));
                        return Err(Unavailable::NoMemory { name, location, problem });
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
mod tests;
