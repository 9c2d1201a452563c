//! Error information, SMART / health and firmware slot pages.

use crate::{TooShort, view};
use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// One entry of the error information log (01h). Base 2.1, figure "Error Information Log Entry".
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ErrorEntry {
    /// Number of the error since the subsystem was made; 0 for an unused entry.
    pub count: U64,
    /// Submission queue.
    pub queue_id: U16,
    /// Command.
    pub command_id: U16,
    /// Status field with phase tag, as in [`crate::CompletionEntry::status_field`].
    pub status_field: U16,
    /// Byte (bits 7:0) and bit (10:8) of the wrong parameter; FFFFh for none.
    pub location: U16,
    /// First block with the error.
    pub lba: U64,
    /// Namespace.
    pub nsid: U32,
    /// Vendor specific log page with more information; 0 for none.
    pub vendor_log: u8,
    /// Transport type.
    pub transport: u8,
    /// Command set.
    pub csi: u8,
    /// Opcode.
    pub opcode: u8,
    /// Command-specific information.
    pub command_specific: U64,
    /// Transport-specific information.
    pub transport_specific: U16,
    /// Reserved and unused.
    pub reserved42: [u8; 22],
}
const _: () = assert!(size_of::<ErrorEntry>() == 64);

/// SMART / health information (02h). Base 2.1, figure "SMART / Health Information Log Page".
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct SmartLog {
    /// Critical warnings, one bit each.
    pub critical_warning: u8,
    /// Composite temperature in kelvin; 0 without a sensor.
    pub temperature_k: U16,
    /// Spare capacity left in percent.
    pub spare_percent: u8,
    /// Spare capacity below which the drive warns, in percent.
    pub spare_threshold_percent: u8,
    /// Life used in percent.
    pub used_percent: u8,
    /// Endurance group warnings.
    pub endurance_warning: u8,
    /// Reserved.
    pub reserved7: [u8; 25],
    /// Data read in units of 1000 blocks of 512 bytes, rounded up.
    pub data_units_read: U128,
    /// Data written in the same units.
    pub data_units_written: U128,
    /// Read commands.
    pub host_reads: U128,
    /// Write commands.
    pub host_writes: U128,
    /// Minutes with commands outstanding.
    pub busy_minutes: U128,
    /// Power cycles.
    pub power_cycles: U128,
    /// Hours of power.
    pub power_on_hours: U128,
    /// Power losses without a shutdown.
    pub unsafe_shutdowns: U128,
    /// Unrecovered data integrity errors.
    pub media_errors: U128,
    /// Entries ever made in the error information log.
    pub error_entries: U128,
    /// Minutes above the warning temperature.
    pub warning_minutes: U32,
    /// Minutes above the critical temperature.
    pub critical_minutes: U32,
    /// Temperature sensors in kelvin, 0 for missing ones.
    pub sensors_k: [U16; 8],
    /// Reserved and unused.
    pub reserved216: [u8; 296],
}
const _: () = assert!(size_of::<SmartLog>() == 512);

impl SmartLog {
    /// Bit of [`SmartLog::critical_warning`]: a temperature beyond a threshold.
    pub const TEMPERATURE_WARNING: u8 = 1 << 1;

    /// Makes a structure of zeros, to be filled in.
    pub fn zeroed() -> Self {
        Self::new_zeroed()
    }

    /// Reads the page at the start of log data.
    pub fn parse(bytes: &[u8]) -> Result<&Self, TooShort> {
        view(bytes, "smart log")
    }

    /// Converts bytes to the unit of [`SmartLog::data_units_read`]: thousands of blocks of 512 bytes, rounded up.
    pub const fn data_units(bytes: u64) -> u128 {
        bytes.div_ceil(512).div_ceil(1000) as u128
    }
}

/// Firmware slot information (03h). Base 2.1, figure "Firmware Slot Information Log Page".
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct FirmwareSlotLog {
    /// Active slot (bits 2:0), and the slot that will be active after the next reset (bits 6:4).
    pub active: u8,
    /// Reserved.
    pub reserved1: [u8; 7],
    /// Revisions in slots 1 to 7, ASCII padded by spaces, zeros where there is none.
    pub revisions: [[u8; 8]; 7],
    /// Reserved.
    pub reserved64: [u8; 448],
}
const _: () = assert!(size_of::<FirmwareSlotLog>() == 512);

impl FirmwareSlotLog {
    /// Makes the page of a controller with one firmware, in slot 1.
    pub fn single(revision: [u8; 8]) -> Self {
        let mut log = Self::new_zeroed();
        log.active = 1;
        log.revisions[0] = revision;
        log
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;

    #[test]
    fn fields_lie_where_the_figures_say() {
        assert_eq!([offset_of!(ErrorEntry, lba), offset_of!(ErrorEntry, nsid)], [16, 24]);
        assert_eq!([offset_of!(ErrorEntry, command_specific), offset_of!(ErrorEntry, transport)], [32, 29]);
        assert_eq!([offset_of!(SmartLog, data_units_read), offset_of!(SmartLog, power_cycles)], [32, 112]);
        assert_eq!([offset_of!(SmartLog, error_entries), offset_of!(SmartLog, warning_minutes)], [176, 192]);
        assert_eq!([offset_of!(SmartLog, sensors_k), offset_of!(FirmwareSlotLog, revisions)], [200, 8]);
    }

    #[test]
    fn data_units_round_up() {
        assert_eq!(SmartLog::data_units(0), 0);
        assert_eq!(SmartLog::data_units(1), 1);
        assert_eq!(SmartLog::data_units(512_000), 1);
        assert_eq!(SmartLog::data_units(512_001), 2);
        assert!(SmartLog::parse(&[0; 511]).is_err());
    }
}
