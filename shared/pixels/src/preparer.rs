//! One worker's decoder: a sample's bytes in, prepared pixels out.

use crate::draw::Draw;
use crate::error::PixelError;
use crate::inspect::{self, Verdict};
use crate::jpeg::baseline::{self, Checkpoints, Level};
use crate::jpeg::{self, JpegRows, exif, ffi::Object};
use crate::large;
use crate::orient::Upright;
use crate::passes::Passes;
use crate::pipeline::Pipeline;
use crate::planar::Planes;
use crate::raster;
use crate::rows::{Interleaved, Rows};
use crate::source::{Format, ImageInfo, Limits, Source};

/// What there is to say about a prepared sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prepared {
    /// Warnings of the decoder about what it read. Pixels of a stream with warnings are promised to agree only between
    /// machines of one architecture.
    pub warnings: u32,
}

/// Decodes and augments samples, one at a time. Keeps its scratch, so a worker keeps its preparer.
pub struct Preparer {
    limits: Limits,
    level: Level,
    /// For most JPEGs, and libjpeg for the others.
    baseline: Option<baseline::Decoder>,
    /// Those of the sample in work, where it has some.
    checkpoints: Checkpoints,
    jpeg: Object,
    scratch: Scratch,
}

/// Buffers that live from sample to sample.
#[derive(Default)]
struct Scratch {
    /// Decoded rows on their way.
    band: Vec<u8>,
    /// A whole image of another format, and what its decoder made.
    whole: Vec<u8>,
    raw: Vec<u8>,
    /// An image as its orientation says.
    upright: Vec<u8>,
    passes: Passes,
}

/// Scratch that is larger than this is given back after the sample that needed it.
const KEPT_SCRATCH_BYTES: usize = 2 << 20;

impl Preparer {
    /// A decoder with these limits.
    pub fn new(limits: Limits) -> Self {
        let level = Level::best();
        let baseline = Some(baseline::Decoder::new(level));
        let (checkpoints, jpeg, scratch) = (Checkpoints::default(), Object::new(), Scratch::default());
        Self { limits, level, baseline, checkpoints, jpeg, scratch }
    }

    /// One that leaves every JPEG to libjpeg: what the other is compared with.
    pub(crate) fn by_libjpeg(limits: Limits) -> Self {
        Self { baseline: None, ..Self::new(limits) }
    }

    /// The limits it was made with.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Decodes and augments one sample into `out`: rows of RGB, 8 bits.
    ///
    /// The pixels are a function of the source, the pipeline and the draw alone. On an error `out` holds anything.
    ///
    /// # Panics
    /// When `out` is not as long as the pipeline's output, or the pipeline is not valid.
    pub fn prepare(
        &mut self,
        source: Source<'_>,
        pipeline: &Pipeline,
        draw: Draw,
        out: &mut [u8],
    ) -> Result<Prepared, PixelError> {
        assert_eq!(out.len(), pipeline.output().bytes(), "the output has the pipeline's shape");
        let outcome = match source {
            Source::Planar { width, height, bytes } => self.prepare_planar((width, height), bytes, pipeline, draw, out),
            Source::Indexed { file, checkpoints } => {
                let are_good = self.checkpoints.replace(checkpoints, self.limits.memory_bytes).is_ok();
                self.prepare_jpeg(file, are_good, pipeline, draw, out)
            }
            Source::Encoded(file) => match Format::of(file)? {
                Format::Jpeg => self.prepare_jpeg(file, false, pipeline, draw, out),
                format => self.prepare_raster(file, format, pipeline, draw, out),
            },
        };
        self.scratch.trim();
        if let Some(baseline) = &mut self.baseline {
            baseline.trim(KEPT_SCRATCH_BYTES);
        }
        self.checkpoints.trim(KEPT_SCRATCH_BYTES);
        outcome
    }

    fn prepare_planar(
        &mut self,
        (width, height): (u32, u32),
        bytes: &[u8],
        pipeline: &Pipeline,
        draw: Draw,
        out: &mut [u8],
    ) -> Result<Prepared, PixelError> {
        self.limits.check_pixels(width, height)?;
        let mut planes = Planes::new((width, height), bytes, &mut self.scratch.band, self.level)?;
        self.scratch.passes.run(&mut planes, pipeline, draw, self.limits, out)?;
        Ok(Prepared::default())
    }

    fn prepare_jpeg(
        &mut self,
        file: &[u8],
        with_checkpoints: bool,
        pipeline: &Pipeline,
        draw: Draw,
        out: &mut [u8],
    ) -> Result<Prepared, PixelError> {
        let orientation = if pipeline.exif_orientation { exif::orientation(file) } else { 1 };
        let Self { limits, baseline, checkpoints, jpeg, scratch: Scratch { band, upright, passes, .. }, .. } = self;
        let checkpoints = with_checkpoints.then_some(&*checkpoints);
        let mut run = |rows: &mut dyn Rows| {
            if orientation == 1 {
                return passes.run(rows, pipeline, draw, *limits, out);
            }
            passes.run(&mut Upright::new(rows, orientation, upright, *limits), pipeline, draw, *limits, out)
        };
        if let Some(Ok(mut rows)) = baseline.as_mut().map(|baseline| baseline.open(file, checkpoints, band))
            && limits.check_pixels(rows.size().0, rows.size().1).is_ok()
        {
            let outcome = run(&mut rows);
            if !rows.gave_up() {
                return outcome.map(|()| Prepared::default());
            }
        }
        // Before the open file, which holds the memory: it is dropped after it.
        let _turn;
        let opened = jpeg::open(jpeg, file, *limits, false)?;
        _turn = large::turn(opened.header.whole_bytes());
        let mut rows = JpegRows::new(opened, band);
        run(&mut rows)?;
        Ok(Prepared { warnings: rows.warnings() })
    }

    fn prepare_raster(
        &mut self,
        file: &[u8],
        format: Format,
        pipeline: &Pipeline,
        draw: Draw,
        out: &mut [u8],
    ) -> Result<Prepared, PixelError> {
        let Scratch { whole, raw, passes, .. } = &mut self.scratch;
        let decoded = raster::decode(file, format, self.limits, raw, whole)?;
        let mut image = Interleaved { width: decoded.width, height: decoded.height, pixels: whole };
        passes.run(&mut image, pipeline, draw, self.limits, out)?;
        Ok(Prepared::default())
    }

    /// What a file's header says.
    pub fn info(&mut self, encoded: &[u8]) -> Result<ImageInfo, PixelError> {
        match Format::of(encoded)? {
            Format::Jpeg => {
                let opened = self.jpeg.open(encoded, self.limits, false)?;
                Ok(jpeg::info(&opened, exif::orientation(encoded)))
            }
            format => raster::info(encoded, format, self.limits),
        }
    }

    /// Decodes a file whole and says whether every machine makes the same pixels of it.
    pub fn inspect(&mut self, encoded: &[u8]) -> Verdict {
        let verdict = match Format::of(encoded) {
            Err(error) => Verdict::rejected(&error),
            Ok(Format::Jpeg) => inspect::jpeg(&mut self.jpeg, encoded, self.limits),
            Ok(format) => {
                let Scratch { whole, raw, .. } = &mut self.scratch;
                match raster::decode(encoded, format, self.limits, raw, whole) {
                    Ok(_) => Verdict::Intact,
                    Err(error) => Verdict::rejected(&error),
                }
            }
        };
        self.scratch.trim();
        verdict
    }
}

impl Scratch {
    fn trim(&mut self) {
        for buffer in [&mut self.band, &mut self.whole, &mut self.raw, &mut self.upright] {
            if buffer.capacity() > KEPT_SCRATCH_BYTES {
                *buffer = Vec::new();
            }
        }
        self.passes.trim(KEPT_SCRATCH_BYTES);
    }
}
