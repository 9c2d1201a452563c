//! Derives steps from a pipeline, an image's size and the draws: consecutive operations become one step if one pass
//! over the pixels can do them together.

use crate::compiled::CompiledPipeline;
use crate::draw::Draw;
use crate::error::PixelError;
use crate::geometry::{Border, Window};
use crate::ops::{Area, Effect, Effects, Piece, Point};
use crate::warp::{Interpolation, Warp};

/// One pass over pixels: warp, cut out, resize, mirror, change values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Place in [`Steps::warps`] of the warp that the image goes through, or `None` to leave the image as it is.
    pub warp: Option<u16>,
    /// Box that is cut out of the image.
    pub window: Window,
    /// What the box shows where it reaches out of the image.
    pub border: Border,
    /// Width and height that the cut-out is resized to, or `None` to keep its size.
    pub resize: Option<(u32, u32)>,
    /// How the cut-out is resized.
    pub interpolation: Interpolation,
    /// Whether the result is mirrored left to right.
    pub flip: bool,
    /// The changes of values that follow, by their place in [`Steps::changes`]: the first one, and the one after the
    /// last.
    pub changes: (u16, u16),
}

/// A change of values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// A change of each pixel on its own.
    Point(Point),
    /// A change that makes each pixel from several.
    Area(Area),
}

/// What a pipeline does to one image: as few steps as possible, at least one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Steps {
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// The changes of values of all steps, in order.
    pub changes: Vec<Change>,
    /// The warps of all steps, in order.
    pub warps: Vec<Warp>,
}

/// The steps while operations are drawn.
struct Drawing<'s> {
    steps: &'s mut Steps,
    /// The last step so far.
    step: Step,
}

impl Effects for Drawing<'_> {
    fn size(&self) -> (u32, u32) {
        self.step.size()
    }

    fn add(&mut self, effect: impl Into<Effect>) {
        let Self { steps, step } = self;
        match effect.into() {
            Effect::Geometry(piece) => steps.take(step, piece),
            Effect::Warp(warp) => steps.warp(step, warp),
            Effect::Point(point) => steps.change(step, Change::Point(point)),
            Effect::Area(area) => steps.change(step, Change::Area(area)),
        }
    }
}

impl Step {
    fn untouched(size: (u32, u32), changes: usize) -> Self {
        // A pipeline has far fewer operations.
        let next = changes as u16;
        let window = Window::whole(size.0, size.1);
        let (border, interpolation) = (Border::default(), Interpolation::Bilinear);
        Self { warp: None, window, border, resize: None, interpolation, flip: false, changes: (next, next) }
    }

    /// Returns the step that resizes a whole image, or leaves its size if `to` is `None`.
    pub fn resizing(from: (u32, u32), to: Option<(u32, u32)>) -> Self {
        Self { resize: to, ..Self::untouched(from, 0) }
    }

    /// Returns the width and height of the result.
    pub fn size(&self) -> (u32, u32) {
        self.resize.unwrap_or((self.window.width, self.window.height))
    }

    fn has_changes(&self) -> bool {
        self.changes.0 < self.changes.1
    }
}

impl Steps {
    /// Draws the operations of a pipeline for an image of this size. Reuses the memory of the call before: for a small
    /// image, allocating costs nearly as much as preparing.
    pub fn draw(&mut self, pipeline: &CompiledPipeline, size: (u32, u32), draw: Draw) -> Result<(), PixelError> {
        self.steps.clear();
        self.changes.clear();
        self.warps.clear();
        let mut drawing = Drawing { steps: self, step: Step::untouched(size, 0) };
        pipeline.draw(draw, &mut drawing)?;
        let last = drawing.step;
        self.steps.push(last);
        Ok(())
    }

    /// Adds a piece to the step. If the step cannot take all of it, begins the next step with the rest.
    fn take(&mut self, step: &mut Step, piece: Piece) {
        let before = step.size();
        if let Some(window) = piece.window.filter(|window| *window != Window::whole(before.0, before.1)) {
            if *step != (Step { warp: step.warp, ..Step::untouched(before, self.changes.len()) }) {
                self.begin_next(step);
            }
            (step.window, step.border) = (window, piece.border);
        }
        let before = step.size();
        if let Some(target) = piece.resize.filter(|target| *target != before) {
            if step.resize.is_some() || step.flip || step.has_changes() {
                self.begin_next(step);
            }
            (step.resize, step.interpolation) = (Some(target), piece.interpolation);
        }
        if piece.flip {
            if step.has_changes() {
                self.begin_next(step);
            }
            step.flip ^= true;
        }
    }

    fn warp(&mut self, step: &mut Step, warp: Warp) {
        if *step != Step::untouched(step.size(), self.changes.len()) {
            self.begin_next(step);
        }
        // A pipeline has far fewer operations.
        let place = self.warps.len() as u16;
        *step = Step { warp: Some(place), ..Step::untouched(warp.size(), self.changes.len()) };
        self.warps.push(warp);
    }

    fn change(&mut self, step: &mut Step, change: Change) {
        self.changes.push(change);
        step.changes.1 += 1;
    }

    fn begin_next(&mut self, step: &mut Step) {
        let next = Step::untouched(step.size(), self.changes.len());
        self.steps.push(std::mem::replace(step, next));
    }
}
