//! Entry points for benches: each stage of preparing an image, alone.
//!
//! The functions panic on a file that the decoder does not take; benches measure good files.

use crate::compiled::CompiledPipeline;
use crate::draw::Draw;
use crate::geometry::Rect;
use crate::jpeg::baseline::BaselineDecoder;
pub use crate::jpeg::baseline::{Checkpoints, Depth};
use crate::jpeg::ffi::Object;
use crate::jpeg::{self, JpegRows};
use crate::level::Level;
use crate::limits::Limits;
use crate::passes::{PassPlan, Passes};
use crate::pipeline::Pipeline;
use crate::resize::{Resampling, Resizing, Scaler};
use crate::rows::{Band, ImageRows, Interleaved};
use crate::steps::Steps;

/// Decoders and scratch memory.
pub struct SingleStages {
    libjpeg: Object,
    baseline: BaselineDecoder,
    band: Vec<u8>,
    scaler: Scaler,
    plan: PassPlan,
    passes: Passes,
}

/// A rectangle of an image: x, y, width, height.
pub type Cut = (u32, u32, u32, u32);

impl Default for SingleStages {
    fn default() -> Self {
        Self {
            libjpeg: Object::new(),
            baseline: BaselineDecoder::new(Level::best()),
            band: Vec::new(),
            scaler: Scaler::default(),
            plan: PassPlan::default(),
            passes: Passes::default(),
        }
    }
}

impl SingleStages {
    fn size(&mut self, file: &[u8]) -> (u32, u32) {
        let header = self.libjpeg.open(file, Limits::default(), false).expect("a good file").header;
        (header.width, header.height)
    }

    /// Returns the rectangle of a whole image.
    pub fn whole(&mut self, file: &[u8]) -> Cut {
        let (width, height) = self.size(file);
        (0, 0, width, height)
    }

    /// Returns the rectangle that the first step of a pipeline cuts out of an image.
    pub fn cut(&mut self, file: &[u8], pipeline: &Pipeline, draw: Draw) -> Cut {
        let size = self.size(file);
        let mut steps = Steps::default();
        let pipeline = CompiledPipeline::of(pipeline).expect("a valid pipeline");
        steps.draw(&pipeline, size, draw).expect("a pipeline for this image");
        let window = steps.steps[0].window;
        assert!(window.lies_within(size));
        (window.x as u32, window.y as u32, window.width, window.height)
    }

    /// Returns whether our decoder takes a file, judged by its header.
    pub fn takes(&mut self, file: &[u8]) -> bool {
        self.baseline.open(file, None, &mut self.band).is_ok()
    }

    /// Resizes a part of an image of `size` to `target`.
    pub fn resize(&mut self, pixels: &[u8], size: (u32, u32), part: Cut, target: (u32, u32), out: &mut [u8]) {
        let (x, y, width, height) = part;
        let rect = Rect { x, y, width, height };
        let part = Rect { x: 0, y: 0, width: target.0, height: target.1 };
        let resizing = Resizing { rect, size: target, interpolation: Resampling::Bilinear, part, mirrored: false };
        let mut image = Interleaved { width: size.0, height: size.1, pixels };
        self.scaler.resize(&mut image, &resizing, Limits::default(), out).expect("an image in memory");
    }

    /// Takes an image of `size` in memory through a pipeline.
    pub fn apply(&mut self, pixels: &[u8], size: (u32, u32), pipeline: &CompiledPipeline, draw: Draw, out: &mut [u8]) {
        self.plan.clear();
        self.plan.draw(pipeline, size, draw).expect("a pipeline for this image");
        let mut image = Interleaved { width: size.0, height: size.1, pixels };
        self.passes.run(&mut image, &self.plan, Limits::default(), out).expect("an image in memory");
    }

    /// Decodes a rectangle by libjpeg.
    pub fn libjpeg(&mut self, file: &[u8], part: Cut) -> u64 {
        let opened = jpeg::open(&mut self.libjpeg, file, Limits::default(), false).expect("a good file");
        drain(&mut JpegRows::new(opened, &mut self.band), part)
    }

    /// Decodes a rectangle by our own decoder.
    pub fn baseline(&mut self, file: &[u8], part: Cut, checkpoints: Option<&Checkpoints>, depth: Depth) -> u64 {
        let mut rows = self.baseline.open(file, checkpoints, &mut self.band).expect("a good file");
        rows.depth = depth;
        drain(&mut rows, part)
    }
}

/// Reads the bands, and one byte of each.
fn drain(rows: &mut dyn ImageRows, part: Cut) -> u64 {
    let mut sum = 0;
    let mut sink = |band: Band<'_>| {
        sum += u64::from(band.pixels[0]);
        Ok(())
    };
    let (x, y, width, height) = part;
    rows.read(Rect { x, y, width, height }, &mut sink).expect("a good file");
    sum
}
