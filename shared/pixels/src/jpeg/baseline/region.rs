//! What of an image a rectangle needs: MCUs, and planes of their samples.

use std::ops::Range;

use super::header::Header;
use crate::rows::Rect;

/// Columns in front of a row of samples, for the neighbour of the first one, and behind it, for a block without a partner.
const PAD: usize = 16;

/// The MCUs that a rectangle needs.
///
/// Where a component is halved, a pixel is made of the samples next to its own as well (see [`super::upsample`]): one sample
/// more on each side.
pub struct Region {
    pub rect: Rect,
    /// Columns and rows of MCUs.
    pub columns: Range<u32>,
    pub rows: Range<u32>,
    /// Whether columns, and whether rows of pixels need neighbours.
    pub filters_columns: bool,
    pub filters_rows: bool,
}

impl Region {
    pub fn new(header: &Header<'_>, rect: Rect) -> Self {
        let (across, down) = (u32::from(header.sampling.across), u32::from(header.sampling.down));
        // libjpeg repeats samples where there are only one or two in a row.
        let is_wide = across == 1 || header.width.div_ceil(across) > 2;
        let (filters_columns, filters_rows) = (across == 2 && is_wide, down == 2 && is_wide);
        let span = |start: u32, length: u32, factor: u32, limit: u32, filters: bool| {
            let more = u32::from(filters);
            let first = (start / factor).saturating_sub(more);
            let last = ((start + length - 1) / factor + more).min(limit.div_ceil(factor) - 1);
            first / 8..last / 8 + 1
        };
        let columns = span(rect.x, rect.width, across, header.width, filters_columns);
        // libjpeg reads a row of MCUs ahead for both rows of pixels of the last samples, so this is what it would read.
        let rows = span(rect.y, rect.height, down, header.height, filters_rows);
        Self { rect, columns, rows, filters_columns, filters_rows }
    }
}

/// Where the samples of a component lie, those of three rows of MCUs: two that are made, and the one above them.
#[derive(Clone, Copy)]
pub struct Plane {
    /// Samples from one row to the next.
    pub stride: usize,
    /// Rows of samples in a row of MCUs.
    height: usize,
    /// The image's column of the first sample, and how many of its samples there are.
    left: usize,
    columns: usize,
    /// Whether they reach to the image's edge.
    to_the_edge: bool,
    /// Rows of the image's samples.
    rows: usize,
}

impl Plane {
    /// Rows of MCUs.
    const ROWS: usize = 3;

    /// The plane of a component with `across` × `down` blocks in an MCU and `size` samples in the image.
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

    /// Where the image's row of samples begins: rows of MCUs take turns in the parts of the plane.
    pub fn row(&self, y: usize) -> usize {
        (y / self.height % Self::ROWS * self.height + y % self.height) * self.stride + PAD
    }

    /// Samples of a row of the image, of the nearest one for a row out of it; `x` of them may lie before the image's first one.
    pub fn samples<'s>(&self, bytes: &'s [u8], y: isize, x: isize, count: usize) -> &'s [u8] {
        let y = y.clamp(0, self.rows as isize - 1) as usize;
        let at = (self.row(y) as isize + x - self.left as isize) as usize;
        &bytes[at..at + count]
    }

    /// Repeats the first and the last sample of the image's rows in a row of MCUs, as neighbours of themselves.
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
