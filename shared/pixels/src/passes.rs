//! Takes an image through the steps of a pipeline: the first one reads the image, the last one writes the output.

use std::mem;

use crate::draw::Draw;
use crate::error::PixelError;
use crate::geometry::{self, Step, Window};
use crate::pipeline::Pipeline;
use crate::resize::Scaler;
use crate::rows::{Interleaved, Rect, Rows};
use crate::source::Limits;

/// Reusable scratch of the passes.
#[derive(Default)]
pub(crate) struct Passes {
    /// The image before and after a step that is neither the first nor the last.
    before: Vec<u8>,
    after: Vec<u8>,
    /// A cut-out that reaches out of the image, before it is resized.
    padded: Vec<u8>,
    scaler: Scaler,
}

impl Passes {
    /// Gives back scratch that is larger than `kept`.
    pub fn trim(&mut self, kept: usize) {
        for buffer in [&mut self.before, &mut self.after, &mut self.padded] {
            if buffer.capacity() > kept {
                *buffer = Vec::new();
            }
        }
        self.scaler.trim(kept);
    }

    /// Applies a pipeline to an image.
    pub fn run(
        &mut self,
        image: &mut dyn Rows,
        pipeline: &Pipeline,
        draw: Draw,
        limits: Limits,
        out: &mut [u8],
    ) -> Result<(), PixelError> {
        let steps = geometry::steps(pipeline, image.size(), draw)?;
        limits.check_memory(bytes_between(&steps, image.size()))?;
        let last = steps.len() - 1;
        let mut size = image.size();
        for (index, step) in steps.iter().enumerate() {
            let mut before = mem::take(&mut self.before);
            let mut after = mem::take(&mut self.after);
            let target = if index == last { &mut *out } else { limits.resize(&mut after, image_bytes(step.size()))? };
            if index == 0 {
                self.step(image, step, limits, target)?;
            } else {
                let mut previous = Interleaved { width: size.0, height: size.1, pixels: &before };
                self.step(&mut previous, step, limits, target)?;
            }
            mem::swap(&mut before, &mut after);
            (self.before, self.after) = (before, after);
            size = step.size();
        }
        Ok(())
    }

    /// Writes all of an image to `out`, resized to `size` where that is another one.
    pub fn whole(
        &mut self,
        image: &mut dyn Rows,
        size: (u32, u32),
        limits: Limits,
        out: &mut [u8],
    ) -> Result<(), PixelError> {
        let (width, height) = image.size();
        let resize = (size != (width, height)).then_some(size);
        let step = Step { window: Window::whole(width, height), resize, flip: false };
        limits.check_memory(bytes_between(std::slice::from_ref(&step), (width, height)))?;
        self.step(image, &step, limits, out)
    }

    fn step(&mut self, image: &mut dyn Rows, step: &Step, limits: Limits, out: &mut [u8]) -> Result<(), PixelError> {
        let window = step.window;
        match step.resize {
            None => cut(image, window, out)?,
            Some(target) => {
                self.scaler.make_room(image_bytes((target.0, window.height)), limits)?;
                if let Some(rect) = visible(window, image.size()).filter(|_| window.lies_within(image.size())) {
                    self.scaler.resize(image, rect, target, out)?;
                } else {
                    let (width, height) = (window.width, window.height);
                    let pixels = limits.resize(&mut self.padded, image_bytes((width, height)))?;
                    cut(image, window, pixels)?;
                    let rect = Rect { x: 0, y: 0, width, height };
                    self.scaler.resize(&mut Interleaved { width, height, pixels }, rect, target, out)?;
                }
            }
        }
        if step.flip {
            mirror(out, step.size().0);
        }
        Ok(())
    }
}

fn image_bytes((width, height): (u32, u32)) -> u64 {
    (u64::from(width) * u64::from(height)).saturating_mul(3)
}

/// Bytes of all images that the steps make between the image and the output.
fn bytes_between(steps: &[Step], mut size: (u32, u32)) -> u64 {
    let mut total = 0u64;
    for (index, step) in steps.iter().enumerate() {
        if let Some((width, _)) = step.resize {
            total = total.saturating_add(image_bytes((width, step.window.height)));
            if !step.window.lies_within(size) {
                total = total.saturating_add(image_bytes((step.window.width, step.window.height)));
            }
        }
        size = step.size();
        if index + 1 < steps.len() {
            total = total.saturating_add(image_bytes(size));
        }
    }
    total
}

/// The part of a window that lies within an image.
fn visible(window: Window, (width, height): (u32, u32)) -> Option<Rect> {
    let span = |start: i64, length: u32, limit: u32| {
        let first = start.clamp(0, i64::from(limit));
        let end = (start + i64::from(length)).clamp(0, i64::from(limit));
        // Both lie in 0..=limit, a u32.
        (end > first).then_some((first as u32, (end - first) as u32))
    };
    let (x, across) = span(window.x, window.width, width)?;
    let (y, down) = span(window.y, window.height, height)?;
    Some(Rect { x, y, width: across, height: down })
}

/// Copies a window of an image into `out`; pixels out of the image are zero.
fn cut(image: &mut dyn Rows, window: Window, out: &mut [u8]) -> Result<(), PixelError> {
    let row_bytes = window.width as usize * 3;
    let Some(rect) = visible(window, image.size()) else {
        out.fill(0);
        return Ok(());
    };
    if !window.lies_within(image.size()) {
        out.fill(0);
    }
    let left = (i64::from(rect.x) - window.x) as usize * 3;
    let top = (i64::from(rect.y) - window.y) as usize;
    image.read(rect, &mut |band| {
        for y in 0..band.rows {
            let start = (top + (band.y + y) as usize) * row_bytes + left;
            let row = band.row(y, rect.width);
            out[start..start + row.len()].copy_from_slice(row);
        }
        Ok(())
    })
}

/// Mirrors RGB rows left to right in place.
fn mirror(pixels: &mut [u8], width: u32) {
    for row in pixels.chunks_exact_mut(width as usize * 3) {
        let (pixels, _) = row.as_chunks_mut::<3>();
        pixels.reverse();
    }
}
