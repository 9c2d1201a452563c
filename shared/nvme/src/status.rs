//! The status of a completed command. Base 2.1, figure "Completion Queue Entry: Status Field".

use crate::bits;

/// Status without the phase tag: SC in bits 7:0, SCT in 10:8, CRD in 12:11, M in 13, DNR in 14. 0 is success.
///
/// Linux gives a status to user space in the same form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Status(pub u16);

/// Status code types, bits 10:8.
pub mod sct {
    /// Path related status.
    pub const PATH: u8 = 3;
}

macro_rules! statuses {
    ($($constant:ident = $sct:literal, $sc:literal, $text:literal;)*) => {
        impl Status {
            $(#[doc = concat!("“", $text, "”.")] pub const $constant: Self = Self::new($sct, $sc);)*

            /// Returns the name of the status, if this module has one. The command sets share status code type 1: where
            /// two of them use a value, the name gives both.
            pub const fn name(self) -> Option<&'static str> {
                match (self.sct(), self.sc()) {
                    $(($sct, $sc) => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    SUCCESS = 0, 0x00, "success";
    INVALID_OPCODE = 0, 0x01, "invalid command opcode";
    INVALID_FIELD = 0, 0x02, "invalid field";
    COMMAND_ID_CONFLICT = 0, 0x03, "command id conflict";
    DATA_TRANSFER_ERROR = 0, 0x04, "data transfer error";
    POWER_LOSS = 0, 0x05, "aborted due to power loss";
    INTERNAL = 0, 0x06, "internal error";
    ABORT_REQUESTED = 0, 0x07, "command abort requested";
    ABORTED_SQ_DELETION = 0, 0x08, "aborted due to sq deletion";
    INVALID_NAMESPACE = 0, 0x0B, "invalid namespace or format";
    COMMAND_SEQUENCE = 0, 0x0C, "command sequence error";
    SGL_DESCRIPTOR_COUNT = 0, 0x0E, "invalid number of sgl descriptors";
    SGL_DATA_LENGTH = 0, 0x0F, "data sgl length invalid";
    SGL_DESCRIPTOR_TYPE = 0, 0x11, "sgl descriptor type invalid";
    SGL_OFFSET = 0, 0x16, "sgl offset invalid";
    HOST_ID_INCONSISTENT = 0, 0x18, "host identifier inconsistent format";
    KEEP_ALIVE_EXPIRED = 0, 0x19, "keep alive timer expired";
    KEEP_ALIVE_INVALID = 0, 0x1A, "keep alive timeout invalid";
    WRITE_PROTECTED = 0, 0x20, "namespace is write protected";
    COMMAND_INTERRUPTED = 0, 0x21, "command interrupted";
    TRANSIENT_TRANSPORT = 0, 0x22, "transient transport error";
    LBA_OUT_OF_RANGE = 0, 0x80, "lba out of range";
    CAPACITY_EXCEEDED = 0, 0x81, "capacity exceeded";
    NAMESPACE_NOT_READY = 0, 0x82, "namespace not ready";
    INVALID_QUEUE_ID = 1, 0x01, "invalid queue identifier";
    INVALID_QUEUE_SIZE = 1, 0x02, "invalid queue size";
    ABORT_LIMIT = 1, 0x03, "abort command limit exceeded";
    ASYNC_EVENT_LIMIT = 1, 0x05, "asynchronous event request limit exceeded";
    INVALID_LOG_PAGE = 1, 0x09, "invalid log page";
    FEATURE_NOT_SAVEABLE = 1, 0x0D, "feature identifier not saveable";
    FEATURE_NOT_CHANGEABLE = 1, 0x0E, "feature not changeable";
    FEATURE_NOT_NAMESPACE = 1, 0x0F, "feature not namespace specific";
    IO_COMMAND_SET_UNSUPPORTED = 1, 0x29, "i/o command set not supported";
    IO_COMMAND_SET_COMBINATION = 1, 0x2B, "i/o command set combination rejected";
    CONNECT_FORMAT = 1, 0x80, "incompatible format / conflicting attributes";
    CONTROLLER_BUSY = 1, 0x81, "controller busy / invalid protection information";
    CONNECT_PARAMETERS = 1, 0x82, "connect invalid parameters / write to read only range";
    CONNECT_RESTART_DISCOVERY = 1, 0x83, "connect restart discovery";
    CONNECT_INVALID_HOST = 1, 0x84, "connect invalid host";
    INSUFFICIENT_RESOURCES = 1, 0x89, "insufficient resources";
    INSUFFICIENT_PROGRAM_RESOURCES = 1, 0x8A, "insufficient program resources";
    INVALID_MEMORY_NAMESPACE = 1, 0x8B, "invalid memory namespace";
    INVALID_PROGRAM_DATA = 1, 0x8E, "invalid program data";
    INVALID_PROGRAM_INDEX = 1, 0x8F, "invalid program index";
    INVALID_PROGRAM_TYPE = 1, 0x90, "invalid program type / discover restart";
    AUTHENTICATION_REQUIRED = 1, 0x91, "authentication required / maximum memory ranges exceeded";
    MAX_PROGRAMS_ACTIVATED = 1, 0x93, "maximum programs activated";
    MAX_PROGRAM_BYTES = 1, 0x94, "maximum program bytes exceeded";
    NO_PROGRAM = 1, 0x96, "no program";
    PROGRAM_NOT_ACTIVATED = 1, 0x98, "program not activated";
    PROGRAM_IN_USE = 1, 0x99, "program in use";
    INDEX_NOT_DOWNLOADABLE = 1, 0x9A, "program index not downloadable";
    PROGRAM_TOO_BIG = 1, 0x9B, "program too big";
    WRITE_FAULT = 2, 0x80, "write fault";
    UNRECOVERED_READ = 2, 0x81, "unrecovered read error";
    GUARD_CHECK = 2, 0x82, "end-to-end guard check error";
    ACCESS_DENIED = 2, 0x86, "access denied";
    INTERNAL_PATH = 3, 0x00, "internal path error";
    HOST_PATH = 3, 0x70, "host pathing error";
    HOST_ABORTED = 3, 0x71, "command aborted by host";
}

impl Status {
    /// A read-only range was written to (NVM command set).
    pub const WRITE_TO_READ_ONLY: Self = Self::new(1, 0x82);

    /// Makes a status from a type and a code, with Do Not Retry clear.
    pub const fn new(sct: u8, sc: u8) -> Self {
        Self(bits::with(sc as u64, 8, 3, sct as u64) as u16)
    }

    /// Returns the status with Do Not Retry set.
    pub const fn do_not_retry(self) -> Self {
        Self(bits::with(self.0 as u64, 14, 1, 1) as u16)
    }

    /// Returns the status code.
    pub const fn sc(self) -> u8 {
        bits::get(self.0 as u64, 0, 8) as u8
    }

    /// Returns the status code type.
    pub const fn sct(self) -> u8 {
        bits::get(self.0 as u64, 8, 3) as u8
    }

    /// Returns whether the error log has more information.
    pub const fn more(self) -> bool {
        bits::get(self.0 as u64, 13, 1) == 1
    }

    /// Returns whether the same command would fail again.
    pub const fn is_do_not_retry(self) -> bool {
        bits::get(self.0 as u64, 14, 1) == 1
    }

    /// Returns whether type and code are 0; ignores the other bits.
    pub const fn is_success(self) -> bool {
        bits::get(self.0 as u64, 0, 11) == 0
    }

    /// Returns whether type and code equal those of `other`; ignores retry delay, M and DNR.
    pub const fn same_code(self, other: Self) -> bool {
        bits::get(self.0 as u64, 0, 11) == bits::get(other.0 as u64, 0, 11)
    }

    /// Returns the status field of a completion entry, with phase tag 0 (Fabrics has none).
    pub const fn to_wire(self) -> u16 {
        self.0 << 1
    }

    /// Reads the status field of a completion entry, and drops the phase tag.
    pub const fn from_wire(field: u16) -> Self {
        Self(field >> 1)
    }
}

impl core::fmt::Display for Status {
    /// Writes for example `invalid field (sct 0 sc 02h)`, with `dnr` at the end if that bit is set.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let dnr = if self.is_do_not_retry() { " dnr" } else { "" };
        let name = self.name().unwrap_or("unknown status");
        write!(f, "{name} (sct {} sc {:02x}h{dnr})", self.sct(), self.sc())
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    #[test]
    fn prints_name_type_and_code() {
        assert_eq!(Status::INVALID_FIELD.to_string(), "invalid field (sct 0 sc 02h)");
        assert_eq!(Status::NO_PROGRAM.do_not_retry().to_string(), "no program (sct 1 sc 96h dnr)");
        // Linux's NVME_SC_CMD_SET_NOT_SUPP is 129h. With status code type 0, this code means “FDP disabled”.
        assert_eq!(Status::IO_COMMAND_SET_UNSUPPORTED.to_string(), "i/o command set not supported (sct 1 sc 29h)");
        assert_eq!(Status::new(7, 0xFE).to_string(), "unknown status (sct 7 sc feh)");
    }

    #[test]
    fn bits_are_where_linux_puts_them() {
        assert_eq!(Status::HOST_PATH.0, 0x370);
        assert_eq!(Status::INVALID_FIELD.do_not_retry().0, 0x4002);
        assert_eq!(Status::INVALID_FIELD.do_not_retry().to_wire(), 0x8004);
        assert!(Status::INVALID_FIELD.do_not_retry().same_code(Status::INVALID_FIELD));
        assert!(!Status::INVALID_FIELD.is_success());
        assert!(Status(0x4000).is_success());
    }

    #[test]
    fn every_wire_value_survives_a_round_trip_without_its_phase() {
        for field in 0..=u16::MAX {
            let status = Status::from_wire(field);
            assert_eq!(status.to_wire(), field & !1);
            let _ = status.to_string();
        }
    }
}
