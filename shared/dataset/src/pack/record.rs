//! One sample's entry in the index of a pack.

use super::format::{BLOCK_BYTES, GROUP_ROWS, NAME_BYTES_MAX, Part, RECORD_BYTES, seal};
use super::superblock::Layout;
use crate::SAMPLE_BYTES_MAX;
use ddlp_pixels::{CorruptReason, checkpoint_bytes_max};
use std::fmt;
use std::io;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

const RECORD_CRC_AT: usize = RECORD_BYTES - 4;
const FLAG_SHRUNK: u8 = 0x80;

/// Form in which a sample is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoredForm {
    /// The encoded file, the source's or a repaired one.
    Kept,
    /// 8-bit RGB in three planes.
    Planar,
    /// A JPEG with the source's coefficients, and checkpoints: places in it at which decoding can start.
    Indexed,
    /// Rows of 8-bit RGB pixels, and a checksum for every 16 rows.
    Raw,
}

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
    /// First byte of the sample in the file.
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
    /// Number of bytes of the detail, which follows the sample's bytes: checkpoints of an indexed sample, checksums of
    /// a raw one.
    pub detail_length: u32,
    /// CRC32C of the detail.
    pub detail_crc32c: u32,
    /// EXIF orientation of a raw sample, 1 to 8; in other forms 1, since their files contain the orientation.
    pub orientation: u8,
    /// Whether the source's image of a raw sample was larger.
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
            Self::Unreadable(error) => write!(f, "{error}"),
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
    /// EXIF orientation and [`FLAG_SHRUNK`] of a raw sample.
    flags: u8,
    name_length: U32,
    name_offset: U64,
    /// Extent of the detail, which follows the sample's bytes; 0 if there is none.
    detail_offset: U64,
    detail_length: U32,
    name_crc32c: U32,
    detail_crc32c: U32,
    record_crc32c: U32,
}
const _: () = assert!(size_of::<DiskRecord>() == RECORD_BYTES);
const _: () = assert!((BLOCK_BYTES as usize).is_multiple_of(RECORD_BYTES));

impl IndexRecord {
    /// Returns the end of the sample and its detail. `parse` refuses records that end outside of the sample region.
    pub fn end(&self) -> u64 {
        self.detail_offset() + u64::from(self.detail_length)
    }

    /// Returns the first byte of the detail, which is also the end of the sample's own bytes.
    pub fn detail_offset(&self) -> u64 {
        self.offset + u64::from(self.length)
    }

    /// Returns the bytes of each group of rows of a raw sample, except for the last group.
    pub(super) fn group_bytes(&self) -> u64 {
        u64::from(self.width) * 3 * u64::from(GROUP_ROWS)
    }

    /// Returns the most bytes that the checkpoints of the sample's file can have.
    fn checkpoint_bytes_max(&self) -> u64 {
        checkpoint_bytes_max(self.length.into(), self.width.max(self.height))
    }

    pub(super) fn to_bytes(self) -> [u8; RECORD_BYTES] {
        let mut disk = DiskRecord::new_zeroed();
        disk.offset = self.offset.into();
        disk.length = self.length.into();
        disk.crc32c = self.crc32c.into();
        disk.width = self.width.into();
        disk.height = self.height.into();
        disk.form = match self.form {
            StoredForm::Kept => 0,
            StoredForm::Planar => 1,
            StoredForm::Indexed => 2,
            StoredForm::Raw => 3,
        };
        if self.form == StoredForm::Raw {
            disk.flags = self.orientation | if self.was_shrunk { FLAG_SHRUNK } else { 0 };
        }
        if self.detail_length > 0 {
            disk.detail_offset = self.detail_offset().into();
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
    pub(super) fn parse(bytes: &[u8; RECORD_BYTES], layout: &Layout) -> Result<Self, RecordProblem> {
        let (stored, computed) = (unseal(bytes), crc32c::crc32c(&bytes[..RECORD_CRC_AT]));
        if stored != computed {
            return Err(format!("its checksum is {stored:08x}, {computed:08x} computed").into());
        }
        let disk: DiskRecord = zerocopy::transmute!(*bytes);
        let form = match disk.form {
            0 => StoredForm::Kept,
            1 => StoredForm::Planar,
            2 => StoredForm::Indexed,
            3 => StoredForm::Raw,
            other => return Err(RecordProblem::UnknownForm(other)),
        };
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
        let unused = match form {
            StoredForm::Kept | StoredForm::Planar => [
                disk.detail_offset.get(),
                disk.detail_length.get().into(),
                disk.detail_crc32c.get().into(),
                disk.flags.into(),
            ],
            StoredForm::Indexed => [disk.flags.into(), 0, 0, 0],
            StoredForm::Raw => [0; 4],
        };
        if unused != [0; 4] {
            return Err("fields that must be 0 are not".to_owned());
        }
        let (orientation, was_shrunk) = match form {
            StoredForm::Raw => (disk.flags & !FLAG_SHRUNK, disk.flags & FLAG_SHRUNK != 0),
            _ => (1, false),
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
        let has_detail = matches!(form, StoredForm::Indexed | StoredForm::Raw);
        if has_detail && record.offset.checked_add(record.length.into()) != Some(disk.detail_offset.get()) {
            return Err(format!("its detail at {} does not follow its bytes", disk.detail_offset.get()));
        }
        Ok(record)
    }

    fn check(&self, layout: &Layout) -> Result<(), String> {
        let (offset, length) = (self.offset, self.length);
        let data_end = layout.data_offset + layout.data_bytes;
        let total = u64::from(length) + u64::from(self.detail_length);
        let end = offset.checked_add(total);
        if offset < layout.data_offset || end.is_none_or(|end| end > data_end) {
            return Err(format!("{total} bytes at {offset} lie outside of the sample region"));
        }
        // Sample and detail are read together.
        if total > SAMPLE_BYTES_MAX {
            return Err(format!("{total} bytes are more than the limit of {SAMPLE_BYTES_MAX}"));
        }
        let name_end = self.name_offset.checked_add(self.name_length.into());
        if self.name_length > NAME_BYTES_MAX || name_end.is_none_or(|end| end > layout.section(Part::Names).length) {
            return Err(format!(
                "its name, {} bytes at {}, is not in the names section",
                self.name_length, self.name_offset
            ));
        }
        let pixels = u64::from(self.width).checked_mul(self.height.into()).and_then(|pixels| pixels.checked_mul(3));
        let size = || format!("{} x {}", self.width, self.height);
        match self.form {
            StoredForm::Planar if pixels != Some(length.into()) || length == 0 => {
                Err(format!("{length} bytes are not three planes of {}", size()))
            }
            StoredForm::Raw if pixels != Some(length.into()) || length == 0 => {
                Err(format!("{length} bytes are not rows of pixels of {}", size()))
            }
            StoredForm::Raw if u64::from(self.detail_length) != 4 * u64::from(self.height.div_ceil(GROUP_ROWS)) => {
                Err(format!("{} bytes of checksums for {} rows", self.detail_length, self.height))
            }
            StoredForm::Indexed if u64::from(self.detail_length) > self.checkpoint_bytes_max() => {
                let most = self.checkpoint_bytes_max();
                Err(format!(
                    "{} bytes of checkpoints for a file of {length}, at most {most} are made",
                    self.detail_length
                ))
            }
            StoredForm::Indexed if self.verdict != StoredVerdict::Intact => {
                Err("its form is that of intact samples".to_owned())
            }
            StoredForm::Raw if matches!(self.verdict, StoredVerdict::Rejected(_)) => {
                Err("its form is that of decoded samples".to_owned())
            }
            _ => Ok(()),
        }
    }
}

fn unseal(bytes: &[u8; RECORD_BYTES]) -> u32 {
    u32::from_le_bytes([
        bytes[RECORD_CRC_AT],
        bytes[RECORD_CRC_AT + 1],
        bytes[RECORD_CRC_AT + 2],
        bytes[RECORD_CRC_AT + 3],
    ])
}
