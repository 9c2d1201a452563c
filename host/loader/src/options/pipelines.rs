//! The pipelines of a run, and the checks of several.

use super::LoaderOptions;
use crate::error::LoaderError;
use crate::order::BUCKETS_MAX;
use ddlp_pixels::{Pipeline, Shape};

impl LoaderOptions {
    /// Returns the pipelines of all buckets: one pipeline, unless there are [`buckets`](Self::buckets).
    pub fn pipelines(&self) -> &[Pipeline] {
        if self.buckets.is_empty() { std::slice::from_ref(&self.pipeline) } else { &self.buckets }
    }

    /// Returns the shape of the images that each bucket's pipeline makes.
    pub(crate) fn shapes(&self) -> Result<Vec<Shape>, LoaderError> {
        let pipelines = self.pipelines();
        if pipelines.len() > BUCKETS_MAX {
            let given = pipelines.len();
            return Err(LoaderError::Options(format!("`buckets` has {given} pipelines, but at most {BUCKETS_MAX}")));
        }
        let first = &pipelines[0];
        let differ = |of: fn(&Pipeline) -> bool| pipelines.iter().any(|pipeline| of(pipeline) != of(first));
        let message = if differ(|pipeline| pipeline.exif_orientation) {
            "some of the pipelines (`buckets`) turn images upright (`exif_orientation`) and some do not, so the \
             image's aspect ratio does not tell its bucket"
        } else if differ(Pipeline::has_canvas) {
            "some of the pipelines (`buckets`) end with PadTo and some do not, so some batches would lack the field \
             size"
        } else if first.has_canvas() && (self.mixup > 0.0 || self.cutmix > 0.0) {
            "`mixup` and `cutmix` mix images of one size, but the last operation, PadTo, puts images of different \
             sizes on canvases: leave one of them out"
        } else {
            return pipelines.iter().map(|pipeline| pipeline.validate().map_err(LoaderError::Pipeline)).collect();
        };
        Err(LoaderError::Options(message.into()))
    }
}
