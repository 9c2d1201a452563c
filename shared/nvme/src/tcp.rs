//! NVMe/TCP: PDUs, digests, and a sans-IO decoder of PDU headers. NVMe/TCP Transport 1.1.
//!
//! - [`pdu`]: the headers as wire structs. [`encode`]: headers ready to be sent.
//! - [`decode`]: [`HeaderDecoder`], which turns a peer's bytes into validated headers. The caller itself receives the
//!   data after a header, straight into the right buffer.
//! - [`digest`]: CRC32C over header and data. [`term`]: reasons to end a connection.
//!
//! A connection begins with ICReq from the host and ICResp from the controller. These agree on digests for all later
//! PDUs, except those that terminate the connection.

pub mod decode;
pub mod digest;
pub mod encode;
pub mod pdu;
pub mod term;

pub use decode::{ConnectionPhase, HeaderDecoder, Incoming, Pdu, PduError, PduLimits};
pub use digest::DataDigest;
pub use encode::Encoded;
pub use pdu::{
    Alignment, CapsuleCommand, CapsuleResponse, CommonHeader, DataHeader, IcReq, IcResp, PduType, ReadyToTransfer,
};
pub use term::{FatalError, FatalStatus};

/// Port of I/O controllers.
pub const IO_PORT: u16 = 4420;
/// Port of discovery controllers.
pub const DISCOVERY_PORT: u16 = 8009;
/// Bytes of the common header.
pub const COMMON_BYTES: usize = 8;
/// Bytes of the longest PDU header (ICReq and ICResp), digest not counted.
pub const HEADER_BYTES_MAX: usize = 128;
/// Bytes of a header or data digest.
pub const DIGEST_BYTES: usize = 4;
/// In-capsule data that every controller takes on the admin queue, and with Fabrics commands on any queue.
pub const ADMIN_CAPSULE_BYTES: u32 = 8192;
/// Smallest MAXH2CDATA that a controller may announce.
pub const MAX_H2C_DATA_MIN: u32 = 4096;

/// Side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The initiator.
    Host,
    /// The target.
    Controller,
}

/// Digests that a connection uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// CRC32C behind every header.
    pub header: bool,
    /// CRC32C behind all data.
    pub data: bool,
}

impl Digests {
    /// Neither.
    pub const NONE: Self = Self { header: false, data: false };

    /// Returns the number of digest bytes after a header.
    pub const fn header_bytes(self) -> usize {
        if self.header { DIGEST_BYTES } else { 0 }
    }

    /// Returns the number of digest bytes after `data_bytes` of data; 0 without data.
    pub const fn data_bytes(self, data_bytes: u32) -> usize {
        if self.data && data_bytes > 0 { DIGEST_BYTES } else { 0 }
    }
}
