//! The plan of one sample: what is read of it and what is done to it, known before anything is read.
//!
//! A plan follows from the pipeline, the draw, and the size and orientation of the stored image. The bytes to read are
//! planned and the pixels are made by the same plan, so that nothing is missing when the pixels are made.

use std::ops::Range;

use crate::compiled::CompiledPipeline;
use crate::draw::Draw;
use crate::error::PixelError;
use crate::geometry::Rect;
use crate::orient::{stored_rect, upright_size};
use crate::passes::PassPlan;
use crate::pieces::Fidelity;
use crate::row_index::RowIndex;

/// Memory for a plan, which a worker reuses from sample to sample.
#[derive(Default)]
pub struct PlanMemory(PassPlan);

/// The plan of one sample. Reads nothing.
pub struct SamplePlan<'p> {
    crop: Option<(&'p CompiledPipeline, Draw)>,
    passes: &'p mut PassPlan,
    fidelity: Fidelity,
}

impl<'p> SamplePlan<'p> {
    /// Plans a sample for a pipeline and a draw.
    pub fn crop(pipeline: &'p CompiledPipeline, draw: Draw, memory: &'p mut PlanMemory) -> Self {
        memory.0.clear();
        Self { crop: Some((pipeline, draw)), passes: &mut memory.0, fidelity: Fidelity::WHOLE }
    }

    /// Plans to read all of a sample, in its stored orientation.
    pub fn whole(memory: &'p mut PlanMemory) -> Self {
        memory.0.clear();
        Self { crop: None, passes: &mut memory.0, fidelity: Fidelity::WHOLE }
    }

    /// Plans to read a sample that is stored in pieces with this fidelity. Default: whole.
    pub fn with_fidelity(self, fidelity: Fidelity) -> Self {
        Self { fidelity, ..self }
    }

    /// Returns the fidelity with which a sample that is stored in pieces is read.
    pub fn fidelity(&self) -> Fidelity {
        self.fidelity
    }

    /// Returns whether all of the sample is wanted.
    pub fn is_whole(&self) -> bool {
        self.crop.is_none()
    }

    /// Returns the rows of the stored image that are needed, maybe none. `size` is the width and height of the stored
    /// image, `orientation` its EXIF orientation.
    ///
    /// # Errors
    ///
    /// If the pipeline cannot take an image of this size.
    pub fn rows(&mut self, size: (u32, u32), orientation: u8) -> Result<Range<u32>, PixelError> {
        Ok(self.rect(size, orientation)?.map_or(0..0, |rect| rect.y..rect.y + rect.height))
    }

    /// Returns the bytes of a JPEG that are needed besides its header; an empty range if none are needed.
    ///
    /// # Errors
    ///
    /// As [`rows`](Self::rows).
    pub fn bytes_of_jpeg(&mut self, index: &RowIndex) -> Result<Range<u64>, PixelError> {
        let nothing = index.header_bytes()..index.header_bytes();
        Ok(self.rows_of_jpeg(index)?.map_or(nothing, |rows| index.in_file(rows)))
    }

    /// Returns the rows of MCUs of a JPEG that are needed, if any are.
    pub(crate) fn rows_of_jpeg(&mut self, index: &RowIndex) -> Result<Option<Range<u32>>, PixelError> {
        Ok(self.rect(index.size(), index.orientation())?.map(|rect| index.rows_of(rect)))
    }

    /// Returns the rectangle of the stored image that is needed, if anything is. Otherwise as [`rows`](Self::rows).
    ///
    /// # Errors
    ///
    /// As [`rows`](Self::rows).
    pub fn rect(&mut self, stored: (u32, u32), orientation: u8) -> Result<Option<Rect>, PixelError> {
        if self.is_whole() {
            return Ok(Some(Rect { x: 0, y: 0, width: stored.0, height: stored.1 }));
        }
        let orientation = self.orientation(orientation);
        let size = upright_size(stored, orientation);
        Ok(self.passes(size)?.source_rect(size).map(|rect| stored_rect(rect, stored, orientation)))
    }

    /// Returns the orientation from which the image is turned upright, 1 for none. The image is stored in the
    /// orientation `stored`.
    pub(crate) fn orientation(&self, stored: u8) -> u8 {
        if self.turns() { stored } else { 1 }
    }

    /// Returns whether the image is turned upright.
    pub(crate) fn turns(&self) -> bool {
        self.crop.is_some_and(|(pipeline, _)| pipeline.turns())
    }

    /// Returns the passes that make the sample's pixels from an image of this size.
    ///
    /// # Panics
    ///
    /// If the plan is for a whole sample.
    pub(crate) fn passes(&mut self, size: (u32, u32)) -> Result<&PassPlan, PixelError> {
        let (pipeline, draw) = self.crop.expect("a whole sample is decoded without passes");
        self.passes.draw(pipeline, size, draw)?;
        Ok(self.passes)
    }
}
