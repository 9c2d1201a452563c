//! The way from a sample's place to its pixels: plan, fetch, render.
//!
//! 1. **Plan**: the sample's form names bytes to read, from the sample's [`Header`] and the [`SamplePlan`] of pipeline
//!    and draw. That reads nothing.
//! 2. **Fetch**: the source reads these bytes, in any order.
//! 3. **Render**: the form checks the bytes and opens them as a [`Source`], from which the [`Preparer`] makes the
//!    pixels by the same plan.
//!
//! A form may ask for more bytes once it has seen the first ones. Form or preparer may also ask for the whole file: if
//! a part of the file is damaged, or cannot be decoded alone.

use crate::extent::resize;
use crate::header::{Header, Reads};
use crate::pack::forms::{Damage, FormNotes, Next, Unusable, check_bytes};
use crate::{Corrupt, Dataset, Location, ReadError, Unavailable};
use ddlp_pixels::{
    CompiledPipeline, Decoder, Decoders, Draw, Limits, PixelError, PlanMemory, Prepared, Preparer, Rendered,
    SamplePlan, Source, large_turn,
};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Bytes of a block, as most disks and file systems have them, and our drive.
const BLOCK_BYTES: u64 = 4096;

/// Largest buffer for bytes that were read that is kept; a larger one is freed after the sample that needed it.
const KEPT_BYTES: usize = 1 << 20;

/// Time spent in each stage of preparation.
#[derive(Clone, Copy, Debug, Default)]
pub struct StageTimes {
    /// Planning and reading.
    pub read: Duration,
    /// Decoding and augmentation.
    pub prepare: Duration,
}

/// Bytes that were read from a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BytesRead {
    /// Bytes of samples, and of the details that their forms need.
    pub bytes: u64,
    /// The same in the whole blocks of 4096 bytes in which these bytes lie, as a disk or a drive reads them.
    pub block_bytes: u64,
}

impl BytesRead {
    fn add(&mut self, range: &Range<u64>) {
        self.bytes += range.end - range.start;
        self.block_bytes += range.end.next_multiple_of(BLOCK_BYTES) - range.start / BLOCK_BYTES * BLOCK_BYTES;
    }
}

/// Reason why a sample has no pixels.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The sample cannot be read, or its bytes are damaged.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The sample cannot be decoded, or the pipeline cannot take it.
    #[error(transparent)]
    Pixels(#[from] PixelError),
    /// The sample needs another decoder than those that the [`Fetch`] may use.
    #[error("the decoder of {0} is not to be used")]
    OtherDecoder(Decoder),
}

/// One worker's memory for planning and reading, reused from sample to sample.
#[derive(Default)]
pub struct Fetch {
    bytes: Vec<u8>,
    notes: FormNotes,
    plan: PlanMemory,
    /// Decoders that may be used, if not all may.
    decoders: Option<Decoders>,
    /// Sums of the stage times, if the caller wants them.
    times: Option<StageTimes>,
    read: BytesRead,
}

impl Fetch {
    /// Adds up stage times from now on. That reads the clock three times per sample, a noticeable cost for small
    /// images.
    pub fn timed(self) -> Self {
        Self { times: Some(StageTimes::default()), ..self }
    }

    /// Uses only these decoders from now on. Other samples are an error ([`FetchError::OtherDecoder`]).
    pub fn with_decoders(self, decoders: Decoders) -> Self {
        Self { decoders: Some(decoders), ..self }
    }

    /// Returns the stage times since the last call. They are zero unless the fetch is [`timed`](Self::timed).
    pub fn take_times(&mut self) -> StageTimes {
        self.times.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Returns the bytes that were read since the last call. Samples that lie in memory are not read.
    pub fn take_read(&mut self) -> BytesRead {
        std::mem::take(&mut self.read)
    }

    /// Discards what a panic has interrupted.
    pub fn forget(&mut self) {
        let Self { decoders, read, .. } = *self;
        *self = Self { times: self.times.take(), decoders, read, ..Self::default() };
    }

    /// Prepares a sample into `out`: rows of RGB, 8 bits. After an error the contents of `out` are undefined.
    ///
    /// # Panics
    ///
    /// If `out` is not as long as the pipeline's output.
    pub fn prepare(
        &mut self,
        (dataset, index): (&dyn Dataset, u64),
        preparer: &mut Preparer,
        (pipeline, draw): (&CompiledPipeline, Draw),
        out: &mut [u8],
    ) -> Result<Prepared, FetchError> {
        let Self { bytes, notes, plan, decoders, times, read } = self;
        let mut watch = Watch::start(times.as_mut());
        let mut plan = SamplePlan::crop(pipeline, draw, plan);
        let limits = preparer.limits();
        let mut render = |source: Source<'_>, plan: &mut SamplePlan<'_>| {
            check_decoder(&source, *decoders)?;
            Ok(preparer.render(source, plan, out)?)
        };
        let rendered = match dataset.in_memory(index) {
            Some(source) => {
                watch.has_read();
                render(source, &mut plan)
            }
            None => {
                let stored = StoredAt { dataset, index };
                stored.render((bytes, notes, read), limits, &mut plan, &mut watch, render)
            }
        };
        watch.has_prepared();
        if self.bytes.capacity() > KEPT_BYTES {
            self.bytes = Vec::new();
        }
        match rendered? {
            Rendered::Done(prepared) => Ok(prepared),
            Rendered::NeedsFile => {
                let message = "a part of the image is damaged, and there is no whole file".to_owned();
                Err(PixelError::Malformed { message }.into())
            }
        }
    }
}

/// Checks that a sample's decoder may be used. Says nothing about a file whose format is unknown.
fn check_decoder(source: &Source<'_>, decoders: Option<Decoders>) -> Result<(), FetchError> {
    match (decoders, Decoder::of(source)) {
        (Some(decoders), Ok(decoder)) if !decoders.contains(decoder) => Err(FetchError::OtherDecoder(decoder)),
        _ => Ok(()),
    }
}

/// A sample of a dataset.
struct StoredAt<'d, D: Dataset + ?Sized> {
    dataset: &'d D,
    index: u64,
}

impl<D: Dataset + ?Sized> StoredAt<'_, D> {
    /// Reads what the plan names and hands it to `render`; reads the whole file if these bytes are not enough.
    fn render(
        &self,
        (bytes, notes, read): (&mut Vec<u8>, &mut FormNotes, &mut BytesRead),
        limits: Limits,
        plan: &mut SamplePlan<'_>,
        watch: &mut Watch<'_>,
        mut render: impl FnMut(Source<'_>, &mut SamplePlan<'_>) -> Result<Rendered, FetchError>,
    ) -> Result<Rendered, FetchError> {
        let header = self.dataset.header(self.index)?;
        let form = header.form;
        if form.is_decoded() {
            limits.check_pixels(header.size.0, header.size.1)?;
        }
        let mut reads = form.reads(&header, plan)?;
        if form.is_decoded() {
            limits.check_memory(reads.bytes())?;
        }
        // Pixels take more memory than a file. The memory of a large crop is freed before the turn ends.
        let turn = if form.is_decoded() { large_turn(reads.bytes()) } else { None };
        let mut fetched = Fetched { bytes, filled: 0, read };
        let is_complete = loop {
            fetched.append(self, &header, &reads)?;
            match form.next(&header, fetched.bytes(), plan, notes) {
                Ok(Next::Render) => break true,
                Ok(Next::Read(more)) => reads = more,
                Ok(Next::ReadFile) => break false,
                Err(Unusable::Damage(damage)) => return Err(self.damaged(&header, damage).into()),
                Err(Unusable::Pixels(error)) => return Err(error.into()),
            }
        };
        if is_complete {
            watch.has_read();
            let rendered = render(form.source(&header, fetched.bytes(), plan, notes)?, plan);
            if turn.is_some() {
                *fetched.bytes = Vec::new();
            }
            match rendered? {
                Rendered::NeedsFile if form.is_file() => {}
                rendered => return Ok(rendered),
            }
            watch.has_prepared();
        }
        let file = fetched.into_file(self, &header)?;
        watch.has_read();
        render(Source::Encoded(file), plan)
    }

    /// Turns damage of a sample into the sample's error.
    #[cold]
    fn damaged(&self, header: &Header, damage: Damage) -> ReadError {
        let &Self { dataset, index } = self;
        if let Err(unavailable) = dataset.check_damage() {
            return unavailable.into();
        }
        let (name, location) = (dataset.name(index), dataset.location(index));
        match damage {
            Damage::Bytes { stored, computed } => Corrupt::Checksum { name, location, stored, computed }.into(),
            Damage::Detail { computed } => {
                let (offset, length) = (header.detail.start, header.detail_bytes() as u64);
                let location = Location { offset, length, ..location };
                Corrupt::Checksum { name, location, stored: header.detail_crc32c, computed }.into()
            }
        }
    }
}

/// Bytes of a sample that have been read, one range after the other.
struct Fetched<'f, 'r> {
    bytes: &'f mut Vec<u8>,
    filled: usize,
    read: &'r mut BytesRead,
}

impl<'f> Fetched<'f, '_> {
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }

    /// Reads more bytes.
    fn append(
        &mut self,
        sample: &StoredAt<'_, impl Dataset + ?Sized>,
        header: &Header,
        reads: &Reads,
    ) -> Result<(), ReadError> {
        let &StoredAt { dataset, index } = sample;
        let end = usize::try_from(reads.bytes()).unwrap_or(usize::MAX).saturating_add(self.filled);
        // Never shortened: each byte of the memory is zeroed once.
        if self.bytes.len() < end
            && let Err(error) = resize(self.bytes, end)
        {
            let (name, location, problem) = (dataset.name(index), dataset.location(index), error.to_string());
            return Err(Unavailable::NoMemory { name, location, problem }.into());
        }
        for range in reads.ranges() {
            let end = self.filled + (range.end - range.start) as usize;
            dataset.read(index, header, range.start, &mut self.bytes[self.filled..end])?;
            self.read.add(&range);
            self.filled = end;
        }
        if reads.bytes() == 0 && header.crc32c.is_none() {
            // An empty file may have been filled or removed since. Without a checksum, only a read finds that out.
            dataset.read(index, header, header.bytes.start, &mut [])?;
        }
        Ok(())
    }

    /// Reads and checks a whole file, in place of all other bytes.
    fn into_file(
        mut self,
        sample: &StoredAt<'_, impl Dataset + ?Sized>,
        header: &Header,
    ) -> Result<&'f [u8], ReadError> {
        self.filled = 0;
        self.append(sample, header, &Reads::one(header.bytes.clone()))?;
        check_bytes(header, self.bytes()).map_err(|damage| sample.damaged(header, damage))?;
        Ok(&self.bytes[..self.filled])
    }
}

/// The notes of a form that needs none.
static NO_NOTES: FormNotes = FormNotes::NONE;

/// Reads and checks the bytes of a sample, but not its detail.
pub(crate) fn file<'b>(
    dataset: &(impl Dataset + ?Sized),
    index: u64,
    header: &Header,
    bytes: &'b mut Vec<u8>,
) -> Result<&'b [u8], ReadError> {
    Fetched { bytes, filled: 0, read: &mut BytesRead::default() }.into_file(&StoredAt { dataset, index }, header)
}

/// Reads all of a sample, for [`Dataset::sample`].
pub(crate) fn whole<'b>(
    dataset: &'b (impl Dataset + ?Sized),
    index: u64,
    bytes: &'b mut Vec<u8>,
) -> Result<Source<'b>, ReadError> {
    if let Some(source) = dataset.in_memory(index) {
        return Ok(source);
    }
    let header = dataset.header(index)?;
    if header.form.is_file() {
        return file(dataset, index, &header, bytes).map(Source::Encoded);
    }
    let sample = StoredAt { dataset, index };
    let mut fetched = Fetched { bytes, filled: 0, read: &mut BytesRead::default() };
    let mut memory = PlanMemory::default();
    let plan = &mut SamplePlan::whole(&mut memory);
    let reads = header.form.reads(&header, plan).expect("no pipeline refuses a whole sample");
    fetched.append(&sample, &header, &reads)?;
    match header.form.next(&header, fetched.bytes(), plan, &mut FormNotes::default()) {
        Err(Unusable::Damage(damage)) => return Err(sample.damaged(&header, damage)),
        next => assert_eq!(next, Ok(Next::Render), "a sample that is no file is read at once"),
    }
    let read = &fetched.bytes[..fetched.filled];
    Ok(header.form.source(&header, read, plan, &NO_NOTES).expect("no pipeline refuses a whole sample"))
}

/// Measures the stages, if the caller wants their times.
struct Watch<'t>(Option<(&'t mut StageTimes, Instant)>);

impl<'t> Watch<'t> {
    fn start(times: Option<&'t mut StageTimes>) -> Self {
        Self(times.map(|times| (times, Instant::now())))
    }

    fn has_read(&mut self) {
        self.lap(|times| &mut times.read);
    }

    fn has_prepared(&mut self) {
        self.lap(|times| &mut times.prepare);
    }

    fn lap(&mut self, of: impl FnOnce(&mut StageTimes) -> &mut Duration) {
        if let Some((times, since)) = &mut self.0 {
            let now = Instant::now();
            *of(times) += now - *since;
            *since = now;
        }
    }
}
