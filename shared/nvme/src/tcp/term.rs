//! Reasons to end a connection: fatal transport errors.

use crate::code::open_codes;

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
