//! The part of an image that a rectangle needs: MCUs, and planes of their samples.

use std::ops::Range;

use super::header::Subsampling;
use crate::geometry::Rect;

/// Columns before a row of samples, for the first sample's neighbour, and after it, for a block without a partner.
const PAD: usize = 16;

/// The MCUs that a rectangle needs.
///
/// A pixel of a halved component also needs the samples next to its own (see [`super::upsample`]): one more sample on
/// each side.
pub struct Region {
    pub rect: Rect,
    /// Columns and rows of MCUs.
    pub columns: Range<u32>,
    pub rows: Range<u32>,
    /// Whether columns of pixels need neighbours, and whether rows of pixels do.
    pub filters_columns: bool,
    pub filters_rows: bool,
}

impl Region {
    /// Finds what a rectangle needs of an image of this size.
    pub fn new(sampling: Subsampling, (width, height): (u32, u32), rect: Rect) -> Self {
        let (across, down) = (u32::from(sampling.across), u32::from(sampling.down));
        // libjpeg repeats samples if a row has only one or two of them.
        let is_wide = across == 1 || width.div_ceil(across) > 2;
        let (filters_columns, filters_rows) = (across == 2 && is_wide, down == 2 && is_wide);
        let span = |start: u32, length: u32, factor: u32, limit: u32, filters: bool| {
            let more = u32::from(filters);
            let first = (start / factor).saturating_sub(more);
            let last = ((start + length - 1) / factor + more).min(limit.div_ceil(factor) - 1);
            first / 8..last / 8 + 1
        };
        let columns = span(rect.x, rect.width, across, width, filters_columns);
        // Where two rows of pixels share a row of samples, only the lower one needs the next row of samples. libjpeg
        // reads the next row of MCUs for either, and so does this decoder.
        let rows = span(rect.y, rect.height, down, height, filters_rows);
        Self { rect, columns, rows, filters_columns, filters_rows }
    }
}

/// Place of a component's samples for three rows of MCUs: two that are being made, and the row above them.
#[derive(Clone, Copy)]
pub struct Plane {
    /// Distance in samples from one row to the next.
    pub stride: usize,
    /// Rows of samples in a row of MCUs.
    height: usize,
    /// Column in the image of the first sample, and number of samples that lie in the image.
    left: usize,
    columns: usize,
    /// Whether the samples reach the image's right edge.
    to_the_edge: bool,
    /// Rows of samples in the image.
    rows: usize,
}

impl Plane {
    /// Rows of MCUs in a plane.
    const ROWS: usize = 3;

    /// Describes the plane of a component with `across` × `down` blocks in an MCU and `size` samples in the image.
    pub fn new(region: &Region, (across, down): (u32, u32), size: (u32, u32)) -> Self {
        let left = (region.columns.start * across * 8) as usize;
        let room = region.columns.len() * across as usize * 8;
        let rest = size.0 as usize - left;
        Self {
            stride: PAD + room + PAD,
            height: 8 * down as usize,
            left,
            columns: room.min(rest),
            to_the_edge: rest <= room,
            rows: size.1 as usize,
        }
    }

    pub fn bytes(&self) -> usize {
        Self::ROWS * self.height * self.stride
    }

    /// Returns the offset of the image's row of samples `y`. Rows of MCUs use the three parts of the plane in turn.
    pub fn row(&self, y: usize) -> usize {
        (y / self.height % Self::ROWS * self.height + y % self.height) * self.stride + PAD
    }

    /// Returns samples of the image's row `y`, or of the nearest row if `y` is outside the image. `x` may be −1, for
    /// the neighbour of the first sample.
    pub fn samples<'s>(&self, bytes: &'s [u8], y: isize, x: isize, count: usize) -> &'s [u8] {
        let y = y.clamp(0, self.rows as isize - 1) as usize;
        let at = (self.row(y) as isize + x - self.left as isize) as usize;
        &bytes[at..at + count]
    }

    /// Repeats the first and the last sample of the image's rows in a row of MCUs, to serve as their own neighbours.
    pub fn repeat_edges(&self, bytes: &mut [u8], mcu_row: u32) {
        let top = self.row(mcu_row as usize * self.height);
        for at in (0..self.height).map(|y| top + y * self.stride) {
            if self.left == 0 {
                bytes[at - 1] = bytes[at];
            }
            if self.to_the_edge {
                bytes[at + self.columns] = bytes[at + self.columns - 1];
            }
        }
    }
}
