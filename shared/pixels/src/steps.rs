//! Derives steps from a pipeline, an image's size and the draws: consecutive operations become one step if one pass
//! over the pixels can do them together.

use crate::compiled::CompiledPipeline;
use crate::draw::Draw;
use crate::error::PixelError;
use crate::function::Call;
use crate::geometry::{Border, Rect, Window};
use crate::ops::{Area, Effect, Effects, Piece, Point};
use crate::resize::Resampling;
use crate::warp::Warp;

/// One pass over pixels: remake, cut out, resize, mirror, change values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Place in [`Steps::remakes`] of the change that makes an image of its own of this one, or `None` to leave the
    /// image as it is.
    pub remake: Option<u16>,
    /// Box that is cut out of the image.
    pub window: Window,
    /// What the box shows where it reaches out of the image.
    pub border: Border,
    /// Width and height that the cut-out is resized to, or `None` to keep its size.
    pub resize: Option<(u32, u32)>,
    /// How the cut-out is resized.
    pub interpolation: Resampling,
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

/// A change that makes an image of its own, whose pixels come from anywhere in the one before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Remake {
    /// A warp.
    Warp(Warp),
    /// A call of a function.
    Call(Call),
}

impl Remake {
    /// Returns width and height of the result.
    pub fn size(&self) -> (u32, u32) {
        match self {
            Self::Warp(warp) => warp.size(),
            Self::Call(call) => call.size,
        }
    }

    /// Returns the rectangle of an image of this size from which the rectangle `made` of the result comes, or `None` if
    /// nothing of the image is needed.
    pub fn needs(&self, made: Rect, (width, height): (u32, u32)) -> Option<Rect> {
        match self {
            Self::Warp(warp) => warp.needs(made, (width, height)),
            Self::Call(_) => Some(Rect { x: 0, y: 0, width, height }),
        }
    }
}

/// What a pipeline does to one image: as few steps as possible, at least one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Steps {
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// The changes of values of all steps, in order.
    pub changes: Vec<Change>,
    /// The warps and calls of all steps, in order.
    pub remakes: Vec<Remake>,
}

/// The steps while operations are drawn, at least one.
pub(crate) struct Drawing<'s> {
    steps: &'s mut Steps,
    /// Whether the last step does anything after its warp or call.
    is_begun: bool,
}

impl Effects for Drawing<'_> {
    fn size(&self) -> (u32, u32) {
        self.step().size()
    }

    fn add(&mut self, effect: impl Into<Effect>) {
        match effect.into() {
            Effect::Geometry(piece) => self.take(piece),
            Effect::Warp(warp) => self.remake(Remake::Warp(warp)),
            Effect::Call(call) => self.remake(Remake::Call(call)),
            Effect::Point(point) => self.change(Change::Point(point)),
            Effect::Area(area) => self.change(Change::Area(area)),
        }
    }
}

impl Drawing<'_> {
    /// Returns the last step so far. It stays in its place: copying a step that was just written costs more than
    /// writing it.
    fn step(&self) -> &Step {
        self.steps.steps.last().expect("at least one step")
    }

    fn step_mut(&mut self) -> &mut Step {
        self.steps.steps.last_mut().expect("at least one step")
    }

    /// Adds a piece to the step. If the step cannot take all of it, begins the next step with the rest.
    fn take(&mut self, piece: Piece) {
        let before = self.step().size();
        if let Some(window) = piece.window.filter(|window| *window != Window::whole(before.0, before.1)) {
            if self.is_begun {
                self.begin_next();
            }
            let step = self.step_mut();
            (step.window, step.border) = (window, piece.border);
            self.is_begun = true;
        }
        let before = self.step().size();
        if let Some(target) = piece.resize.filter(|target| *target != before) {
            if self.step().resize.is_some() || self.step().flip || self.step().has_changes() {
                self.begin_next();
            }
            let step = self.step_mut();
            (step.resize, step.interpolation) = (Some(target), piece.interpolation);
            self.is_begun = true;
        }
        if piece.flip {
            if self.step().has_changes() {
                self.begin_next();
            }
            self.step_mut().flip ^= true;
            self.is_begun = true;
        }
    }

    fn remake(&mut self, remake: Remake) {
        if self.is_begun || self.step().remake.is_some() {
            self.begin_next();
        }
        // A pipeline has far fewer operations.
        let place = self.steps.remakes.len() as u16;
        *self.step_mut() = Step { remake: Some(place), ..Step::untouched(remake.size(), self.steps.changes.len()) };
        self.steps.remakes.push(remake);
    }

    fn change(&mut self, change: Change) {
        self.steps.changes.push(change);
        self.step_mut().changes.1 += 1;
        self.is_begun = true;
    }

    fn begin_next(&mut self) {
        let next = Step::untouched(self.step().size(), self.steps.changes.len());
        self.steps.steps.push(next);
        self.is_begun = false;
    }
}

impl Step {
    fn untouched(size: (u32, u32), changes: usize) -> Self {
        // A pipeline has far fewer operations.
        let next = changes as u16;
        let window = Window::whole(size.0, size.1);
        let (border, interpolation) = (Border::default(), Resampling::Bilinear);
        Self { remake: None, window, border, resize: None, interpolation, flip: false, changes: (next, next) }
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
        pipeline.draw(draw, &mut self.of(size))
    }

    /// Forgets all steps, and returns the steps of an image of this size, to which effects can be added. Reuses the
    /// memory.
    pub(crate) fn of(&mut self, size: (u32, u32)) -> Drawing<'_> {
        self.steps.clear();
        self.changes.clear();
        self.remakes.clear();
        self.steps.push(Step::untouched(size, 0));
        Drawing { steps: self, is_begun: false }
    }
}
