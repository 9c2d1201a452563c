//! Vendor log pages of the drive: its identity (C1h) and its counters (C0h).
//!
//! Each is one 4096-byte block: fixed fields in little-endian, zeros behind them, and a CRC32C of the whole block. From
//! byte 128 on, the identity has the list of the drive's [`abilities`]. A host ignores abilities whose numbers it does
//! not know.

use crate::abilities::{self, ABILITIES_MAX, ABILITY_BYTES};
use crate::{BLOCK_BYTES, crc32c_without};
use ddlp_pixels::Ability;
use zerocopy::little_endian::{I16, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Log identifier of [`Counters`].
pub const COUNTERS_LOG: u8 = 0xC0;
/// Log identifier of [`DriveIdentity`].
pub const IDENTITY_LOG: u8 = 0xC1;
/// Bytes of each page.
pub const LOG_BYTES: usize = BLOCK_BYTES;

const IDENTITY_MAGIC: [u8; 4] = *b"DDID";
const COUNTERS_MAGIC: [u8; 4] = *b"DDCT";
const IDENTITY_VERSION: u32 = 2;
const COUNTERS_VERSION: u32 = 1;
const CRC_FIELD: std::ops::Range<usize> = 8..12;

/// Why a page cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// The page has the wrong length.
    #[error("log page of {0} bytes, {LOG_BYTES} expected")]
    Length(usize),
    /// The bytes are not this page.
    #[error("the bytes are not this log page: they begin with {0:02x?}")]
    Magic([u8; 4]),
    /// The page has another version.
    #[error(
        "the drive's agent is of {} version of DDLP: its log page has version {found}, not {known}",
        if found < known { "an older" } else { "a newer" }
    )]
    Version {
        /// The page's version.
        found: u32,
        /// The version that this program reads.
        known: u32,
    },
    /// The list of abilities is invalid.
    #[error("log page has a list of abilities that is too long or out of order")]
    Abilities,
    /// The checksum does not match.
    #[error("log page crc32c {actual:#010x}, {expected:#010x} expected")]
    Checksum {
        /// Checksum in the page.
        expected: u32,
        /// Checksum of the bytes.
        actual: u32,
    },
}

/// Identity of a drive. The host refuses a drive that has another dataset, or that differs in an ability that the run
/// needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveIdentity {
    /// Identity of the dataset in namespace 1.
    pub dataset: [u8; 32],
    /// Number of samples in that dataset.
    pub dataset_samples: u64,
    /// The drive's abilities, in the order of their numbers.
    pub abilities: Vec<Ability>,
    /// Version of the agent, in ASCII with zeros behind it.
    pub agent: [u8; 16],
    /// Bytes of a result slot.
    pub slot_bytes: u64,
    /// Number of result slots.
    pub slots: u32,
    /// Number of worker threads.
    pub workers: u32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct WireIdentity {
    magic: [u8; 4],
    version: U32,
    crc: U32,
    slots: U32,
    dataset: [u8; 32],
    agent: [u8; 16],
    reserved: [u8; 16],
    dataset_samples: U64,
    slot_bytes: U64,
    workers: U32,
    abilities: U16,
    reserved_behind: [u8; 26],
}
const ABILITIES_AT: usize = 128;
const _: () = assert!(size_of::<WireIdentity>() == ABILITIES_AT);
const _: () = assert!(ABILITIES_AT + ABILITIES_MAX * ABILITY_BYTES <= LOG_BYTES);
const _: () = assert!(std::mem::offset_of!(WireIdentity, crc) == CRC_FIELD.start);

impl DriveIdentity {
    /// Encodes the log page.
    pub fn to_page(&self) -> [u8; LOG_BYTES] {
        let fixed = WireIdentity {
            magic: IDENTITY_MAGIC,
            version: IDENTITY_VERSION.into(),
            crc: 0.into(),
            slots: self.slots.into(),
            dataset: self.dataset,
            agent: self.agent,
            reserved: [0; 16],
            dataset_samples: self.dataset_samples.into(),
            slot_bytes: self.slot_bytes.into(),
            workers: self.workers.into(),
            abilities: (self.abilities.len() as u16).into(),
            reserved_behind: [0; 26],
        };
        seal(&[fixed.as_bytes(), &abilities::to_bytes(&self.abilities)].concat())
    }

    /// Returns the version of the agent for messages.
    pub fn agent_version(&self) -> String {
        let text: Vec<u8> = self.agent.into_iter().take_while(|&byte| byte != 0).collect();
        text.escape_ascii().to_string()
    }

    /// Returns a version as [`agent`](Self::agent) has it; cuts a longer one.
    pub fn version_field(version: &str) -> [u8; 16] {
        let mut field = [0; 16];
        let bytes = version.as_bytes();
        let length = bytes.len().min(field.len());
        field[..length].copy_from_slice(&bytes[..length]);
        field
    }

    /// Parses the log page.
    pub fn parse(page: &[u8]) -> Result<Self, LogError> {
        let wire: &WireIdentity = open(page, IDENTITY_MAGIC, IDENTITY_VERSION)?;
        let list = page[ABILITIES_AT..].get(..usize::from(wire.abilities.get()) * ABILITY_BYTES);
        Ok(Self {
            dataset: wire.dataset,
            dataset_samples: wire.dataset_samples.get(),
            abilities: list.and_then(abilities::parse).ok_or(LogError::Abilities)?,
            agent: wire.agent,
            slot_bytes: wire.slot_bytes.get(),
            slots: wire.slots.get(),
            workers: wire.workers.get(),
        })
    }
}

/// Counters of a drive since its agent started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Seconds since the start.
    pub uptime_s: u64,
    /// Number of batches finished.
    pub batches: u64,
    /// Number of samples prepared.
    pub samples: u64,
    /// Number of batches cancelled, by a command or because their association ended.
    pub cancelled: u64,
    /// Number of Execute commands refused or failed.
    pub errors: u64,
    /// Number of samples to which the corrupt-sample policy was applied.
    pub corrupt: u64,
    /// Time that workers spent on planning and fetching samples.
    pub read_us: u64,
    /// Time that workers spent on rendering samples.
    pub prepare_us: u64,
    /// Time that workers spent on checksums and finishing batches.
    pub finish_us: u64,
    /// Number of batches queued or running now.
    pub outstanding: u32,
    /// Temperature of the drive in tenths of a degree Celsius, if a sensor can be read.
    pub temperature_dc: Option<i16>,
    /// Power in milliwatts, if a sensor can be read.
    pub power_mw: Option<u32>,
    /// Energy since the agent started, in millijoules, if a meter can be read.
    pub energy_mj: Option<u64>,
    /// Peak resident memory of the agent in bytes, mapped slots included.
    pub peak_rss_bytes: u64,
    /// CPU time of the agent in microseconds, user and system.
    pub cpu_us: u64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct WireCounters {
    magic: [u8; 4],
    version: U32,
    crc: U32,
    outstanding: U32,
    uptime_s: U64,
    batches: U64,
    samples: U64,
    cancelled: U64,
    errors: U64,
    corrupt: U64,
    read_us: U64,
    prepare_us: U64,
    finish_us: U64,
    energy_mj: U64,
    peak_rss_bytes: U64,
    cpu_us: U64,
    power_mw: U32,
    temperature_dc: I16,
    /// Which of temperature (bit 0), power (bit 1) and energy (bit 2) were measured.
    measured: u8,
    reserved: [u8; 9],
}
const _: () = assert!(size_of::<WireCounters>() == 128);
const _: () = assert!(std::mem::offset_of!(WireCounters, crc) == CRC_FIELD.start);

impl Counters {
    /// Encodes the log page.
    pub fn to_page(&self) -> [u8; LOG_BYTES] {
        let measured = u8::from(self.temperature_dc.is_some())
            | u8::from(self.power_mw.is_some()) << 1
            | u8::from(self.energy_mj.is_some()) << 2;
        seal(
            WireCounters {
                magic: COUNTERS_MAGIC,
                version: COUNTERS_VERSION.into(),
                crc: 0.into(),
                outstanding: self.outstanding.into(),
                uptime_s: self.uptime_s.into(),
                batches: self.batches.into(),
                samples: self.samples.into(),
                cancelled: self.cancelled.into(),
                errors: self.errors.into(),
                corrupt: self.corrupt.into(),
                read_us: self.read_us.into(),
                prepare_us: self.prepare_us.into(),
                finish_us: self.finish_us.into(),
                energy_mj: self.energy_mj.unwrap_or(0).into(),
                peak_rss_bytes: self.peak_rss_bytes.into(),
                cpu_us: self.cpu_us.into(),
                power_mw: self.power_mw.unwrap_or(0).into(),
                temperature_dc: self.temperature_dc.unwrap_or(0).into(),
                measured,
                reserved: [0; 9],
            }
            .as_bytes(),
        )
    }

    /// Parses the log page.
    pub fn parse(page: &[u8]) -> Result<Self, LogError> {
        let wire: &WireCounters = open(page, COUNTERS_MAGIC, COUNTERS_VERSION)?;
        let measured = |bit: u8| wire.measured & (1 << bit) != 0;
        Ok(Self {
            uptime_s: wire.uptime_s.get(),
            batches: wire.batches.get(),
            samples: wire.samples.get(),
            cancelled: wire.cancelled.get(),
            errors: wire.errors.get(),
            corrupt: wire.corrupt.get(),
            read_us: wire.read_us.get(),
            prepare_us: wire.prepare_us.get(),
            finish_us: wire.finish_us.get(),
            outstanding: wire.outstanding.get(),
            temperature_dc: measured(0).then(|| wire.temperature_dc.get()),
            power_mw: measured(1).then(|| wire.power_mw.get()),
            energy_mj: measured(2).then(|| wire.energy_mj.get()),
            peak_rss_bytes: wire.peak_rss_bytes.get(),
            cpu_us: wire.cpu_us.get(),
        })
    }
}

fn seal(fixed: &[u8]) -> [u8; LOG_BYTES] {
    let mut page = [0; LOG_BYTES];
    page[..fixed.len()].copy_from_slice(fixed);
    let crc = crc32c_without(&page, CRC_FIELD);
    page[CRC_FIELD].copy_from_slice(&crc.to_le_bytes());
    page
}

fn open<T: FromBytes + KnownLayout + Immutable + Unaligned>(
    page: &[u8],
    magic: [u8; 4],
    known: u32,
) -> Result<&T, LogError> {
    if page.len() != LOG_BYTES {
        return Err(LogError::Length(page.len()));
    }
    let word = |at: usize| [page[at], page[at + 1], page[at + 2], page[at + 3]];
    if word(0) != magic {
        return Err(LogError::Magic(word(0)));
    }
    let found = u32::from_le_bytes(word(4));
    if found != known {
        return Err(LogError::Version { found, known });
    }
    let expected = u32::from_le_bytes(word(CRC_FIELD.start));
    let actual = crc32c_without(page, CRC_FIELD);
    if actual != expected {
        return Err(LogError::Checksum { expected, actual });
    }
    let (wire, _) = T::ref_from_prefix(page).map_err(|_| LogError::Length(page.len()))?;
    Ok(wire)
}

#[cfg(test)]
mod tests;
