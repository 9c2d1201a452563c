//! Makes one row of pixels from the rows of its components.

#![allow(unsafe_code)]

use super::color;
use super::header::Color;
use super::upsample;
use crate::interleave::rgb_from_planes;
use crate::level::Level;

/// The samples of the second or third component for a row of pixels.
#[derive(Clone, Copy)]
pub enum Samples<'a> {
    /// One sample for each pixel.
    Each(&'a [u8]),
    /// Rows halved: the row that holds the pixels, and the neighbouring row, above them if `is_upper`.
    Down { near: &'a [u8], far: &'a [u8], is_upper: bool },
    /// Columns halved: the samples of the pixels, with one neighbour on each side.
    Across(&'a [u8]),
    /// Columns and rows halved: both rows, with neighbours.
    Both { near: &'a [u8], far: &'a [u8] },
    /// Columns halved, in an image with fewer than three samples across.
    Repeated(&'a [u8]),
}

/// The samples of a row of pixels.
pub struct Row<'a> {
    pub color: Color,
    pub first: &'a [u8],
    /// Number of pixels, 0 or 1, that the other components' samples cover before the row's first pixel.
    pub lead: usize,
    pub others: [Samples<'a>; 2],
}

/// Reusable rows at full width.
#[derive(Default)]
pub struct RowScratch {
    full: [Vec<u8>; 2],
    sums: Vec<u16>,
}

/// Makes a row of RGB.
pub fn rgb(level: Level, row: &Row<'_>, scratch: &mut RowScratch, out: &mut [u8]) {
    match level {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: an `Avx2` is made only where the processor has AVX2.
        Level::Avx2(_) => unsafe { rgb_avx2(row, scratch, out) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: an `Sse41` is made only where the processor has SSE4.1.
        Level::Sse41(_) => unsafe { rgb_sse41(row, scratch, out) },
        Level::Base => rgb_with(row, scratch, out, color::rgb_from_ycbcr),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn rgb_avx2(row: &Row<'_>, scratch: &mut RowScratch, out: &mut [u8]) {
    rgb_with(row, scratch, out, |luma, blue, red, out| color::x86::rgb_from_ycbcr(luma, blue, red, out));
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.1")]
fn rgb_sse41(row: &Row<'_>, scratch: &mut RowScratch, out: &mut [u8]) {
    rgb_with(row, scratch, out, color::rgb_from_ycbcr);
}

#[inline(always)]
fn rgb_with(row: &Row<'_>, scratch: &mut RowScratch, out: &mut [u8], convert: impl Fn(&[u8], &[u8], &[u8], &mut [u8])) {
    if row.color == Color::Gray {
        return color::rgb_from_gray(row.first, out);
    }
    let RowScratch { full: [second, third], sums } = scratch;
    let width = row.lead + row.first.len();
    let second = full(row.others[0], width, second, sums);
    let third = full(row.others[1], width, third, sums);
    let (second, third) = (&second[row.lead..width], &third[row.lead..width]);
    match row.color {
        Color::Rgb => rgb_from_planes([row.first, second, third], out),
        _ => convert(row.first, second, third, out),
    }
}

/// Returns the samples at full width.
#[inline(always)]
fn full<'a>(samples: Samples<'a>, width: usize, buffer: &'a mut Vec<u8>, sums: &mut Vec<u16>) -> &'a [u8] {
    let even = width.next_multiple_of(2);
    if buffer.len() < even {
        buffer.resize(even, 0);
    }
    let out = &mut buffer[..even];
    match samples {
        Samples::Each(samples) => return samples,
        Samples::Down { near, far, is_upper } => upsample::down(near, far, is_upper, out),
        Samples::Across(samples) => upsample::across(samples, out),
        Samples::Both { near, far } => {
            if sums.len() < near.len() {
                sums.resize(near.len(), 0);
            }
            let sums = &mut sums[..near.len()];
            upsample::blend(near, far, sums);
            upsample::across_sums(sums, out);
        }
        Samples::Repeated(samples) => upsample::repeat(samples, out),
    }
    out
}
