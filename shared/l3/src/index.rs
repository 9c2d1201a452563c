//! The header and the table of an image's bytes: its size, and the place and checksum of each patch.

use std::ops::Range;

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::patch::{ALIGNMENT, PatchShape};
use crate::{Error, Level, Region};

const MAGIC: [u8; 4] = *b"\x89DL3";
const VERSION: u8 = 1;
/// The sides that a patch may have.
const SIDES: [usize; 2] = [32, 64];

/// The bytes of the header, with which each image begins.
pub const HEADER_BYTES: usize = 20;

/// The header. A table follows it: for each patch its length, in units of four bytes (u16); then zeros up to a
/// multiple of four bytes; then for each patch its CRC-32C (u32).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct Header {
    magic: [u8; 4],
    version: u8,
    channels: u8,
    side: u8,
    reserved: u8,
    width: U32,
    height: U32,
    /// The CRC-32C of the header's bytes before this field, followed by the table.
    checksum: U32,
}
const _: () = assert!(size_of::<Header>() == HEADER_BYTES);

impl Header {
    fn read(bytes: &[u8]) -> Result<Self, Error> {
        let length = || Error::Length {
            what: "header of the L3 image",
            expected: HEADER_BYTES as u64,
            found: bytes.len() as u64,
        };
        let (header, _) = Self::read_from_prefix(bytes).map_err(|_| length())?;
        if header.magic != MAGIC {
            return Err(Error::NotL3(header.magic));
        }
        if header.version != VERSION {
            return Err(Error::Version(header.version));
        }
        let fields = [
            ("the number of channels", u64::from(header.channels), matches!(header.channels, 1 | 3)),
            ("the patch side", u64::from(header.side), SIDES.contains(&header.side.into())),
            ("the reserved byte", u64::from(header.reserved), header.reserved == 0),
            ("the width", u64::from(header.width.get()), header.width.get() > 0),
            ("the height", u64::from(header.height.get()), header.height.get() > 0),
        ];
        match fields.into_iter().find(|&(.., is_valid)| !is_valid) {
            Some((field, value, _)) => Err(Error::Header { field, value }),
            None => Ok(header),
        }
    }

    fn patches(&self) -> u64 {
        let along = |side: U32| u64::from(side.get()).div_ceil(self.side.into());
        along(self.width) * along(self.height)
    }

    /// Returns the bytes of header and table. Fits into 64 bits: an image has at most 2^54 patches.
    fn index_bytes(&self) -> u64 {
        HEADER_BYTES as u64 + lengths_bytes(self.patches()) + 4 * self.patches()
    }
}

/// Returns the bytes of the table's first part.
fn lengths_bytes(patches: u64) -> u64 {
    (2 * patches).next_multiple_of(4)
}

/// The size of an image, and the place and checksum of each of its patches.
#[derive(Clone, Debug)]
pub struct Index {
    width: usize,
    height: usize,
    channels: usize,
    side: usize,
    level: Level,
    /// Where each patch begins, from the beginning of the image's bytes; then where the last patch ends.
    bounds: Vec<u64>,
    checksums: Vec<u32>,
}

impl Index {
    /// Returns how many bytes the index has of an image whose bytes begin with `header` (`HEADER_BYTES` or more).
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes are too few or no header.
    pub fn bytes(header: &[u8]) -> Result<u64, Error> {
        Header::read(header).map(|header| header.index_bytes())
    }

    /// Reads the index of an image from its first bytes; more may follow.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes are too few, damaged or no index.
    pub fn read(bytes: &[u8]) -> Result<Self, Error> {
        let header = Header::read(bytes)?;
        let expected = header.index_bytes();
        let index = usize::try_from(expected).ok().and_then(|expected| bytes.get(..expected));
        let found = bytes.len() as u64;
        let index = index.ok_or(Error::Length { what: "index of the L3 image", expected, found })?;
        let table = &index[HEADER_BYTES..];
        let found = crc32c::crc32c_append(crc32c::crc32c(&index[..HEADER_BYTES - 4]), table);
        let expected = header.checksum.get();
        if found != expected {
            return Err(Error::IndexChecksum { expected, found });
        }
        // There are fewer patches than bytes given, so the number fits.
        let patches = header.patches() as usize;
        let (lengths, checksums) = table.split_at(lengths_bytes(patches as u64) as usize);
        let lengths = <[U16]>::ref_from_bytes(&lengths[..2 * patches]).expect("two bytes for each patch");
        let checksums = <[U32]>::ref_from_bytes(checksums).expect("four bytes for each patch");
        let mut read = Self {
            width: header.width.get() as usize,
            height: header.height.get() as usize,
            channels: header.channels.into(),
            side: header.side.into(),
            level: Level::best(),
            bounds: Vec::with_capacity(patches + 1),
            checksums: checksums.iter().map(|checksum| checksum.get()).collect(),
        };
        read.set_lengths(index.len() as u64, lengths.iter().map(|length| ALIGNMENT * usize::from(length.get())))?;
        Ok(read)
    }

    fn set_lengths(&mut self, begin: u64, lengths: impl Iterator<Item = usize>) -> Result<(), Error> {
        let mut end = begin;
        self.bounds.push(end);
        for (patch, length) in lengths.enumerate() {
            let shape = self.shape(patch);
            if !(shape.least_bytes()..=shape.most_bytes()).contains(&length) {
                return Err(Error::Patch { patch, why: "no patch of its size has its length" });
            }
            end += length as u64;
            self.bounds.push(end);
        }
        Ok(())
    }

    /// Makes the bytes of an index.
    pub(crate) fn write(width: usize, height: usize, channels: usize, side: usize, patches: &[Vec<u8>]) -> Vec<u8> {
        let number = |number: usize| U32::new(number.try_into().expect("the image's size was checked"));
        let mut header = Header {
            magic: MAGIC,
            version: VERSION,
            channels: channels as u8,
            side: side as u8,
            reserved: 0,
            width: number(width),
            height: number(height),
            checksum: U32::ZERO,
        };
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend(patches.iter().flat_map(|patch| ((patch.len() / ALIGNMENT) as u16).to_le_bytes()));
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes.extend(patches.iter().flat_map(|patch| crc32c::crc32c(patch).to_le_bytes()));
        let (fields, table) = (&bytes[..HEADER_BYTES - 4], &bytes[HEADER_BYTES..]);
        header.checksum = U32::new(crc32c::crc32c_append(crc32c::crc32c(fields), table));
        bytes[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        bytes
    }

    pub(crate) fn with_level(self, level: Level) -> Self {
        Self { level, ..self }
    }

    pub(crate) fn level(&self) -> Level {
        self.level
    }

    /// Returns the image's width in pixels.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the image's height in pixels.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Returns the number of bytes of a pixel: 1 for gray, 3 for RGB.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// Returns the side of a patch: 32 or 64 pixels.
    pub fn patch_side(&self) -> usize {
        self.side
    }

    /// Returns the region of all pixels.
    pub fn whole(&self) -> Region {
        Region { x: 0, y: 0, width: self.width, height: self.height }
    }

    /// Returns the number of bytes of the whole image, index included.
    pub fn image_bytes(&self) -> u64 {
        *self.bounds.last().expect("bounds are never empty")
    }

    /// Returns where the bytes lie that a region needs: one range for each row of patches that the region touches, from
    /// the top down.
    ///
    /// # Errors
    ///
    /// Returns an error if the region is empty or not inside the image.
    pub fn pieces(&self, region: Region) -> Result<impl ExactSizeIterator<Item = Range<u64>> + '_, Error> {
        let (columns, rows) = self.patches(region)?;
        Ok(rows.map(move |row| {
            let patch = |column| row * self.columns() + column;
            self.bounds[patch(columns.start)]..self.bounds[patch(columns.end)]
        }))
    }

    /// Returns the columns and rows of patches that a region touches.
    pub(crate) fn patches(&self, region: Region) -> Result<(Range<usize>, Range<usize>), Error> {
        if !region.is_inside(self.width, self.height) {
            return Err(Error::Outside { region, width: self.width, height: self.height });
        }
        let touched = |begin: usize, count: usize| begin / self.side..(begin + count).div_ceil(self.side);
        Ok((touched(region.x, region.width), touched(region.y, region.height)))
    }

    /// Returns how many patches stand side by side.
    pub(crate) fn columns(&self) -> usize {
        self.width.div_ceil(self.side)
    }

    /// Returns the size of a patch.
    pub(crate) fn shape(&self, patch: usize) -> PatchShape {
        let (row, column) = (patch / self.columns(), patch % self.columns());
        PatchShape {
            width: self.side.min(self.width - column * self.side),
            height: self.side.min(self.height - row * self.side),
            side: self.side,
            channels: self.channels,
        }
    }

    /// Returns the number of bytes of a patch.
    pub(crate) fn length(&self, patch: usize) -> usize {
        (self.bounds[patch + 1] - self.bounds[patch]) as usize
    }

    /// Checks the bytes of a patch against its checksum.
    pub(crate) fn check(&self, patch: usize, bytes: &[u8]) -> Result<(), Error> {
        let (expected, found) = (self.checksums[patch], crc32c::crc32c(bytes));
        if found == expected { Ok(()) } else { Err(Error::PatchChecksum { patch, expected, found }) }
    }
}
