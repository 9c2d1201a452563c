//! A bucket of a run: the batches whose images have one size, and how these are prepared and delivered. Most runs have
//! one bucket.

use crate::batch::BatchField;
use crate::image_output::ImageOutput;
use crate::mixing::Mixing;
use crate::options::LoaderOptions;
use ddlp_csd::program::Program;
use ddlp_csd::slot::SampleRecord;
use ddlp_dataset::{ImageSize, SampleFields};
use ddlp_pixels::{CompiledPipeline, Draw, Pipeline, PipelineError, Shape};
use std::sync::Arc;

/// What the batches of a bucket have in common.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    /// What prongs do to each sample.
    pub program: Program,
    /// How images are delivered.
    pub images: ImageOutput,
    /// Fields of each batch.
    pub fields: Arc<[BatchField]>,
    /// The pipeline, if it puts images of different sizes on canvases of one size. Batches then have the field `size`.
    canvas: Option<CompiledPipeline>,
}

impl Bucket {
    /// Makes a bucket whose samples go through a pipeline. `by_target` tells whether the delivery target finishes its
    /// batches.
    pub fn new(
        options: &LoaderOptions,
        pipeline: &Pipeline,
        mixing: Option<&Mixing>,
        beside: &SampleFields,
        by_target: bool,
    ) -> Result<Self, PipelineError> {
        let compiled = CompiledPipeline::of(pipeline)?;
        let images = ImageOutput::new(options, compiled.output(), by_target);
        let program = Program { pipeline: pipeline.clone(), limits: options.limits, policy: options.policy };
        let canvas = pipeline.has_canvas().then_some(compiled);
        let fields = BatchField::of_run(&images, mixing, canvas.is_some(), beside);
        Ok(Self { program, fields, images, canvas })
    }

    /// Returns the height and width that an image has on its canvas, if it has a canvas. `size` is the image's size
    /// before it is prepared.
    pub fn size_on_canvas(&self, size: ImageSize, draw: Draw) -> [i64; 2] {
        let Shape { height, width, .. } = self.images.prepared();
        let on_canvas =
            self.canvas.as_ref().filter(|_| size.0 > 0 && size.1 > 0).map(|canvas| canvas.size_on_canvas(size, draw));
        // A prepared image has a size. If its header could not be read when the run began, the image counts as large
        // as the canvas.
        let (width, height) = on_canvas.and_then(Result::ok).unwrap_or((width, height));
        [height.into(), width.into()]
    }

    /// Returns the bytes of a batch's rows in a buffer.
    pub fn bytes_of_rows(&self, records: &[SampleRecord]) -> usize {
        records.iter().filter(|record| record.has_row()).count() * self.images.row_bytes()
    }
}
