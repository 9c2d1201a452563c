//! Boxes from a pipeline, an image's size and the draws. The arithmetic is on integers and on f64 with +, −, ×, ÷, √
//! and the pinned `libm` only, so every machine gets the same box.

use crate::draw::{Draw, Rng, Words};
use crate::error::PixelError;
use crate::pipeline::{Pipeline, Stage};

/// Tries of RandomResizedCrop before it falls back to a central box.
pub const RANDOM_RESIZED_CROP_TRIES: u32 = 10;

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

    /// Adds a stage to the step. If the step cannot take it, pushes the step to `done` and starts the next one.
    fn take(&mut self, stage: &Stage, words: &mut impl Words, done: &mut Vec<Self>) -> Result<(), PixelError> {
        let before = self.size();
        let window = stage_window(stage, before, words)?;
        if let Some(window) = window.filter(|window| *window != Window::whole(before.0, before.1)) {
            if *self != Self::untouched(before) {
                done.push(std::mem::replace(self, Self::untouched(before)));
            }
            self.window = window;
        }
        if let Some(target) = stage_resize(stage, self.size())?.filter(|target| *target != self.size()) {
            if self.resize.is_some() || self.flip {
                let before = self.size();
                done.push(std::mem::replace(self, Self::untouched(before)));
            }
            self.resize = Some(target);
        }
        if let Stage::RandomHorizontalFlip { p } = stage {
            self.flip ^= words.uniform() < *p;
        }
        Ok(())
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
    for (first, pair) in (0..).step_by(2).zip(pipeline.stages.chunks(2)) {
        let mut rngs = Rng::for_two_stages(draw, first);
        for (stage, rng) in pair.iter().zip(&mut rngs) {
            step.take(stage, rng, done)?;
        }
    }
    done.push(step);
    Ok(())
}

fn stage_window(stage: &Stage, size: (u32, u32), words: &mut impl Words) -> Result<Option<Window>, PixelError> {
    Ok(match *stage {
        Stage::RandomResizedCrop { scale, ratio, .. } => Some(random_resized_crop(words, size, scale, ratio)),
        Stage::CenterCrop { size: side } => Some(center_crop(size, side)),
        Stage::RandomCrop { size: side, padding } => Some(random_crop(words, size, side, padding)?),
        _ => None,
    })
}

fn stage_resize(stage: &Stage, size: (u32, u32)) -> Result<Option<(u32, u32)>, PixelError> {
    Ok(match *stage {
        Stage::RandomResizedCrop { size: side, .. } => Some((side, side)),
        Stage::Resize { size: side } => Some(resize_short_side(size, side)?),
        _ => None,
    })
}

/// Returns the box that torchvision's `RandomResizedCrop.get_params` returns for the same uniforms.
///
/// Each try draws the area, then the logarithm of the ratio; for a box that fits, it then draws the row and the column.
/// Sides are rounded half to even. If ten tries fail, returns the largest central box within the bounds of the ratio.
pub fn random_resized_crop(
    words: &mut impl Words,
    (width, height): (u32, u32),
    scale: [f64; 2],
    ratio: [f64; 2],
) -> Window {
    let area = f64::from(width) * f64::from(height);
    let log_ratio = ratio.map(libm::log);
    for _ in 0..RANDOM_RESIZED_CROP_TRIES {
        let target_area = area * between(words.uniform(), scale);
        let aspect = libm::exp(between(words.uniform(), log_ratio));
        let w = (target_area * aspect).sqrt().round_ties_even();
        let h = (target_area / aspect).sqrt().round_ties_even();
        if 0.0 < w && w <= f64::from(width) && 0.0 < h && h <= f64::from(height) {
            let (w, h) = (w as u32, h as u32);
            let y = words.below(u64::from(height - h) + 1) as i64;
            let x = words.below(u64::from(width - w) + 1) as i64;
            return Window { x, y, width: w, height: h };
        }
    }
    central_box((width, height), ratio)
}

fn between(uniform: f64, [low, high]: [f64; 2]) -> f64 {
    low + (high - low) * uniform
}

fn central_box((width, height): (u32, u32), [low, high]: [f64; 2]) -> Window {
    let ratio = f64::from(width) / f64::from(height);
    // Extreme bounds ask for a box without pixels, which cannot be resized: give it one row or column.
    let side = |length: f64, limit: u32| (length.round_ties_even() as u32).clamp(1, limit);
    let (w, h) = if ratio < low {
        (width, side(f64::from(width) / low, height))
    } else if ratio > high {
        (side(f64::from(height) * high, width), height)
    } else {
        (width, height)
    };
    Window { x: i64::from((width - w) / 2), y: i64::from((height - h) / 2), width: w, height: h }
}

/// Returns width and height of torchvision's `Resize(side)`, which truncates the longer side.
///
/// Returns an error if the longer side would exceed 2³¹ − 1 pixels. Whether there is memory for it is another question.
pub fn resize_short_side((width, height): (u32, u32), side: u32) -> Result<(u32, u32), PixelError> {
    let (short, long) = (width.min(height), width.max(height));
    let resized = u64::from(side) * u64::from(long) / u64::from(short);
    let Some(resized) = u32::try_from(resized).ok().filter(|&resized| resized <= i32::MAX as u32) else {
        let message = format!("{width}x{height} resized to a short side of {side} would be {resized} pixels long");
        return Err(PixelError::Unsupported { message });
    };
    Ok(if width <= height { (side, resized) } else { (resized, side) })
}

/// Returns the box of torchvision's `CenterCrop(side)`, which reaches out of an image smaller than `side`.
pub fn center_crop((width, height): (u32, u32), side: u32) -> Window {
    Window { x: center_offset(width, side), y: center_offset(height, side), width: side, height: side }
}

fn center_offset(length: u32, side: u32) -> i64 {
    if side > length {
        return -i64::from((side - length) / 2);
    }
    // Round half of an odd difference to even.
    let half = (length - side) / 2;
    i64::from(if (length - side) % 2 == 1 { half + half % 2 } else { half })
}

/// Returns the box of torchvision's `RandomCrop(side, padding)`. Draws the row, then the column.
///
/// Returns an error if the image with its border is smaller than the box.
pub fn random_crop(
    words: &mut impl Words,
    (width, height): (u32, u32),
    side: u32,
    padding: u32,
) -> Result<Window, PixelError> {
    let room = |length: u32| (u64::from(length) + 2 * u64::from(padding)).checked_sub(u64::from(side));
    let (Some(across), Some(down)) = (room(width), room(height)) else {
        let message = format!("a crop of {side} does not fit into {width}x{height} pixels with a border of {padding}");
        return Err(PixelError::Unsupported { message });
    };
    let (y, x) = if across == 0 && down == 0 { (0, 0) } else { (words.below(down + 1), words.below(across + 1)) };
    Ok(Window { x: x as i64 - i64::from(padding), y: y as i64 - i64::from(padding), width: side, height: side })
}
