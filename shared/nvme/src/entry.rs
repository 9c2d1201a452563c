//! Queue entries: the 64 bytes of a command and the 16 bytes of its completion.

use crate::status::Status;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// SGL descriptor type of data that follows the command in its capsule (data block, offset subtype).
pub const SGL_IN_CAPSULE: u8 = 0x01;
/// SGL descriptor type of data that the transport moves (transport data block, subtype Ah).
pub const SGL_TRANSPORT: u8 = 0x5A;
/// Value of [`SubmissionEntry::flags`] on Fabrics: not fused, data described by an SGL (PSDT 01b).
pub const FLAGS_SGL: u8 = 0x40;
/// Bits of FUSE and PSDT in [`SubmissionEntry::flags`]; the bits between them are reserved.
const FLAGS_DEFINED: u8 = 0xC3;

/// One SGL descriptor. Base 2.1, figure "SGL Descriptor Format".
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct SglDescriptor {
    /// Address; for in-capsule data the offset in the capsule's data.
    pub address: U64,
    /// Bytes of data.
    pub length: U32,
    /// Reserved.
    pub reserved: [u8; 3],
    /// Type (bits 7:4) and subtype (bits 3:0).
    pub kind: u8,
}
const _: () = assert!(size_of::<SglDescriptor>() == 16);

impl SglDescriptor {
    /// Describes `length` bytes at the start of the capsule's data.
    pub fn in_capsule(length: u32) -> Self {
        Self { address: U64::ZERO, length: length.into(), reserved: [0; 3], kind: SGL_IN_CAPSULE }
    }

    /// Describes `length` bytes that the transport moves; 0 for a command without data.
    pub fn transport(length: u32) -> Self {
        Self { address: U64::ZERO, length: length.into(), reserved: [0; 3], kind: SGL_TRANSPORT }
    }

    /// Returns whether the data follows in the capsule.
    pub fn is_in_capsule(&self) -> bool {
        self.kind == SGL_IN_CAPSULE
    }

    /// Returns whether the transport moves the data.
    pub fn is_transport(&self) -> bool {
        self.kind == SGL_TRANSPORT
    }
}

/// Submission queue entry. Base 2.1, figure "Common Command Format".
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct SubmissionEntry {
    /// Opcode: [`crate::AdminOpcode`], [`crate::IoOpcode`] or [`crate::CpOpcode`] by queue and namespace.
    pub opcode: u8,
    /// FUSE (bits 1:0) and PSDT (bits 7:6).
    pub flags: u8,
    /// Command identifier, chosen by the host, unique among the queue's outstanding commands.
    pub command_id: U16,
    /// Namespace.
    pub nsid: U32,
    /// Command dword 2.
    pub cdw2: U32,
    /// Command dword 3.
    pub cdw3: U32,
    /// Metadata pointer, unused.
    pub metadata: U64,
    /// Data pointer.
    pub data: SglDescriptor,
    /// Command dwords 10 to 15.
    pub cdw10_15: [U32; 6],
}
const _: () = assert!(size_of::<SubmissionEntry>() == 64);

impl SubmissionEntry {
    /// Returns dwords 10 to 15 as numbers.
    pub fn dwords(&self) -> [u32; 6] {
        self.cdw10_15.map(U32::get)
    }

    /// Returns whether the command is not fused and an SGL describes its data, as NVMe over Fabrics requires of
    /// commands without metadata.
    pub fn is_plain(&self) -> bool {
        self.flags & FLAGS_DEFINED == FLAGS_SGL
    }

    /// Returns the entry with these dwords 10 to 15.
    pub fn with_dwords(mut self, dwords: [u32; 6]) -> Self {
        self.cdw10_15 = dwords.map(U32::new);
        self
    }

    /// Returns the value of a dword from 10 to 15, and 0 for any other.
    pub fn cdw(&self, dword: usize) -> u32 {
        dword.checked_sub(10).and_then(|index| self.cdw10_15.get(index)).map_or(0, |value| value.get())
    }
}

/// Completion queue entry. Base 2.1, figure "Common Completion Queue Entry Layout".
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CompletionEntry {
    /// Command-specific result, DW0–1; Execute Program returns its 64-bit value here.
    pub result: U64,
    /// Submission queue head; reserved when flow control is off.
    pub sq_head: U16,
    /// Submission queue; reserved on Fabrics.
    pub sq_id: U16,
    /// Identifier of the command.
    pub command_id: U16,
    /// Phase tag (0 on Fabrics) and status: see [`CompletionEntry::status`].
    pub status_field: U16,
}
const _: () = assert!(size_of::<CompletionEntry>() == 16);

impl CompletionEntry {
    /// Makes the completion of a command.
    pub fn new(command_id: u16, status: Status, result: u64) -> Self {
        Self {
            result: result.into(),
            sq_head: U16::ZERO,
            sq_id: U16::ZERO,
            command_id: command_id.into(),
            status_field: status.to_wire().into(),
        }
    }

    /// Returns the status.
    pub fn status(&self) -> Status {
        Status::from_wire(self.status_field.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;
    use proptest::prelude::*;

    #[test]
    fn fields_lie_where_the_figure_says() {
        assert_eq!(offset_of!(SubmissionEntry, data), 24);
        assert_eq!(offset_of!(SubmissionEntry, cdw10_15), 40);
        assert_eq!(offset_of!(CompletionEntry, sq_head), 8);
        assert_eq!(offset_of!(CompletionEntry, command_id), 12);
    }

    #[test]
    fn plain_commands_are_neither_fused_nor_described_by_a_page_list() {
        let plain = |flags| SubmissionEntry { flags, ..SubmissionEntry::default() }.is_plain();
        assert!(plain(FLAGS_SGL) && plain(FLAGS_SGL | 0x3C));
        for flags in [0x00, 0x80, 0xC0, 0x41, 0x42, 0x43] {
            assert!(!plain(flags), "{flags:#x}");
        }
    }

    #[test]
    fn dwords_are_numbered_from_ten() {
        let entry = SubmissionEntry::default().with_dwords([10, 11, 12, 13, 14, 15]);
        assert_eq!(entry.cdw(10), 10);
        assert_eq!(entry.cdw(15), 15);
        assert_eq!(entry.cdw(9), 0);
        assert_eq!(entry.cdw(16), 0);
    }

    proptest! {
        #[test]
        fn entries_round_trip(bytes: [[u8; 32]; 2]) {
            let bytes = bytes.concat();
            let entry = crate::view::<SubmissionEntry>(&bytes, "submission entry").unwrap();
            prop_assert_eq!(entry.as_bytes(), &bytes[..]);
            let again = entry.with_dwords(entry.dwords());
            prop_assert_eq!(again.as_bytes(), &bytes[..]);
        }

        #[test]
        fn truncated_entries_are_errors(length in 0usize..64) {
            prop_assert!(crate::view::<SubmissionEntry>(&[0; 64][..length], "submission entry").is_err());
        }
    }
}
