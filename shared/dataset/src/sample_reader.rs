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
//! renders ([`SampleReader::fetch`], several samples at a time, and [`SampleReader::render`]). These two give up in
//! rare cases, such as damage: the caller then calls [`SampleReader::prepare`].

mod ahead;
mod bytes;
mod round;
mod stored;
mod times;

pub use ahead::{FetchedSample, SampleToFetch};
pub use bytes::BytesRead;
pub use round::ExtentRead;
pub use stored::StoredAt;
pub(crate) use stored::{file, whole};
pub use times::StageTimes;

use crate::forms::FormNotes;
use crate::rereading::Rereading;
use crate::{Dataset, Decoder, Decoders, ReadError, Reads};
use bytes::SampleBytes;
use ddlp_pixels::{CompiledPipeline, Draw, PixelError, PlanMemory, Prepared, Preparer, Rendered, SamplePlan, Source};
use round::Round;
use stored::Reading;
use times::Watch;

/// Largest read buffer to keep; a larger one is freed after its sample.
const KEPT_BYTES: usize = 1 << 20;

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
    #[error("{0} is not among the decoders that this run allows")]
    OtherDecoder(Decoder),
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
    reads: Reads,
    plan: PlanMemory,
    /// For samples that are fetched together.
    round: Round,
    /// Decoders that may be used, if not all may.
    decoders: Option<Decoders>,
    /// Sums of the stage times, if the caller wants them.
    times: Option<StageTimes>,
    read: BytesRead,
    /// Samples that arrived damaged over a network and were intact when they were read again.
    healed: u64,
    /// The damaged read of the fetched sample that was rendered last, if that failed.
    rereading: Rereading,
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

    /// Returns the number of samples since the last call that arrived damaged over a network and were intact when they
    /// were read again.
    pub fn take_healed(&mut self) -> u64 {
        std::mem::take(&mut self.healed)
    }

    /// Discards what a panic has interrupted.
    pub fn forget(&mut self) {
        let Self { decoders, read, healed, .. } = *self;
        *self = Self { times: self.times.take(), decoders, read, healed, ..Self::default() };
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
        let rereading = std::mem::take(&mut self.rereading);
        let Self { bytes, notes, reads, plan, decoders, times, read, healed, .. } = self;
        let mut watch = Watch::start(times.as_mut());
        let mut plan = SamplePlan::crop(drawn.pipeline, drawn.draw, plan);
        let limits = preparer.limits();
        let mut render = |source: &Source<'_>, plan: &mut SamplePlan<'_>| {
            check_decoder(source, *decoders)?;
            Ok(preparer.render(source, plan, out)?)
        };
        let rendered = match sample.dataset.in_memory(sample.index) {
            Some(source) => {
                watch.has_read();
                render(&source, &mut plan)
            }
            None => {
                let reading = Reading { bytes: SampleBytes::with_room(bytes), notes, reads, read, rereading, healed };
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
                let message = "the stored bytes are damaged, and this form has no file to decode instead".to_owned();
                Err(PixelError::Malformed { message }.into())
            }
        }
    }

    /// Renders a fetched sample into `out`. Returns `None` if that fails for any reason: [`prepare`](Self::prepare),
    /// called next, finds out why, or makes the pixels from the whole file. `drawn` is that of the fetch.
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
        let rendered = self.render_fetched(fetched, preparer, drawn, out);
        self.rereading = match rendered {
            Some(_) => Rereading::default(),
            None => fetched.came().map(Rereading::after).unwrap_or_default(),
        };
        rendered
    }

    fn render_fetched(
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
        let rendered = preparer.render(&source, &mut plan, out);
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

#[cfg(test)]
mod simulation;
