//! The way from a sample's place to its pixels: plan, fetch, render.
//!
//! 1. **Plan**: the sample's form names bytes to read, from the sample's [`Header`](crate::Header) and the
//!    [`SamplePlan`] of pipeline and draw. That reads nothing.
//! 2. **Fetch**: the source reads these bytes, in any order.
//! 3. **Render**: the form checks the bytes and opens them as a [`Source`], from which the [`Preparer`] makes the
//!    pixels by the same plan.
//!
//! A form may ask for more bytes once it has seen the first ones. Form or preparer may also ask for the whole file: if
//! a part of the file is damaged, or cannot be decoded alone. Damage that came over a network is read again first. The
//! state machine `fetch` decides all that, without I/O.
//!
//! One thread may drive the machine from the sample's place to its pixels ([`SampleReader::prepare`]). Or one thread
//! drives the machines of several samples as far as it can without waiting ([`SampleReader::fetch`]), and another
//! thread does the rest.

mod ahead;
mod bytes;
mod fetch;
mod headers;
mod round;
mod stored;
mod times;

pub use ahead::{FetchedSample, SampleToFetch};
pub use bytes::BytesRead;
pub use round::ExtentRead;
pub use stored::StoredAt;
pub(crate) use stored::{file, whole};
pub use times::StageTimes;

use crate::forms::Unusable;
use crate::{Dataset, Decoder, Decoders, ReadError};
use ddlp_pixels::{
    CompiledPipeline, Draw, Fidelity, PixelError, PlanMemory, Prepared, Preparer, Rendered, SamplePlan, Source,
};
use fetch::Step;
use round::Round;
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

/// A pipeline, and the draw and the fidelity for one sample.
#[derive(Clone, Copy, Debug)]
pub struct Drawn<'p> {
    /// The pipeline.
    pub pipeline: &'p CompiledPipeline,
    /// The draw.
    pub draw: Draw,
    /// The fidelity.
    pub fidelity: Fidelity,
}

/// One worker's memory for planning and reading, reused from sample to sample.
#[derive(Default)]
pub struct SampleReader {
    /// For samples that were not fetched.
    own: FetchedSample,
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

    /// Prepares a sample into `out`: rows of RGB, 8 bits. Begins where [`fetch`](Self::fetch) has left it, by the same
    /// draw and fidelity, if the sample was `fetched`, and clears it. After an error the contents of `out` are
    /// undefined.
    ///
    /// # Panics
    ///
    /// If `out` is not as long as the pipeline's output.
    pub fn prepare(
        &mut self,
        stored: StoredAt<'_, dyn Dataset + '_>,
        fetched: Option<&mut FetchedSample>,
        preparer: &mut Preparer,
        drawn: Drawn<'_>,
        out: &mut [u8],
    ) -> Result<Prepared, SampleError> {
        let Self { own, plan, decoders, times, read, healed, .. } = self;
        let sample = fetched.unwrap_or(own);
        let plan = &mut SamplePlan::crop(drawn.pipeline, drawn.draw, plan).with_fidelity(drawn.fidelity);
        let mut watch = Watch::start(times.as_mut());
        let (decoders, limits, mut turn) = (*decoders, preparer.limits(), None);
        if sample.fetch.step() == Step::Begin
            && let Some(source) = stored.dataset.in_memory(stored.index)
        {
            watch.has_read();
            let rendered = render(&source, decoders, preparer, plan, out);
            watch.has_prepared();
            return match rendered {
                Ok(Rendered::Done(prepared)) => Ok(prepared),
                Ok(Rendered::NeedsFile) => Err(stored.failed(Unusable::NeedsFile)),
                Err(problem) => Err(stored.failed(problem)),
            };
        }
        let prepared = loop {
            if let Err(error) = stored.fetch(sample, Some(limits), plan, read, &mut turn) {
                break Err(error);
            }
            if let Step::Done(prepared) = sample.fetch.step() {
                *healed += u64::from(sample.fetch.is_healed(sample.memory.sample()));
                break Ok(prepared);
            }
            watch.has_read();
            let rendered = match sample.source(plan) {
                Ok(source) => render(&source, decoders, preparer, plan, out),
                Err(error) => Err(error.into()),
            };
            watch.has_prepared();
            sample.fetch.rendered(rendered);
        };
        // The memory of a large image is freed before its turn ends.
        sample.clear();
        drop(turn);
        prepared
    }
}

/// Renders a sample, if its decoder may be used.
fn render(
    source: &Source<'_>,
    decoders: Option<Decoders>,
    preparer: &mut Preparer,
    plan: &mut SamplePlan<'_>,
    out: &mut [u8],
) -> Result<Rendered, Unusable> {
    match (decoders, Decoder::of(source)) {
        // Of a file whose format is unknown, the preparer says more.
        (Some(decoders), Ok(decoder)) if !decoders.contains(decoder) => Err(Unusable::OtherDecoder(decoder)),
        _ => Ok(preparer.render(source, plan, out)?),
    }
}

#[cfg(test)]
mod simulation;
