//! Layout of a finished batch in a slot of the result namespace.
//!
//! ```text
//! 0        header, 4096 bytes: 128 bytes about the batch, then a 48-byte descriptor for each field
//! 4096     sample table: one 24-byte record per requested sample
//! aligned  payload: the field's values for the delivered samples, contiguous
//! ```
//!
//! The payload starts at a multiple of 4096 bytes. Today a batch has one field in a slot, the image: height × width ×
//! channels u8, NHWC. Labels are not in the slot: the host takes them from its dataset. The header is written last, so
//! a reader that finds a valid header finds the batch that the header names. Header, table and payload each have a
//! CRC32C.

mod header;
mod record;

pub use header::SlotHeader;
pub use record::{Outcome, RECORD_BYTES, SampleRecord, table_to_bytes};

use crate::program::CorruptPolicy;
use crate::{BATCH_SAMPLES_MAX, BLOCK_BYTES};
use ddlp_dataset::ability_name;
use ddlp_pixels::{AbilityNumber, CorruptReason, Shape};
use std::ops::Range;

/// Bytes of the header block.
pub const HEADER_BYTES: usize = BLOCK_BYTES;
/// Largest slot in bytes.
pub const SLOT_BYTES_MAX: u64 = 16 << 30;

/// The first bytes of a slot that holds a batch.
pub const MAGIC: [u8; 8] = *b"DDLPSLOT";
/// The first bytes of a slot that holds no batch. An agent writes them to every slot before it fills one.
pub const MAGIC_FREE: [u8; 8] = *b"DDLPFREE";
const VERSION: u32 = 2;

/// Where the parts of a batch lie within its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotLayout {
    /// Requested samples.
    pub samples: usize,
    /// Bytes of one row (one prepared sample).
    pub row_bytes: usize,
    /// Start of the payload.
    pub payload_offset: usize,
    /// Bytes of the slot that the batch needs, a multiple of [`BLOCK_BYTES`].
    pub total_bytes: usize,
}

impl SlotLayout {
    /// Computes the layout of a batch. `None` when the batch is empty or exceeds a limit.
    pub fn new(samples: usize, shape: Shape) -> Option<Self> {
        if samples == 0 || samples > BATCH_SAMPLES_MAX {
            return None;
        }
        let row_bytes = shape.bytes();
        let payload_offset = (HEADER_BYTES + samples * RECORD_BYTES).next_multiple_of(BLOCK_BYTES);
        let payload_bytes = samples.checked_mul(row_bytes)?;
        let total_bytes = payload_offset.checked_add(payload_bytes)?.checked_next_multiple_of(BLOCK_BYTES)?;
        (total_bytes as u64 <= SLOT_BYTES_MAX).then_some(Self { samples, row_bytes, payload_offset, total_bytes })
    }

    /// Returns the bytes of the sample table.
    pub fn table_bytes(&self) -> usize {
        self.samples * RECORD_BYTES
    }
}

/// Why a slot does not hold the requested batch.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SlotError {
    /// Fewer bytes than a header.
    #[error("slot of {0} bytes has no room for a header")]
    TooShort(usize),
    /// No header, or a header of another version.
    #[error("slot holds no batch of format version {VERSION}")]
    Format,
    /// The header's own checksum does not match.
    #[error("slot header crc32c {actual:#010x}, {expected:#010x} expected")]
    HeaderChecksum {
        /// Checksum in the header.
        expected: u32,
        /// Checksum of the bytes.
        actual: u32,
    },
    /// Header fields contradict each other or exceed a limit.
    #[error("slot header is inconsistent: {0}")]
    Inconsistent(&'static str),
    /// The rows have another shape.
    #[error("slot holds rows of {found} values, {expected} were asked for")]
    Shape {
        /// Shape found.
        found: Shape,
        /// Shape requested.
        expected: Shape,
    },
    /// The slot holds another batch, or another generation of the slot.
    #[error("slot holds epoch {epoch} batch {batch} generation {generation}, not the one asked for")]
    Other {
        /// Epoch found.
        epoch: u32,
        /// Batch found.
        batch: u32,
        /// Generation found.
        generation: u64,
    },
    /// The sample table is damaged.
    #[error("slot's sample table is damaged")]
    Table,
    /// The sample table names other samples than the request did.
    #[error("slot's sample table names sample {found} at position {position}, {expected} was asked for")]
    Sample {
        /// Position in the batch.
        position: usize,
        /// Sample found.
        found: u64,
        /// Sample requested.
        expected: u64,
    },
    /// An outcome that the policy does not allow, or that only the host may decide. The host then prepares the batch.
    #[error("the drive reports sample {sample_id} as {outcome} with index {index}, which the host does not accept")]
    Outcome {
        /// Sample.
        sample_id: u64,
        /// Index in the dataset, as the record gives it, of the row's sample, or of the sample or neighbour that the
        /// drive could not prepare.
        index: u64,
        /// Outcome found.
        outcome: Outcome,
    },
    /// The drive cannot read its dataset.
    #[error("the drive cannot read its dataset: sample {sample_id} is unavailable there")]
    Unavailable {
        /// The first sample that is unavailable.
        sample_id: u64,
    },
    /// The drive has no decoder for a sample, or another one than the host. The host then prepares the batch.
    #[error("the drive leaves sample {sample_id} to the host: it needs {}", decoder_name(*.decoder))]
    OtherDecoder {
        /// The first sample that needs the decoder.
        sample_id: u64,
        /// The decoder; `None` if the drive does not know the format of the file.
        decoder: Option<AbilityNumber>,
    },
    /// The payload is damaged.
    #[error("slot payload crc32c {actual:#010x}, {expected:#010x} expected")]
    PayloadChecksum {
        /// Checksum in the header.
        expected: u32,
        /// Checksum of the bytes.
        actual: u32,
    },
}

/// Returns words for the decoder of [`Outcome::OtherDecoder`].
pub fn decoder_name(decoder: Option<AbilityNumber>) -> String {
    match decoder {
        None => "a file format that the drive does not know".into(),
        Some(decoder) => ability_name(decoder),
    }
}

/// The batch that a reader expects in a slot.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Epoch of the batch.
    pub epoch: u32,
    /// Batch number within the epoch.
    pub batch: u32,
    /// Generation given in the request.
    pub generation: u64,
    /// Requested samples; at least one, at most [`BATCH_SAMPLES_MAX`].
    pub sample_ids: &'a [u64],
    /// Shape of a row.
    pub shape: Shape,
    /// Samples in the dataset: sample `id` is index `id` modulo this.
    pub dataset_samples: u64,
    /// Policy for corrupt samples.
    pub policy: CorruptPolicy,
}

/// Contents of a slot that holds the wanted batch, apart from the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// One record per requested sample, in the order of the request.
    pub records: Vec<SampleRecord>,
    /// Where the delivered rows lie in the slot.
    pub payload: Range<usize>,
    payload_crc: u32,
}

impl Wanted<'_> {
    /// Returns the layout of the batch in its slot.
    pub fn layout(&self) -> SlotLayout {
        SlotLayout::new(self.sample_ids.len(), self.shape).expect("a batch that was asked for fits a slot")
    }

    /// Checks header and sample table. `head` has at least the bytes before the payload
    /// ([`SlotLayout::payload_offset`]); bytes beyond them are ignored.
    ///
    /// Checks or refuses every claim of the drive that the host would otherwise have to trust. In particular, it
    /// refuses a drive's word that a sample cannot be prepared where the drive itself may be the cause; the host then
    /// prepares the batch.
    pub fn check(&self, head: &[u8]) -> Result<Found, SlotError> {
        let header = SlotHeader::parse(head)?;
        if (header.epoch, header.batch, header.generation) != (self.epoch, self.batch, self.generation) {
            let SlotHeader { epoch, batch, generation, .. } = header;
            return Err(SlotError::Other { epoch, batch, generation });
        }
        if header.shape != self.shape {
            return Err(SlotError::Shape { found: header.shape, expected: self.shape });
        }
        let layout = self.layout();
        let table = head.get(HEADER_BYTES..HEADER_BYTES + layout.table_bytes()).ok_or(SlotError::Table)?;
        let records = header.parse_table(table, self.sample_ids)?;
        if let Some(record) = records.iter().find(|record| record.outcome == Outcome::Unavailable) {
            return Err(SlotError::Unavailable { sample_id: record.sample_id });
        }
        let other = |record: &SampleRecord| match record.outcome {
            Outcome::OtherDecoder(decoder) => Some(SlotError::OtherDecoder { sample_id: record.sample_id, decoder }),
            _ => None,
        };
        if let Some(error) = records.iter().find_map(other) {
            return Err(error);
        }
        if let Some(&SampleRecord { sample_id, index, outcome, .. }) =
            records.iter().find(|record| !self.is_credible(record))
        {
            return Err(SlotError::Outcome { sample_id, index, outcome });
        }
        let payload = layout.payload_offset..layout.payload_offset + header.payload_bytes();
        Ok(Found { records, payload, payload_crc: header.payload_crc })
    }

    fn is_credible(&self, record: &SampleRecord) -> bool {
        let own = record.sample_id % self.dataset_samples;
        match record.outcome {
            Outcome::Prepared => record.index == own,
            Outcome::Failed(_) | Outcome::Unavailable | Outcome::OtherDecoder(_) => false,
            Outcome::Skipped(reason) | Outcome::Replaced(reason) if is_of_the_drive(reason) => false,
            Outcome::Skipped(_) => self.policy == CorruptPolicy::Skip,
            Outcome::Replaced(_) => self.policy == CorruptPolicy::Replace && record.index < self.dataset_samples,
        }
    }
}

/// Returns whether the drive's own storage or memory may be the cause, so that the host may be able to prepare the
/// sample.
pub(crate) fn is_of_the_drive(reason: CorruptReason) -> bool {
    matches!(reason, CorruptReason::Io | CorruptReason::Checksum | CorruptReason::TooMuchMemory)
}

impl Found {
    /// Checks the delivered rows against their checksum.
    pub fn check_payload(&self, payload: &[u8]) -> Result<(), SlotError> {
        let actual = crc32c::crc32c(payload);
        if actual == self.payload_crc {
            return Ok(());
        }
        Err(SlotError::PayloadChecksum { expected: self.payload_crc, actual })
    }
}

#[cfg(test)]
mod tests;
