//! Takes an image through the steps of a pipeline: the first pass reads the image, the last one writes the output. No
//! pass makes a pixel that the next pass does not read.
//!
//! A pass moves pixels (warps, calls a function, cuts out, resizes, mirrors), then changes their values. A change that
//! needs the surroundings of a pixel, or the whole image, says which rectangle it needs; the pass moves that much.

use std::mem;

use crate::error::PixelError;
use crate::function::{CallMemory, Functions};
use crate::geometry::{Border, Rect, Window};
use crate::level::Level;
use crate::limits::{Limits, Scratch};
use crate::mirror::mirror;
use crate::ops::Cutout;
use crate::resize::Scaler;
use crate::rows::{ImageRows, Interleaved, Part};
use crate::steps::{Change, Remake, Step, Steps};
use crate::warp::{WarpMemory, Warped};

mod branch;
mod plan;

pub(crate) use branch::Branch;
pub(crate) use plan::PassPlan;
use plan::{Pass, before_changes};

/// Reusable scratch memory of the passes.
#[derive(Default)]
pub(crate) struct Passes {
    /// Images before and after a pass that is neither the first nor the last.
    before: Vec<u8>,
    after: Vec<u8>,
    /// A cut-out that reaches out of the image, before it is resized.
    padded: Vec<u8>,
    /// The part of the image that a border is made of, unless the border has one colour.
    bordered: Vec<u8>,
    /// The rectangle that a change of values needs, and the one that it makes.
    needed: Vec<u8>,
    changed: Vec<u8>,
    /// Scratch memory of a change of values.
    between: Vec<u16>,
    branch: Branch,
    scaler: Scaler,
    warped: WarpMemory,
    called: CallMemory,
    /// What a pipeline's operation `Function` calls.
    functions: Functions,
}

impl Passes {
    /// Makes passes that call these functions.
    pub fn calling(functions: Functions) -> Self {
        Self { functions, ..Self::default() }
    }

    /// Frees scratch memory that is larger than `kept` bytes.
    pub fn trim(&mut self, kept: usize) {
        let Self {
            before,
            after,
            padded,
            bordered,
            needed,
            changed,
            between,
            branch,
            scaler,
            warped,
            called,
            functions: _,
        } = self;
        for buffer in [before, after, padded, bordered, needed, changed] {
            if buffer.capacity() > kept {
                *buffer = Vec::new();
            }
        }
        if between.capacity() * size_of::<u16>() > kept {
            *between = Vec::new();
        }
        branch.trim(kept);
        scaler.trim(kept);
        warped.trim(kept);
        called.trim(kept);
    }

    /// Takes an image through the passes that are planned for its size.
    pub fn run(
        &mut self,
        image: &mut dyn ImageRows,
        plan: &PassPlan,
        limits: Limits,
        out: &mut [u8],
    ) -> Result<(), PixelError> {
        limits.check_memory(bytes_between(&plan.steps, image.size()))?;
        let made = plan.passes.last().map(|pass| image_bytes((pass.made.width, pass.made.height)));
        assert_eq!(Some(out.len() as u64), made, "the output has the pipeline's shape");
        let last = plan.passes.len() - 1;
        for (index, pass) in plan.passes.iter().enumerate() {
            let mut before = mem::take(&mut self.before);
            let mut after = mem::take(&mut self.after);
            let size = (pass.made.width, pass.made.height);
            let target = if index == last { &mut *out } else { limits.resize(&mut after, image_bytes(size))? };
            let (changes, remake) = (plan.changes(pass), plan.remake(pass));
            if index == 0 {
                self.pass(image, pass, (remake, changes), limits, target)?;
            } else {
                let previous = &plan.passes[index - 1];
                let size = (previous.part.width, previous.part.height);
                let mut image = Part { size, part: previous.made, pixels: &before };
                self.pass(&mut image, pass, (remake, changes), limits, target)?;
            }
            mem::swap(&mut before, &mut after);
            (self.before, self.after) = (before, after);
        }
        Ok(())
    }

    /// Writes a whole image to `out`, resized to `size` if that differs.
    pub fn whole(
        &mut self,
        image: &mut dyn ImageRows,
        size: (u32, u32),
        limits: Limits,
        out: &mut [u8],
    ) -> Result<(), PixelError> {
        let (width, height) = image.size();
        let resize = (size != (width, height)).then_some(size);
        let step = Step::resizing((width, height), resize);
        let steps = Steps { steps: vec![step], ..Steps::default() };
        limits.check_memory(bytes_between(&steps, (width, height)))?;
        self.pass(image, &Pass::new(step), (None, &[]), limits, out)
    }

    /// Makes the rectangle that the next pass reads.
    fn pass(
        &mut self,
        image: &mut dyn ImageRows,
        pass: &Pass,
        (remake, changes): (Option<&Remake>, &[Change]),
        limits: Limits,
        out: &mut [u8],
    ) -> Result<(), PixelError> {
        let Some(last_area) = changes.iter().rposition(|change| matches!(change, Change::Area(_))) else {
            self.shift(image, pass, remake, limits, out)?;
            changes.iter().for_each(|change| change_points(change, out));
            return Ok(());
        };
        let (mut needed, mut changed) = (mem::take(&mut self.needed), mem::take(&mut self.changed));
        let moved = limits.resize(&mut needed, image_bytes((pass.moved.width, pass.moved.height)))?;
        self.shift(image, pass, remake, limits, moved)?;
        let mut rect = pass.moved;
        for (index, change) in changes.iter().enumerate() {
            match change {
                Change::Point(point) if index > last_area => point.change(out),
                Change::Point(point) => point.change(&mut needed),
                Change::Area(area) => {
                    let made = before_changes(&changes[index + 1..], pass.result(), pass.step);
                    let mut scratch = Scratch { limits, memory: &mut self.between, branch: &mut self.branch };
                    let from = Cutout { size: pass.step.size(), rect, pixels: &needed };
                    if index == last_area {
                        area.make(&from, made, &mut scratch, out)?;
                    } else {
                        let bytes = image_bytes((made.width, made.height));
                        area.make(&from, made, &mut scratch, limits.resize(&mut changed, bytes)?)?;
                        mem::swap(&mut needed, &mut changed);
                    }
                    rect = made;
                }
            }
        }
        (self.needed, self.changed) = (needed, changed);
        Ok(())
    }

    /// Warps or calls, cuts out, resizes and mirrors: makes the rectangle of the step's result that its changes of
    /// values need.
    fn shift(
        &mut self,
        image: &mut dyn ImageRows,
        pass: &Pass,
        remake: Option<&Remake>,
        limits: Limits,
        out: &mut [u8],
    ) -> Result<(), PixelError> {
        match remake {
            None => self.shift_remade(image, pass, limits, out),
            Some(Remake::Warp(warp)) => {
                let mut memory = mem::take(&mut self.warped);
                let mut image = Warped::new(image, warp, &mut memory, limits);
                let is_cut = pass.step.resize.is_none() && !pass.step.flip && image.cut(pass.window(), out)?;
                if !is_cut {
                    self.shift_remade(&mut image, pass, limits, out)?;
                }
                self.warped = memory;
                Ok(())
            }
            Some(Remake::Call(call)) => {
                let mut memory = mem::take(&mut self.called);
                call.make(image, &self.functions, &mut memory, limits)?;
                let mut image = Interleaved { width: call.size.0, height: call.size.1, pixels: &memory.made };
                self.shift_remade(&mut image, pass, limits, out)?;
                self.called = memory;
                Ok(())
            }
        }
    }

    fn shift_remade(
        &mut self,
        image: &mut dyn ImageRows,
        pass: &Pass,
        limits: Limits,
        out: &mut [u8],
    ) -> Result<(), PixelError> {
        let size = image.size();
        let Step { window, border, flip, .. } = pass.step;
        if let Some(resizing) = pass.resizing(size) {
            self.scaler.resize(image, &resizing, limits, out)
        } else if let Some(resizing) = pass.resizing_of_cut_out() {
            let pixels = limits.resize(&mut self.padded, image_bytes((window.width, window.height)))?;
            cut(image, (window, border), false, &mut self.bordered, limits, pixels)?;
            let mut cut_out = Interleaved { width: window.width, height: window.height, pixels };
            self.scaler.resize(&mut cut_out, &resizing, limits, out)
        } else if (border == Border::default() || pass.window().lies_within(size))
            && image.cut_directly(pass.window(), flip, out)
        {
            Ok(())
        } else {
            cut(image, (pass.window(), border), flip, &mut self.bordered, limits, out)
        }
    }
}

fn change_points(change: &Change, pixels: &mut [u8]) {
    if let Change::Point(point) = change {
        point.change(pixels);
    }
}

fn image_bytes((width, height): (u32, u32)) -> u64 {
    (u64::from(width) * u64::from(height)).saturating_mul(3)
}

/// Returns the bytes of all images that the steps make between the source image and the output.
fn bytes_between(Steps { steps, changes, remakes }: &Steps, mut size: (u32, u32)) -> u64 {
    let mut total = 0u64;
    for (index, step) in steps.iter().enumerate() {
        match step.remake.map(|place| remakes[usize::from(place)]) {
            None => {}
            Some(Remake::Warp(_)) => total = total.saturating_add(image_bytes(size)),
            Some(Remake::Call(call)) => {
                total = total.saturating_add(image_bytes(size)).saturating_add(image_bytes(call.size));
                // What follows reads the image that the function makes.
                size = call.size;
            }
        }
        if let Some((width, _)) = step.resize {
            total = total.saturating_add(image_bytes((width, step.window.height)));
            if !step.window.lies_within(size) {
                total = total.saturating_add(image_bytes((step.window.width, step.window.height)));
            }
        }
        if !matches!(step.border, Border::Fill(_)) {
            total = total.saturating_add(image_bytes(size));
        }
        size = step.size();
        let (first, end) = step.changes;
        let images = changes[usize::from(first)..usize::from(end)].iter().map(|change| match change {
            Change::Point(_) => 0,
            Change::Area(area) => area.images(),
        });
        total = total.saturating_add(image_bytes(size).saturating_mul(images.max().unwrap_or(0)));
        if index + 1 < steps.len() {
            total = total.saturating_add(image_bytes(size));
        }
    }
    total
}

/// Copies a window of an image, with its border, into `out`, mirrored if `flip` is set. `bordered` is scratch memory.
pub(crate) fn cut(
    image: &mut dyn ImageRows,
    (window, border): (Window, Border),
    flip: bool,
    bordered: &mut Vec<u8>,
    limits: Limits,
    out: &mut [u8],
) -> Result<(), PixelError> {
    let size = image.size();
    if window.lies_within(size) {
        return cut_visible(image, window, flip, out);
    }
    if let Border::Fill(color) = border {
        out.as_chunks_mut::<3>().0.fill(color);
        return cut_visible(image, window, flip, out);
    }
    let Some(rect) = border.source_rect(window, size) else { return Ok(()) };
    let bordered = limits.resize(bordered, image_bytes((rect.width, rect.height)))?;
    cut_visible(image, rect.into(), false, bordered)?;
    copy_with_border(&Part { size, part: rect, pixels: bordered }, (window, border), flip, out);
    Ok(())
}

/// Copies the part of a window that lies within the image into `out`, mirrored if `flip` is set.
fn cut_visible(image: &mut dyn ImageRows, window: Window, flip: bool, out: &mut [u8]) -> Result<(), PixelError> {
    let row_bytes = window.width as usize * 3;
    let Some(rect) = window.visible(image.size()) else { return Ok(()) };
    let before = (i64::from(rect.x) - window.x) as usize;
    let left = 3 * if flip { (window.width - rect.width) as usize - before } else { before };
    let level = Level::best();
    let top = (i64::from(rect.y) - window.y) as usize;
    image.read(rect, &mut |band| {
        for y in 0..band.rows {
            let start = (top + (band.y + y) as usize) * row_bytes + left;
            let row = band.row(y, rect.width);
            let out = &mut out[start..start + row.len()];
            if flip {
                mirror(level, row, out);
            } else {
                out.copy_from_slice(row);
            }
        }
        Ok(())
    })
}

/// Copies a window of an image, with a border that is made of the image, into `out`, mirrored if `flip` is set. The
/// part of the image has all pixels that the window is made of.
fn copy_with_border(image: &Part<'_>, (window, border): (Window, Border), flip: bool, out: &mut [u8]) {
    let Rect { x: left, y: top, width, .. } = image.part;
    let pixels = image.pixels.as_chunks::<3>().0;
    for (y, row) in (window.y..).zip(out.chunks_exact_mut(window.width as usize * 3)) {
        let from = border.pixel(y, image.size.1).map_or(0, |y| (y - top) as usize * width as usize);
        let row = row.as_chunks_mut::<3>().0;
        for (x, pixel) in (window.x..).zip(&mut *row) {
            *pixel = pixels[from + border.pixel(x, image.size.0).map_or(0, |x| (x - left) as usize)];
        }
        if flip {
            row.reverse();
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
