//! PDU headers. NVMe/TCP Transport 1.1, section "Transport Specific Content".

use super::term::{FatalError, FatalStatus};
use super::{Digests, Role};
use crate::bits;
use crate::code::open_codes;
use crate::entry::{CompletionEntry, SubmissionEntry};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

open_codes! {
    /// PDU type. Figure "PDU Types".
    PduType(u8), "2" {
        IC_REQ = 0x00, "ICReq";
        IC_RESP = 0x01, "ICResp";
        HOST_TERM = 0x02, "H2CTermReq";
        CONTROLLER_TERM = 0x03, "C2HTermReq";
        COMMAND = 0x04, "CapsuleCmd";
        RESPONSE = 0x05, "CapsuleResp";
        HOST_DATA = 0x06, "H2CData";
        CONTROLLER_DATA = 0x07, "C2HData";
        READY_TO_TRANSFER = 0x09, "R2T";
    }
}

impl PduType {
    /// Returns the bytes of the header (HLEN); `None` for an unknown type.
    pub const fn header_bytes(self) -> Option<usize> {
        match self {
            Self::IC_REQ | Self::IC_RESP => Some(128),
            Self::COMMAND => Some(72),
            Self::HOST_TERM
            | Self::CONTROLLER_TERM
            | Self::RESPONSE
            | Self::HOST_DATA
            | Self::CONTROLLER_DATA
            | Self::READY_TO_TRANSFER => Some(24),
            _ => None,
        }
    }

    /// Returns the side that receives the PDU; `None` for an unknown type.
    pub const fn receiver(self) -> Option<Role> {
        match self {
            Self::IC_REQ | Self::HOST_TERM | Self::COMMAND | Self::HOST_DATA => Some(Role::Controller),
            Self::IC_RESP
            | Self::CONTROLLER_TERM
            | Self::RESPONSE
            | Self::CONTROLLER_DATA
            | Self::READY_TO_TRANSFER => Some(Role::Host),
            _ => None,
        }
    }

    /// Returns whether this is ICReq or ICResp.
    pub const fn is_setup(self) -> bool {
        matches!(self, Self::IC_REQ | Self::IC_RESP)
    }

    /// Returns whether this is H2CTermReq or C2HTermReq.
    pub const fn is_termination(self) -> bool {
        matches!(self, Self::HOST_TERM | Self::CONTROLLER_TERM)
    }

    /// Returns whether this is H2CData or C2HData.
    pub const fn is_data(self) -> bool {
        matches!(self, Self::HOST_DATA | Self::CONTROLLER_DATA)
    }
}

/// Flags of the common header.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct PduFlags(pub u8);

impl PduFlags {
    /// A header digest follows the header (HDGST).
    pub const HEADER_DIGEST: Self = Self(1);
    /// A data digest follows the data (DDGST).
    pub const DATA_DIGEST: Self = Self(2);
    /// Last data PDU of its command or R2T (LAST).
    pub const LAST: Self = Self(4);
    /// The command succeeded and no response follows (SUCCESS); only with LAST, only from the controller.
    pub const SUCCESS: Self = Self(8);

    /// Returns whether all flags of `other` are set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the flags with those of `other` set if `on`, and unchanged otherwise.
    pub const fn with(self, other: Self, on: bool) -> Self {
        if on { Self(self.0 | other.0) } else { self }
    }
}

/// Common start of every PDU. Figure "PDU Common Header".
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CommonHeader {
    /// Type, [`PduType`].
    pub kind: u8,
    /// Flags.
    pub flags: PduFlags,
    /// Bytes of the header, digest not counted (HLEN).
    pub header_bytes: u8,
    /// Offset of the data, 0 without data (PDO).
    pub data_offset: u8,
    /// Bytes of the PDU (PLEN).
    pub total_bytes: U32,
}
const _: () = assert!(size_of::<CommonHeader>() == super::COMMON_BYTES);

fn digests_from(field: u8) -> Digests {
    Digests { header: bits::get32(field.into(), 0, 1) == 1, data: bits::get32(field.into(), 1, 1) == 1 }
}

fn digests_field(digests: Digests) -> u8 {
    bits::with32(digests.header.into(), 1, 1, digests.data.into()) as u8
}

/// Alignment of the data in a PDU, counted from the PDU's first byte. Section "Data Transfer Model".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alignment(u8);

impl Alignment {
    /// Alignment to a dword. It needs no padding, as every header consists of whole dwords.
    pub const NONE: Self = Self(0);
    /// Largest value of HPDA and CPDA: 128 bytes.
    pub const Z_MAX: u8 = 31;

    /// Returns the alignment that a value of HPDA or CPDA (dwords, 0's based) stands for, `None` beyond
    /// [`Self::Z_MAX`].
    pub const fn from_z(dwords_z: u8) -> Option<Self> {
        if dwords_z <= Self::Z_MAX { Some(Self(dwords_z)) } else { None }
    }

    /// Returns the alignment in bytes.
    pub const fn bytes(self) -> usize {
        (self.0 as usize + 1) * 4
    }
}

/// Initialize Connection Request. Figure "Initialize Connection Request PDU (ICReq)".
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct IcReq {
    /// Common header.
    pub head: CommonHeader,
    /// PDU format version, 0 (PFV).
    pub version: U16,
    /// Alignment of data that the host wants, in dwords, 0's based (HPDA).
    pub data_alignment_z: u8,
    /// Digests wanted: bit 0 header, bit 1 data (DGST).
    pub digests: u8,
    /// R2Ts that may be outstanding per command, 0's based (MAXR2T).
    pub r2t_max_z: U32,
    /// Reserved.
    pub reserved16: [u8; 112],
}
const _: () = assert!(size_of::<IcReq>() == 128);

impl IcReq {
    /// Makes a request for these digests, one R2T at a time, and no alignment.
    pub fn new(digests: Digests) -> Self {
        Self {
            head: setup_head(PduType::IC_REQ),
            version: U16::ZERO,
            data_alignment_z: 0,
            digests: digests_field(digests),
            r2t_max_z: U32::ZERO,
            reserved16: [0; 112],
        }
    }

    /// Returns the digests that the host wants.
    pub fn digests(&self) -> Digests {
        digests_from(self.digests)
    }

    /// Checks that the format version is 0 and the alignment at most 128 bytes, as a controller requires. Returns the
    /// alignment.
    pub fn check(&self) -> Result<Alignment, FatalError> {
        let wrong = |offset| FatalError { status: FatalStatus::PARAMETER, info: offset };
        if self.version.get() != 0 {
            return Err(wrong(8));
        }
        Alignment::from_z(self.data_alignment_z).ok_or(wrong(10))
    }
}

/// Initialize Connection Response. Figure "Initialize Connection Response PDU (ICResp)".
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct IcResp {
    /// Common header.
    pub head: CommonHeader,
    /// PDU format version, 0 (PFV).
    pub version: U16,
    /// Alignment of data that the controller wants, in dwords, 0's based (CPDA). Linux takes only 0.
    pub data_alignment_z: u8,
    /// Digests in force: bit 0 header, bit 1 data (DGST).
    pub digests: u8,
    /// Most data in one H2CData (MAXH2CDATA): at least 4096, a multiple of 4.
    pub data_bytes_max: U32,
    /// Reserved.
    pub reserved16: [u8; 112],
}
const _: () = assert!(size_of::<IcResp>() == 128);

impl IcResp {
    /// Makes a response with these digests in force.
    pub fn new(digests: Digests, data_bytes_max: u32) -> Self {
        Self {
            head: setup_head(PduType::IC_RESP),
            version: U16::ZERO,
            data_alignment_z: 0,
            digests: digests_field(digests),
            data_bytes_max: data_bytes_max.into(),
            reserved16: [0; 112],
        }
    }

    /// Returns the digests in force.
    pub fn digests(&self) -> Digests {
        digests_from(self.digests)
    }

    /// Checks the response for a host that asked for `wanted` and aligns no data.
    pub fn check(&self, wanted: Digests) -> Result<(), FatalError> {
        let wrong = |offset| Err(FatalError { status: FatalStatus::PARAMETER, info: offset });
        let most = self.data_bytes_max.get();
        if self.version.get() != 0 {
            wrong(8)
        } else if self.data_alignment_z != 0 {
            wrong(10)
        } else if self.digests() != wanted {
            wrong(11)
        } else if most < super::MAX_H2C_DATA_MIN || !most.is_multiple_of(4) {
            wrong(12)
        } else {
            Ok(())
        }
    }
}

fn setup_head(kind: PduType) -> CommonHeader {
    CommonHeader {
        kind: kind.0,
        flags: PduFlags::default(),
        header_bytes: 128,
        data_offset: 0,
        total_bytes: 128.into(),
    }
}

/// Terminate Connection Request, in either direction. Figure "Host to Controller Terminate Connection Request PDU". Up
/// to 128 bytes of the offending PDU's header follow.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct TermReq {
    /// Common header.
    pub head: CommonHeader,
    /// Fatal error status (FES).
    pub status: U16,
    /// Fatal error information (FEI).
    pub info: U32,
    /// Reserved.
    pub reserved14: [u8; 10],
}
const _: () = assert!(size_of::<TermReq>() == 24);

/// Command capsule without its data. Figure "Command Capsule PDU (CapsuleCmd)".
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CapsuleCommand {
    /// Common header.
    pub head: CommonHeader,
    /// The command.
    pub entry: SubmissionEntry,
}
const _: () = assert!(size_of::<CapsuleCommand>() == 72);

/// Response capsule. Figure "Response Capsule PDU (CapsuleResp)".
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CapsuleResponse {
    /// Common header.
    pub head: CommonHeader,
    /// The completion.
    pub entry: CompletionEntry,
}
const _: () = assert!(size_of::<CapsuleResponse>() == 24);

/// Header of H2CData and C2HData. Figures "Host to Controller Data Transfer PDU", "Controller to Host Data Transfer
/// PDU".
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DataHeader {
    /// Common header.
    pub head: CommonHeader,
    /// The command (CCCID).
    pub command_id: U16,
    /// The R2T that this answers (TTAG); reserved in C2HData.
    pub tag: U16,
    /// Offset of the data in the command's buffer (DATAO).
    pub offset: U32,
    /// Bytes of data (DATAL).
    pub length: U32,
    /// Reserved.
    pub reserved20: [u8; 4],
}
const _: () = assert!(size_of::<DataHeader>() == 24);

impl DataHeader {
    /// Returns whether this is the last data PDU of its command (C2HData) or R2T (H2CData).
    pub fn is_last(&self) -> bool {
        self.head.flags.has(PduFlags::LAST)
    }

    /// Returns whether the command succeeded and no response follows.
    pub fn is_success(&self) -> bool {
        self.head.flags.has(PduFlags::SUCCESS)
    }
}

/// Ready to Transfer. Figure "Ready to Transfer PDU (R2T)".
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ReadyToTransfer {
    /// Common header.
    pub head: CommonHeader,
    /// The command (CCCID).
    pub command_id: U16,
    /// Tag of the H2CData that answer this R2T (TTAG).
    pub tag: U16,
    /// Offset of the data wanted in the command's buffer (R2TO).
    pub offset: U32,
    /// Bytes wanted (R2TL).
    pub length: U32,
    /// Reserved.
    pub reserved20: [u8; 4],
}
const _: () = assert!(size_of::<ReadyToTransfer>() == 24);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setup_is_what_linux_sends_and_takes() {
        let request = IcReq::new(Digests::NONE);
        assert_eq!(request.as_bytes()[..16], [0, 0, 128, 0, 128, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(request.check(), Ok(Alignment::NONE));
        let both = Digests { header: true, data: true };
        let response = IcResp::new(both, 0x2_0000);
        assert_eq!(response.as_bytes()[..16], [1, 0, 128, 0, 128, 0, 0, 0, 0, 0, 0, 3, 0, 0, 2, 0]);
        assert_eq!(response.check(both), Ok(()));
    }

    #[test]
    fn setup_parameters_are_checked() {
        let fault = |offset| Err(FatalError { status: FatalStatus::PARAMETER, info: offset });
        let refused = |offset| Err(FatalError { status: FatalStatus::PARAMETER, info: offset });
        let none = Digests::NONE;
        let good = IcResp::new(none, 4096);
        assert_eq!(IcResp { version: 1.into(), ..good }.check(none), fault(8));
        assert_eq!(IcResp { data_alignment_z: 1, ..good }.check(none), fault(10));
        assert_eq!(good.check(Digests { header: true, data: false }), fault(11));
        assert_eq!(IcResp::new(none, 4095).check(none), fault(12));
        assert_eq!(IcResp::new(none, 4098).check(none), fault(12));
        assert_eq!(IcReq { version: 1.into(), ..IcReq::new(none) }.check(), refused(8));
        assert_eq!(IcReq { data_alignment_z: 32, ..IcReq::new(none) }.check(), refused(10));
        let aligned = |data_alignment_z| IcReq { data_alignment_z, ..IcReq::new(none) }.check().map(Alignment::bytes);
        assert_eq!((aligned(0), aligned(1), aligned(31)), (Ok(4), Ok(8), Ok(128)));
    }

    #[test]
    fn header_sizes_are_those_of_the_structs() {
        assert_eq!(PduType::COMMAND.header_bytes(), Some(size_of::<CapsuleCommand>()));
        assert_eq!(PduType::RESPONSE.header_bytes(), Some(size_of::<CapsuleResponse>()));
        assert_eq!(PduType::CONTROLLER_DATA.header_bytes(), Some(size_of::<DataHeader>()));
        assert_eq!(PduType(8).header_bytes(), None);
        assert_eq!(PduType(8).receiver(), None);
    }
}
