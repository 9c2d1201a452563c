//! The first block of a pack: what the file holds, and where.

use super::format::{BLOCK_BYTES, CLASS_NAME_BYTES_MAX, IndexPart, MAGIC, RECORD_BYTES, SAMPLES_MAX, VERSION, seal};
use crate::{CLASSES_MAX, Identity};
use std::ops::Range;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Entries in the section table.
pub const SECTIONS_MAX: usize = 64;

/// Largest number of bytes that a class takes in the classes section.
const CLASS_BYTES_MAX: u64 = 4 + CLASS_NAME_BYTES_MAX as u64;

const BLOCK: usize = BLOCK_BYTES as usize;
const SUPERBLOCK_CRC_AT: usize = BLOCK - 4;

/// An entry of the section table.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct DiskSection {
    kind: U32,
    /// Bit 0: a reader that does not know this kind must refuse the pack.
    flags: U32,
    offset: U64,
    length: U64,
    crc32c: U32,
    reserved: U32,
}
const _: () = assert!(size_of::<DiskSection>() == 32);

const FLAG_REQUIRED: u32 = 1;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct DiskSuperblock {
    magic: [u8; 8],
    version: U32,
    block_bytes: U32,
    file_bytes: U64,
    samples: U64,
    classes: U32,
    sections: U32,
    data_offset: U64,
    data_bytes: U64,
    identity: [u8; 32],
    source_identity: [u8; 32],
    source_kind: [u8; 8],
    reserved: [u8; 128],
    table: [DiskSection; SECTIONS_MAX],
    reserved_tail: [u8; SUPERBLOCK_CRC_AT - 256 - SECTIONS_MAX * 32],
    crc32c: U32,
}
const _: () = assert!(size_of::<DiskSuperblock>() == BLOCK);

/// Extent of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// The part of the pack that the section is.
    pub part: IndexPart,
    /// First byte, a multiple of [`BLOCK_BYTES`].
    pub offset: u64,
    /// Number of bytes, without the padding after them.
    pub length: u64,
    /// CRC32C of these bytes.
    pub crc32c: u32,
}

/// Contents of the superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackLayout {
    /// Length of the file, a multiple of [`BLOCK_BYTES`].
    pub file_bytes: u64,
    /// Number of samples.
    pub samples: u64,
    /// Number of classes.
    pub classes: u32,
    /// First byte of the sample region, a multiple of [`BLOCK_BYTES`].
    pub data_offset: u64,
    /// Bytes of the sample region, without the padding after it.
    pub data_bytes: u64,
    /// Digest of the index.
    pub identity: Identity,
    /// Identity of the source.
    pub source_identity: Identity,
    /// Kind of the source.
    pub source_kind: String,
    /// The sections.
    pub sections: Vec<Section>,
}

/// Problem with a superblock; the reader adds the path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SuperblockProblem {
    NotAPack,
    Version(u32),
    Length { expected: u64 },
    Checksum { stored: u32, computed: u32 },
    Malformed(String),
}

impl PackLayout {
    /// Returns the section of a part that every pack has, or of a pack in pieces one of its sections.
    ///
    /// # Panics
    /// If the pack has no such section.
    pub fn section(&self, part: IndexPart) -> Section {
        let found = self.sections.iter().find(|section| section.part == part);
        *found.expect("parse refuses a pack without it")
    }

    /// Serialises the superblock.
    pub(super) fn to_bytes(&self) -> [u8; BLOCK] {
        let mut disk = DiskSuperblock::new_zeroed();
        disk.magic = MAGIC;
        disk.version = VERSION.into();
        disk.block_bytes = (BLOCK as u32).into();
        disk.file_bytes = self.file_bytes.into();
        disk.samples = self.samples.into();
        disk.classes = self.classes.into();
        disk.sections = (self.sections.len() as u32).into();
        disk.data_offset = self.data_offset.into();
        disk.data_bytes = self.data_bytes.into();
        disk.identity = *self.identity.as_bytes();
        disk.source_identity = *self.source_identity.as_bytes();
        let kind_bytes = self.source_kind.floor_char_boundary(disk.source_kind.len());
        disk.source_kind[..kind_bytes].copy_from_slice(&self.source_kind.as_bytes()[..kind_bytes]);
        for (entry, section) in disk.table.iter_mut().zip(&self.sections) {
            entry.kind = section.part.code().into();
            entry.flags = FLAG_REQUIRED.into();
            entry.offset = section.offset.into();
            entry.length = section.length.into();
            entry.crc32c = section.crc32c.into();
        }
        let mut bytes = [0; BLOCK];
        bytes.copy_from_slice(disk.as_bytes());
        seal(&mut bytes, SUPERBLOCK_CRC_AT);
        bytes
    }

    /// Parses a superblock. `file_bytes` is the file's actual length.
    pub(super) fn parse(bytes: &[u8], file_bytes: u64) -> Result<Self, SuperblockProblem> {
        if bytes.get(..MAGIC.len()) != Some(&MAGIC) {
            return Err(SuperblockProblem::NotAPack);
        }
        let Ok(disk) = DiskSuperblock::read_from_bytes(bytes) else {
            return Err(SuperblockProblem::Length { expected: BLOCK_BYTES });
        };
        if disk.version.get() != VERSION {
            return Err(SuperblockProblem::Version(disk.version.get()));
        }
        let (stored, computed) = (disk.crc32c.get(), crc32c::crc32c(&bytes[..SUPERBLOCK_CRC_AT]));
        if stored != computed {
            return Err(SuperblockProblem::Checksum { stored, computed });
        }
        if disk.file_bytes.get() != file_bytes {
            return Err(SuperblockProblem::Length { expected: disk.file_bytes.get() });
        }
        PackLayout::from_disk(&disk).map_err(SuperblockProblem::Malformed)
    }

    fn from_disk(disk: &DiskSuperblock) -> Result<Self, String> {
        let (block_bytes, count) = (disk.block_bytes.get(), disk.sections.get() as usize);
        if u64::from(block_bytes) != BLOCK_BYTES {
            return Err(format!("its blocks have {block_bytes} bytes, expected {BLOCK_BYTES}"));
        }
        let too_many = || format!("it lists {count} sections, at most {SECTIONS_MAX} fit");
        let (table, unused) = disk.table.split_at_checked(count).ok_or_else(too_many)?;
        if [&disk.reserved[..], unused.as_bytes(), &disk.reserved_tail].concat().iter().any(|&byte| byte != 0) {
            return Err("bytes that must be 0 are not".to_owned());
        }
        let layout = PackLayout {
            file_bytes: disk.file_bytes.get(),
            samples: disk.samples.get(),
            classes: disk.classes.get(),
            data_offset: disk.data_offset.get(),
            data_bytes: disk.data_bytes.get(),
            identity: Identity::from_bytes(disk.identity),
            source_identity: Identity::from_bytes(disk.source_identity),
            source_kind: source_kind(&disk.source_kind)?,
            sections: table.iter().map(Section::from_disk).collect::<Result<_, _>>()?,
        };
        layout.check_extents()?;
        layout.check_counts()?;
        Ok(layout)
    }

    /// Checks that no part lies outside of the file or overlaps another.
    fn check_extents(&self) -> Result<(), String> {
        let mut extents = vec![("superblock".to_owned(), 0, BLOCK_BYTES)];
        extents.extend(self.sections.iter().map(|s| (s.part.to_string(), s.offset, s.length)));
        extents.push(("sample region".to_owned(), self.data_offset, self.data_bytes));
        extents.sort_by_key(|&(_, offset, length)| (offset, length));
        let mut free = 0u64;
        for (name, offset, length) in &extents {
            if offset % BLOCK_BYTES != 0 {
                return Err(format!("{name} begins at {offset}, which is not a multiple of {BLOCK_BYTES}"));
            }
            if *offset < free {
                return Err(format!("{name} at {offset} overlaps what lies before it, up to {free}"));
            }
            free = match offset.checked_add(*length) {
                Some(end) if end <= self.file_bytes => end,
                _ => return Err(format!("{name} at {offset}, {length} bytes, ends after the file")),
            };
        }
        if !self.file_bytes.is_multiple_of(BLOCK_BYTES) {
            return Err(format!("length {} is not a multiple of {BLOCK_BYTES}", self.file_bytes));
        }
        Ok(())
    }

    /// Checks the counts against the lengths of the sections, which are bounded by the file.
    fn check_counts(&self) -> Result<(), String> {
        let count = |part| self.sections.iter().filter(|section| section.part == part).count();
        let is_in_pieces = IndexPart::OF_PIECES.into_iter().any(|part| count(part) > 0);
        let of_pieces = IndexPart::OF_PIECES.into_iter().filter(|_| is_in_pieces);
        for part in IndexPart::OF_ALL.into_iter().chain(of_pieces) {
            let count = count(part);
            if count != 1 {
                return Err(format!("it lists the {part} {count} times, expected once"));
            }
        }
        let expect = |part: IndexPart, each: u64| {
            let length = self.section(part).length;
            let expected = self.samples.checked_mul(each);
            if expected == Some(length) {
                Ok(())
            } else {
                Err(format!("the {part} has {length} bytes, which do not fit {} samples", self.samples))
            }
        };
        expect(IndexPart::Records, RECORD_BYTES as u64)?;
        expect(IndexPart::Labels, 4)?;
        if self.samples == 0 {
            return Err("it counts no samples".to_owned());
        }
        if self.samples > SAMPLES_MAX {
            return Err(format!("it counts {} samples, at most {SAMPLES_MAX} are possible", self.samples));
        }
        let (classes, length) = (u64::from(self.classes), self.section(IndexPart::Classes).length);
        if self.classes as usize > CLASSES_MAX {
            return Err(format!("it counts {classes} classes, at most {CLASSES_MAX} are possible"));
        }
        if !(classes * 4..=classes * CLASS_BYTES_MAX).contains(&length) {
            return Err(format!("the {} has {length} bytes, which do not fit {classes} classes", IndexPart::Classes));
        }
        Ok(())
    }
}

/// Parses the text before the padding.
fn source_kind(bytes: &[u8]) -> Result<String, String> {
    match str::from_utf8(bytes).map(|text| text.trim_end_matches('\0')) {
        Ok(kind) if !kind.contains('\0') => Ok(kind.to_owned()),
        _ => Err(format!("the kind of its source, \"{}\", is not text", bytes.escape_ascii())),
    }
}

impl Section {
    /// Returns the section's bytes as a range of the file.
    pub(super) fn extent(&self) -> Range<u64> {
        self.offset..self.offset + self.length
    }

    fn from_disk(disk: &DiskSection) -> Result<Self, String> {
        let (part, flags) = (IndexPart::from_code(disk.kind.get()), disk.flags.get());
        if flags & !FLAG_REQUIRED != 0 {
            return Err(format!("flags {flags:#x} of the {part}: this program knows only bit 0"));
        }
        if matches!(part, IndexPart::Unknown(_)) && flags & FLAG_REQUIRED != 0 {
            return Err(format!("it requires {part}, which this program does not know: update the program"));
        }
        if disk.reserved.get() != 0 {
            return Err(format!("a reserved field of the {part} is not 0"));
        }
        Ok(Self { part, offset: disk.offset.get(), length: disk.length.get(), crc32c: disk.crc32c.get() })
    }
}
