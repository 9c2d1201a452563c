//! The way from a sample's header to its pixels, as a state machine without I/O.
//!
//! A driver does what [`SampleFetch::step`] says and reports back, until the sample is rendered or has failed. The
//! driver owns the memory for the sample's bytes, passes the plan to each call, and does everything that waits. So one
//! thread can wait for a sample's reads, or a thread makes the reads of several samples at the same time and another
//! one goes on with each sample.

use crate::forms::{FormNotes, Unusable, check_bytes, check_pieces};
use crate::rereading::Rereading;
use crate::{Header, Piece, Reads};
use ddlp_pixels::{Limits, PixelError, Prepared, Rendered, SamplePlan, Source, pieces};

/// What a driver does next for a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Step {
    /// Get the sample's header, and call [`begin`](SampleFetch::begin).
    #[default]
    Begin,
    /// Read the extents that are [`wanted`](SampleFetch::wanted), and call [`came`](SampleFetch::came).
    Read,
    /// The bytes are damaged: check that the dataset is still the one that was opened, and call
    /// [`checked`](SampleFetch::checked).
    Check,
    /// Render the [`source`](SampleFetch::source), and call [`rendered`](SampleFetch::rendered).
    Render,
    /// The sample is rendered.
    Done(Prepared),
    /// The sample has no pixels: [`take_problem`](SampleFetch::take_problem) says why.
    Failed,
}

/// How far a sample has come, and what it needs next.
#[derive(Debug)]
pub(super) struct SampleFetch {
    step: Step,
    header: Header,
    /// Whether the sample's file is read, instead of the bytes that the form names.
    is_whole_file: bool,
    /// The pieces to read of a sample in pieces.
    pieces: Vec<Piece>,
    /// The extents to read next.
    reads: Reads,
    /// Number of bytes that are there.
    filled: usize,
    rereading: Rereading,
    /// Why the bytes give no pixels, from the time when that is found out. In a box, so that a machine stays small.
    problem: Option<Box<Unusable>>,
}

impl Default for SampleFetch {
    fn default() -> Self {
        Self {
            step: Step::Begin,
            header: Header::file(0..0),
            is_whole_file: false,
            pieces: Vec::new(),
            reads: Reads::default(),
            filled: 0,
            rereading: Rereading::default(),
            problem: None,
        }
    }
}

impl SampleFetch {
    /// Returns what the driver does next.
    pub(super) fn step(&self) -> Step {
        self.step
    }

    /// Returns the sample's header.
    pub(super) fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the extents to read next; none for a sample without bytes. Their bytes go behind the
    /// [`filled`](Self::filled) ones, in this order.
    pub(super) fn wanted(&self) -> &Reads {
        &self.reads
    }

    /// Returns the number of the sample's bytes that are there, at the beginning of the memory.
    pub(super) fn filled(&self) -> usize {
        self.filled
    }

    /// Returns the number of bytes of room that the sample needs behind those that are wanted.
    pub(super) fn spare(&self) -> usize {
        if self.header.form.is_in_pieces() { pieces::JOINING_BYTES } else { 0 }
    }

    /// Forgets the sample.
    pub(super) fn clear(&mut self) {
        (self.step, self.problem) = (Step::Begin, None);
    }

    /// Returns the empty list for the pieces of a sample in pieces, which is filled before [`begin`](Self::begin).
    pub(super) fn pieces(&mut self) -> &mut Vec<Piece> {
        self.pieces.clear();
        &mut self.pieces
    }

    /// Begins with a sample. Without `limits`, any size is read. A plan for a whole sample needs no detail of a file.
    pub(super) fn begin(&mut self, header: Header, limits: Option<Limits>, plan: &mut SamplePlan<'_>) {
        self.is_whole_file = plan.is_whole() && header.form.is_file();
        (self.header, self.rereading, self.problem) = (header, Rereading::default(), None);
        self.start(limits, plan);
    }

    /// Discards the bytes, and begins to read the first extents.
    fn start(&mut self, limits: Option<Limits>, plan: &mut SamplePlan<'_>) {
        self.step = Step::Read;
        if let Err(error) = self.name_first(limits, plan) {
            self.fail(error.into());
        }
    }

    fn name_first(&mut self, limits: Option<Limits>, plan: &mut SamplePlan<'_>) -> Result<(), PixelError> {
        let Self { header, reads, pieces, .. } = self;
        self.filled = 0;
        reads.clear();
        if header.form.is_in_pieces() {
            pieces.iter().for_each(|piece| reads.add(piece.extent.clone()));
            return Ok(());
        }
        if self.is_whole_file {
            reads.add(header.bytes.clone());
            return Ok(());
        }
        // Pixels are judged by their size before they are read. The size of a file's image lies in the file.
        let limits = limits.filter(|_| header.form.is_pixels());
        if let Some(limits) = limits {
            limits.check_pixels(header.size.0, header.size.1)?;
        }
        header.form.add_reads(header, plan, reads)?;
        limits.map_or(Ok(()), |limits| limits.check_memory(reads.bytes()))
    }

    /// Judges the sample's bytes once the extents that were wanted have been read. `memory` begins with all bytes that
    /// have been read of the sample, and has the [`spare`](Self::spare) room behind them.
    pub(super) fn came(&mut self, memory: &mut [u8], plan: &mut SamplePlan<'_>, notes: &mut FormNotes) {
        self.filled += self.reads.bytes() as usize;
        self.reads.clear();
        let Self { header, reads, .. } = self;
        let bytes = &memory[..self.filled];
        let judged = match self.is_whole_file {
            true => check_bytes(header, bytes),
            false if header.form.is_in_pieces() => check_pieces(&self.pieces, bytes),
            false => header.form.next(header, bytes, plan, notes, reads),
        };
        match judged {
            Ok(()) if self.reads.extents().is_empty() => {
                self.join_pieces(memory, plan);
                self.step = Step::Render;
            }
            Ok(()) => self.step = Step::Read,
            Err(problem) => self.unusable(problem),
        }
    }

    /// Makes a file of the pieces of a sample in pieces. A whole sample has its markers.
    fn join_pieces(&mut self, memory: &mut [u8], plan: &SamplePlan<'_>) {
        let Some(last) = self.pieces.last().filter(|_| self.header.form.is_in_pieces()) else { return };
        let markers = if plan.is_whole() { (last.extent.end - last.extent.start) as usize } else { 0 };
        self.filled = pieces::join_in_place(memory, self.filled - markers, markers);
    }

    /// Opens the sample, whose bytes are all there.
    ///
    /// # Errors
    ///
    /// If the pipeline cannot take an image of this size.
    pub(super) fn source<'a>(
        &self,
        memory: &'a [u8],
        plan: &mut SamplePlan<'_>,
        notes: &'a FormNotes,
    ) -> Result<Source<'a>, PixelError> {
        let bytes = &memory[..self.filled];
        if self.is_whole_file {
            return Ok(Source::Encoded(bytes));
        }
        self.header.form.source(&self.header, bytes, plan, notes)
    }

    /// Takes the result of rendering.
    pub(super) fn rendered(&mut self, rendered: Result<Rendered, Unusable>) {
        match rendered {
            Ok(Rendered::Done(prepared)) => self.step = Step::Done(prepared),
            Ok(Rendered::NeedsFile) => self.unusable(Unusable::NeedsFile),
            Err(problem) => self.unusable(problem),
        }
    }

    /// Goes on with a sample whose bytes are damaged, in a dataset that is still the one that was opened. Bytes that
    /// come `over_network` are read again until the same bytes have come twice in a row; these are then judged. If a
    /// part of a file is damaged, the whole file is read.
    #[cold]
    pub(super) fn checked(&mut self, over_network: bool, memory: &[u8], plan: &mut SamplePlan<'_>) {
        let problem = self.problem.take().expect("only damage is checked");
        if over_network {
            match self.rereading.reads_again(crc32c::crc32c(&memory[..self.filled])) {
                Ok(true) => return self.start(None, plan),
                Ok(false) => {}
                Err(differs) => return self.fail(Unusable::Unsteady(differs)),
            }
        }
        match *problem {
            Unusable::NeedsFile if self.header.form.is_file() && !self.is_whole_file => {
                (self.is_whole_file, self.rereading) = (true, Rereading::default());
                self.start(None, plan);
            }
            problem => self.fail(problem),
        }
    }

    /// Returns whether the bytes of a rendered sample arrived damaged before.
    pub(super) fn is_healed(&self, memory: &[u8]) -> bool {
        self.rereading.is_healed(&memory[..self.filled])
    }

    /// Returns why the sample has no pixels.
    pub(super) fn take_problem(&mut self) -> Unusable {
        *self.problem.take().expect("a sample fails for a reason")
    }

    /// Records why the bytes give no pixels.
    #[cold]
    fn unusable(&mut self, problem: Unusable) {
        self.step = if problem.is_damage() { Step::Check } else { Step::Failed };
        self.problem = Some(Box::new(problem));
    }

    #[cold]
    fn fail(&mut self, problem: Unusable) {
        (self.step, self.problem) = (Step::Failed, Some(Box::new(problem)));
    }
}

#[cfg(test)]
mod tests;
