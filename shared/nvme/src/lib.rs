//! NVMe as far as DDLP speaks it: wire types and codecs of the Base, Fabrics, TCP transport and Computational Programs
//! specifications. No I/O, no allocation.
//!
//! - [`code`]: open numbers (opcodes, log, feature and CNS identifiers); [`status`]: the status field and its names.
//! - [`entry`]: submission and completion queue entries, SGL descriptors.
//! - [`admin`], [`io`], [`cp`]: the dwords of commands as plain structs, both ways.
//! - [`fabrics`], [`property`]: Connect, Property Get/Set, and the controller properties.
//! - [`identify`], [`log`], [`event`]: data structures that a controller returns.
//! - [`tcp`]: PDUs, their digests and a sans-IO header decoder for either side.
//!
//! Conventions: wire structs are little-endian, unaligned, and their size is asserted under each. Reserved bytes are
//! named and neither checked nor interpreted. Fields counted from zero end in `_z` on the wire; plain structs count
//! from one only where their documentation says so. Codes that a peer supplies are open newtypes: an unknown value
//! survives a round trip and prints as its number. Every decoder is total: any bytes give a value or a typed error.
//!
//! What a value means for a controller's state is not decided here.
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
    /// What was to be read or written.
    pub what: &'static str,
    /// Bytes it takes.
    pub needed: usize,
    /// Bytes there are.
    pub given: usize,
}

impl core::fmt::Display for TooShort {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} takes {} bytes, only {} given", self.what, self.needed, self.given)
    }
}

impl core::error::Error for TooShort {}

/// Reads the structure at the start of `bytes`; what follows is ignored.
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
