//! One worker's decoder: a sample's bytes in, prepared pixels out.

use crate::draw::Draw;
use crate::error::PixelError;
use crate::indexing::{self, Indexed, NotIndexed};
use crate::inspect::{self, Verdict};
use crate::jpeg::baseline::{self, Checkpoints, Level};
use crate::jpeg::{self, JpegRows, exif, ffi::Object};
use crate::large;
use crate::orient::Upright;
use crate::passes::Passes;
use crate::pipeline::Pipeline;
use crate::planar::Planes;
use crate::raster;
use crate::raw::{RawImage, RawRows};
use crate::rows::{Interleaved, Rows};
use crate::source::{Format, ImageInfo, Limits, Source};

/// What there is to say about a prepared sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prepared {
    /// Warnings of the decoder about what it read. Pixels of a stream with warnings are promised to agree only between
    /// machines of one architecture.
    pub warnings: u32,
}

/// What there is to say about pixels that [`Preparer::decode`] made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// EXIF orientation of them, 1 to 8; 1 is upright.
    pub orientation: u8,
    /// Whether the image was larger.
    pub was_shrunk: bool,
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

/// What is done with an image: rows, scratch for turning it, passes.
type UprightRun<'r> = &'r mut dyn FnMut(&mut dyn Rows, &mut Vec<u8>, &mut Passes) -> Result<(), PixelError>;

/// Scratch that is larger than this is given back after the sample that needed it.
const KEPT_SCRATCH_BYTES: usize = 2 << 20;

/// Most memory for checkpoints: so many times the bytes of their file, and some more. Of a pack's there is less than one time.
const CHECKPOINT_SHARE: u64 = 4;
const CHECKPOINT_BYTES: u64 = 1 << 20;

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
            Source::Raw(image) => self.prepare_raw(image, pipeline, draw, out),
            Source::Indexed { file, checkpoints } => {
                let memory = self.limits.memory_bytes.min(CHECKPOINT_SHARE * file.len() as u64 + CHECKPOINT_BYTES);
                let are_good = self.checkpoints.replace(checkpoints, memory).is_ok();
                self.prepare_jpeg(file, are_good, pipeline, draw, out)
            }
            Source::Encoded(file) => match Format::of(file)? {
                Format::Jpeg => self.prepare_jpeg(file, false, pipeline, draw, out),
                format => self.prepare_raster(file, format, pipeline, draw, out),
            },
        };
        self.trim();
        outcome
    }

    /// Gives back what is too large to be kept.
    fn trim(&mut self) {
        self.scratch.trim();
        if let Some(baseline) = &mut self.baseline {
            baseline.trim(KEPT_SCRATCH_BYTES);
        }
        self.checkpoints.trim(KEPT_SCRATCH_BYTES);
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

    fn prepare_raw(
        &mut self,
        image: RawImage<'_>,
        pipeline: &Pipeline,
        draw: Draw,
        out: &mut [u8],
    ) -> Result<Prepared, PixelError> {
        self.limits.check_pixels(image.width, image.height)?;
        let Scratch { band, upright, passes, .. } = &mut self.scratch;
        let mut rows = RawRows::new(image, self.limits, band)?;
        let _turn = large::turn(rows.group_bytes());
        let orientation = if pipeline.exif_orientation { image.orientation } else { 1 };
        let outcome = run_upright(&mut rows, orientation, upright, passes, (pipeline, draw), self.limits, out);
        // While it is still its turn.
        self.scratch.trim();
        outcome.map(|()| Prepared::default())
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
        let limits = self.limits;
        self.jpeg_rows(file, with_checkpoints, &mut |rows, upright, passes| {
            run_upright(rows, orientation, upright, passes, (pipeline, draw), limits, out)
        })
    }

    /// Opens a JPEG and hands its pixels to `run`: again, where the first decoder leaves the file to the other one on the way.
    fn jpeg_rows(&mut self, file: &[u8], with_checkpoints: bool, run: UprightRun<'_>) -> Result<Prepared, PixelError> {
        let Self { limits, baseline, checkpoints, jpeg, scratch: Scratch { band, upright, passes, .. }, .. } = self;
        let checkpoints = with_checkpoints.then_some(&*checkpoints);
        if let Some(Ok(mut rows)) = baseline.as_mut().map(|baseline| baseline.open(file, checkpoints, band))
            && limits.check_pixels(rows.size().0, rows.size().1).is_ok()
        {
            let outcome = run(&mut rows, upright, passes);
            if !rows.gave_up() {
                return outcome.map(|()| Prepared::default());
            }
        }
        // Before the open file, which holds the memory: it is dropped after it.
        let _turn;
        let opened = jpeg::open(jpeg, file, *limits, false)?;
        _turn = large::turn(opened.header.whole_bytes());
        let mut rows = JpegRows::new(opened, band);
        run(&mut rows, upright, passes)?;
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
        let limits = self.limits;
        self.raster_rows(file, format, &mut |rows, passes| passes.run(rows, pipeline, draw, limits, out))?;
        Ok(Prepared::default())
    }

    fn raster_rows(
        &mut self,
        file: &[u8],
        format: Format,
        run: &mut dyn FnMut(&mut dyn Rows, &mut Passes) -> Result<(), PixelError>,
    ) -> Result<(), PixelError> {
        let Scratch { whole, raw, passes, .. } = &mut self.scratch;
        let decoded = raster::decode(file, format, self.limits, raw, whole)?;
        run(&mut Interleaved { width: decoded.width, height: decoded.height, pixels: whole }, passes)
    }

    /// Decodes a sample whole and appends its pixels to `out`: rows of RGB, 8 bits, as they are stored. Where a side has more than
    /// `max_side` pixels the image is resized until the longer one has so many. After an error `out` is what it was.
    pub fn decode(
        &mut self,
        source: Source<'_>,
        max_side: Option<u32>,
        out: &mut Vec<u8>,
    ) -> Result<Decoded, PixelError> {
        let (start, limits) = (out.len(), self.limits);
        let (mut size, mut stored) = ((0, 0), (0, 0));
        let mut run = |rows: &mut dyn Rows, passes: &mut Passes| {
            stored = rows.size();
            limits.check_pixels(stored.0, stored.1)?;
            size = indexing::size_within(stored, max_side);
            let bytes = u64::from(size.0) * u64::from(size.1) * 3;
            limits.check_memory(bytes)?;
            out.truncate(start);
            out.try_reserve_exact(bytes as usize)
                .map_err(|_| PixelError::TooMuchMemory { limit: limits.memory_bytes })?;
            out.resize(start + bytes as usize, 0);
            passes.whole(rows, size, limits, &mut out[start..])
        };
        let Scratch { band, passes, .. } = &mut self.scratch;
        let (mut orientation, mut was_shrunk) = (1, false);
        let outcome = match source {
            Source::Encoded(file) | Source::Indexed { file, .. } => match Format::of(file)? {
                Format::Jpeg => {
                    orientation = exif::orientation(file);
                    self.jpeg_rows(file, false, &mut |rows, _, passes| run(rows, passes)).map(drop)
                }
                format => self.raster_rows(file, format, &mut run),
            },
            Source::Planar { width, height, bytes } => {
                Planes::new((width, height), bytes, band, self.level).and_then(|mut rows| run(&mut rows, passes))
            }
            Source::Raw(image) => {
                (orientation, was_shrunk) = (image.orientation, image.was_shrunk);
                RawRows::new(image, limits, band).and_then(|mut rows| run(&mut rows, passes))
            }
        };
        self.trim();
        if outcome.is_err() {
            out.truncate(start);
        }
        was_shrunk |= size != stored;
        outcome.map(|()| Decoded { width: size.0, height: size.1, orientation, was_shrunk })
    }

    /// Makes a JPEG one that can be entered in between, or says why it cannot. The file is to be intact: see
    /// [`inspect`](Self::inspect).
    pub fn index(&mut self, file: &[u8]) -> Result<Indexed, NotIndexed> {
        let Some(baseline) = &mut self.baseline else { return Err(NotIndexed::Unusual) };
        let indexed = indexing::index(&mut self.jpeg, baseline, file, self.limits);
        self.trim();
        indexed
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

/// Runs a pipeline over an image, turned as EXIF's `orientation` says.
fn run_upright(
    rows: &mut dyn Rows,
    orientation: u8,
    upright: &mut Vec<u8>,
    passes: &mut Passes,
    (pipeline, draw): (&Pipeline, Draw),
    limits: Limits,
    out: &mut [u8],
) -> Result<(), PixelError> {
    if orientation == 1 {
        return passes.run(rows, pipeline, draw, limits, out);
    }
    passes.run(&mut Upright::new(rows, orientation, upright, limits), pipeline, draw, limits, out)
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
