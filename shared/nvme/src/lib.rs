//! The parts of NVMe that DDLP uses: wire types and codecs of the Base, Fabrics, TCP transport and Computational
//! Programs specifications. No I/O, no allocation.
//!
//! - [`code`]: codes as open newtypes (opcodes; log, feature and CNS identifiers); [`status`]: the status field and its
//!   names.
//! - [`entry`]: submission and completion queue entries, SGL descriptors.
//! - [`admin`], [`io`], [`cp`]: commands as plain structs, to and from their dwords.
//! - [`fabrics`], [`property`]: Connect, Property Get/Set, and the controller properties.
//! - [`identify`], [`log`], [`event`]: data structures that a controller returns.
//! - [`tcp`]: PDUs, their digests and a sans-IO header decoder for either side.
//!
//! Conventions: wire structs are little-endian and unaligned, and the size of each is asserted below it. Reserved bytes
//! have names, and are neither checked nor interpreted. Fields that count from zero end in `_z`. Codes that a peer
//! supplies are open newtypes: an unknown value survives a round trip and prints as its number. Every decoder is total:
//! any bytes give a value or a typed error.
//!
//! This crate does not decide what a value means for a controller's state.
#![no_std]
#![forbid(unsafe_code)]

pub mod admin;
mod bits;
pub mod code;
pub mod cp;
pub mod entry;
pub mod event;
pub mod fabrics;
pub mod identify;
pub mod io;
pub mod log;
pub mod property;
pub mod status;
pub mod tcp;
pub mod text;

pub use code::{AdminOpcode, Cns, CpOpcode, Csi, FabricsType, FeatureId, IoOpcode, LogId};
pub use entry::{CompletionEntry, SglDescriptor, SubmissionEntry};
pub use status::Status;

/// Opcode of every Fabrics command, on admin and I/O queues (Base 2.1, section "Fabrics Command Set").
pub const FABRICS_OPCODE: u8 = 0x7F;
/// The NSID that means "all namespaces".
pub const NSID_ALL: u32 = 0xFFFF_FFFF;
/// Bytes of every Identify data structure.
pub const IDENTIFY_BYTES: usize = 4096;

/// A buffer is too short for the structure that should be in it or go into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooShort {
    /// The structure.
    pub what: &'static str,
    /// Bytes that the structure takes.
    pub needed: usize,
    /// Bytes of the buffer.
    pub given: usize,
}

impl core::fmt::Display for TooShort {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} takes {} bytes, only {} given", self.what, self.needed, self.given)
    }
}

impl core::error::Error for TooShort {}

/// Reads the structure at the start of `bytes`, and ignores the bytes after it.
pub fn view<'a, T>(bytes: &'a [u8], what: &'static str) -> Result<&'a T, TooShort>
where
    T: zerocopy::FromBytes + zerocopy::Immutable + zerocopy::KnownLayout + zerocopy::Unaligned,
{
    T::ref_from_prefix(bytes).map(|(value, _)| value).map_err(|_| TooShort {
        what,
        needed: size_of::<T>(),
        given: bytes.len(),
    })
}
