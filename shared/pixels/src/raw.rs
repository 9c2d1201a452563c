//! Uncompressed images that have only some rows in memory. Each group of rows has a CRC32C, so every row that is
//! used is checked, at the cost of reading few others. Rows are checked and handed on in bands that stay in a core's
//! cache.

use std::ops::Range;

use crate::error::PixelError;
use crate::form_image::{BandMemory, FormDecoder, FormImage};
use crate::geometry::Rect;
use crate::rows::{BAND_BYTES, Band, Sink};

/// Bytes of a checksum.
const CHECKSUM_BYTES: usize = 4;

/// Decoder of rows of 8-bit RGB without gaps: 3 × width bytes each. The detail has the CRC32C of each group of rows, 4
/// bytes each, little-endian. The part that was read consists of whole groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawRows {
    /// Number of rows that share a checksum; the last group may have fewer.
    pub group_rows: u32,
}

impl RawRows {
    /// Computes the CRC32C of each group of rows, for the [detail](FormImage::detail).
    ///
    /// # Panics
    ///
    /// If `width` or the rows of a group are zero.
    pub fn checksums_of(self, pixels: &[u8], width: u32) -> Vec<u8> {
        let group = width as usize * 3 * self.group_rows as usize;
        pixels.chunks(group).flat_map(|group| crc32c::crc32c(group).to_le_bytes()).collect()
    }

    /// Returns the rows of all groups that hold some rows of an image `height` rows high; an empty range for no rows.
    ///
    /// # Panics
    ///
    /// If the rows of a group are zero.
    pub fn groups_of(self, rows: Range<u32>, height: u32) -> Range<u32> {
        if rows.is_empty() {
            return 0..0;
        }
        let end = u64::from(rows.end.div_ceil(self.group_rows)) * u64::from(self.group_rows);
        rows.start / self.group_rows * self.group_rows..end.min(height.into()) as u32
    }

    /// Returns the rows that were read. Returns an error if the description of the image is impossible.
    fn rows_of(self, image: &FormImage<'_>) -> Result<Range<u32>, PixelError> {
        let &FormImage { width, height, detail, offset, bytes, .. } = image;
        let (row_bytes, length) = (row_bytes(width), bytes.len() as u64);
        let (first, end) = (offset / row_bytes, offset.saturating_add(length) / row_bytes);
        let is_of_rows = offset.is_multiple_of(row_bytes) && length.is_multiple_of(row_bytes) && end <= height.into();
        let is_group = |at: u64| at == u64::from(height) || at.is_multiple_of(self.group_rows.into());
        let has_checksums =
            self.group_rows > 0 && detail.len() / CHECKSUM_BYTES == height.div_ceil(self.group_rows) as usize;
        if is_of_rows && has_checksums && is_group(first) && is_group(end) {
            // Both are at most the height, a u32.
            return Ok(first as u32..end as u32);
        }
        Err(PixelError::Malformed { source: format!("{image:?}, in groups of {} rows", self.group_rows).into() })
    }

    /// Checks the checksums of whole groups of rows.
    fn check(self, image: &FormImage<'_>, first_group: u32, groups: &[u8]) -> Result<(), PixelError> {
        let group_bytes = (row_bytes(image.width) * u64::from(self.group_rows)) as usize;
        let stored = image.detail.as_chunks::<CHECKSUM_BYTES>().0[first_group as usize..].iter();
        for (number, (group, stored)) in (first_group..).zip(groups.chunks(group_bytes).zip(stored)) {
            let (stored, computed) = (u32::from_le_bytes(*stored), crc32c::crc32c(group));
            if stored != computed {
                let first = number * self.group_rows;
                return Err(PixelError::Checksum {
                    message: format!("rows from {first} on have the checksum {computed:08x}, {stored:08x} is stored"),
                });
            }
        }
        Ok(())
    }
}

fn row_bytes(width: u32) -> u64 {
    u64::from(width) * 3
}

impl FormDecoder for RawRows {
    fn read(&self, image: &FormImage<'_>, rect: Rect, _: BandMemory<'_>, sink: Sink<'_>) -> Result<(), PixelError> {
        let &FormImage { width, height, bytes, .. } = image;
        let rows = self.rows_of(image)?;
        // No group shall have more rows than the image.
        let groups = Self { group_rows: self.group_rows.min(height) };
        let Range { start, end } = groups.groups_of(rect.y..rect.y + rect.height, height);
        if start < rows.start || end > rows.end {
            return Err(PixelError::Malformed {
                source: format!("rows {start} to {end} are needed of {image:?}").into(),
            });
        }
        let row_bytes = row_bytes(width) as usize;
        let groups_of_band = (BAND_BYTES / row_bytes.saturating_mul(groups.group_rows as usize)).max(1) as u32;
        let mut band_start = start;
        while band_start < end {
            let band_end = end.min(band_start.saturating_add(groups_of_band * groups.group_rows));
            let at = |row: u32| (row - rows.start) as usize * row_bytes;
            groups.check(image, band_start / groups.group_rows, &bytes[at(band_start)..at(band_end)])?;
            let (from, to) = (rect.y.max(band_start), (rect.y + rect.height).min(band_end));
            let pixels = &bytes[at(from)..at(to)];
            sink(Band { y: from - rect.y, rows: to - from, columns: width, left: rect.x, pixels })?;
            band_start = band_end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
