//! Differences between the channels of a pixel.

use std::ops::Range;

use crate::planes::{Plane, Planes};

/// What the first and the third plane of an RGB patch hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Color {
    /// Red and blue.
    Plain = 0,
    /// Red minus green plus 128, and blue minus green plus 128, modulo 256.
    MinusGreen = 1,
}

/// A difference of 0 between two channels. In the middle of the values, so that means of differences do not wrap.
pub const NEUTRAL: u8 = 128;

impl Color {
    /// Returns the transform with a number.
    pub fn of_number(number: u8) -> Option<Self> {
        [Self::Plain, Self::MinusGreen].get(usize::from(number)).copied()
    }
}

/// Returns a channel minus green.
#[inline(always)]
pub fn minus_green(channel: &Plane, green: &Plane, height: usize) -> Plane {
    let mut difference = [[0; 64]; 64];
    for ((difference, channel), green) in difference.iter_mut().zip(channel).zip(green).take(height) {
        *difference = std::array::from_fn(|x| channel[x].wrapping_sub(green[x]).wrapping_add(NEUTRAL));
    }
    difference
}

/// Writes columns and rows of an RGB patch as pixels, whose rows are `stride` bytes apart.
#[inline(always)]
pub fn write_rgb(
    planes: &Planes,
    color: Color,
    columns: Range<usize>,
    rows: Range<usize>,
    target: &mut [u8],
    stride: usize,
) {
    for (y, pixels) in rows.zip(target.chunks_mut(stride)) {
        write_row(planes, color, y, columns.start, &mut pixels[..3 * columns.len()]);
    }
}

/// Writes columns from `begin` on of row `y` as pixels of three bytes, as many as `pixels` has place for.
#[inline(always)]
pub fn write_row(planes: &Planes, color: Color, y: usize, begin: usize, pixels: &mut [u8]) {
    let [red, green, blue] = planes.each_ref().map(|plane| &plane[y][begin..]);
    let channels = red.iter().zip(green).zip(blue);
    for (pixel, ((&red, &green), &blue)) in pixels.chunks_exact_mut(3).zip(channels) {
        let base = match color {
            Color::Plain => 0,
            Color::MinusGreen => green.wrapping_sub(NEUTRAL),
        };
        pixel.copy_from_slice(&[red.wrapping_add(base), green, blue.wrapping_add(base)]);
    }
}
