//! The header of a slot: what batch it holds, in which field.

use super::record::WireRecord;
use super::{HEADER_BYTES, MAGIC, RECORD_BYTES, SLOT_BYTES_MAX, SampleRecord, SlotError, SlotLayout, VERSION};
use crate::crc32c_without;
use ddlp_pixels::{DType, FieldKind, ImageLayout, Shape};
use std::ops::Range;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

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

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct WireHeader {
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
    pub(super) fields: U32,
    busy_us: U64,
    pub(super) reserved: [u8; 72],
}
pub(super) const FIELDS_AT: usize = 128;
const _: () = assert!(size_of::<WireHeader>() == FIELDS_AT);
pub(super) const CRC_FIELD: Range<usize> = 12..16;
const _: () = assert!(std::mem::offset_of!(WireHeader, header_crc) == CRC_FIELD.start);

/// One field of the batch: what its values are ([`ddlp_pixels::Field`]), and where they lie in the slot.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct FieldDescriptor {
    kind: U16,
    dtype: U16,
    layout: U16,
    /// Number of `sizes` that are used.
    dimensions: U16,
    /// Elements of one sample's value along each dimension, outermost first.
    pub(super) sizes: [U32; 4],
    offset: U64,
    bytes: U64,
    crc: U32,
    reserved: [u8; 4],
}
const DESCRIPTOR_BYTES: usize = 48;
const _: () = assert!(size_of::<FieldDescriptor>() == DESCRIPTOR_BYTES);
pub(super) const USED_BYTES: usize = FIELDS_AT + DESCRIPTOR_BYTES;

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
