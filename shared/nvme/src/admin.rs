//! Admin commands as plain structs.
//!
//! Each struct has `parse`, which never fails and ignores reserved bits, and `dwords`, which gives dwords 10 to 15 of
//! the command.

use crate::bits;
use crate::code::{Cns, Csi, FeatureId, LogId};
use crate::entry::SubmissionEntry;

/// Identify. Base 2.1, section "Identify command".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identify {
    /// Structure to return.
    pub cns: Cns,
    /// Controller, for structures that name one.
    pub controller_id: u16,
    /// CNS-specific identifier.
    pub specific_id: u16,
    /// I/O command set, for CNS values that are specific to one.
    pub csi: Csi,
}

impl Identify {
    /// Reads the dwords of a command.
    pub fn parse(entry: &SubmissionEntry) -> Self {
        Self {
            cns: Cns(bits::get32(entry.cdw(10), 0, 8) as u8),
            controller_id: bits::get32(entry.cdw(10), 16, 16) as u16,
            specific_id: bits::get32(entry.cdw(11), 0, 16) as u16,
            csi: Csi(bits::get32(entry.cdw(11), 24, 8) as u8),
        }
    }

    /// Returns dwords 10 to 15.
    pub fn dwords(&self) -> [u32; 6] {
        let cdw10 = bits::with32(self.cns.0.into(), 16, 16, self.controller_id.into());
        let cdw11 = bits::with32(self.specific_id.into(), 24, 8, self.csi.0.into());
        [cdw10, cdw11, 0, 0, 0, 0]
    }
}

/// Get Log Page. Base 2.1, section "Get Log Page command".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GetLogPage {
    /// Log page.
    pub log: LogId,
    /// Log specific parameter (7 bits).
    pub specific: u8,
    /// Retain asynchronous event: whether reading the page leaves its event masked.
    pub retain_event: bool,
    /// Dwords to return, 0's based.
    pub dwords_z: u32,
    /// Log specific identifier.
    pub specific_id: u16,
    /// Offset in the page: bytes in multiples of 4, or a list entry.
    pub offset: u64,
    /// Whether the offset counts list entries, not bytes (OT).
    pub offset_is_index: bool,
    /// I/O command set, for pages that depend on one.
    pub csi: Csi,
}

impl GetLogPage {
    /// Makes the command for `bytes` bytes of a page from `offset` on, rounded up to at least one dword. The command
    /// retains the page's event.
    pub fn new(log: LogId, csi: Csi, offset: u64, bytes: u32) -> Self {
        let dwords_z = bytes.div_ceil(4).max(1) - 1;
        Self { log, csi, offset, dwords_z, retain_event: true, ..Self::default() }
    }

    /// Returns the number of bytes asked for.
    pub const fn bytes(&self) -> u64 {
        (self.dwords_z as u64 + 1) * 4
    }

    /// Reads the dwords of a command.
    pub fn parse(entry: &SubmissionEntry) -> Self {
        let [cdw10, cdw11, cdw12, cdw13, cdw14, _] = entry.dwords();
        let low = bits::get32(cdw10, 16, 16);
        Self {
            log: LogId(bits::get32(cdw10, 0, 8) as u8),
            specific: bits::get32(cdw10, 8, 7) as u8,
            retain_event: bits::get32(cdw10, 15, 1) == 1,
            dwords_z: bits::with32(low, 16, 16, bits::get32(cdw11, 0, 16)),
            specific_id: bits::get32(cdw11, 16, 16) as u16,
            offset: bits::join(cdw12, cdw13),
            offset_is_index: bits::get32(cdw14, 23, 1) == 1,
            csi: Csi(bits::get32(cdw14, 24, 8) as u8),
        }
    }

    /// Returns dwords 10 to 15.
    pub fn dwords(&self) -> [u32; 6] {
        let cdw10 = bits::with32(self.log.0.into(), 8, 7, self.specific.into());
        let cdw10 = bits::with32(cdw10, 15, 1, self.retain_event.into());
        let cdw10 = bits::with32(cdw10, 16, 16, bits::get32(self.dwords_z, 0, 16));
        let cdw11 = bits::with32(bits::get32(self.dwords_z, 16, 16), 16, 16, self.specific_id.into());
        let [cdw12, cdw13] = bits::split(self.offset);
        let cdw14 = bits::with32(bits::with32(0, 23, 1, self.offset_is_index.into()), 24, 8, self.csi.0.into());
        [cdw10, cdw11, cdw12, cdw13, cdw14, 0]
    }
}

/// Set Features. Base 2.1, section "Set Features command".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetFeatures {
    /// Identifier of the feature.
    pub feature: FeatureId,
    /// Whether to keep the value over resets.
    pub save: bool,
    /// Dword 11, the value of most features; see for example [`NumberOfQueues`].
    pub value: u32,
    /// Dword 12.
    pub cdw12: u32,
    /// Dword 13.
    pub cdw13: u32,
    /// Dword 15.
    pub cdw15: u32,
}

impl SetFeatures {
    /// Reads the dwords of a command.
    pub fn parse(entry: &SubmissionEntry) -> Self {
        let [cdw10, value, cdw12, cdw13, _, cdw15] = entry.dwords();
        let feature = FeatureId(bits::get32(cdw10, 0, 8) as u8);
        Self { feature, save: bits::get32(cdw10, 31, 1) == 1, value, cdw12, cdw13, cdw15 }
    }

    /// Returns dwords 10 to 15.
    pub fn dwords(&self) -> [u32; 6] {
        let cdw10 = bits::with32(self.feature.0.into(), 31, 1, self.save.into());
        [cdw10, self.value, self.cdw12, self.cdw13, 0, self.cdw15]
    }
}

/// Choice of the value that Get Features returns. Base 2.1, figure "Get Features – Command Dword 10".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeatureSelect(pub u8);

impl FeatureSelect {
    /// The value in force.
    pub const CURRENT: Self = Self(0);
    /// The value from the factory.
    pub const DEFAULT: Self = Self(1);
    /// The value kept over resets.
    pub const SAVED: Self = Self(2);
    /// Capabilities of the feature: see [`feature_capabilities`].
    pub const SUPPORTED: Self = Self(3);
}

/// Returns DW0 of the result of Get Features with [`FeatureSelect::SUPPORTED`].
pub const fn feature_capabilities(saveable: bool, namespace_specific: bool, changeable: bool) -> u32 {
    let value = bits::with32(0, 0, 1, saveable as u32);
    bits::with32(bits::with32(value, 1, 1, namespace_specific as u32), 2, 1, changeable as u32)
}

/// Get Features. Base 2.1, section "Get Features command".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GetFeatures {
    /// Identifier of the feature.
    pub feature: FeatureId,
    /// Choice of the value.
    pub select: FeatureSelect,
    /// Dword 11, feature-specific.
    pub cdw11: u32,
}

impl GetFeatures {
    /// Reads the dwords of a command.
    pub fn parse(entry: &SubmissionEntry) -> Self {
        Self {
            feature: FeatureId(bits::get32(entry.cdw(10), 0, 8) as u8),
            select: FeatureSelect(bits::get32(entry.cdw(10), 8, 3) as u8),
            cdw11: entry.cdw(11),
        }
    }

    /// Returns dwords 10 to 15.
    pub fn dwords(&self) -> [u32; 6] {
        [bits::with32(self.feature.0.into(), 8, 3, self.select.0.into()), self.cdw11, 0, 0, 0, 0]
    }
}

/// Value of [`FeatureId::NUMBER_OF_QUEUES`], as asked for and as granted; both counts 0's based.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NumberOfQueues {
    /// I/O submission queues, 0's based; FFFFh is not allowed.
    pub submission_z: u16,
    /// I/O completion queues, 0's based; FFFFh is not allowed.
    pub completion_z: u16,
}

impl NumberOfQueues {
    /// Reads dword 11 of the command, or DW0 of its completion.
    pub const fn from_value(value: u32) -> Self {
        Self { submission_z: bits::get32(value, 0, 16) as u16, completion_z: bits::get32(value, 16, 16) as u16 }
    }

    /// Returns the dword.
    pub const fn value(self) -> u32 {
        bits::with32(self.submission_z as u32, 16, 16, self.completion_z as u32)
    }
}

/// Abort. Base 2.1, section "Abort command". Bit 0 of the completion's DW0 is 1 when the command was **not** aborted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abort {
    /// Submission queue of the command to abort.
    pub queue_id: u16,
    /// The command to abort.
    pub command_id: u16,
}

impl Abort {
    /// Reads the dwords of a command.
    pub fn parse(entry: &SubmissionEntry) -> Self {
        let cdw10 = entry.cdw(10);
        Self { queue_id: bits::get32(cdw10, 0, 16) as u16, command_id: bits::get32(cdw10, 16, 16) as u16 }
    }

    /// Returns dwords 10 to 15.
    pub fn dwords(&self) -> [u32; 6] {
        [bits::with32(self.queue_id.into(), 16, 16, self.command_id.into()), 0, 0, 0, 0, 0]
    }

    /// Returns the completion's result: bit 0 of DW0 is clear if the command was aborted.
    pub const fn result(aborted: bool) -> u64 {
        !aborted as u64
    }

    /// Returns whether the result of a successful Abort says that the command was aborted.
    pub const fn was_aborted(result: u64) -> bool {
        bits::get(result, 0, 1) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(dwords: [u32; 6]) -> SubmissionEntry {
        SubmissionEntry::default().with_dwords(dwords)
    }

    #[test]
    fn log_page_dwords_are_those_of_linux() {
        // Effects of the Computational Programs set, 4096 bytes, as a kernel asks for them (without RAE).
        let page = GetLogPage { retain_event: false, ..GetLogPage::new(LogId::EFFECTS, Csi::COMPUTE, 0, 4096) };
        assert_eq!(page.dwords(), [0x03FF_0005, 0, 0, 0, 0x0400_0000, 0]);
        assert_eq!(page.bytes(), 4096);
    }

    #[test]
    fn abort_result_is_inverted() {
        assert_eq!(Abort::result(true), 0);
        assert!(!Abort::was_aborted(1));
    }

    #[test]
    fn identify_dwords_are_those_of_linux() {
        let identify = Identify { cns: Cns::CSI_NAMESPACE, csi: Csi::COMPUTE, ..Identify::default() };
        assert_eq!(identify.dwords(), [5, 0x0400_0000, 0, 0, 0, 0]);
    }

    proptest! {
        #[test]
        fn what_is_parsed_is_written_again(dwords: [u32; 6]) {
            let first = entry(dwords);
            let again = entry(Identify::parse(&first).dwords());
            prop_assert_eq!(Identify::parse(&again), Identify::parse(&first));
            let again = entry(GetLogPage::parse(&first).dwords());
            prop_assert_eq!(GetLogPage::parse(&again), GetLogPage::parse(&first));
            let again = entry(SetFeatures::parse(&first).dwords());
            prop_assert_eq!(SetFeatures::parse(&again), SetFeatures::parse(&first));
            let again = entry(GetFeatures::parse(&first).dwords());
            prop_assert_eq!(GetFeatures::parse(&again), GetFeatures::parse(&first));
            prop_assert_eq!(Abort::parse(&first).dwords()[0], dwords[0]);
            prop_assert_eq!(NumberOfQueues::from_value(dwords[0]).value(), dwords[0]);
        }

        #[test]
        fn log_page_fields_round_trip(
            ids: (u8, u8, u16, u8), offset: u64, dwords_z: u32, flags: (bool, bool),
        ) {
            let page = GetLogPage {
                log: LogId(ids.0),
                specific: ids.1 & 0x7F,
                specific_id: ids.2,
                csi: Csi(ids.3),
                offset,
                dwords_z,
                retain_event: flags.0,
                offset_is_index: flags.1,
            };
            prop_assert_eq!(GetLogPage::parse(&entry(page.dwords())), page);
        }
    }
}
