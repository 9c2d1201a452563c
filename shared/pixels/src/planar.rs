//! Images of three planes, as in CIFAR's files: read by rectangles as other images are, or cut straight into a sample's
//! row.
//!
//! Cutting interleaves the planes, mirrors, and surrounds with zeros in one pass. Sixteen output pixels side by side
//! come from sixteen neighbours of each plane, shuffled in the same way in every row. A table for each sixteen columns
//! ([`PlanarColumns`]) says which neighbour, if any, each of the 48 bytes is. The vector code (`x86`, `neon`) applies
//! it to one or two rows at a time.

#![allow(unsafe_code)]

#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::cmp::Ordering;
use std::ops::Range;

use crate::error::PixelError;
use crate::geometry::{Rect, Window};
use crate::interleave::{LANES, NONE, pixels, rgb_from_planes};
use crate::level::Level;
use crate::rows::{Band, ImageRows, Sink};

/// An image of three planes in memory.
pub(crate) struct Planes<'a> {
    width: u32,
    height: u32,
    planes: [&'a [u8]; 3],
    row: &'a mut Vec<u8>,
    level: Level,
}

impl<'a> Planes<'a> {
    /// Wraps the bytes of an image. Returns an error if they are not three planes of this size.
    pub fn new(
        (width, height): (u32, u32),
        bytes: &'a [u8],
        row: &'a mut Vec<u8>,
        level: Level,
    ) -> Result<Self, PixelError> {
        let expected = u128::from(width) * u128::from(height) * 3;
        if bytes.is_empty() {
            return Err(PixelError::Empty);
        }
        let message = || format!("{} bytes are not three planes of {width}x{height}", bytes.len());
        match (bytes.len() as u128).cmp(&expected) {
            Ordering::Less => Err(PixelError::Truncated { source: message().into() }),
            Ordering::Greater => Err(PixelError::Malformed { source: message().into() }),
            Ordering::Equal => {
                let (red, rest) = bytes.split_at(bytes.len() / 3);
                let (green, blue) = rest.split_at(bytes.len() / 3);
                Ok(Self { width, height, planes: [red, green, blue], row, level })
            }
        }
    }
}

impl ImageRows for Planes<'_> {
    fn size(&self) -> (u32, u32) {
        (self.width, self.height)
    }

    fn read(&mut self, rect: Rect, sink: Sink<'_>) -> Result<(), PixelError> {
        let columns = rect.width as usize;
        self.row.resize(columns * 3, 0);
        for y in 0..rect.height {
            let start = (rect.y + y) as usize * self.width as usize + rect.x as usize;
            rgb_from_planes(self.planes.map(|plane| &plane[start..][..columns]), self.row);
            sink(Band { y, rows: 1, columns: rect.width, left: 0, pixels: self.row })?;
        }
        Ok(())
    }

    fn cut_directly(&mut self, window: Window, flip: bool, out: &mut [u8]) -> bool {
        cut(self.level, &self.planes, (self.width, self.height), window, flip, out);
        true
    }
}

/// Writes the pixels of a window, mirrored if `flip` is set; pixels outside the image are zero.
fn cut(level: Level, planes: &[&[u8]; 3], size: (u32, u32), window: Window, flip: bool, out: &mut [u8]) {
    let (across, down) = (window.width as usize, window.height as usize);
    assert_eq!(out.len(), across * down * 3, "the window fits the output");
    let rows = within(window.y, down, size.1);
    if rows.is_empty() || within(window.x, across, size.0).is_empty() {
        return out.fill(0);
    }
    out[..rows.start * across * 3].fill(0);
    out[rows.end * across * 3..].fill(0);
    let top = (window.y + rows.start as i64) as usize;
    let width = size.0 as usize;
    let visible = Visible {
        planes: planes.map(|plane| &plane[top * width..(top + rows.len()) * width]),
        width,
        left: window.x,
        across,
        flip,
    };
    let out = &mut out[rows.start * across * 3..rows.end * across * 3];
    if width < LANES || across < LANES {
        return visible.by_pixels(out);
    }
    match level {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: an `Avx2` is made only where the processor has AVX2.
        Level::Avx2(_) => unsafe { x86::cut_by_two_rows(&visible, out) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a processor that has SSE4.1 has SSSE3.
        Level::Sse41(_) => unsafe { x86::cut(&visible, out) },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: every processor of this architecture's targets has NEON.
        Level::Base => unsafe { neon::cut(&visible, out) },
        #[cfg(not(target_arch = "aarch64"))]
        Level::Base => visible.by_pixels(out),
    }
}

/// Returns which of `length` positions, starting at `start`, lie in 0..`limit`, counted from the first of them.
fn within(start: i64, length: usize, limit: u32) -> Range<usize> {
    // Windows are at most some hundred thousand pixels wide and as far away: see the limits of pipelines.
    let place = |at: i64| (at - start).clamp(0, length as i64) as usize;
    place(0)..place(i64::from(limit))
}

/// The rows of a window that lie within the image.
struct Visible<'a> {
    /// Whole rows of the image in each plane, `width` pixels each.
    planes: [&'a [u8]; 3],
    width: usize,
    /// Column of the image at the window's left edge.
    left: i64,
    /// Width of the window in columns.
    across: usize,
    flip: bool,
}

/// The recipe for sixteen columns of the output, the same in every row.
struct PlanarColumns {
    /// Offset of the first of these columns in a row of the output, in bytes.
    out: usize,
    /// First of sixteen columns of the image that contain all visible ones.
    from: usize,
    /// For each output column, the image's column that it shows, counted from `from`, or [`NONE`].
    shown: [u8; LANES],
}

impl Visible<'_> {
    /// Returns the recipes for all columns of the output; the last sixteen may overlap those before them.
    fn columns(&self) -> impl Iterator<Item = PlanarColumns> {
        let last = self.across - LANES;
        (0..self.across).step_by(LANES).map(move |start| self.columns_from(start.min(last)))
    }

    fn columns_from(&self, start: usize) -> PlanarColumns {
        let first = if self.flip { self.across - LANES - start } else { start };
        // The image's column that the first of the sixteen shows, if the image has it.
        let left = self.left + first as i64;
        let from = left.clamp(0, (self.width - LANES) as i64);
        // The visible columns lie between `from` and `from` + 15: `from` is as near to `left` as it can be.
        let shift = (left - from).clamp(-(LANES as i64), LANES as i64) as u8;
        let shown = std::array::from_fn(|lane| {
            let lane = if self.flip { LANES - 1 - lane } else { lane } as u8;
            Some(lane.wrapping_add(shift)).filter(|&column| column < LANES as u8).unwrap_or(NONE)
        });
        PlanarColumns { out: start * 3, from: from as usize, shown }
    }

    fn by_pixels(&self, out: &mut [u8]) {
        let columns = within(self.left, self.across, self.width as u32);
        let from = (self.left + columns.start as i64).max(0) as usize;
        let shown = if self.flip { self.across - columns.end..self.across - columns.start } else { columns };
        for (y, row) in out.chunks_exact_mut(self.across * 3).enumerate() {
            row[..shown.start * 3].fill(0);
            row[shown.end * 3..].fill(0);
            let visible = &mut row[shown.start * 3..shown.end * 3];
            let planes = self.planes.map(|plane| &plane[y * self.width + from..][..shown.len()]);
            if self.flip {
                let (out, _) = visible.as_chunks_mut::<3>();
                out.iter_mut().rev().zip(pixels(planes)).for_each(|(out, pixel)| *out = pixel);
            } else {
                rgb_from_planes(planes, visible);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Cuts pixel by pixel, as the definition says.
    fn expected(planes: &[u8], (width, height): (u32, u32), window: Window, flip: bool) -> Vec<u8> {
        let plane = (width * height) as usize;
        let mut out = Vec::new();
        for y in 0..i64::from(window.height) {
            for column in 0..i64::from(window.width) {
                let column = if flip { i64::from(window.width) - 1 - column } else { column };
                let (x, y) = (window.x + column, window.y + y);
                let inside = (0..i64::from(width)).contains(&x) && (0..i64::from(height)).contains(&y);
                let at = y * i64::from(width) + x;
                out.extend((0..3).map(|channel| if inside { planes[channel * plane + at as usize] } else { 0 }));
            }
        }
        out
    }

    fn check(size: (u32, u32), window: Window, flip: bool) {
        let bytes: Vec<u8> =
            (0..size.0 * size.1 * 3).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8 | 1).collect();
        let wanted = expected(&bytes, size, window, flip);
        for level in Level::tested() {
            let mut row = Vec::new();
            let mut planes = Planes::new(size, &bytes, &mut row, level).unwrap();
            let mut out = vec![0xA5; wanted.len()];
            assert!(planes.cut_directly(window, flip, &mut out));
            assert!(out == wanted, "{size:?} {window:?} {flip} {level:?}");
        }
    }

    #[test]
    fn every_window_of_cifars_recipe_is_cut_as_defined() {
        for at in 0..81 {
            for flip in [false, true] {
                check((32, 32), Window { x: at % 9 - 4, y: at / 9 - 4, width: 32, height: 32 }, flip);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            rng_seed: proptest::test_runner::RngSeed::Fixed(67),
            ..ProptestConfig::with_cases(256)
        })]

        #[test]
        fn any_window_is_cut_as_defined(
            width in 1u32..70,
            height in 1u32..20,
            x in -90i64..90,
            y in -30i64..30,
            across in 1u32..90,
            down in 1u32..40,
            flip: bool,
        ) {
            check((width, height), Window { x, y, width: across, height: down }, flip);
        }
    }

    #[test]
    fn windows_far_outside_are_zero() {
        for (x, y) in [(200, 0), (-200, 0), (0, 200), (0, -200), (1 << 17, -(1 << 17))] {
            check((40, 30), Window { x, y, width: 33, height: 3 }, true);
        }
    }
}
