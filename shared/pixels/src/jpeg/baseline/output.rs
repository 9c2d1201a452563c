//! Makes rows of pixels from planes of samples, and hands them out in bands.

use super::LeftToLibjpeg;
use super::header::{Color, JpegHeader};
use super::pixels::{self, Row, Samples};
use super::region::{Plane, Region};
use crate::error::PixelError;
use crate::level::Level;
use crate::rows::{BAND_BYTES, Band, Sink};

/// Reason why reading ended early.
pub enum Stop {
    /// The file has to be decoded by libjpeg.
    LeftToLibjpeg,
    /// The receiver of the pixels failed.
    Sink(PixelError),
}

impl From<LeftToLibjpeg> for Stop {
    fn from(LeftToLibjpeg: LeftToLibjpeg) -> Self {
        Self::LeftToLibjpeg
    }
}

/// Writer of the pixels of a rectangle.
pub struct Output<'o> {
    pub header: &'o JpegHeader<'o>,
    pub region: &'o Region,
    pub planes: [Plane; 3],
    pub level: Level,
    pub scratch: &'o mut pixels::RowScratch,
    pub band: &'o mut Vec<u8>,
    /// Rows of the rectangle handed out so far, and rows in the band.
    done: u32,
    waiting: u32,
}

impl<'o> Output<'o> {
    pub fn new(
        header: &'o JpegHeader<'o>,
        region: &'o Region,
        planes: [Plane; 3],
        level: Level,
        scratch: &'o mut pixels::RowScratch,
        band: &'o mut Vec<u8>,
    ) -> Self {
        Self { header, region, planes, level, scratch, band, done: 0, waiting: 0 }
    }

    /// Makes the pixels that a newly transformed row of MCUs allows, and hands them out whenever they fill a band.
    pub fn emit(&mut self, samples: &[Vec<u8>; 3], mcu_row: u32, sink: Sink<'_>) -> Result<(), Stop> {
        let rect = self.region.rect;
        let bytes = rect.width as usize * 3;
        let (_, mcu_height) = self.header.mcu_size();
        let most = u32::try_from(BAND_BYTES / bytes).unwrap_or(u32::MAX).max(mcu_height).min(rect.height);
        if self.band.len() < bytes * most as usize {
            self.band.resize(bytes * most as usize, 0);
        }
        // The last row of samples needs the row below it, which is not there yet.
        let below = (mcu_row + 1) * mcu_height - u32::from(self.region.filters_rows);
        let is_last = mcu_row + 1 == self.region.rows.end;
        let end = if is_last { rect.height } else { below.saturating_sub(rect.y).min(rect.height) };
        while self.done + self.waiting < end {
            let y = rect.y + self.done + self.waiting;
            let row = self.row(samples, y);
            let out = &mut self.band[self.waiting as usize * bytes..][..bytes];
            pixels::rgb(self.level, &row, self.scratch, out);
            self.waiting += 1;
            if self.waiting == most || self.done + self.waiting == rect.height {
                let pixels = &self.band[..self.waiting as usize * bytes];
                let band = Band { y: self.done, rows: self.waiting, columns: rect.width, left: 0, pixels };
                sink(band).map_err(Stop::Sink)?;
                self.done += self.waiting;
                self.waiting = 0;
            }
        }
        Ok(())
    }

    /// Returns the samples of a row of pixels.
    fn row<'s>(&self, samples: &'s [Vec<u8>; 3], y: u32) -> Row<'s> {
        let rect = self.region.rect;
        let (x, width) = (rect.x as isize, rect.width as usize);
        let first = self.planes[0].samples(&samples[0], y as isize, x, width);
        let color = self.header.color;
        if color == Color::Gray {
            return Row { color, first, lead: 0, others: [Samples::Each(&[]); 2] };
        }
        let lead = if self.header.sampling.across == 2 { (x % 2) as usize } else { 0 };
        let other = |part: usize| self.samples(&self.planes[part], &samples[part], y, lead + width);
        Row { color, first, lead, others: [other(1), other(2)] }
    }

    /// Returns the samples of the second or third component for `width` pixels, from the rectangle's first column or
    /// the one before it on.
    fn samples<'s>(&self, plane: &Plane, bytes: &'s [u8], y: u32, width: usize) -> Samples<'s> {
        let sampling = self.header.sampling;
        let x = self.region.rect.x as isize / sampling.across as isize;
        let count = width.div_ceil(usize::from(sampling.across));
        let near = y as isize / sampling.down as isize;
        let is_upper = y.is_multiple_of(2);
        let far = if is_upper { near - 1 } else { near + 1 };
        let plain = |y: isize| plane.samples(bytes, y, x, count);
        let wide = |y: isize| plane.samples(bytes, y, x - 1, count + 2);
        match (sampling.across, self.region.filters_columns, self.region.filters_rows) {
            (1, _, false) => Samples::Each(plain(near)),
            (1, _, true) => Samples::Down { near: plain(near), far: plain(far), is_upper },
            (_, false, _) => Samples::Repeated(plain(near)),
            (_, true, false) => Samples::Across(wide(near)),
            (_, true, true) => Samples::Both { near: wide(near), far: wide(far) },
        }
    }
}
