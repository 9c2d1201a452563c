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

mod record;

pub use record::{Outcome, RECORD_BYTES, SampleRecord, table_to_bytes};

use crate::program::CorruptPolicy;
use crate::{BATCH_SAMPLES_MAX, BLOCK_BYTES, crc32c_without};
use ddlp_pixels::{AbilityNumber, CorruptReason, DType, FieldKind, ImageLayout, Shape};
use record::WireRecord;
use std::ops::Range;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

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

/// Header of a finished slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotHeader {
    /// Epoch of the batch.
    pub epoch: u32,
    /// Batch number within the epoch.
    pub batch: u32,
    /// Generation given in the request.
    pub generation: u64,
    /// Requested samples.
    pub requested: u32,
    /// Rows in the payload.
    pub delivered: u32,
    /// Shape of a row.
    pub shape: Shape,
    /// CRC32C of the sample table.
    pub table_crc: u32,
    /// CRC32C of the delivered rows.
    pub payload_crc: u32,
    /// Time that the drive's workers spent on the batch, summed over workers.
    pub busy_us: u64,
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
    #[error("slot holds rows of {found:?}, {expected:?} was asked for")]
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
    #[error("slot's sample {sample_id} has outcome {outcome:?} of index {index}")]
    Outcome {
        /// Sample.
        sample_id: u64,
        /// Index in the dataset, as the record gives it: that of the row, or that of the sample or neighbour that the
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
        Some(decoder) => format!("the decoder of {decoder}"),
    }
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct WireHeader {
    magic: [u8; 8],
    version: U32,
    header_crc: U32,
    epoch: U32,
    batch: U32,
    generation: U64,
    requested: U32,
    delivered: U32,
    table_crc: U32,
    /// Number of field descriptors.
    fields: U32,
    busy_us: U64,
    reserved: [u8; 72],
}
const FIELDS_AT: usize = 128;
const _: () = assert!(size_of::<WireHeader>() == FIELDS_AT);
const CRC_FIELD: std::ops::Range<usize> = 12..16;
const _: () = assert!(std::mem::offset_of!(WireHeader, header_crc) == CRC_FIELD.start);

/// One field of the batch: what its values are ([`ddlp_pixels::Field`]), and where they lie in the slot.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct FieldDescriptor {
    kind: U16,
    dtype: U16,
    layout: U16,
    /// Number of `sizes` that are used.
    dimensions: U16,
    /// Elements of one sample's value along each dimension, outermost first.
    sizes: [U32; 4],
    offset: U64,
    bytes: U64,
    crc: U32,
    reserved: [u8; 4],
}
const DESCRIPTOR_BYTES: usize = 48;
const _: () = assert!(size_of::<FieldDescriptor>() == DESCRIPTOR_BYTES);
const USED_BYTES: usize = FIELDS_AT + DESCRIPTOR_BYTES;

impl SlotHeader {
    /// Returns the layout of the batch in its slot.
    fn layout(&self) -> Option<SlotLayout> {
        SlotLayout::new(self.requested as usize, self.shape)
    }

    /// Returns the bytes of the delivered rows.
    pub fn payload_bytes(&self) -> usize {
        self.delivered as usize * self.shape.bytes()
    }

    /// Encodes the header block.
    pub fn to_block(&self) -> [u8; HEADER_BYTES] {
        let layout = self.layout().expect("a finished batch fits its slot");
        let wire = WireHeader {
            magic: MAGIC,
            version: VERSION.into(),
            header_crc: 0.into(),
            epoch: self.epoch.into(),
            batch: self.batch.into(),
            generation: self.generation.into(),
            requested: self.requested.into(),
            delivered: self.delivered.into(),
            table_crc: self.table_crc.into(),
            fields: 1.into(),
            busy_us: self.busy_us.into(),
            reserved: [0; 72],
        };
        let Shape { height, width, channels } = self.shape;
        let image = FieldDescriptor {
            kind: FieldKind::Image.code().into(),
            dtype: DType::U8.code().into(),
            layout: ImageLayout::Nhwc.code().into(),
            dimensions: 3.into(),
            sizes: [height, width, channels, 0].map(U32::new),
            offset: (layout.payload_offset as u64).into(),
            bytes: (self.payload_bytes() as u64).into(),
            crc: self.payload_crc.into(),
            reserved: [0; 4],
        };
        let mut block = [0; HEADER_BYTES];
        block[..FIELDS_AT].copy_from_slice(wire.as_bytes());
        block[FIELDS_AT..USED_BYTES].copy_from_slice(image.as_bytes());
        let crc = crc32c_without(&block, CRC_FIELD);
        block[CRC_FIELD].copy_from_slice(&crc.to_le_bytes());
        block
    }

    /// Parses and checks a header block.
    pub fn parse(block: &[u8]) -> Result<Self, SlotError> {
        let block = block.get(..HEADER_BYTES).ok_or(SlotError::TooShort(block.len()))?;
        let short = || SlotError::TooShort(block.len());
        let (wire, fields) = WireHeader::ref_from_prefix(block).map_err(|_| short())?;
        let (image, _) = FieldDescriptor::ref_from_prefix(fields).map_err(|_| short())?;
        if wire.magic != MAGIC || wire.version.get() != VERSION {
            return Err(SlotError::Format);
        }
        let actual = crc32c_without(block, CRC_FIELD);
        if actual != wire.header_crc.get() {
            return Err(SlotError::HeaderChecksum { expected: wire.header_crc.get(), actual });
        }
        let is_image = (image.kind.get(), image.dtype.get(), image.layout.get(), image.dimensions.get())
            == (FieldKind::Image.code(), DType::U8.code(), ImageLayout::Nhwc.code(), 3);
        if wire.fields.get() != 1 || !is_image {
            return Err(SlotError::Inconsistent("fields"));
        }
        let [height, width, channels, unused] = image.sizes.map(|size| size.get());
        if unused != 0 || wire.reserved != [0; 72] || image.reserved != [0; 4] {
            return Err(SlotError::Inconsistent("a reserved field is not 0"));
        }
        let header = Self {
            epoch: wire.epoch.get(),
            batch: wire.batch.get(),
            generation: wire.generation.get(),
            requested: wire.requested.get(),
            delivered: wire.delivered.get(),
            shape: Shape { height, width, channels },
            table_crc: wire.table_crc.get(),
            payload_crc: image.crc.get(),
            busy_us: wire.busy_us.get(),
        };
        if header.delivered > header.requested {
            return Err(SlotError::Inconsistent("more rows than samples"));
        }
        let shape = header.shape;
        let row =
            (shape.height as u64).checked_mul(shape.width as u64).and_then(|n| n.checked_mul(shape.channels as u64));
        if row.is_none_or(|bytes| bytes == 0 || bytes > SLOT_BYTES_MAX) {
            return Err(SlotError::Inconsistent("shape"));
        }
        let layout = header.layout().ok_or(SlotError::Inconsistent("sample count"))?;
        if image.offset.get() != layout.payload_offset as u64 || image.bytes.get() != header.payload_bytes() as u64 {
            return Err(SlotError::Inconsistent("payload extent"));
        }
        Ok(header)
    }

    /// Decodes the sample table, and checks it against its checksum and the requested samples.
    pub fn parse_table(&self, table: &[u8], sample_ids: &[u64]) -> Result<Vec<SampleRecord>, SlotError> {
        if self.requested as usize != sample_ids.len()
            || table.len() != sample_ids.len() * RECORD_BYTES
            || crc32c::crc32c(table) != self.table_crc
        {
            return Err(SlotError::Table);
        }
        let mut records = Vec::with_capacity(sample_ids.len());
        for (position, (bytes, &expected)) in table.chunks_exact(RECORD_BYTES).zip(sample_ids).enumerate() {
            let wire = WireRecord::ref_from_bytes(bytes).map_err(|_| SlotError::Table)?;
            let record = SampleRecord::from_wire(wire).ok_or(SlotError::Table)?;
            if record.sample_id != expected {
                return Err(SlotError::Sample { position, found: record.sample_id, expected });
            }
            records.push(record);
        }
        if records.iter().filter(|record| record.has_row()).count() != self.delivered as usize {
            return Err(SlotError::Table);
        }
        Ok(records)
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
