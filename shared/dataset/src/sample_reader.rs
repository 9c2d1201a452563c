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
//!
//! One thread may do all of that for a sample ([`SampleReader::prepare`]), or one thread fetches and another one
//! renders ([`SampleReader::fetch`], several samples at a time, and [`SampleReader::render`]). These two give up in rare
//! cases, such as damage: the caller then calls [`SampleReader::prepare`].

mod ahead;
mod bytes;

pub use ahead::{ExtentRead, FetchedSample, SampleToFetch};
pub use bytes::BytesRead;

use crate::forms::{Damage, FormNotes, Next, Unusable, check_bytes};
use crate::header::{Header, Reads};
use crate::{Corrupt, Dataset, Location, ReadError};
use bytes::SampleBytes;
use ddlp_pixels::{
    CompiledPipeline, Decoder, Decoders, Draw, Limits, PixelError, PlanMemory, Prepared, Preparer, Rendered,
    SamplePlan, Source, large_turn,
};
use std::fmt;
use std::time::{Duration, Instant};

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

/// Reason why a sample has no pixels.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    /// The sample cannot be read, or its bytes are damaged.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The sample cannot be decoded, or the pipeline cannot take it.
    #[error(transparent)]
    Pixels(#[from] PixelError),
    /// The sample needs another decoder than those that the [`SampleReader`] may use.
    #[error("the decoder of {0} is not to be used")]
    OtherDecoder(Decoder),
}

/// A sample of a dataset.
pub struct StoredAt<'d, D: Dataset + ?Sized> {
    /// The dataset.
    pub dataset: &'d D,
    /// Index of the sample.
    pub index: u64,
}

impl<D: Dataset + ?Sized> Clone for StoredAt<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: Dataset + ?Sized> Copy for StoredAt<'_, D> {}

impl<D: Dataset + ?Sized> fmt::Debug for StoredAt<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredAt").field("index", &self.index).finish_non_exhaustive()
    }
}

/// A pipeline, and the draw for one sample.
#[derive(Clone, Copy, Debug)]
pub struct Drawn<'p> {
    /// The pipeline.
    pub pipeline: &'p CompiledPipeline,
    /// The draw.
    pub draw: Draw,
}

/// One worker's memory for planning and reading, reused from sample to sample.
#[derive(Default)]
pub struct SampleReader {
    bytes: Vec<u8>,
    notes: FormNotes,
    plan: PlanMemory,
    /// Decoders that may be used, if not all may.
    decoders: Option<Decoders>,
    /// Sums of the stage times, if the caller wants them.
    times: Option<StageTimes>,
    read: BytesRead,
}

impl SampleReader {
    /// Adds up stage times from now on. That reads the clock three times per sample, a noticeable cost for small
    /// images.
    pub fn timed(self) -> Self {
        Self { times: Some(StageTimes::default()), ..self }
    }

    /// Uses only these decoders from now on. Other samples are an error ([`SampleError::OtherDecoder`]).
    pub fn with_decoders(self, decoders: Decoders) -> Self {
        Self { decoders: Some(decoders), ..self }
    }

    /// Returns the stage times since the last call. They are zero unless the reader is [`timed`](Self::timed).
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
        sample: StoredAt<'_, dyn Dataset + '_>,
        preparer: &mut Preparer,
        drawn: Drawn<'_>,
        out: &mut [u8],
    ) -> Result<Prepared, SampleError> {
        let Self { bytes, notes, plan, decoders, times, read } = self;
        let mut watch = Watch::start(times.as_mut());
        let mut plan = SamplePlan::crop(drawn.pipeline, drawn.draw, plan);
        let limits = preparer.limits();
        let mut render = |source: Source<'_>, plan: &mut SamplePlan<'_>| {
            check_decoder(&source, *decoders)?;
            Ok(preparer.render(source, plan, out)?)
        };
        let rendered = match sample.dataset.in_memory(sample.index) {
            Some(source) => {
                watch.has_read();
                render(source, &mut plan)
            }
            None => {
                let reading = Reading { bytes: SampleBytes::with_room(bytes), notes, read };
                sample.render(reading, limits, &mut plan, &mut watch, render)
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

    /// Renders a fetched sample into `out`. Returns `None` if that fails for any reason: [`prepare`](Self::prepare)
    /// finds out why, or makes the pixels from the whole file. `sample` and `drawn` are those that were fetched.
    ///
    /// # Panics
    ///
    /// If `out` is not as long as the pipeline's output.
    pub fn render(
        &mut self,
        fetched: &FetchedSample,
        preparer: &mut Preparer,
        drawn: Drawn<'_>,
        out: &mut [u8],
    ) -> Option<Prepared> {
        let mut watch = Watch::start(self.times.as_mut());
        let mut plan = SamplePlan::crop(drawn.pipeline, drawn.draw, &mut self.plan);
        let source = fetched.source(&mut plan)?;
        check_decoder(&source, self.decoders).ok()?;
        let rendered = preparer.render(source, &mut plan, out);
        watch.has_prepared();
        match rendered {
            Ok(Rendered::Done(prepared)) => Some(prepared),
            Ok(Rendered::NeedsFile) | Err(_) => None,
        }
    }
}

/// Checks that a sample's decoder may be used. Says nothing about a file whose format is unknown.
fn check_decoder(source: &Source<'_>, decoders: Option<Decoders>) -> Result<(), SampleError> {
    match (decoders, Decoder::of(source)) {
        (Some(decoders), Ok(decoder)) if !decoders.contains(decoder) => Err(SampleError::OtherDecoder(decoder)),
        _ => Ok(()),
    }
}

/// What is being read of a sample.
struct Reading<'r> {
    bytes: SampleBytes<'r>,
    notes: &'r mut FormNotes,
    read: &'r mut BytesRead,
}

impl<D: Dataset + ?Sized> StoredAt<'_, D> {
    /// Returns the sample's header.
    fn header(&self, read: &mut BytesRead) -> Result<Header, ReadError> {
        read.add(&self.dataset.header_extent(self.index));
        self.dataset.header(self.index)
    }

    /// Reads all that the plan needs, beginning with `reads`, and checks it. Returns false if the whole file is needed
    /// instead.
    fn read(
        &self,
        header: &Header,
        mut reads: Reads,
        plan: &mut SamplePlan<'_>,
        reading: &mut Reading<'_>,
    ) -> Result<bool, SampleError> {
        loop {
            reading.bytes.append(self, header, &reads, reading.read)?;
            match header.form.next(header, reading.bytes.bytes(), plan, reading.notes) {
                Ok(Next::Render) => return Ok(true),
                Ok(Next::Read(more)) => reads = more,
                Ok(Next::ReadFile) => return Ok(false),
                Err(Unusable::Damage(damage)) => return Err(self.damaged(header, damage).into()),
                Err(Unusable::Pixels(error)) => return Err(error.into()),
            }
        }
    }

    /// Reads what the plan names and hands it to `render`; reads the whole file if these bytes are not enough.
    fn render(
        &self,
        mut reading: Reading<'_>,
        limits: Limits,
        plan: &mut SamplePlan<'_>,
        watch: &mut Watch<'_>,
        mut render: impl FnMut(Source<'_>, &mut SamplePlan<'_>) -> Result<Rendered, SampleError>,
    ) -> Result<Rendered, SampleError> {
        let header = self.header(reading.read)?;
        let reads = first_reads(&header, limits, plan)?;
        let form = header.form;
        // Pixels take more memory than a file. The memory of a large crop is freed before the turn ends.
        let turn = if form.is_file() { None } else { large_turn(reads.bytes()) };
        if self.read(&header, reads, plan, &mut reading)? {
            watch.has_read();
            let rendered = render(form.source(&header, reading.bytes.bytes(), plan, reading.notes)?, plan);
            if turn.is_some() {
                reading.bytes.free();
            }
            match rendered? {
                Rendered::NeedsFile if form.is_file() => {}
                rendered => return Ok(rendered),
            }
            watch.has_prepared();
        }
        let file = self.file(&header, reading.bytes, reading.read)?;
        watch.has_read();
        render(Source::Encoded(file), plan)
    }

    /// Reads and checks a whole file, in place of all other bytes.
    fn file<'m>(
        &self,
        header: &Header,
        mut bytes: SampleBytes<'m>,
        read: &mut BytesRead,
    ) -> Result<&'m [u8], ReadError> {
        bytes.clear();
        bytes.append(self, header, &Reads::one(header.bytes.clone()), read)?;
        check_bytes(header, bytes.bytes()).map_err(|damage| self.damaged(header, damage))?;
        Ok(bytes.into_bytes())
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

/// Returns the first bytes that a plan needs of a sample.
fn first_reads(header: &Header, limits: Limits, plan: &mut SamplePlan<'_>) -> Result<Reads, PixelError> {
    // Pixels are judged by their size before they are read. The size of a file's image lies in the file.
    let is_pixels = !header.form.is_file();
    if is_pixels {
        limits.check_pixels(header.size.0, header.size.1)?;
    }
    let reads = header.form.reads(header, plan)?;
    if is_pixels {
        limits.check_memory(reads.bytes())?;
    }
    Ok(reads)
}

/// The notes of a form that needs none.
static NO_NOTES: FormNotes = FormNotes::NONE;

/// Reads and checks the bytes of a sample, but not its detail.
pub(crate) fn file<'b>(
    dataset: &(impl Dataset + ?Sized),
    index: u64,
    header: &Header,
    memory: &'b mut Vec<u8>,
) -> Result<&'b [u8], ReadError> {
    StoredAt { dataset, index }.file(header, SampleBytes::in_memory(memory), &mut BytesRead::default())
}

/// Reads all of a sample, for [`Dataset::sample`].
pub(crate) fn whole<'b>(
    dataset: &'b (impl Dataset + ?Sized),
    index: u64,
    memory: &'b mut Vec<u8>,
) -> Result<Source<'b>, ReadError> {
    if let Some(source) = dataset.in_memory(index) {
        return Ok(source);
    }
    let header = dataset.header(index)?;
    if header.form.is_file() {
        return file(dataset, index, &header, memory).map(Source::Encoded);
    }
    let sample = StoredAt { dataset, index };
    let mut bytes = SampleBytes::in_memory(memory);
    let mut memory = PlanMemory::default();
    let plan = &mut SamplePlan::whole(&mut memory);
    let reads = header.form.reads(&header, plan).expect("no pipeline refuses a whole sample");
    bytes.append(&sample, &header, &reads, &mut BytesRead::default())?;
    match header.form.next(&header, bytes.bytes(), plan, &mut FormNotes::default()) {
        Err(Unusable::Damage(damage)) => return Err(sample.damaged(&header, damage)),
        next => assert_eq!(next, Ok(Next::Render), "a sample that is no file is read at once"),
    }
    Ok(header.form.source(&header, bytes.into_bytes(), plan, &NO_NOTES).expect("no pipeline refuses a whole sample"))
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
