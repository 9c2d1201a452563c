//! One sample's entry in the index of a pack.

use super::format::{BLOCK_BYTES, IndexPart, NAME_BYTES_MAX, RECORD_BYTES, seal};
use super::superblock::PackLayout;
use crate::SAMPLE_BYTES_MAX;
use crate::forms::StoredForm;
use ddlp_cause::with_causes;
use ddlp_pixels::CorruptReason;
use std::fmt;
use std::io;
use std::ops::Range;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

const RECORD_CRC_AT: usize = RECORD_BYTES - 4;
const FLAG_SHRUNK: u8 = 0x80;

/// Verdict of the whole-image check at packing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredVerdict {
    /// Decodes without a warning, with coefficients in range.
    Intact,
    /// Decodes with warnings only: rewritten from its clamped coefficients.
    Repaired,
    /// Does not decode.
    Rejected(CorruptReason),
}

/// One sample's entry in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexRecord {
    /// First byte of the sample in the file. Of a sample in pieces, this, length and checksum are the first piece's.
    pub offset: u64,
    /// Number of the sample's bytes.
    pub length: u32,
    /// CRC32C of these bytes.
    pub crc32c: u32,
    /// Width in pixels, 0 where unknown.
    pub width: u32,
    /// Height in pixels, 0 where unknown.
    pub height: u32,
    /// Form in which the sample is stored.
    pub form: StoredForm,
    /// Verdict of the check at packing.
    pub verdict: StoredVerdict,
    /// First byte of its name in the names section.
    pub name_offset: u64,
    /// Bytes of its name.
    pub name_length: u32,
    /// CRC32C of its name.
    pub name_crc32c: u32,
    /// Number of bytes of the detail, which lies next to the sample's bytes: what the form needs beside them.
    pub detail_length: u32,
    /// CRC32C of the detail.
    pub detail_crc32c: u32,
    /// EXIF orientation of a sample that is decoded or in pieces, 1 to 8; in other forms 1, since their files contain
    /// the orientation.
    pub orientation: u8,
    /// Whether the source's image of a decoded sample was larger.
    pub was_shrunk: bool,
}

/// Reason why a record cannot be used.
#[derive(Debug)]
pub(super) enum RecordProblem {
    /// The record has a form of this code, which belongs to a later version.
    UnknownForm(u8),
    /// The record is damaged, or was written wrong.
    Damaged(String),
    /// The operating system cannot read the record.
    Unreadable(io::Error),
}

impl From<String> for RecordProblem {
    fn from(problem: String) -> Self {
        Self::Damaged(problem)
    }
}

impl fmt::Display for RecordProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownForm(form) => {
                write!(f, "its sample is stored in form {form}, which this program does not know: update it")
            }
            Self::Damaged(problem) => f.write_str(problem),
            Self::Unreadable(error) => f.write_str(&with_causes(error)),
        }
    }
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct DiskRecord {
    offset: U64,
    length: U32,
    crc32c: U32,
    width: U32,
    height: U32,
    form: u8,
    verdict: u8,
    reason: u8,
    /// EXIF orientation and [`FLAG_SHRUNK`] of a decoded sample, or the orientation of one in pieces.
    flags: u8,
    name_length: U32,
    name_offset: U64,
    /// Extent of the detail, which lies next to the sample's bytes; 0 if there is none.
    detail_offset: U64,
    detail_length: U32,
    name_crc32c: U32,
    detail_crc32c: U32,
    record_crc32c: U32,
}
const _: () = assert!(size_of::<DiskRecord>() == RECORD_BYTES);
const _: () = assert!((BLOCK_BYTES as usize).is_multiple_of(RECORD_BYTES));

impl IndexRecord {
    /// Returns the extent of the sample's bytes.
    pub fn bytes(&self) -> Range<u64> {
        self.offset..self.offset.saturating_add(self.length.into())
    }

    /// Returns the extent of the detail, which is empty if the form has none.
    pub fn detail(&self) -> Range<u64> {
        self.form.detail_of(&self.bytes(), self.detail_length)
    }

    /// Returns the extent of the sample's bytes and its detail.
    pub fn extent(&self) -> Range<u64> {
        let start = self.start();
        start..start + self.total_bytes()
    }

    fn start(&self) -> u64 {
        self.offset.min(self.detail().start)
    }

    /// Returns the number of the sample's bytes and those of its detail.
    pub(super) fn total_bytes(&self) -> u64 {
        u64::from(self.length) + u64::from(self.detail_length)
    }

    /// Returns the bytes of as many 8-bit RGB pixels as the image has, if a number can hold them.
    pub(crate) fn pixel_bytes(&self) -> Option<u64> {
        u64::from(self.width).checked_mul(self.height.into())?.checked_mul(3)
    }

    pub(super) fn to_bytes(self) -> [u8; RECORD_BYTES] {
        let mut disk = DiskRecord::new_zeroed();
        disk.offset = self.offset.into();
        disk.length = self.length.into();
        disk.crc32c = self.crc32c.into();
        disk.width = self.width.into();
        disk.height = self.height.into();
        disk.form = self.form as u8;
        if has_orientation(self.form) {
            disk.flags = self.orientation | if self.was_shrunk { FLAG_SHRUNK } else { 0 };
        }
        if self.detail_length > 0 {
            disk.detail_offset = self.detail().start.into();
            disk.detail_length = self.detail_length.into();
            disk.detail_crc32c = self.detail_crc32c.into();
        }
        (disk.verdict, disk.reason) = match self.verdict {
            StoredVerdict::Intact => (0, 0),
            StoredVerdict::Repaired => (1, 0),
            StoredVerdict::Rejected(reason) => (2, reason as u8),
        };
        disk.name_offset = self.name_offset.into();
        disk.name_length = self.name_length.into();
        disk.name_crc32c = self.name_crc32c.into();
        let mut bytes = [0; RECORD_BYTES];
        bytes.copy_from_slice(disk.as_bytes());
        seal(&mut bytes, RECORD_CRC_AT);
        bytes
    }

    /// Parses a record and checks that every extent in it lies in the right region of the file.
    pub(super) fn parse(bytes: &[u8; RECORD_BYTES], layout: &PackLayout) -> Result<Self, RecordProblem> {
        let (stored, computed) = (unseal(bytes), crc32c::crc32c(&bytes[..RECORD_CRC_AT]));
        if stored != computed {
            return Err(format!("its checksum is {stored:08x}, {computed:08x} computed").into());
        }
        let disk: DiskRecord = zerocopy::transmute!(*bytes);
        let form = StoredForm::of_code(disk.form).ok_or(RecordProblem::UnknownForm(disk.form))?;
        let record = Self::from_disk(&disk, form)?;
        record.check(layout)?;
        Ok(record)
    }

    fn from_disk(disk: &DiskRecord, form: StoredForm) -> Result<Self, String> {
        let verdict = match (disk.verdict, disk.reason) {
            (0, 0) => StoredVerdict::Intact,
            (1, 0) => StoredVerdict::Repaired,
            (2, code) => StoredVerdict::Rejected(
                CorruptReason::from_code(code).ok_or_else(|| format!("unknown reason {code} of rejection"))?,
            ),
            (verdict, reason) => return Err(format!("unknown verdict {verdict} with reason {reason}")),
        };
        let has_detail = form.detail().is_some();
        let is_detail_zero =
            (disk.detail_offset.get(), disk.detail_length.get(), disk.detail_crc32c.get()) == (0, 0, 0);
        if (!has_detail && !is_detail_zero) || (!has_orientation(form) && disk.flags != 0) {
            return Err("fields that must be 0 are not".to_owned());
        }
        let (orientation, was_shrunk) = match has_orientation(form) {
            true => (disk.flags & !FLAG_SHRUNK, disk.flags & FLAG_SHRUNK != 0),
            false => (1, false),
        };
        if !(1..=8).contains(&orientation) {
            return Err(format!("{orientation} is not an orientation"));
        }
        let record = Self {
            offset: disk.offset.get(),
            length: disk.length.get(),
            crc32c: disk.crc32c.get(),
            width: disk.width.get(),
            height: disk.height.get(),
            form,
            verdict,
            name_offset: disk.name_offset.get(),
            name_length: disk.name_length.get(),
            name_crc32c: disk.name_crc32c.get(),
            detail_length: disk.detail_length.get(),
            detail_crc32c: disk.detail_crc32c.get(),
            orientation,
            was_shrunk,
        };
        let detail_offset = record.detail().start;
        if has_detail && detail_offset != disk.detail_offset.get() {
            let place = if detail_offset < record.offset { "precede" } else { "follow" };
            return Err(format!("its detail at {} does not {place} its bytes", disk.detail_offset.get()));
        }
        Ok(record)
    }

    fn check(&self, layout: &PackLayout) -> Result<(), String> {
        let (start, total) = (self.start(), self.total_bytes());
        let data_end = layout.data_offset + layout.data_bytes;
        let end = start.checked_add(total);
        if start < layout.data_offset || end.is_none_or(|end| end > data_end) {
            return Err(format!("{total} bytes at {start} lie outside of the sample region"));
        }
        // Sample and detail are read together.
        if total > SAMPLE_BYTES_MAX {
            return Err(format!("{total} bytes are more than the limit of {SAMPLE_BYTES_MAX}"));
        }
        let name_end = self.name_offset.checked_add(self.name_length.into());
        if self.name_length > NAME_BYTES_MAX || name_end.is_none_or(|end| end > layout.section(IndexPart::Names).length)
        {
            return Err(format!(
                "its name, {} bytes at {}, is not in the names section",
                self.name_length, self.name_offset
            ));
        }
        self.form.check(self)
    }
}

/// Returns whether records of this form have the orientation of the image.
fn has_orientation(form: StoredForm) -> bool {
    form.is_decoded() || form.is_in_pieces()
}

fn unseal(bytes: &[u8; RECORD_BYTES]) -> u32 {
    u32::from_le_bytes([
        bytes[RECORD_CRC_AT],
        bytes[RECORD_CRC_AT + 1],
        bytes[RECORD_CRC_AT + 2],
        bytes[RECORD_CRC_AT + 3],
    ])
}
