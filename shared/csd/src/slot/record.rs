//! The sample table of a slot: one record for each requested sample.

use ddlp_pixels::{AbilityNumber, CorruptReason};
use std::fmt;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of one sample's record.
pub const RECORD_BYTES: usize = 24;

/// Number on the wire in place of a decoder's, for a file whose format the drive does not know. No ability has it.
const UNKNOWN_FORMAT: u16 = 0;

/// The outcome for one requested sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The batch has a row for it.
    Prepared,
    /// The sample was left out of the batch.
    Skipped(CorruptReason),
    /// Another sample replaces it.
    Replaced(CorruptReason),
    /// The sample is corrupt, and the policy is `fail` or no neighbour can replace it.
    Failed(CorruptReason),
    /// The dataset cannot be read now, or is not the one that was opened, so nothing is known about the sample.
    Unavailable,
    /// The sample needs this decoder, which the drive lacks or has in another way than the host: the CPU prepares the
    /// batch. `None` if the drive does not know the format of the file.
    OtherDecoder(Option<AbilityNumber>),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prepared => f.write_str("prepared"),
            Self::Skipped(reason) => write!(f, "skipped ({reason})"),
            Self::Replaced(reason) => write!(f, "replaced ({reason})"),
            Self::Failed(reason) => write!(f, "failed ({reason})"),
            Self::Unavailable => f.write_str("unavailable"),
            Self::OtherDecoder(_) => f.write_str("left to the host"),
        }
    }
}

/// One sample's record: its id, its outcome, and the sample that the row shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleRecord {
    /// Sample id as requested.
    pub sample_id: u64,
    /// Index in the dataset of the sample whose pixels the row has. For [`Outcome::Failed`], the index of the sample or
    /// neighbour that could not be prepared.
    pub index: u64,
    /// Outcome for the sample.
    pub outcome: Outcome,
    /// The decoder warned about the sample.
    pub warned: bool,
}

impl SampleRecord {
    /// Returns whether the batch has a row for this sample.
    pub fn has_row(&self) -> bool {
        matches!(self.outcome, Outcome::Prepared | Outcome::Replaced(_))
    }

    /// Returns whether the corrupt-sample policy was applied.
    pub fn is_corrupt(&self) -> bool {
        !matches!(self.outcome, Outcome::Prepared | Outcome::Unavailable | Outcome::OtherDecoder(_))
    }

    pub(super) fn to_wire(self) -> WireRecord {
        let (outcome, reason, detail) = match self.outcome {
            Outcome::Prepared => (0, 0, 0),
            Outcome::Skipped(reason) => (1, reason as u8, 0),
            Outcome::Replaced(reason) => (2, reason as u8, 0),
            Outcome::Failed(reason) => (3, reason as u8, 0),
            Outcome::Unavailable => (4, 0, 0),
            Outcome::OtherDecoder(decoder) => (5, 0, decoder.map_or(UNKNOWN_FORMAT, |decoder| decoder.0).into()),
        };
        WireRecord {
            sample_id: self.sample_id.into(),
            index: self.index.into(),
            detail: U32::new(detail),
            outcome,
            reason,
            warned: self.warned.into(),
            reserved: 0,
        }
    }

    /// Decodes a record. Returns `None` if it says anything that this version does not know.
    pub(super) fn from_wire(wire: &WireRecord) -> Option<Self> {
        let WireRecord { sample_id, index, detail, outcome, reason, warned, reserved } = wire;
        let outcome = match (outcome, CorruptReason::from_code(*reason), detail.get()) {
            (0, None, 0) if *reason == 0 => Outcome::Prepared,
            (1, Some(reason), 0) => Outcome::Skipped(reason),
            (2, Some(reason), 0) => Outcome::Replaced(reason),
            (3, Some(reason), 0) => Outcome::Failed(reason),
            (4, None, 0) if *reason == 0 => Outcome::Unavailable,
            (5, None, decoder) if *reason == 0 => {
                let decoder: u16 = decoder.try_into().ok()?;
                Outcome::OtherDecoder((decoder != UNKNOWN_FORMAT).then_some(AbilityNumber(decoder)))
            }
            _ => return None,
        };
        let is_known = *warned <= 1 && *reserved == 0;
        is_known.then_some(Self { sample_id: sample_id.get(), index: index.get(), outcome, warned: *warned == 1 })
    }
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct WireRecord {
    sample_id: U64,
    index: U64,
    /// For another decoder, its number, or [`UNKNOWN_FORMAT`].
    pub(super) detail: U32,
    pub(super) outcome: u8,
    pub(super) reason: u8,
    warned: u8,
    reserved: u8,
}
const _: () = assert!(size_of::<WireRecord>() == RECORD_BYTES);

/// Encodes the sample table.
pub fn table_to_bytes(records: &[SampleRecord]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(records.len() * RECORD_BYTES);
    for record in records {
        bytes.extend_from_slice(record.to_wire().as_bytes());
    }
    bytes
}
