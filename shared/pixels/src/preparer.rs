//! Prepares samples for one worker: a sample's bytes in, pixels out.

mod jpeg_decoders;

use crate::compiled::CompiledPipeline;
use crate::draw::Draw;
use crate::error::PixelError;
use crate::form_image::FormRows;
use crate::function::Functions;
use crate::indexing::{self, IndexedJpeg, IndexedRows, NotIndexed};
use crate::info::{Format, ImageInfo};
use crate::inspect::{self, Verdict};
use crate::jpeg;
use crate::level::Level;
use crate::limits::Limits;
use crate::orient::Upright;
use crate::orientation;
use crate::partial::PartialJpeg;
use crate::passes::Passes;
use crate::pieces::{self, NotCut, Pieces, ScanGroups};
use crate::pipeline::Pipeline;
use crate::plan::{PlanMemory, SamplePlan};
use crate::planar::Planes;
use crate::raster;
use crate::rendered::{Prepared, Rendered};
use crate::rows::{ImageRows, Interleaved};
use crate::source::Source;
use jpeg_decoders::JpegDecoders;
use std::mem;

/// Result of [`Preparer::decode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Width in columns.
    pub width: u32,
    /// Height in rows.
    pub height: u32,
    /// EXIF orientation of the pixels, 1 to 8; 1 is upright.
    pub orientation: u8,
    /// Whether the image was larger before.
    pub was_shrunk: bool,
}

/// Decodes and augments samples, one at a time. Reuses its scratch memory, so each worker should keep its preparer.
pub struct Preparer {
    limits: Limits,
    level: Level,
    jpeg: JpegDecoders,
    scratch: PreparerScratch,
    /// Memory for the plans of [`Preparer::prepare`].
    plan: PlanMemory,
}

/// Buffers that are reused from sample to sample.
#[derive(Default)]
struct PreparerScratch {
    /// Band of decoded rows.
    band: Vec<u8>,
    /// Image of a format other than JPEG: as RGB, and as its decoder made it.
    whole: Vec<u8>,
    native: Vec<u8>,
    /// Image turned upright.
    upright: Vec<u8>,
    passes: Passes,
}

/// Size above which scratch memory is freed after the sample that needed it.
const KEPT_SCRATCH_BYTES: usize = 2 << 20;

impl Preparer {
    /// Makes a preparer with these limits.
    pub fn new(limits: Limits) -> Self {
        let level = Level::best();
        Self {
            limits,
            level,
            jpeg: JpegDecoders::new(level),
            scratch: PreparerScratch::default(),
            plan: PlanMemory::default(),
        }
    }

    /// Returns a preparer that calls these functions.
    pub fn with_functions(mut self, functions: Functions) -> Self {
        self.scratch.passes = Passes::calling(functions);
        self
    }

    /// Makes a preparer that leaves every JPEG to libjpeg, for comparisons.
    pub(crate) fn by_libjpeg(limits: Limits) -> Self {
        let mut preparer = Self::new(limits);
        preparer.jpeg.baseline = None;
        preparer
    }

    /// Returns the limits of the preparer.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Decodes and augments one sample into `out`: rows of RGB, 8 bits. The source has all bytes that a plan of the
    /// pipeline and the draw names.
    ///
    /// The pixels depend only on the source, the pipeline and the draw. After an error the contents of `out` are
    /// undefined. Compiles the pipeline each time; [`render`](Self::render) does not. If a [`Source::Rows`] cannot be
    /// decoded without the rest of its file, that is an error here; `render` distinguishes this case.
    ///
    /// # Panics
    ///
    /// If `out` is not as long as the pipeline's output, or if the pipeline is invalid.
    pub fn prepare(
        &mut self,
        source: Source<'_>,
        pipeline: &Pipeline,
        draw: Draw,
        out: &mut [u8],
    ) -> Result<Prepared, PixelError> {
        let pipeline = CompiledPipeline::of(pipeline).expect("a pipeline from outside is validated before its use");
        let mut memory = mem::take(&mut self.plan);
        let rendered = self.render(&source, &mut SamplePlan::crop(&pipeline, draw, &mut memory), out);
        self.plan = memory;
        match rendered? {
            Rendered::Done(prepared) => Ok(prepared),
            Rendered::NeedsFile => Err(PixelError::Malformed { source: "a part of the JPEG is damaged".into() }),
        }
    }

    /// Decodes and augments a sample, as [`prepare`](Self::prepare) does. The source has the bytes that `plan` names.
    /// The plan must be one for a crop ([`SamplePlan::crop`]).
    ///
    /// If the result is [`Rendered::NeedsFile`], render the whole file. The contents of `out` are undefined then.
    ///
    /// # Panics
    ///
    /// If `out` is not as long as the pipeline's output.
    pub fn render(
        &mut self,
        source: &Source<'_>,
        plan: &mut SamplePlan<'_>,
        out: &mut [u8],
    ) -> Result<Rendered, PixelError> {
        if let Source::Rows(part) = source {
            let rendered = self.render_part(*part, plan, out);
            self.trim();
            return rendered;
        }
        let (limits, turns) = (self.limits, plan.turns());
        let run = |rows: &mut dyn ImageRows, passes: &mut Passes| {
            let plan = plan.passes(rows.size())?;
            passes.run(rows, plan, limits, out)
        };
        self.with_rows(source, turns, run).map(Rendered::Done)
    }

    fn render_part(
        &mut self,
        part: PartialJpeg<'_>,
        plan: &mut SamplePlan<'_>,
        out: &mut [u8],
    ) -> Result<Rendered, PixelError> {
        let Self { limits, jpeg, scratch: PreparerScratch { band, upright, passes, .. }, .. } = self;
        let size = part.index.size();
        limits.check_pixels(size.0, size.1)?;
        let rows = plan.rows_of_jpeg(part.index)?;
        let opened = match &mut jpeg.baseline {
            Some(decoder) => part.open(rows, decoder, band),
            None => None,
        };
        let Some(mut rows) = opened else { return Ok(Rendered::NeedsFile) };
        let outcome = match plan.orientation(part.index.orientation()) {
            1 => passes.run(&mut rows, plan.passes(size)?, *limits, out),
            orientation => {
                let mut seen = Upright::new(&mut rows, orientation, upright, *limits);
                let size = seen.size();
                passes.run(&mut seen, plan.passes(size)?, *limits, out)
            }
        };
        if rows.gave_up() {
            return Ok(Rendered::NeedsFile);
        }
        outcome.map(|()| Rendered::Done(Prepared::default()))
    }

    /// Opens a sample and hands its pixels to `run`, turned upright if `upright` is set. May call `run` twice for a
    /// JPEG: if our decoder gives the file up midway, libjpeg starts again, and the result of the first call is
    /// meaningless.
    fn with_rows(
        &mut self,
        source: &Source<'_>,
        upright: bool,
        run: impl FnMut(&mut dyn ImageRows, &mut Passes) -> Result<(), PixelError>,
    ) -> Result<Prepared, PixelError> {
        let outcome = self.open(source, if upright { source.orientation() } else { 1 }, run);
        self.trim();
        outcome
    }

    fn open(
        &mut self,
        source: &Source<'_>,
        orientation: u8,
        mut run: impl FnMut(&mut dyn ImageRows, &mut Passes) -> Result<(), PixelError>,
    ) -> Result<Prepared, PixelError> {
        let Self { limits, level, jpeg, scratch, .. } = self;
        let PreparerScratch { band, whole, native, upright, passes } = scratch;
        let limits = *limits;
        let mut run = |rows: &mut dyn ImageRows| match orientation {
            1 => run(rows, passes),
            _ => run(&mut Upright::new(rows, orientation, upright, limits), passes),
        };
        match *source {
            Source::Planar { width, height, bytes } => {
                limits.check_pixels(width, height)?;
                run(&mut Planes::new((width, height), bytes, band, *level)?)?;
            }
            Source::Image(image) => run(&mut FormRows::new(image, limits, band)?)?,
            Source::Rows(_) => {
                return Err(PixelError::Unsupported { message: "not all rows of the JPEG were read".into() });
            }
            Source::Indexed { file, checkpoints } => {
                let are_good = jpeg.read_checkpoints(file, checkpoints, limits);
                return jpeg.decode(file, are_good, limits, band, &mut run);
            }
            Source::Pieces { file, .. } => return jpeg.decode(file, false, limits, band, &mut run),
            Source::Encoded(file) => match Format::of(file)? {
                Format::Jpeg => return jpeg.decode(file, false, limits, band, &mut run),
                format => {
                    let decoded = raster::decode(file, format, limits, native, whole)?;
                    run(&mut Interleaved { width: decoded.width, height: decoded.height, pixels: whole })?;
                }
            },
        }
        Ok(Prepared::default())
    }

    /// Frees scratch memory that is too large to keep.
    fn trim(&mut self) {
        self.scratch.trim();
        self.jpeg.trim(KEPT_SCRATCH_BYTES);
    }

    /// Decodes a whole sample and appends its pixels to `out`: rows of RGB, 8 bits, in the stored orientation. If a
    /// side is longer than `max_side` pixels, shrinks the image until its longer side has that length. An error leaves
    /// `out` unchanged.
    pub fn decode(
        &mut self,
        source: Source<'_>,
        max_side: Option<u32>,
        out: &mut Vec<u8>,
    ) -> Result<Decoded, PixelError> {
        let (start, limits) = (out.len(), self.limits);
        let (mut size, mut stored) = ((0, 0), (0, 0));
        let outcome = self.with_rows(&source, false, |rows, passes| {
            stored = rows.size();
            size = size_within(stored, max_side);
            let bytes = u64::from(size.0) * u64::from(size.1) * 3;
            limits.check_memory(bytes)?;
            out.truncate(start);
            limits.reserve_more(out, bytes as usize)?;
            out.resize(start + bytes as usize, 0);
            passes.whole(rows, size, limits, &mut out[start..])
        });
        if let Err(error) = outcome {
            out.truncate(start);
            return Err(error);
        }
        let was_shrunk = size != stored || matches!(source, Source::Image(image) if image.was_shrunk);
        Ok(Decoded { width: size.0, height: size.1, orientation: source.orientation(), was_shrunk })
    }

    /// Makes checkpoints for a JPEG, or returns the reason why it cannot have them. The file has to be intact: see
    /// [`inspect`](Self::inspect).
    pub fn index(&mut self, file: &[u8]) -> Result<IndexedJpeg, NotIndexed> {
        let JpegDecoders { baseline: Some(baseline), libjpeg, .. } = &mut self.jpeg else {
            return Err(NotIndexed::Unusual);
        };
        let indexed = indexing::index(libjpeg, baseline, file, self.limits);
        self.trim();
        indexed
    }

    /// Makes a row index for a JPEG, or returns the reason why it cannot have one. The file has to be intact: see
    /// [`inspect`](Self::inspect).
    pub fn index_rows(&mut self, file: &[u8]) -> Result<IndexedRows, NotIndexed> {
        let JpegDecoders { baseline: Some(baseline), libjpeg, .. } = &mut self.jpeg else {
            return Err(NotIndexed::Unusual);
        };
        let indexed = indexing::index_rows(libjpeg, baseline, &mut self.scratch.band, file, self.limits);
        self.trim();
        indexed
    }

    /// Cuts a JPEG into the pieces of scan groups, or returns the reason why it cannot be cut. A file that is not
    /// progressive is rewritten from its coefficients. Cuts only files that decode without a warning.
    pub fn cut(&mut self, file: &[u8], groups: &ScanGroups) -> Result<Pieces, NotCut> {
        pieces::cut(&mut self.jpeg.libjpeg, file, groups, self.limits)
    }

    /// Reads a file's header.
    pub fn info(&mut self, encoded: &[u8]) -> Result<ImageInfo, PixelError> {
        match Format::of(encoded)? {
            Format::Jpeg => {
                let opened = self.jpeg.libjpeg.open(encoded, self.limits, false)?;
                Ok(jpeg::info(&opened, orientation::of(encoded)))
            }
            format => {
                let info = raster::info(encoded, format, self.limits)?;
                Ok(ImageInfo { orientation: orientation::of(encoded), ..info })
            }
        }
    }

    /// Decodes a whole file and judges whether every machine decodes it to the same pixels.
    pub fn inspect(&mut self, encoded: &[u8]) -> Verdict {
        let verdict = match Format::of(encoded) {
            Err(error) => Verdict::of(&error),
            Ok(Format::Jpeg) => inspect::jpeg(&mut self.jpeg.libjpeg, encoded, self.limits),
            Ok(format) => {
                let PreparerScratch { whole, native, .. } = &mut self.scratch;
                match raster::decode(encoded, format, self.limits, native, whole) {
                    Ok(_) => Verdict::Intact,
                    Err(error) => Verdict::of(&error),
                }
            }
        };
        self.scratch.trim();
        verdict
    }
}

/// Returns the size of an image whose longer side may have at most `max_side` pixels; rounds the other side.
fn size_within((width, height): (u32, u32), max_side: Option<u32>) -> (u32, u32) {
    let long = width.max(height);
    match max_side {
        Some(most) if most < long => {
            let (most, long) = (u64::from(most), u64::from(long));
            let shrunk = |side: u32| ((2 * u64::from(side) * most + long) / (2 * long)).max(1) as u32;
            (shrunk(width), shrunk(height))
        }
        _ => (width, height),
    }
}

impl PreparerScratch {
    fn trim(&mut self) {
        for buffer in [&mut self.band, &mut self.whole, &mut self.native, &mut self.upright] {
            if buffer.capacity() > KEPT_SCRATCH_BYTES {
                *buffer = Vec::new();
            }
        }
        self.passes.trim(KEPT_SCRATCH_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::size_within;

    #[test]
    fn the_longer_side_gets_the_length_asked_for() {
        let cases = [
            ((1000, 750), Some(500), (500, 375)),
            ((750, 1000), Some(500), (375, 500)),
            ((1001, 3), Some(500), (500, 1)),
            ((5000, 1), Some(500), (500, 1)),
            ((700, 501), Some(500), (500, 358)),
            ((500, 500), Some(500), (500, 500)),
            ((499, 20), Some(500), (499, 20)),
            ((4_000_000_000, 3_000_000_000), Some(4), (4, 3)),
            ((4000, 3000), None, (4000, 3000)),
        ];
        for (size, max_side, expected) in cases {
            assert_eq!(size_within(size, max_side), expected, "{size:?} within {max_side:?}");
        }
    }
}
