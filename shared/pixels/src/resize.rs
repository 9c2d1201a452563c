//! Antialiased resizing in u8 fixed point: columns first, while rows come in, then rows, as soon as all inputs of a row
//! are there. Between the passes lie only as many rows as the filter is high.
//!
//! The filters, the order of the passes and the rounding to u8 between them are Pillow's. Weights are the same on every
//! machine (see `filter` and `weights`). The passes are integer sums: vector instructions add them in another order,
//! with the same result to the bit. `columns` and `rows` say what is made, `x86` and `neon` how.

mod columns;
mod filter;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod groups;
mod nearest;
#[cfg(target_arch = "aarch64")]
mod neon;
mod rows;
mod weights;
#[cfg(target_arch = "x86_64")]
mod x86;

use crate::error::PixelError;
use crate::geometry::Rect;
use crate::level::Level;
use crate::limits::Limits;
use crate::rows::{Band, ImageRows};
use columns::{Columns, ROWS_AT_ONCE};
use std::ops::Range;
use weights::{Lengths, Weights};

pub use filter::Resampling;

/// The rectangle of an image to resize, and the part of the result to make.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resizing {
    /// Rectangle of the image. Pixels around it do not matter.
    pub rect: Rect,
    /// Width and height that the rectangle is resized to.
    pub size: (u32, u32),
    /// How a value is made.
    pub interpolation: Resampling,
    /// Part of the result that is made.
    pub part: Rect,
    /// Whether that part is mirrored left to right.
    pub mirrored: bool,
}

impl Resizing {
    /// Returns the rectangle of the image that is read: all of `rect`, or less if only a part of the result is made.
    pub fn source(&self) -> Rect {
        let Self { rect, size, part, interpolation, .. } = self;
        let span = |inputs, outputs, part: Range<u32>| match interpolation.smooth() {
            None => nearest::span(inputs, outputs, &part),
            Some(filter) => Lengths { inputs, outputs, filter }.span(&part),
        };
        let across = span(rect.width, size.0, part.x..part.x + part.width);
        let down = span(rect.height, size.1, part.y..part.y + part.height);
        Rect {
            x: rect.x + across.start,
            y: rect.y + down.start,
            width: across.end - across.start,
            height: down.end - down.start,
        }
    }
}

/// Resizer with reusable scratch memory and the weights of its last call.
pub(crate) struct Scaler {
    level: Level,
    columns: Columns,
    rows: Weights,
    /// Rows between the passes.
    between: Vec<u8>,
    /// The column from which each column of the result comes, when it comes from the nearest one.
    nearest: Vec<u32>,
}

impl Default for Scaler {
    fn default() -> Self {
        Self::new(Level::best())
    }
}

impl Scaler {
    /// Makes a resizer that uses these vector instructions.
    pub fn new(level: Level) -> Self {
        Self { level, columns: Columns::default(), rows: Weights::default(), between: Vec::new(), nearest: Vec::new() }
    }

    /// Frees scratch memory that is larger than `kept` bytes.
    pub fn trim(&mut self, kept: usize) {
        if self.between.capacity() > kept {
            self.between = Vec::new();
        }
        if self.nearest.capacity() * size_of::<u32>() > kept {
            self.nearest = Vec::new();
        }
        if self.columns.bytes() > kept {
            self.columns = Columns::default();
        }
        if self.rows.bytes() > kept {
            self.rows = Weights::default();
        }
    }

    /// Resizes into `out`, rows of RGB as wide as `resizing.part`.
    pub fn resize(
        &mut self,
        image: &mut dyn ImageRows,
        resizing: &Resizing,
        limits: Limits,
        out: &mut [u8],
    ) -> Result<(), PixelError> {
        let Some(filter) = resizing.interpolation.smooth() else {
            return nearest::resize(image, resizing, &mut self.nearest, limits, out);
        };
        let Resizing { rect, size, part, mirrored, .. } = *resizing;
        let source = resizing.source();
        let across = part.x..part.x + part.width;
        let columns = Lengths { inputs: rect.width, outputs: size.0, filter };
        self.columns.make(self.level, columns, &across, mirrored, limits)?;
        let rows = Lengths { inputs: rect.height, outputs: size.1, filter };
        let keeps_rows = rows.are_equal();
        if !keeps_rows {
            self.rows.make(rows, &(part.y..part.y + part.height), limits)?;
        }
        let stride = self.columns.stride();
        let high = if keeps_rows { 1 } else { self.rows.taps };
        // Twice as many rows as necessary, so that rows are seldom moved to the front, and one more row for an odd
        // number of weights.
        let room = (2 * high + 4 * ROWS_AT_ONCE).min(source.height as usize + ROWS_AT_ONCE);
        // The limit needs no check here: it was checked for more pixels than these. Only some space behind each row
        // comes on top.
        limits.resize_allowed(&mut self.between, (room + 1) * stride)?;
        let mut flow = Flow {
            level: self.level,
            columns: &self.columns,
            rows: (!keeps_rows).then_some(&self.rows),
            between: &mut self.between,
            stride,
            room,
            first: 0,
            filled: 0,
            out: out.chunks_exact_mut(part.width as usize * 3),
            made: 0,
        };
        image.read(source, &mut |band| {
            flow.take(&band, source.width);
            Ok(())
        })?;
        flow.make_rows();
        Ok(())
    }
}

/// Rows on their way through both passes.
struct Flow<'f> {
    level: Level,
    columns: &'f Columns,
    /// Weights of the pass over rows; `None` if rows are not resized.
    rows: Option<&'f Weights>,
    between: &'f mut [u8],
    stride: usize,
    /// Number of rows that fit between the passes; index in the source of the first row there; number of rows there.
    room: usize,
    first: usize,
    filled: usize,
    out: std::slice::ChunksExactMut<'f, u8>,
    /// Number of rows of the output made so far.
    made: usize,
}

impl Flow<'_> {
    fn take(&mut self, band: &Band<'_>, width: u32) {
        let mut y = 0;
        while y < band.rows {
            if self.filled + ROWS_AT_ONCE > self.room {
                self.make_rows();
                self.move_to_front();
            }
            let out = &mut self.between[self.filled * self.stride..][..ROWS_AT_ONCE * self.stride];
            let count = (band.rows - y).min(ROWS_AT_ONCE as u32);
            if count as usize == ROWS_AT_ONCE {
                let rows = std::array::from_fn(|row| band.row(y + row as u32, width));
                self.columns.make_rows(self.level, rows, out);
            } else {
                for (row, out) in (y..band.rows).zip(out.chunks_exact_mut(self.stride)) {
                    self.columns.make_row(self.level, band.row(row, width), out);
                }
            }
            y += count;
            self.filled += count as usize;
        }
    }

    /// Returns the first input row of the next output row, and the number of its inputs.
    fn next(&self) -> Option<(usize, usize)> {
        match self.rows {
            None => Some((self.made, 1)),
            Some(weights) => weights.inputs.get(self.made).map(|&(first, count)| (first as usize, count as usize)),
        }
    }

    /// Makes all rows of the output whose inputs are there.
    fn make_rows(&mut self) {
        while let Some((first, count)) = self.next().filter(|(first, count)| first + count <= self.first + self.filled)
        {
            let Some(out) = self.out.next() else { return };
            let inputs = &self.between[(first - self.first) * self.stride..];
            match self.rows {
                None => out.copy_from_slice(&inputs[..out.len()]),
                Some(weights) => {
                    let values = &weights.of(self.made)[..count.next_multiple_of(2)];
                    rows::make_row(self.level, inputs, self.stride, values, weights.bits, out);
                }
            }
            self.made += 1;
        }
    }

    /// Drops the rows that no further output row needs.
    fn move_to_front(&mut self) {
        let end = self.first + self.filled;
        let first = self.next().map_or(end, |(first, _)| first.min(end));
        self.between.copy_within((first - self.first) * self.stride..self.filled * self.stride, 0);
        (self.first, self.filled) = (first, end - first);
    }
}

#[cfg(test)]
mod tests;
