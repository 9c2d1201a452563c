//! Images that lie uncompressed in a file. Reading a rectangle costs only the rows that it touches. They are read band
//! by band into a buffer that stays in a core's cache, unless the file asks for larger reads. Each group of rows has a
//! CRC32C, so every row that is read is checked, at the cost of reading few others.

use std::fmt;
use std::io;

use crate::error::PixelError;
use crate::geometry::Rect;
use crate::limits::Limits;
use crate::rows::{BAND_BYTES, Band, Rows, Sink};

/// Bytes per read if reading copies them from memory: they stay in a core's cache.
pub const CACHED_BYTES: u64 = BAND_BYTES as u64;
/// Bytes of a checksum.
const CHECKSUM_BYTES: usize = 4;

/// A file from which many threads can read at any offset at once.
pub trait ReadAt: Send + Sync {
    /// Fills `out` with the bytes from `offset` on. Returns an error if the file ends before.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;

    /// Returns how many bytes to read at once. More bytes need a larger buffer.
    fn at_once_bytes(&self) -> u64 {
        CACHED_BYTES
    }
}

/// A file in memory.
impl ReadAt for Vec<u8> {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let bytes = usize::try_from(offset).ok().and_then(|start| self.get(start..)?.get(..out.len()));
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// An image of 8-bit RGB that lies in a file row by row, without gaps.
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
    /// File that holds the pixels.
    pub file: &'a dyn ReadAt,
    /// Offset of the first byte of the first row.
    pub offset: u64,
    /// Number of rows that share a checksum; the last group may have fewer.
    pub group_rows: u32,
    /// CRC32C of each group, 4 bytes each, little-endian.
    pub checksums: &'a [u8],
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
}

impl fmt::Debug for RawImage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { width, height, orientation, offset, .. } = self;
        write!(f, "RawImage {{ {width}x{height}, orientation {orientation}, at byte {offset} }}")
    }
}

/// The pixels of a [`RawImage`].
pub(crate) struct RawRows<'a> {
    image: RawImage<'a>,
    limits: Limits,
    band: &'a mut Vec<u8>,
}

impl<'a> RawRows<'a> {
    /// Wraps an image. Returns an error if its description is impossible.
    pub fn new(image: RawImage<'a>, limits: Limits, band: &'a mut Vec<u8>) -> Result<Self, PixelError> {
        let RawImage { width, height, orientation, offset, group_rows, checksums, .. } = image;
        let bytes = (u64::from(width) * u64::from(height)).checked_mul(3);
        let ends = bytes.and_then(|bytes| offset.checked_add(bytes)).is_some();
        let is_image = width > 0 && height > 0 && ends && (1..=8).contains(&orientation);
        if !is_image || group_rows == 0 || checksums.len() / CHECKSUM_BYTES != height.div_ceil(group_rows) as usize {
            let message = format!("{image:?} with {} bytes of checksums of {group_rows} rows each", checksums.len());
            return Err(PixelError::Malformed { message });
        }
        // No group shall have more rows than the image.
        let image = RawImage { group_rows: group_rows.min(height), ..image };
        Ok(Self { image, limits, band })
    }

    /// Returns the bytes of the largest group, which is in memory at once.
    pub fn group_bytes(&self) -> u64 {
        u64::from(self.image.width) * 3 * u64::from(self.image.group_rows)
    }

    /// Reads whole groups of rows and checks them.
    fn fetch(&mut self, first_group: u32, groups: u32) -> Result<(), PixelError> {
        let RawImage { width, height, file, offset, group_rows, checksums, .. } = self.image;
        let row_bytes = u64::from(width) * 3;
        let first_row = first_group * group_rows;
        let rows = u64::from(groups).saturating_mul(group_rows.into()).min((height - first_row).into());
        let band = self.limits.resize(self.band, rows * row_bytes)?;
        file.read_at(offset + u64::from(first_row) * row_bytes, band)
            .map_err(|error| PixelError::Io { message: error.to_string(), os_error: error.raw_os_error() })?;
        let group_bytes = (row_bytes * u64::from(group_rows)) as usize;
        let stored = checksums.as_chunks::<CHECKSUM_BYTES>().0[first_group as usize..].iter();
        for (number, (group, stored)) in (first_group..).zip(band.chunks(group_bytes).zip(stored)) {
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

impl Rows for RawRows<'_> {
    fn size(&self) -> (u32, u32) {
        (self.image.width, self.image.height)
    }

    fn read(&mut self, rect: Rect, sink: Sink<'_>) -> Result<(), PixelError> {
        let RawImage { width, group_rows, file, .. } = self.image;
        let at_once = (file.at_once_bytes() / self.group_bytes()).max(1) as u32;
        let end = rect.y + rect.height;
        let last = (end - 1) / group_rows;
        let mut group = rect.y / group_rows;
        while group <= last {
            let groups = at_once.min(last - group + 1);
            self.fetch(group, groups)?;
            let read_from = group * group_rows;
            let from = rect.y.max(read_from);
            let to = u64::from(end).min(u64::from(read_from) + u64::from(groups) * u64::from(group_rows)) as u32;
            let row_bytes = width as usize * 3;
            let pixels = &self.band[(from - read_from) as usize * row_bytes..(to - read_from) as usize * row_bytes];
            sink(Band { y: from - rect.y, rows: to - from, columns: width, left: rect.x, pixels })?;
            group += groups;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
