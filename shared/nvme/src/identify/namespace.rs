//! Identify Namespace: NVM 1.1, figure "Identify Namespace Data Structure"; Base 2.1, figure "I/O Command Set
//! Independent Identify Namespace Data Structure".

use crate::bits;
use crate::{TooShort, view};
use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// One LBA format. NVM 1.1, figure "LBA Format Data Structure".
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct LbaFormat {
    /// Metadata bytes of a block (MS).
    pub metadata_bytes: U16,
    /// Data bytes of a block as a power of two (LBADS), from 9 on; 0 for an unavailable format.
    pub data_size_log2: u8,
    /// Relative performance (RP).
    pub performance: u8,
}
const _: () = assert!(size_of::<LbaFormat>() == 4);

/// Identify Namespace of the NVM command set (CNS 00h).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct IdentifyNamespace {
    /// Blocks (NSZE).
    pub blocks: U64,
    /// Blocks that may be allocated (NCAP).
    pub capacity: U64,
    /// Blocks in use (NUSE).
    pub utilization: U64,
    /// Features (NSFEAT).
    pub features: u8,
    /// LBA formats, 0's based (NLBAF).
    pub formats_z: u8,
    /// Format in use (FLBAS): index in bits 3:0, its upper bits in 6:5.
    pub format_in_use: u8,
    /// Metadata capabilities (MC).
    pub metadata: u8,
    /// Protection capabilities (DPC).
    pub protection_capabilities: u8,
    /// Protection settings (DPS).
    pub protection: u8,
    /// Sharing (NMIC): bit 0 may be attached to several controllers.
    pub sharing: u8,
    /// Reservations (RESCAP).
    pub reservations: u8,
    /// Format progress (FPI).
    pub format_progress: u8,
    /// Deallocation (DLFEAT).
    pub deallocation: u8,
    /// Atomicity and boundary fields, all 0 where not used (NAWUN to NABSPF).
    pub atomicity: [U16; 6],
    /// Optimal I/O boundary in blocks (NOIOB).
    pub optimal_boundary: U16,
    /// Bytes of capacity (NVMCAP).
    pub capacity_bytes: U128,
    /// Preferred write granularity in blocks, 0's based (NPWG), then NPWA, NPDG, NPDA and NOWS.
    pub preferred_z: [U16; 5],
    /// Reserved and unused.
    pub reserved74: [u8; 18],
    /// ANA group (ANAGRPID).
    pub ana_group: U32,
    /// Reserved.
    pub reserved96: [u8; 3],
    /// Attributes (NSATTR): bit 0 write protected.
    pub attributes: u8,
    /// NVM set.
    pub nvm_set: U16,
    /// Endurance group.
    pub endurance_group: U16,
    /// Globally unique identifier.
    pub nguid: [u8; 16],
    /// IEEE extended unique identifier.
    pub eui64: [u8; 8],
    /// LBA formats.
    pub formats: [LbaFormat; 64],
    /// Vendor specific.
    pub vendor: [u8; 3712],
}
const _: () = assert!(size_of::<IdentifyNamespace>() == 4096);

impl IdentifyNamespace {
    /// Attribute bit: the namespace is write protected.
    pub const WRITE_PROTECTED: u8 = 1;
    /// Largest block that [`IdentifyNamespace::block_bytes`] accepts: 2^16 bytes.
    pub const BLOCK_LOG2_MAX: u8 = 16;

    /// Makes a structure of zeros, to be filled in. An inactive namespace returns it as it is.
    pub fn zeroed() -> Self {
        Self::new_zeroed()
    }

    /// Reads the structure at the start of Identify data.
    pub fn parse(bytes: &[u8]) -> Result<&Self, TooShort> {
        view(bytes, "identify namespace")
    }

    /// Returns the LBA format in use; `None` if there is no format of its index.
    pub fn format(&self) -> Option<LbaFormat> {
        let in_use = u32::from(self.format_in_use);
        let index = bits::with32(bits::get32(in_use, 0, 4), 4, 2, bits::get32(in_use, 5, 2));
        if index > u32::from(self.formats_z) {
            return None;
        }
        self.formats.get(index as usize).copied()
    }

    /// Returns the bytes of a logical block; `None` for a size below 512 or above 2^16 bytes, or a format that does not
    /// exist.
    pub fn block_bytes(&self) -> Option<u32> {
        let format = self.format()?;
        (9..=Self::BLOCK_LOG2_MAX).contains(&format.data_size_log2).then(|| 1 << format.data_size_log2)
    }
}

/// Identify Namespace, NVM command set specific (CNS 05h, CSI 0). All zeros: no storage tags.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct NvmIdentifyNamespace {
    /// Logical block storage tag mask.
    pub storage_tag_mask: U64,
    /// Protection information capabilities.
    pub protection: u8,
    /// Protection information format attributes.
    pub protection_format: u8,
    /// Reserved.
    pub reserved10: [u8; 2],
    /// Extended LBA formats.
    pub formats: [U32; 64],
    /// Reserved and unused.
    pub reserved268: [u8; 3828],
}
const _: () = assert!(size_of::<NvmIdentifyNamespace>() == 4096);

/// I/O command set independent Identify Namespace (CNS 08h).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct IndependentIdentifyNamespace {
    /// Common namespace features (NSFEAT).
    pub features: u8,
    /// Sharing (NMIC).
    pub sharing: u8,
    /// Reservations (RESCAP).
    pub reservations: u8,
    /// Format progress (FPI).
    pub format_progress: u8,
    /// ANA group (ANAGRPID).
    pub ana_group: U32,
    /// Attributes (NSATTR).
    pub attributes: u8,
    /// Reserved.
    pub reserved9: u8,
    /// NVM set.
    pub nvm_set: U16,
    /// Endurance group.
    pub endurance_group: U16,
    /// Status (NSTAT): see [`IndependentIdentifyNamespace::READY`].
    pub status: u8,
    /// Reserved and unused.
    pub reserved15: [u8; 4081],
}
const _: () = assert!(size_of::<IndependentIdentifyNamespace>() == 4096);

impl IndependentIdentifyNamespace {
    /// Status bit 0 (NRDY): the namespace is ready. Linux ignores namespaces without it.
    pub const READY: u8 = 1;

    /// Makes a structure of zeros, to be filled in.
    pub fn zeroed() -> Self {
        Self::new_zeroed()
    }

    /// Reads the structure at the start of Identify data.
    pub fn parse(bytes: &[u8]) -> Result<&Self, TooShort> {
        view(bytes, "independent identify namespace")
    }

    /// Returns whether the namespace is ready.
    pub fn is_ready(&self) -> bool {
        self.status & Self::READY != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;
    use proptest::prelude::*;

    #[test]
    fn fields_lie_where_the_figures_say() {
        type N = IdentifyNamespace;
        assert_eq!([offset_of!(N, features), offset_of!(N, format_in_use), offset_of!(N, sharing)], [24, 26, 30]);
        assert_eq!([offset_of!(N, deallocation), offset_of!(N, optimal_boundary)], [33, 46]);
        assert_eq!([offset_of!(N, capacity_bytes), offset_of!(N, preferred_z)], [48, 64]);
        assert_eq!([offset_of!(N, ana_group), offset_of!(N, attributes), offset_of!(N, nguid)], [92, 99, 104]);
        assert_eq!([offset_of!(N, eui64), offset_of!(N, formats), offset_of!(N, vendor)], [120, 128, 384]);
        type I = IndependentIdentifyNamespace;
        assert_eq!([offset_of!(I, ana_group), offset_of!(I, attributes), offset_of!(I, status)], [4, 8, 14]);
        assert_eq!(offset_of!(NvmIdentifyNamespace, formats), 12);
    }

    #[test]
    fn block_sizes_are_checked() {
        let mut namespace = IdentifyNamespace::zeroed();
        assert_eq!(namespace.block_bytes(), None);
        namespace.formats[0].data_size_log2 = 12;
        assert_eq!(namespace.block_bytes(), Some(4096));
        namespace.formats[0].data_size_log2 = 200;
        assert_eq!(namespace.block_bytes(), None);
        namespace.format_in_use = 1;
        assert_eq!(namespace.format(), None, "beyond the formats there are");
        namespace.format_in_use = 0b0110_1111;
        namespace.formats_z = 63;
        namespace.formats[63].data_size_log2 = 9;
        assert_eq!(namespace.block_bytes(), Some(512));
    }

    proptest! {
        #[test]
        fn hostile_structures_hold(bytes in proptest::collection::vec(any::<u8>(), 4096)) {
            let namespace = IdentifyNamespace::parse(&bytes).unwrap();
            let _ = namespace.block_bytes();
            prop_assert_eq!(namespace.as_bytes(), &bytes[..]);
            let _ = IndependentIdentifyNamespace::parse(&bytes).unwrap().is_ready();
        }
    }
}
