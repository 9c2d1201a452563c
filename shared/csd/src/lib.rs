//! What host and drive share: their messages above NVMe, and the preparation of a sample in both.
//!
//! - [`abilities`]: the abilities that a run needs of both machines, and on which of them the machines agree.
//! - [`program`]: the preprocessing program that Load Program carries (pipeline, limits, corrupt-sample policy).
//! - [`request`]: the data of one Execute Program (batch, samples, generation of the slot), and how it ends.
//! - [`cancel`]: the command that cancels a batch.
//! - [`slot`]: the layout of a finished batch in a slot of the result namespace.
//! - [`log`]: the vendor log pages (identity of the drive, with its dataset and its abilities; counters).
//! - [`prepare`]: preparation of one sample, from dataset to pixels, under the corrupt-sample policy. Both prongs call
//!   only this.
//! - [`chunk`]: the number of samples that a worker of either prong takes at a time. [`depth`]: the number of samples
//!   of a store that either prong has in flight.
//! - [`energy`]: the meters with which both sides measure the energy that they report.
//! - [`memory`]: the memory that a process can have, and the programs' allocator.
//!
//! Bytes from a peer or a file are parsed with checked lengths; checksums are CRC32C.
#![deny(unsafe_code)]

pub mod abilities;
pub mod cancel;
pub mod chunk;
pub mod depth;
pub mod energy;
pub mod log;
pub mod memory;
pub mod prepare;
pub mod program;
pub mod request;
pub mod slot;

/// Opcode of the vendor admin command that carries a [`cancel::CancelBatch`] in its dwords. Bits 1:0 are 00 (no data).
pub const CANCEL_OPCODE: u8 = 0xC0;

/// Program type of a [`program::Program`] in Load Program (PTYPE of C0h and above is vendor specific).
pub const PROGRAM_TYPE: u8 = 0xC0;

/// Model number in Identify Controller, which distinguishes drives from other NVMe controllers.
pub const MODEL: &str = "DDLP computational storage";

/// Namespace that exports the dataset, read-only.
pub const DATASET_NSID: u32 = 1;
/// Namespace whose blocks are the result slots.
pub const RESULTS_NSID: u32 = 2;
/// Namespace with the Computational Programs command set.
pub const COMPUTE_NSID: u32 = 3;

/// Bytes of a logical block in the dataset and result namespaces.
pub const BLOCK_BYTES: usize = 4096;

/// Most samples in one request.
pub const BATCH_SAMPLES_MAX: usize = 65_536;

pub(crate) fn crc32c_without(bytes: &[u8], field: std::ops::Range<usize>) -> u32 {
    let head = crc32c::crc32c(&bytes[..field.start]);
    let zeros = [0u8; 8];
    let middle = crc32c::crc32c_append(head, &zeros[..field.len()]);
    crc32c::crc32c_append(middle, &bytes[field.end..])
}
