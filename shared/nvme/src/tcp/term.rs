//! Reasons to end a connection: fatal transport errors, and the PDU that reports them.

use super::encode::Encoded;
use super::pdu::{CommonHeader, PduFlags, PduType, TermReq};
use super::{HEADER_BYTES_MAX, Role};
use crate::code::open_codes;
use zerocopy::IntoBytes;

open_codes! {
    /// Fatal error status (FES). Figure "Fatal Error Status".
    FatalStatus(u16), "4" {
        HEADER = 0x01, "invalid pdu header field";
        SEQUENCE = 0x02, "pdu sequence error";
        HEADER_DIGEST = 0x03, "header digest error";
        DATA_RANGE = 0x04, "data transfer out of range";
        LIMIT = 0x05, "data transfer limit exceeded";
        PARAMETER = 0x06, "unsupported parameter";
    }
}

/// A fatal transport error as a TermReq carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FatalError {
    /// Kind of error.
    pub status: FatalStatus,
    /// Information about the error (FEI): the offset of the field for [`FatalStatus::HEADER`] and
    /// [`FatalStatus::PARAMETER`], the received digest for [`FatalStatus::HEADER_DIGEST`].
    pub info: u32,
}

impl core::fmt::Display for FatalError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} (fes {:02x}h, fei {:#x})", self.status, self.status.0, self.info)
    }
}

impl core::error::Error for FatalError {}

impl FatalError {
    /// Makes the TermReq of `from`. `offending` is the header that caused the error; only the part that fits is quoted.
    pub fn encode(self, from: Role, offending: &[u8]) -> Encoded {
        let kind = match from {
            Role::Host => PduType::HOST_TERM,
            Role::Controller => PduType::CONTROLLER_TERM,
        };
        let offending = &offending[..offending.len().min(HEADER_BYTES_MAX)];
        let head = CommonHeader {
            kind: kind.0,
            flags: PduFlags::default(),
            header_bytes: size_of::<TermReq>() as u8,
            data_offset: 0,
            total_bytes: ((size_of::<TermReq>() + offending.len()) as u32).into(),
        };
        let request = TermReq { head, status: self.status.0.into(), info: self.info.into(), reserved14: [0; 10] };
        let mut encoded = Encoded::default();
        encoded.push(request.as_bytes());
        encoded.push(offending);
        encoded
    }
}
