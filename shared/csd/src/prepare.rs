//! One sample, from the dataset to its row of a batch, under the corrupt-sample policy.
//!
//! Both prongs use this module, so a batch does not depend on the prong that prepared it. A sample that makes the
//! dataset or the decoder panic counts as corrupt. The corrupt-sample policy does not apply if the dataset is
//! unavailable or the system refuses memory: preparation then tries again for a few seconds before it fails. Nor does
//! it apply to an image whose size an operation cannot take, or on which a function of the program fails: the image is
//! intact.
//!
//! Where reads have latency, a [`SampleFetcher`] reads ahead what a [`SamplePreparer`] then renders (`fetcher`). The
//! preparer goes on with a sample where the fetcher has left it.

mod epoch;
mod failure;
mod fetcher;

pub use epoch::{EpochContext, announce, prefetch, stored_at};
pub use fetcher::SampleFetcher;

use crate::abilities::AgreedDecoders;
use crate::program::{CorruptPolicy, Program};
use crate::slot::{Outcome, SampleRecord, is_of_the_drive};
pub use ddlp_dataset::{BytesRead, StageTimes};
use ddlp_dataset::{Dataset, Drawn, FetchedSample, Patience, SampleReader, StoredAt, Unavailable};
use ddlp_pixels::{CompiledPipeline, CorruptReason, Draw, Fidelity, Functions, Limits, Prepared, Preparer};
use failure::Failure;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Least number of neighbours that a preparer tries before it reports a corrupt sample as irreplaceable.
pub const NEIGHBOURS_MIN: u64 = 4096;

/// Returns how many neighbours a preparer tries in place of a corrupt sample, if the caller asks for `asked`.
pub fn neighbours(dataset: &dyn Dataset, asked: u64) -> u64 {
    asked.max(NEIGHBOURS_MIN).min(dataset.len() - 1)
}

/// One worker's decoder and its memory for planning and reading, reused from sample to sample.
pub struct SamplePreparer {
    pipeline: CompiledPipeline,
    policy: CorruptPolicy,
    preparer: Preparer,
    /// What the pipeline's operations `Function` call.
    functions: Functions,
    reader: SampleReader,
    /// Neighbours to try in place of a corrupt sample, if more than [`NEIGHBOURS_MIN`].
    neighbours: u64,
    /// For a drive, the decoders on which it agrees with the host.
    agreed: Option<AgreedDecoders>,
    patience: Patience,
}

impl SamplePreparer {
    /// Creates a preparer for a program, and compiles the program's pipeline.
    ///
    /// # Panics
    /// When the pipeline is invalid: validate a program that comes from outside first.
    pub fn new(program: &Program) -> Self {
        Self {
            pipeline: compiled(program),
            policy: program.policy,
            preparer: Preparer::new(program.limits),
            functions: Functions::default(),
            reader: SampleReader::default(),
            neighbours: 0,
            agreed: None,
            patience: Patience::default(),
        }
    }

    /// Prepares for another program from now on. Keeps its memory if the limits are the same.
    ///
    /// # Panics
    /// When the pipeline is invalid.
    pub fn change_program(&mut self, program: &Program) {
        (self.pipeline, self.policy) = (compiled(program), program.policy);
        if self.preparer.limits() != program.limits {
            self.renew(program.limits);
        }
    }

    /// Calls these functions where a pipeline has the operation `Function`.
    pub fn calling(mut self, functions: Functions) -> Self {
        self.functions = functions;
        self.renew(self.preparer.limits());
        self
    }

    /// Begins with another preparer, without the memory of the one before.
    fn renew(&mut self, limits: Limits) {
        self.preparer = Preparer::new(limits).with_functions(self.functions.clone());
    }

    /// Adds up stage times from now on. That reads the clock three times per sample, a noticeable cost for small
    /// images.
    pub fn timed(self) -> Self {
        Self { reader: self.reader.timed(), ..self }
    }

    /// Tries this many neighbours in place of a corrupt sample, but at least [`NEIGHBOURS_MIN`].
    pub fn trying(self, neighbours: u64) -> Self {
        Self { neighbours, ..self }
    }

    /// Prepares for a drive. A drive replaces no sample if its own storage or memory may have caused the failure of the
    /// sample or of a neighbour: the host might read what the drive cannot, and would then choose another neighbour.
    /// The drive leaves samples whose decoder is not among the `agreed` ones to the host ([`Outcome::OtherDecoder`]).
    pub fn for_drive(self, agreed: AgreedDecoders) -> Self {
        Self { agreed: Some(agreed), reader: self.reader.with_decoders(agreed.decoders), ..self }
    }

    /// Prepares sample `sample_id` into `row` (as long as the pipeline's output). The returned record tells the
    /// outcome; the row is valid exactly when [`SampleRecord::has_row`] is true.
    ///
    /// The sample is read from the index at which it is [stored](stored_at). The draws depend on `sample_id`, even if a
    /// neighbour replaces the sample. A sample that makes reading or decoding panic is corrupt
    /// ([`CorruptReason::DecoderPanic`]).
    ///
    /// # Errors
    /// When, for some seconds, the dataset is unavailable or the system refuses memory, when a function of the program
    /// fails ([`Unavailable::Function`]), and when an operation cannot take an image of the sample's size
    /// ([`Unavailable::Misfit`]; a drive leaves the sample to the host instead). The
    /// policy does not apply then; the caller records [`Outcome::Unavailable`] for the sample.
    ///
    /// # Panics
    /// When `row` is not as long as the pipeline's output.
    pub fn prepare(
        &mut self,
        dataset: &dyn Dataset,
        context: EpochContext,
        sample_id: u64,
        row: &mut [u8],
    ) -> Result<SampleRecord, Unavailable> {
        let prepared = self.prepare_unless(&|| false, dataset, context, sample_id, None, row)?;
        Ok(prepared.expect("the work is not over"))
    }

    /// Prepares a sample as [`prepare`](Self::prepare) does, unless the work `is_over`: returns `None` then. Calls
    /// `is_over` before each neighbour and while it waits for the dataset. Reads only what is missing if a
    /// [`SampleFetcher`] has `fetched` the sample.
    // Inlined, so that the record of a small sample needs no copy.
    #[inline]
    pub fn prepare_unless(
        &mut self,
        is_over: &dyn Fn() -> bool,
        dataset: &dyn Dataset,
        context: EpochContext,
        sample_id: u64,
        fetched: Option<&mut FetchedSample>,
        row: &mut [u8],
    ) -> Result<Option<SampleRecord>, Unavailable> {
        let own = stored_at(dataset, sample_id);
        let (draw, fidelity) = (context.draw(sample_id), context.fidelity);
        match self.attempt(dataset, own, (draw, fidelity), fetched, row) {
            Ok(prepared) => {
                let (outcome, warned) = (Outcome::Prepared, has_warned(prepared));
                Ok(Some(SampleRecord { sample_id, index: own, outcome, warned }))
            }
            Err(failure) => match self.after_failure(is_over, dataset, (own, draw, fidelity), row, failure) {
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
        (own, draw, fidelity): (u64, Draw, Fidelity),
        row: &mut [u8],
        failure: Failure,
    ) -> Result<Option<SampleRecord>, Unavailable> {
        let sample_id = draw.sample_id;
        let record = |index, outcome, warned| SampleRecord { sample_id, index, outcome, warned };
        let is_drive = self.agreed.is_some();
        let reason = match self.patiently(is_over, dataset, (own, draw, fidelity), row, Err(failure)) {
            Ok(prepared) => return Ok(Some(record(own, Outcome::Prepared, has_warned(prepared)))),
            Err(Failure::Corrupt(reason)) => reason,
            Err(Failure::LeftToHost(outcome)) => return Ok(Some(record(own, outcome, false))),
            Err(Failure::Unavailable(error)) => return Err(*error),
        };
        let outcome = match self.policy {
            CorruptPolicy::Fail => Outcome::Failed(reason),
            CorruptPolicy::Skip => Outcome::Skipped(reason),
            CorruptPolicy::Replace if is_drive && is_of_the_drive(reason) => Outcome::Failed(reason),
            CorruptPolicy::Replace => {
                for step in 1..=neighbours(dataset, self.neighbours) {
                    if is_over() {
                        return Ok(None);
                    }
                    let index = (own + step) % dataset.len();
                    let attempted = self.attempt(dataset, index, (draw, fidelity), None, row);
                    match self.patiently(is_over, dataset, (index, draw, fidelity), row, attempted) {
                        Ok(prepared) => {
                            return Ok(Some(record(index, Outcome::Replaced(reason), has_warned(prepared))));
                        }
                        Err(Failure::Corrupt(reason)) if is_drive && is_of_the_drive(reason) => {
                            return Ok(Some(record(index, Outcome::Failed(reason), false)));
                        }
                        Err(Failure::Corrupt(_)) => {}
                        Err(Failure::LeftToHost(outcome)) => return Ok(Some(record(index, outcome, false))),
                        Err(Failure::Unavailable(error)) => return Err(*error),
                    }
                }
                Outcome::Failed(reason)
            }
        };
        Ok(Some(record(own, outcome, false)))
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
        self.reader.take_times()
    }

    /// Returns the bytes that were read from the dataset since the last call.
    pub fn take_read(&mut self) -> BytesRead {
        self.reader.take_read()
    }

    /// Returns the number of samples since the last call that arrived damaged over a network and were intact when they
    /// were read again.
    pub fn take_healed(&mut self) -> u64 {
        self.reader.take_healed()
    }

    /// Repeats an attempt after growing pauses while the sample cannot be read.
    fn patiently(
        &mut self,
        is_over: &dyn Fn() -> bool,
        dataset: &dyn Dataset,
        (index, draw, fidelity): (u64, Draw, Fidelity),
        row: &mut [u8],
        mut attempted: Result<Prepared, Failure>,
    ) -> Result<Prepared, Failure> {
        let mut failed = 0;
        while let Err(Failure::Unavailable(error)) = &attempted
            && self.patience.wait(failed, error, is_over)
        {
            failed += 1;
            attempted = self.attempt(dataset, index, (draw, fidelity), None, row);
        }
        attempted
    }

    /// Makes one attempt at a stored sample, which may have been fetched. Catches any panic that the sample causes, and
    /// discards the decoder and memory that the panic interrupted.
    fn attempt(
        &mut self,
        dataset: &dyn Dataset,
        index: u64,
        (draw, fidelity): (Draw, Fidelity),
        fetched: Option<&mut FetchedSample>,
        row: &mut [u8],
    ) -> Result<Prepared, Failure> {
        let Self { pipeline, preparer, reader, agreed, .. } = self;
        let prepare = || {
            let drawn = Drawn { pipeline, draw, fidelity };
            let prepared = reader.prepare(StoredAt { dataset, index }, fetched, preparer, drawn, row);
            prepared.map_err(|error| Failure::of(error, agreed.as_ref(), dataset, index))
        };
        catch_unwind(AssertUnwindSafe(prepare)).unwrap_or_else(|_| {
            // Panics again if the row's length is wrong: that is the caller's defect, not the sample's.
            assert_eq!(row.len(), self.pipeline.output().bytes(), "the row has the pipeline's shape");
            self.discard_interrupted();
            Err(Failure::Corrupt(CorruptReason::DecoderPanic))
        })
    }

    /// Discards the decoder and memory that a panic has interrupted.
    fn discard_interrupted(&mut self) {
        self.renew(self.preparer.limits());
        self.reader.forget();
    }
}

fn compiled(program: &Program) -> CompiledPipeline {
    CompiledPipeline::of(&program.pipeline).expect("a program from outside is validated before its use")
}

/// Returns whether the decoder warned.
fn has_warned(prepared: Prepared) -> bool {
    prepared.warnings > 0
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
