//! Row indices: where the rows of MCUs of a JPEG lie, and their checksums, so that a crop needs only its rows.
//!
//! Layout of the bytes: a head ([`Head`]); a CRC32C of each row of MCUs, 4 bytes each, little-endian; the
//! [`Checkpoints`] of the file, one at the beginning of each row. A row's checksum covers all bytes that hold bits of
//! the row, so two neighbours may share a byte.

use std::ops::Range;

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::geometry::Rect;
use crate::jpeg;
use crate::jpeg::baseline::{BaselineDecoder, Checkpoints, Coded, Depth, LeftToLibjpeg, Region, Subsampling};
use crate::orientation;
use crate::rows::ImageRows;

const VERSION: u8 = 1;
/// Bytes of a checksum.
const CHECKSUM_BYTES: usize = 4;
/// Memory for one checkpoint.
const CHECKPOINT_MEMORY: u64 = 16;

/// First bytes of a row index.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    /// CRC32C of all bytes after this number.
    checksum: U32,
    version: u8,
    /// EXIF orientation of the stored pixels, 1 to 8.
    orientation: u8,
    /// Subsampling of the second and third component, as in [`Subsampling`].
    across: u8,
    down: u8,
    width: U16,
    height: U16,
    /// Bytes of the file before its entropy-coded bytes, and their CRC32C.
    header_bytes: U32,
    header_checksum: U32,
    /// Entropy-coded bytes up to the end of the last MCU.
    scan_bytes: U32,
}
const _: () = assert!(size_of::<Head>() == 24);

/// Where the rows of MCUs of a JPEG lie, and their checksums.
///
/// Its own checksum guards against damage. Otherwise trusted: the index of another file yields wrong pixels or none,
/// never unsoundness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowIndex {
    size: (u32, u32),
    orientation: u8,
    sampling: Subsampling,
    header_bytes: u32,
    header_checksum: u32,
    scan_bytes: u32,
    checksums: Vec<u32>,
    checkpoints: Checkpoints,
}

/// Error: the bytes are not a row index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid row index of a JPEG: {0}")]
pub struct BadRowIndex(&'static str);

impl RowIndex {
    /// Parses a row index. Refuses one that no file could have; it cannot know which file the index belongs to.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadRowIndex> {
        let cut = BadRowIndex("the bytes are cut short");
        let (head, rest) = Head::read_from_prefix(bytes).map_err(|_| cut)?;
        if head.version != VERSION {
            return Err(BadRowIndex("another version"));
        }
        if head.checksum.get() != crc32c::crc32c(&bytes[CHECKSUM_BYTES..]) {
            return Err(BadRowIndex("wrong checksum"));
        }
        let Head { orientation, across, down, .. } = head;
        let size = (u32::from(head.width.get()), u32::from(head.height.get()));
        let is_image = size.0 > 0 && size.1 > 0 && (1..=8).contains(&orientation);
        if !is_image || !(1..=2).contains(&across) || !(1..=2).contains(&down) {
            return Err(BadRowIndex("no image has such a shape"));
        }
        let sampling = Subsampling { across, down };
        let (columns, rows) = sampling.mcus(size);
        let (checksums, rest) = rest.split_at_checked(rows as usize * CHECKSUM_BYTES).ok_or(cut)?;
        let checksums = checksums.as_chunks().0.iter().map(|&bytes| u32::from_le_bytes(bytes)).collect();
        let mut checkpoints = Checkpoints::default();
        let memory_bytes = u64::from(rows) * CHECKPOINT_MEMORY;
        checkpoints.replace(rest, memory_bytes).map_err(|_| BadRowIndex("its checkpoints are damaged"))?;
        let index = Self {
            size,
            orientation,
            sampling,
            header_bytes: head.header_bytes.get(),
            header_checksum: head.header_checksum.get(),
            scan_bytes: head.scan_bytes.get(),
            checksums,
            checkpoints,
        };
        if !index.checkpoints.begin_rows(columns, rows) || !index.is_in_order() {
            return Err(BadRowIndex("its checkpoints are not those of an image's rows"));
        }
        Ok(index)
    }

    /// Returns whether each row begins after the row above, and all of them within the scan.
    fn is_in_order(&self) -> bool {
        let bit = |row: u32| {
            let place = self.checkpoints.before(row, 0).place;
            8 * place.byte as u64 + u64::from(place.bit)
        };
        let rows = self.rows();
        (1..rows).all(|row| bit(row - 1) < bit(row)) && bit(rows - 1) < 8 * u64::from(self.scan_bytes)
    }

    /// Makes the row index of an intact file. Fails unless our decoder takes all of it.
    pub(crate) fn of(decoder: &mut BaselineDecoder, band: &mut Vec<u8>, file: &[u8]) -> Result<Self, LeftToLibjpeg> {
        if !jpeg::has_end_marker(file) {
            return Err(LeftToLibjpeg);
        }
        let mut rows = decoder.open(file, None, band)?;
        rows.depth = Depth::Samples;
        let size @ (width, height) = rows.size();
        if rows.read(Rect { x: 0, y: 0, width, height }, &mut |_| Ok(())).is_err() {
            return Err(LeftToLibjpeg);
        }
        let sampling = rows.header().sampling;
        let header_bytes = file.len() - rows.header().scan.len();
        let (columns, rows) = sampling.mcus(size);
        let (checkpoints, end) = Checkpoints::make_to_the_end(decoder, file, columns)?;
        let bytes = |bytes: usize| u32::try_from(bytes).map_err(|_| LeftToLibjpeg);
        let mut index = Self {
            size,
            orientation: orientation::of(file),
            sampling,
            header_bytes: bytes(header_bytes)?,
            header_checksum: 0,
            scan_bytes: bytes(end.byte + usize::from(end.bit > 0))?,
            checksums: vec![0; rows as usize],
            checkpoints,
        };
        index.seal(file).ok_or(LeftToLibjpeg)?;
        Ok(index)
    }

    /// Takes the checksums from a file. Returns `None` if the rows do not lie in it.
    pub(crate) fn seal(&mut self, file: &[u8]) -> Option<()> {
        let (header, scan) = file.split_at_checked(self.header_bytes as usize)?;
        self.header_checksum = crc32c::crc32c(header);
        for row in 0..self.rows() {
            let bytes = scan.get(self.in_scan(row..row + 1))?;
            self.checksums[row as usize] = crc32c::crc32c(bytes);
        }
        Some(())
    }

    /// Returns the bytes that [`parse`](Self::parse) reads.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let head = Head {
            checksum: 0.into(),
            version: VERSION,
            orientation: self.orientation,
            across: self.sampling.across,
            down: self.sampling.down,
            width: (self.size.0 as u16).into(),
            height: (self.size.1 as u16).into(),
            header_bytes: self.header_bytes.into(),
            header_checksum: self.header_checksum.into(),
            scan_bytes: self.scan_bytes.into(),
        };
        let checksums = self.checksums.iter().flat_map(|checksum| checksum.to_le_bytes());
        let mut bytes = head.as_bytes().to_vec();
        bytes.extend(checksums);
        bytes.extend(self.checkpoints.to_bytes());
        let checksum = crc32c::crc32c(&bytes[CHECKSUM_BYTES..]);
        bytes[..CHECKSUM_BYTES].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Returns the width and height of the stored image.
    pub fn size(&self) -> (u32, u32) {
        self.size
    }

    /// Returns the EXIF orientation of the stored pixels, 1 to 8; 1 is upright.
    pub fn orientation(&self) -> u8 {
        self.orientation
    }

    /// Returns the number of bytes at the beginning of the file that every crop needs.
    pub fn header_bytes(&self) -> u64 {
        self.header_bytes.into()
    }

    /// Returns the number of bytes from the file's beginning up to the end of its last MCU. A file that is shorter is
    /// not the one of this index.
    pub fn file_bytes_min(&self) -> u64 {
        u64::from(self.header_bytes) + u64::from(self.scan_bytes)
    }

    /// Returns the number of rows of MCUs.
    fn rows(&self) -> u32 {
        self.checksums.len() as u32
    }

    /// Returns the rows of MCUs that a rectangle of the stored image needs.
    pub(crate) fn rows_of(&self, rect: Rect) -> Range<u32> {
        Region::new(self.sampling, self.size, rect).rows
    }

    /// Returns the bytes of the file that hold some rows of MCUs, at least one.
    pub(crate) fn in_file(&self, rows: Range<u32>) -> Range<u64> {
        let Range { start, end } = self.in_scan(rows);
        u64::from(self.header_bytes) + start as u64..u64::from(self.header_bytes) + end as u64
    }

    /// Returns the entropy-coded bytes that hold some rows of MCUs, at least one.
    fn in_scan(&self, rows: Range<u32>) -> Range<usize> {
        let place = |row: u32| self.checkpoints.before(row, 0).place;
        let end = if rows.end < self.rows() {
            let next = place(rows.end);
            next.byte + usize::from(next.bit > 0)
        } else {
            self.scan_bytes as usize
        };
        place(rows.start).byte..end
    }

    /// Returns whether these bytes are the file's header.
    pub(crate) fn has_header(&self, header: &[u8]) -> bool {
        header.len() == self.header_bytes as usize && crc32c::crc32c(header) == self.header_checksum
    }

    /// Returns some rows of MCUs, which lie in `bytes`, if their checksums match. The first of `bytes` has the offset
    /// `offset` in the file.
    pub(crate) fn checked<'a>(&self, rows: Range<u32>, bytes: &'a [u8], offset: u64) -> Option<Coded<'a>> {
        let of = |rows: Range<u32>| {
            let Range { start, end } = self.in_file(rows);
            let place = |at: u64| usize::try_from(at.checked_sub(offset)?).ok();
            bytes.get(place(start)?..place(end)?)
        };
        let is_intact = |row: u32| of(row..row + 1).map(crc32c::crc32c) == Some(self.checksums[row as usize]);
        if !rows.clone().all(is_intact) {
            return None;
        }
        Some(Coded { bytes: of(rows.clone())?, part_from: Some(self.in_scan(rows).start) })
    }

    pub(crate) fn checkpoints(&self) -> &Checkpoints {
        &self.checkpoints
    }
}

#[cfg(test)]
mod tests;
