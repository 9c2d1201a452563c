//! One sample, from the dataset to its row of a batch, under the corrupt-sample policy.
//!
//! Both prongs use this module, so a batch does not depend on the prong that prepared it. A sample that makes the
//! dataset or the decoder panic counts as corrupt. The corrupt-sample policy does not apply if the dataset is
//! unavailable or the system refuses memory: preparation then tries again for a few seconds before it fails.

use crate::program::{CorruptPolicy, Program};
use crate::slot::{Outcome, SampleRecord, is_of_the_drive};
pub use ddlp_dataset::{BytesRead, StageTimes};
use ddlp_dataset::{Dataset, Fetch, FetchError, Half, Patience, ReadError, Unavailable};
use ddlp_pixels::{CorruptReason, Draw, PixelError, Preparer};
use std::panic::{AssertUnwindSafe, catch_unwind};

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

/// One worker's decoder and its memory for planning and reading, reused from sample to sample.
pub struct SamplePreparer {
    preparer: Preparer,
    fetch: Fetch,
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
            fetch: Fetch::default(),
            neighbours: 0,
            is_drive: false,
            patience: Patience::default(),
        }
    }

    /// Adds up stage times from now on. That reads the clock three times per sample, a noticeable cost for small
    /// images.
    pub fn timed(self) -> Self {
        Self { fetch: self.fetch.timed(), ..self }
    }

    /// Tries this many neighbours in place of a corrupt sample, but at least [`NEIGHBOURS_MIN`].
    pub fn trying(self, neighbours: u64) -> Self {
        Self { neighbours, ..self }
    }

    /// Prepares for a drive. A drive replaces no sample if its own storage or memory may have caused the failure of the
    /// sample or of a neighbour: the host might read what the drive cannot, and would then choose another neighbour.
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
    /// When, for some seconds, the dataset is unavailable or the system refuses memory. The policy does not apply then;
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

    /// Prepares a sample as [`prepare`](Self::prepare) does, unless the work `is_over`: returns `None` then. Calls
    /// `is_over` before each neighbour and while it waits for the dataset.
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
        match self.attempt(dataset, program, own, draw, row) {
            Ok(Made { label, warned }) => {
                Ok(Some(SampleRecord { sample_id, index: own, label, outcome: Outcome::Prepared, warned }))
            }
            Err(failure) => match self.after_failure(is_over, dataset, program, (own, draw), row, failure) {
                Err(_) if is_over() => Ok(None),
                done => done,
            },
        }
    }

    /// Continues with a sample whose first attempt failed: tries again if the sample cannot be read now, and applies
    /// the policy if it is corrupt.
    #[cold]
    fn after_failure(
        &mut self,
        is_over: &dyn Fn() -> bool,
        dataset: &dyn Dataset,
        program: &Program,
        (own, draw): (u64, Draw),
        row: &mut [u8],
        failure: Failure,
    ) -> Result<Option<SampleRecord>, Unavailable> {
        let sample_id = draw.sample_id;
        let record = |index, label, outcome, warned| SampleRecord { sample_id, index, label, outcome, warned };
        let (label, reason) = match self.patiently(is_over, dataset, program, (own, draw), row, Err(failure))? {
            Ok(Made { label, warned }) => return Ok(Some(record(own, label, Outcome::Prepared, warned))),
            Err(corrupt) => corrupt,
        };
        let outcome = match program.policy {
            CorruptPolicy::Fail => Outcome::Failed(reason),
            CorruptPolicy::Skip => Outcome::Skipped(reason),
            CorruptPolicy::Replace if self.is_drive && is_of_the_drive(reason) => Outcome::Failed(reason),
            CorruptPolicy::Replace => {
                for step in 1..=neighbours(dataset, self.neighbours) {
                    if is_over() {
                        return Ok(None);
                    }
                    let index = (own + step) % dataset.len();
                    let attempted = self.attempt(dataset, program, index, draw, row);
                    match self.patiently(is_over, dataset, program, (index, draw), row, attempted)? {
                        Ok(Made { label, warned }) => {
                            return Ok(Some(record(index, label, Outcome::Replaced(reason), warned)));
                        }
                        Err((label, reason)) if self.is_drive && is_of_the_drive(reason) => {
                            return Ok(Some(record(index, label, Outcome::Failed(reason), false)));
                        }
                        Err(_) => {}
                    }
                }
                Outcome::Failed(reason)
            }
        };
        Ok(Some(record(own, label, outcome, false)))
    }

    /// Checks that the dataset is still the one that was opened. Call it once per batch, after all its samples were
    /// read. A panic of the dataset counts as success: its samples may still be readable. If the dataset does not
    /// answer, tries again for a few seconds, unless the work `is_over`, or this preparer has waited without an answer
    /// lately.
    pub fn check(&mut self, dataset: &dyn Dataset, is_over: &dyn Fn() -> bool) -> Result<(), Unavailable> {
        self.patience.read(is_over, || catch_unwind(AssertUnwindSafe(|| dataset.check())).unwrap_or(Ok(())))
    }

    /// Returns the stage times since the last call. They are zero unless the preparer is [`timed`](Self::timed).
    pub fn take_times(&mut self) -> StageTimes {
        self.fetch.take_times()
    }

    /// Returns the bytes that were read from the dataset since the last call.
    pub fn take_read(&mut self) -> BytesRead {
        self.fetch.take_read()
    }

    /// Repeats an attempt after growing pauses while the sample cannot be read. For a corrupt sample, returns its label
    /// and the reason.
    fn patiently(
        &mut self,
        is_over: &dyn Fn() -> bool,
        dataset: &dyn Dataset,
        program: &Program,
        (index, draw): (u64, Draw),
        row: &mut [u8],
        mut attempted: Result<Made, Failure>,
    ) -> Result<Result<Made, (u32, CorruptReason)>, Unavailable> {
        let mut failed = 0;
        loop {
            match attempted {
                Ok(made) => return Ok(Ok(made)),
                Err(Failure::Corrupt { label, reason }) => return Ok(Err((label, reason))),
                Err(Failure::Unavailable(error)) if !self.patience.wait(failed, &error, is_over) => return Err(*error),
                Err(Failure::Unavailable(_)) => failed += 1,
            }
            attempted = self.attempt(dataset, program, index, draw, row);
        }
    }

    /// Makes one attempt at a stored sample. Catches any panic that the sample causes, and discards the decoder and
    /// memory that the panic interrupted.
    fn attempt(
        &mut self,
        dataset: &dyn Dataset,
        program: &Program,
        index: u64,
        draw: Draw,
        row: &mut [u8],
    ) -> Result<Made, Failure> {
        let mut label = 0;
        let attempted = catch_unwind(AssertUnwindSafe(|| {
            label = dataset.label(index);
            self.read_and_decode(dataset, program, (index, label), draw, &mut *row)
        }));
        attempted.unwrap_or_else(|_| {
            // Panics again if the row's length is wrong: that is the caller's defect, not the sample's.
            assert_eq!(row.len(), program.pipeline.output().bytes(), "the row has the pipeline's shape");
            self.preparer = Preparer::new(self.preparer.limits());
            self.fetch.forget();
            Err(Failure::Corrupt { label, reason: CorruptReason::DecoderPanic })
        })
    }

    fn read_and_decode(
        &mut self,
        dataset: &dyn Dataset,
        program: &Program,
        (index, label): (u64, u32),
        draw: Draw,
        row: &mut [u8],
    ) -> Result<Made, Failure> {
        let Self { preparer, fetch, .. } = self;
        match fetch.prepare((dataset, index), preparer, (&program.pipeline, draw), row) {
            Ok(prepared) => Ok(Made { label, warned: prepared.warnings > 0 }),
            Err(FetchError::Read(error)) => Err(Failure::of_reading(error, label)),
            Err(FetchError::Pixels(error)) => Err(Failure::of_decoding(error, dataset, index, label)),
        }
    }
}

/// A stored sample that was prepared.
struct Made {
    label: u32,
    /// Whether the decoder warned.
    warned: bool,
}

/// Why one attempt at a stored sample failed. Kept small, since the result of every attempt contains it.
enum Failure {
    Corrupt { label: u32, reason: CorruptReason },
    Unavailable(Box<Unavailable>),
}

impl From<Unavailable> for Failure {
    fn from(error: Unavailable) -> Self {
        Self::Unavailable(Box::new(error))
    }
}

impl Failure {
    #[cold]
    fn of_reading(error: ReadError, label: u32) -> Self {
        match error {
            ReadError::Corrupt(error) => Self::Corrupt { label, reason: error.reason() },
            ReadError::Unavailable(error) => error.into(),
        }
    }

    #[cold]
    fn of_decoding(error: PixelError, dataset: &dyn Dataset, index: u64, label: u32) -> Self {
        // The bytes may not decode because the file was replaced.
        if let Err(error) = dataset.check_damage() {
            return error.into();
        }
        match error {
            PixelError::NoMemory { message: problem } => {
                let (name, location) = (dataset.name(index), dataset.location(index));
                Unavailable::NoMemory { name, location, problem }.into()
            }
            error => Self::Corrupt { label, reason: error.reason() },
        }
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
