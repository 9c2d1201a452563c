//! Derives steps from a pipeline, an image's size and the draws: consecutive operations become one step if one pass
//! over the pixels can do them together.

use crate::draw::{Draw, Rng};
use crate::error::PixelError;
use crate::ops::Piece;
use crate::pipeline::Pipeline;

/// A box of whole pixels. It may reach out of the image; pixels there are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// Column of the left edge.
    pub x: i64,
    /// Row of the upper edge.
    pub y: i64,
    /// Width in columns.
    pub width: u32,
    /// Height in rows.
    pub height: u32,
}

impl Window {
    /// Returns the box of a whole image.
    pub fn whole(width: u32, height: u32) -> Self {
        Self { x: 0, y: 0, width, height }
    }

    /// Returns whether the box lies within an image of this size.
    pub fn lies_within(&self, (width, height): (u32, u32)) -> bool {
        self.x >= 0
            && self.y >= 0
            && self.x + i64::from(self.width) <= i64::from(width)
            && self.y + i64::from(self.height) <= i64::from(height)
    }
}

/// One pass over pixels: cut out, resize, mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Box that is cut out of the image.
    pub window: Window,
    /// Width and height that the cut-out is resized to, or `None` to keep its size.
    pub resize: Option<(u32, u32)>,
    /// Whether the result is mirrored left to right.
    pub flip: bool,
}

impl Step {
    fn untouched(size: (u32, u32)) -> Self {
        Self { window: Window::whole(size.0, size.1), resize: None, flip: false }
    }

    /// Returns the width and height of the result.
    pub fn size(&self) -> (u32, u32) {
        self.resize.unwrap_or((self.window.width, self.window.height))
    }

    /// Adds an operation to the step. If the step cannot take all of it, moves the step to `done` and begins the next
    /// one with the rest.
    fn take(&mut self, piece: Piece, done: &mut Vec<Self>) {
        let before = self.size();
        if let Some(window) = piece.window.filter(|window| *window != Window::whole(before.0, before.1)) {
            if *self != Self::untouched(before) {
                done.push(std::mem::replace(self, Self::untouched(before)));
            }
            self.window = window;
        }
        let before = self.size();
        if let Some(target) = piece.resize.filter(|target| *target != before) {
            if self.resize.is_some() || self.flip {
                done.push(std::mem::replace(self, Self::untouched(before)));
            }
            self.resize = Some(target);
        }
        self.flip ^= piece.flip;
    }
}

/// Returns the steps of a pipeline for an image of this size: as few as possible, at least one.
pub(crate) fn steps(pipeline: &Pipeline, size: (u32, u32), draw: Draw) -> Result<Vec<Step>, PixelError> {
    let mut done = Vec::new();
    steps_into(pipeline, size, draw, &mut done)?;
    Ok(done)
}

/// Does the same as [`steps`], but reuses the memory of `done`: for a small image, allocating costs nearly as much as
/// preparing.
pub(crate) fn steps_into(
    pipeline: &Pipeline,
    size: (u32, u32),
    draw: Draw,
    done: &mut Vec<Step>,
) -> Result<(), PixelError> {
    done.clear();
    let mut step = Step::untouched(size);
    for (first, pair) in (0..).step_by(2).zip(pipeline.operations.chunks(2)) {
        let mut rngs = Rng::for_two_operations(draw, first);
        for (operation, rng) in pair.iter().zip(&mut rngs) {
            step.take(operation.draw(step.size(), rng)?, done);
        }
    }
    done.push(step);
    Ok(())
}
