//! Identify Controller. Base 2.1, figure "Identify – Identify Controller Data Structure, I/O Command Set Independent".

use crate::bits;
use crate::text::{NQN_FIELD_BYTES, trimmed};
use crate::{TooShort, view};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Identify Controller (CNS 01h).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct IdentifyController {
    /// PCI vendor (VID).
    pub vendor_id: U16,
    /// PCI subsystem vendor (SSVID).
    pub subsystem_vendor_id: U16,
    /// Serial number, ASCII padded by spaces.
    pub serial: [u8; 20],
    /// Model number, ASCII padded by spaces.
    pub model: [u8; 40],
    /// Firmware revision, ASCII padded by spaces.
    pub firmware: [u8; 8],
    /// Recommended arbitration burst (RAB).
    pub arbitration_burst: u8,
    /// IEEE OUI.
    pub ieee: [u8; 3],
    /// Multi-path and namespace sharing (CMIC): bit 1 several controllers in the subsystem, bit 3 ANA.
    pub multipath: u8,
    /// Largest transfer: 2^value pages of CAP.MPSMIN, 0 for no limit (MDTS).
    pub mdts: u8,
    /// Controller identifier (CNTLID).
    pub controller_id: U16,
    /// Version, as the VS property.
    pub version: U32,
    /// RTD3 resume latency.
    pub rtd3_resume_us: U32,
    /// RTD3 entry latency.
    pub rtd3_entry_us: U32,
    /// Asynchronous events supported (OAES): see [`crate::event::AsyncEventConfiguration`].
    pub async_events: U32,
    /// Controller attributes (CTRATT): bit 0 128-bit host identifier, bit 6 traffic-based keep alive.
    pub attributes: U32,
    /// Reserved and unused.
    pub reserved100: [u8; 11],
    /// Controller type (CNTRLTYPE): see [`IdentifyController::TYPE_IO`].
    pub controller_type: u8,
    /// FRU globally unique identifier.
    pub fru_guid: [u8; 16],
    /// Command retry delays 1 to 3 in units of 100 ms.
    pub retry_delays: [U16; 3],
    /// Reserved and unused.
    pub reserved134: [u8; 122],
    /// Optional admin commands (OACS).
    pub optional_admin: U16,
    /// Abort commands that may be outstanding, 0's based (ACL).
    pub abort_limit_z: u8,
    /// Asynchronous event requests that may be outstanding, 0's based (AERL).
    pub async_event_limit_z: u8,
    /// Firmware updates (FRMW): see [`IdentifyController::FIRMWARE_FIXED`].
    pub firmware_updates: u8,
    /// Log page attributes (LPA): bit 1 effects log, bit 2 offsets and long lengths.
    pub log_attributes: u8,
    /// Error log entries, 0's based (ELPE).
    pub error_entries_z: u8,
    /// Power states, 0's based (NPSS).
    pub power_states_z: u8,
    /// Admin vendor specific command configuration.
    pub vendor_admin: u8,
    /// Autonomous power state transitions.
    pub autonomous_power: u8,
    /// Warning composite temperature in kelvin.
    pub warning_temperature_k: U16,
    /// Critical composite temperature in kelvin.
    pub critical_temperature_k: U16,
    /// Reserved and unused.
    pub reserved270: [u8; 50],
    /// Keep alive granularity in units of 100 ms, 0 for no keep alive (KAS).
    pub keep_alive_granularity: U16,
    /// Reserved and unused.
    pub reserved322: [u8; 190],
    /// Submission entry sizes (SQES): required in bits 3:0, largest in 7:4, as powers of two.
    pub submission_entry: u8,
    /// Completion entry sizes (CQES), likewise.
    pub completion_entry: u8,
    /// Commands that may be outstanding on a queue (MAXCMD).
    pub commands_max: U16,
    /// Highest namespace identifier (NN).
    pub namespaces: U32,
    /// Optional NVM commands (ONCS).
    pub optional_nvm: U16,
    /// Fused operations.
    pub fused: U16,
    /// Format NVM attributes.
    pub format_attributes: u8,
    /// Volatile write cache (VWC).
    pub volatile_write_cache: u8,
    /// Reserved and unused.
    pub reserved526: [u8; 10],
    /// SGL support (SGLS): bits 1:0 supported, bit 20 offsets (in-capsule data).
    pub sgl: U32,
    /// Most namespaces (MNAN).
    pub namespaces_max: U32,
    /// Reserved and unused.
    pub reserved544: [u8; 224],
    /// NQN of the subsystem, zeros behind it.
    pub subsystem_nqn: [u8; NQN_FIELD_BYTES],
    /// Reserved.
    pub reserved1024: [u8; 768],
    /// Bytes of a command capsule on an I/O queue in units of 16, entry included (IOCCSZ).
    pub command_capsule: U32,
    /// Bytes of a response capsule in units of 16 (IORCSZ).
    pub response_capsule: U32,
    /// Offset of in-capsule data in units of 16 (ICDOFF).
    pub capsule_data_offset: U16,
    /// Fabrics controller attributes (FCATT).
    pub fabrics_attributes: u8,
    /// SGL descriptors in a command (MSDBD).
    pub sgl_descriptors_max: u8,
    /// Optional Fabrics commands (OFCS).
    pub optional_fabrics: U16,
    /// Discovery controller type.
    pub discovery_type: u8,
    /// Reserved.
    pub reserved1807: [u8; 241],
    /// Power state descriptors.
    pub power_states: [u8; 1024],
    /// Vendor specific.
    pub vendor: [u8; 1024],
}
const _: () = assert!(size_of::<IdentifyController>() == 4096);

impl IdentifyController {
    /// Value of `controller_type`: an I/O controller.
    pub const TYPE_IO: u8 = 1;
    /// Value of `controller_type`: a discovery controller.
    pub const TYPE_DISCOVERY: u8 = 2;
    /// Value of `submission_entry`: exactly 64 bytes.
    pub const SUBMISSION_ENTRY_64: u8 = 0x66;
    /// Value of `completion_entry`: exactly 16 bytes.
    pub const COMPLETION_ENTRY_16: u8 = 0x44;
    /// Value of `firmware_updates`: one firmware slot (bits 3:1, where 0 is not valid), which is read-only (bit 0).
    pub const FIRMWARE_FIXED: u8 = 1 << 1 | 1;
    /// Unit of [`IdentifyController::command_capsule`] in bytes.
    pub const CAPSULE_UNIT: usize = 16;

    /// Makes a structure of zeros, to be filled in.
    pub fn zeroed() -> Self {
        Self::new_zeroed()
    }

    /// Reads the structure at the start of Identify data.
    pub fn parse(bytes: &[u8]) -> Result<&Self, TooShort> {
        view(bytes, "identify controller")
    }

    /// Returns the serial number.
    pub fn serial(&self) -> &str {
        trimmed(&self.serial)
    }

    /// Returns the model number.
    pub fn model(&self) -> &str {
        trimmed(&self.model)
    }

    /// Returns the firmware revision.
    pub fn firmware(&self) -> &str {
        trimmed(&self.firmware)
    }

    /// Returns the subsystem NQN; empty if it is not text.
    pub fn subsystem_nqn(&self) -> &str {
        trimmed(&self.subsystem_nqn)
    }

    /// Returns the largest transfer in bytes for pages of 2^(12 + `page_min`) bytes; `None` for no limit, or a limit
    /// that does not fit 64 bits.
    pub fn transfer_bytes_max(&self, page_min: u8) -> Option<u64> {
        match self.mdts {
            0 => None,
            mdts => 1u64.checked_shl(12 + u32::from(page_min) + u32::from(mdts)),
        }
    }

    /// Returns how many bytes of data fit in a command capsule on an I/O queue.
    pub fn in_capsule_bytes_max(&self) -> usize {
        (self.command_capsule.get() as usize).saturating_mul(Self::CAPSULE_UNIT).saturating_sub(64)
    }

    /// Returns whether there is an effects log (LPA bit 1).
    pub fn has_effects_log(&self) -> bool {
        bits::get32(self.log_attributes.into(), 1, 1) == 1
    }
}

/// Identify Controller of the NVM command set (CNS 06h, CSI 0). All zeros means no limits beyond MDTS.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct NvmIdentifyController {
    /// Verify size limit (VSL), as [`IdentifyController::mdts`].
    pub verify_limit: u8,
    /// Write Zeroes size limit (WZSL).
    pub write_zeroes_limit: u8,
    /// Write Uncorrectable size limit (WUSL).
    pub write_uncorrectable_limit: u8,
    /// Dataset Management ranges limit (DMRL).
    pub dataset_ranges_limit: u8,
    /// Dataset Management range size limit in blocks (DMRSL).
    pub dataset_range_blocks_limit: U32,
    /// Dataset Management size limit in blocks (DMSL).
    pub dataset_blocks_limit: U64,
    /// Reserved.
    pub reserved16: [u8; 4080],
}
const _: () = assert!(size_of::<NvmIdentifyController>() == 4096);

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::text::{nqn_field, padded};
    use core::mem::offset_of;
    use proptest::prelude::*;
    use std::vec;

    #[test]
    fn fields_lie_where_the_figure_says() {
        type C = IdentifyController;
        assert_eq!([offset_of!(C, mdts), offset_of!(C, controller_id), offset_of!(C, version)], [77, 78, 80]);
        assert_eq!([offset_of!(C, async_events), offset_of!(C, attributes)], [92, 96]);
        assert_eq!([offset_of!(C, controller_type), offset_of!(C, retry_delays)], [111, 128]);
        assert_eq!([offset_of!(C, optional_admin), offset_of!(C, abort_limit_z)], [256, 258]);
        assert_eq!([offset_of!(C, log_attributes), offset_of!(C, error_entries_z)], [261, 262]);
        assert_eq!([offset_of!(C, warning_temperature_k), offset_of!(C, keep_alive_granularity)], [266, 320]);
        assert_eq!([offset_of!(C, submission_entry), offset_of!(C, commands_max)], [512, 514]);
        assert_eq!([offset_of!(C, namespaces), offset_of!(C, optional_nvm)], [516, 520]);
        assert_eq!([offset_of!(C, volatile_write_cache), offset_of!(C, sgl)], [525, 536]);
        assert_eq!([offset_of!(C, namespaces_max), offset_of!(C, subsystem_nqn)], [540, 768]);
        assert_eq!([offset_of!(C, command_capsule), offset_of!(C, capsule_data_offset)], [1792, 1800]);
        assert_eq!([offset_of!(C, power_states), offset_of!(C, vendor)], [2048, 3072]);
    }

    #[test]
    fn limits_follow_the_fields() {
        let mut controller = IdentifyController::zeroed();
        assert_eq!(controller.transfer_bytes_max(0), None);
        assert_eq!(controller.in_capsule_bytes_max(), 0);
        controller.mdts = 8;
        controller.command_capsule = 516.into();
        controller.serial = padded("S1");
        controller.subsystem_nqn = nqn_field("nqn.x").unwrap();
        assert_eq!(controller.transfer_bytes_max(0), Some(1 << 20));
        assert_eq!(controller.in_capsule_bytes_max(), 8192);
        assert_eq!((controller.serial(), controller.subsystem_nqn()), ("S1", "nqn.x"));
    }

    proptest! {
        #[test]
        fn hostile_structures_have_accessors_that_hold(bytes in proptest::collection::vec(any::<u8>(), 4096)) {
            let controller = IdentifyController::parse(&bytes).unwrap();
            let _ = (controller.transfer_bytes_max(15), controller.in_capsule_bytes_max());
            let _ = (controller.serial(), controller.model(), controller.subsystem_nqn());
            prop_assert_eq!(controller.as_bytes(), &bytes[..]);
        }

        #[test]
        fn short_structures_are_errors(length in 0usize..4096) {
            prop_assert!(IdentifyController::parse(&vec![0; length]).is_err());
        }
    }
}
