//! Computational Programs command set: commands as plain structs, and its Identify Namespace structure.
//!
//! Public sources give only provisional layouts of the log pages 82h to 84h. The pages have identifiers
//! ([`crate::LogId`]), but no structures here.

use crate::bits;
use crate::entry::SubmissionEntry;
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Load Program (admin 85h, uses the NSID): loads one piece of a program, or unloads a program. CP 1.1, section "Load
/// Program".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadProgram {
    /// Program index (PIND).
    pub index: u16,
    /// Program type (PTYPE).
    pub kind: u8,
    /// Whether to unload instead of load (SEL).
    pub unload: bool,
    /// Kind of identifier in `id` (PIT, 3 bits): 0 none, 1 PUID.
    pub id_kind: u8,
    /// Bytes of the whole program (PSIZE).
    pub program_bytes: u32,
    /// Program identifier (PID).
    pub id: u64,
    /// Bytes in this command (NUMB).
    pub bytes: u32,
    /// Offset of this command's bytes in the program (LOFF).
    pub offset: u32,
}

impl LoadProgram {
    /// Reads the dwords of a command.
    pub fn parse(entry: &SubmissionEntry) -> Self {
        let [cdw10, program_bytes, cdw12, cdw13, bytes, offset] = entry.dwords();
        Self {
            index: bits::get32(cdw10, 0, 16) as u16,
            kind: bits::get32(cdw10, 16, 8) as u8,
            unload: bits::get32(cdw10, 24, 1) == 1,
            id_kind: bits::get32(cdw10, 25, 3) as u8,
            program_bytes,
            id: bits::join(cdw12, cdw13),
            bytes,
            offset,
        }
    }

    /// Returns dwords 10 to 15.
    pub fn dwords(&self) -> [u32; 6] {
        let cdw10 = bits::with32(self.index.into(), 16, 8, self.kind.into());
        let cdw10 = bits::with32(cdw10, 24, 1, self.unload.into());
        let cdw10 = bits::with32(cdw10, 25, 3, self.id_kind.into());
        let [cdw12, cdw13] = bits::split(self.id);
        [cdw10, self.program_bytes, cdw12, cdw13, self.bytes, self.offset]
    }
}

/// Program Activation Management (admin 88h, no data). CP 1.1, section "Program Activation Management".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramActivation {
    /// Program index (PIND).
    pub index: u16,
    /// Action (SEL, 4 bits): [`ProgramActivation::DEACTIVATE`] or [`ProgramActivation::ACTIVATE`].
    pub select: u8,
}

impl ProgramActivation {
    /// Value of `select`: deactivate.
    pub const DEACTIVATE: u8 = 0;
    /// Value of `select`: activate.
    pub const ACTIVATE: u8 = 1;

    /// Reads the dwords of a command.
    pub fn parse(entry: &SubmissionEntry) -> Self {
        let cdw10 = entry.cdw(10);
        Self { index: bits::get32(cdw10, 0, 16) as u16, select: bits::get32(cdw10, 16, 4) as u8 }
    }

    /// Returns dwords 10 to 15.
    pub fn dwords(&self) -> [u32; 6] {
        [bits::with32(self.index.into(), 16, 4, self.select.into()), 0, 0, 0, 0, 0]
    }
}

/// Memory Range Set Management (admin 89h). CP 1.1, section "Memory Range Set Management".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryRangeSet {
    /// Action (SEL, 4 bits): 0 create, 1 delete.
    pub select: u8,
    /// Memory range set (RSID); 0 for none.
    pub set_id: u16,
    /// Number of ranges (NUMR), a plain count.
    pub ranges: u8,
}

impl MemoryRangeSet {
    /// Reads the dwords of a command.
    pub fn parse(entry: &SubmissionEntry) -> Self {
        Self {
            select: bits::get32(entry.cdw(10), 0, 4) as u8,
            set_id: bits::get32(entry.cdw(10), 16, 16) as u16,
            ranges: bits::get32(entry.cdw(11), 0, 8) as u8,
        }
    }

    /// Returns dwords 10 to 15.
    pub fn dwords(&self) -> [u32; 6] {
        let cdw10 = bits::with32(bits::get32(self.select.into(), 0, 4), 16, 16, self.set_id.into());
        [cdw10, self.ranges.into(), 0, 0, 0, 0]
    }
}

/// Execute Program (I/O 01h on a CP namespace). CP 1.1, section "Execute Program".
///
/// The SGL gives the length of the data: Linux passthrough cannot set DLEN (dword 4), which arrives as 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExecuteProgram {
    /// Program index (PIND).
    pub index: u16,
    /// Memory range set (RSID); 0 for none.
    pub set_id: u16,
    /// Number of memory ranges (NUMR).
    pub ranges: u32,
    /// First parameter (CPARAM1).
    pub parameter1: u64,
    /// Second parameter (CPARAM2).
    pub parameter2: u64,
}

impl ExecuteProgram {
    /// Reads the dwords of a command.
    pub fn parse(entry: &SubmissionEntry) -> Self {
        let [cdw10, cdw11, cdw12, cdw13, ..] = entry.dwords();
        let cdw2 = entry.cdw2.get();
        Self {
            index: bits::get32(cdw2, 0, 16) as u16,
            set_id: bits::get32(cdw2, 16, 16) as u16,
            ranges: entry.cdw3.get(),
            parameter1: bits::join(cdw10, cdw11),
            parameter2: bits::join(cdw12, cdw13),
        }
    }

    /// Returns dword 2.
    pub fn cdw2(&self) -> u32 {
        bits::with32(self.index.into(), 16, 16, self.set_id.into())
    }

    /// Returns dwords 10 to 15.
    pub fn dwords(&self) -> [u32; 6] {
        let [cdw10, cdw11] = bits::split(self.parameter1);
        let [cdw12, cdw13] = bits::split(self.parameter2);
        [cdw10, cdw11, cdw12, cdw13, 0, 0]
    }
}

/// Identify Namespace of the Computational Programs set (CNS 05h, CSI 4).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CpIdentifyNamespace {
    /// Most programs that can be active (MAXACT).
    pub programs_active_max: U16,
    /// Most memory range sets (MAXMEMRS).
    pub range_sets_max: U16,
    /// Memory range set granularity (MRSG).
    pub range_granularity: U16,
    /// Most memory ranges in a set (MAXMEMR).
    pub ranges_max: u8,
    /// Reserved.
    pub reserved7: u8,
    /// Most bytes of all programs together, in MiB (MAXPB).
    pub program_mib_max: U64,
    /// Load program granularity (LPG).
    pub load_granularity: u8,
    /// Reserved.
    pub reserved17: [u8; 4079],
}
const _: () = assert!(size_of::<CpIdentifyNamespace>() == 4096);

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;
    use proptest::prelude::*;

    fn entry(dwords: [u32; 6]) -> SubmissionEntry {
        SubmissionEntry::default().with_dwords(dwords)
    }

    #[test]
    fn fields_lie_where_the_figures_say() {
        assert_eq!(offset_of!(CpIdentifyNamespace, ranges_max), 6);
        assert_eq!(offset_of!(CpIdentifyNamespace, program_mib_max), 8);
        assert_eq!(offset_of!(CpIdentifyNamespace, load_granularity), 16);
        let load = LoadProgram { index: 1, kind: 0xC0, unload: true, id_kind: 1, ..LoadProgram::default() };
        assert_eq!(load.dwords()[0], 0x03C0_0001);
        let activate = ProgramActivation { index: 1, select: ProgramActivation::ACTIVATE };
        assert_eq!(activate.dwords()[0], 0x0001_0001);
        let set = MemoryRangeSet { select: 1, set_id: 7, ranges: 3 };
        assert_eq!(set.dwords()[..2], [0x0007_0001, 3]);
    }

    proptest! {
        #[test]
        fn what_is_parsed_is_written_again(dwords: [u32; 6], cdw2: u32, cdw3: u32) {
            let mut first = entry(dwords);
            first.cdw2 = cdw2.into();
            first.cdw3 = cdw3.into();
            let parsed = LoadProgram::parse(&first);
            prop_assert_eq!(LoadProgram::parse(&entry(parsed.dwords())), parsed);
            let activation = ProgramActivation::parse(&first);
            prop_assert_eq!(ProgramActivation::parse(&entry(activation.dwords())), activation);
            let set = MemoryRangeSet::parse(&first);
            prop_assert_eq!(MemoryRangeSet::parse(&entry(set.dwords())), set);
            let execute = ExecuteProgram::parse(&first);
            prop_assert_eq!(execute.cdw2(), cdw2);
            prop_assert_eq!(&execute.dwords()[..4], &dwords[..4]);
            prop_assert_eq!(execute.ranges, cdw3);
        }
    }
}
