//! Uncompressed images that have only some rows in memory. Each group of rows has a CRC32C, so every row that is
//! used is checked, at the cost of reading few others. Rows are checked and handed on in bands that stay in a core's
//! cache.

use std::fmt;
use std::ops::Range;

use crate::error::PixelError;
use crate::geometry::Rect;
use crate::rows::{BAND_BYTES, Band, ImageRows, Sink};

/// Bytes of a checksum.
const CHECKSUM_BYTES: usize = 4;

/// An image of 8-bit RGB, row by row without gaps, or whole groups of its rows.
#[derive(Clone, Copy)]
pub struct RawImage<'a> {
    /// Width in columns.
    pub width: u32,
    /// Height in rows.
    pub height: u32,
    /// EXIF orientation of the stored pixels, 1 to 8; 1 is upright.
    pub orientation: u8,
    /// Whether the image was larger before it was stored.
    pub was_shrunk: bool,
    /// Number of rows that share a checksum; the last group may have fewer.
    pub group_rows: u32,
    /// CRC32C of each group of the image, 4 bytes each, little-endian.
    pub checksums: &'a [u8],
    /// First row that is there, which begins a group.
    pub first_row: u32,
    /// Rows that are there: 3 × width bytes each.
    pub pixels: &'a [u8],
}

impl RawImage<'_> {
    /// Computes the CRC32C of each group of rows, for [`checksums`](Self::checksums).
    ///
    /// # Panics
    ///
    /// If `width` or `group_rows` is zero.
    pub fn checksums_of(pixels: &[u8], width: u32, group_rows: u32) -> Vec<u8> {
        let group = width as usize * 3 * group_rows as usize;
        pixels.chunks(group).flat_map(|group| crc32c::crc32c(group).to_le_bytes()).collect()
    }

    /// Returns the rows of all groups that hold some rows of an image `height` rows high; an empty range for no rows.
    ///
    /// # Panics
    ///
    /// If `group_rows` is zero.
    pub fn groups_of(rows: Range<u32>, height: u32, group_rows: u32) -> Range<u32> {
        if rows.is_empty() {
            return 0..0;
        }
        let end = u64::from(rows.end.div_ceil(group_rows)) * u64::from(group_rows);
        rows.start / group_rows * group_rows..end.min(height.into()) as u32
    }

    fn row_bytes(&self) -> u64 {
        u64::from(self.width) * 3
    }

    /// Returns the number of rows that are there.
    fn rows(&self) -> u64 {
        self.pixels.len() as u64 / self.row_bytes()
    }
}

impl fmt::Debug for RawImage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { width, height, orientation, first_row, pixels, .. } = self;
        let bytes = pixels.len();
        write!(f, "RawImage {{ {width}x{height}, orientation {orientation}, {bytes} bytes from row {first_row} on }}")
    }
}

/// The pixels of a [`RawImage`].
pub(crate) struct RawRows<'a>(RawImage<'a>);

impl<'a> RawRows<'a> {
    /// Wraps an image. Returns an error if its description is impossible.
    pub fn new(image: RawImage<'a>) -> Result<Self, PixelError> {
        let RawImage { width, height, orientation, group_rows, checksums, first_row, .. } = image;
        let is_image = width > 0 && height > 0 && group_rows > 0 && (1..=8).contains(&orientation);
        // No group shall have more rows than the image.
        let image = RawImage { group_rows: group_rows.min(height), ..image };
        let is_part = || {
            let end = u64::from(first_row) + image.rows();
            let ends_group = end == u64::from(height) || end.is_multiple_of(image.group_rows.into());
            let begins_group = first_row.is_multiple_of(image.group_rows);
            (image.pixels.len() as u64).is_multiple_of(image.row_bytes())
                && (image.pixels.is_empty() || begins_group && ends_group && end <= height.into())
        };
        if !is_image || checksums.len() / CHECKSUM_BYTES != height.div_ceil(group_rows) as usize || !is_part() {
            let message = format!("{image:?} with {} bytes of checksums of {group_rows} rows each", checksums.len());
            return Err(PixelError::Malformed { message });
        }
        Ok(Self(image))
    }

    /// Checks the checksums of whole groups of rows.
    fn check(&self, first_group: u32, groups: &[u8]) -> Result<(), PixelError> {
        let RawImage { group_rows, checksums, .. } = self.0;
        let group_bytes = (self.0.row_bytes() * u64::from(group_rows)) as usize;
        let stored = checksums.as_chunks::<CHECKSUM_BYTES>().0[first_group as usize..].iter();
        for (number, (group, stored)) in (first_group..).zip(groups.chunks(group_bytes).zip(stored)) {
            let (stored, computed) = (u32::from_le_bytes(*stored), crc32c::crc32c(group));
            if stored != computed {
                let first = number * group_rows;
                return Err(PixelError::Checksum {
                    message: format!("rows from {first} on have the checksum {computed:08x}, {stored:08x} is stored"),
                });
            }
        }
        Ok(())
    }
}

impl ImageRows for RawRows<'_> {
    fn size(&self) -> (u32, u32) {
        (self.0.width, self.0.height)
    }

    fn read(&mut self, rect: Rect, sink: Sink<'_>) -> Result<(), PixelError> {
        let RawImage { width, height, group_rows, first_row, pixels, .. } = self.0;
        let Range { start, end } = RawImage::groups_of(rect.y..rect.y + rect.height, height, group_rows);
        if start < first_row || u64::from(end) > u64::from(first_row) + self.0.rows() {
            let message = format!("rows {start} to {end} are needed of {:?}", self.0);
            return Err(PixelError::Malformed { message });
        }
        let row_bytes = self.0.row_bytes() as usize;
        let groups_of_band = (BAND_BYTES / row_bytes.saturating_mul(group_rows as usize)).max(1) as u32;
        let mut band_start = start;
        while band_start < end {
            let band_end = end.min(band_start.saturating_add(groups_of_band * group_rows));
            let at = |row: u32| (row - first_row) as usize * row_bytes;
            self.check(band_start / group_rows, &pixels[at(band_start)..at(band_end)])?;
            let (from, to) = (rect.y.max(band_start), (rect.y + rect.height).min(band_end));
            let pixels = &pixels[at(from)..at(to)];
            sink(Band { y: from - rect.y, rows: to - from, columns: width, left: rect.x, pixels })?;
            band_start = band_end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
