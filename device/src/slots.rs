//! Result slots: the memory behind namespace 2.
//!
//! - `backing`: where the bytes live: anonymous memory, a file on flash, or a file that the loader handed down.
//! - `memory`: the mapping, and the leases through which workers write. Contains unsafe code.
//! - `ahead`: a thread that allocates the next slots before their first lease.
//!
//! A slot in memory is allocated at its first lease or shortly before, so that a run that uses few of many slots takes
//! memory for only those. Until then the slot reads as zeros.
//!
//! Workers write to a slot through exactly one [`WriteLease`] at a time. Taking the lease invalidates the slot's
//! header; publishing, the last step, makes it valid again. Readers (the network side, a loader that maps the same
//! file) take no lease: header and checksums tell them whether a slot holds the batch that they expect.

mod ahead;
mod backing;
mod memory;

pub(crate) use backing::is_foreign;
pub use backing::{Backing, BackingError};
pub use memory::{LeaseError, WriteLease};

use ahead::Ahead;
use backing::SlotFile;
use memory::SlotMemory;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Number and size of the result slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Number of slots, at least 1.
    pub slots: u32,
    /// Bytes of one slot, a multiple of the block size.
    pub slot_bytes: u64,
}

impl Geometry {
    /// Returns the bytes of all slots together.
    pub fn total_bytes(&self) -> u64 {
        u64::from(self.slots) * self.slot_bytes
    }
}

/// All result slots of the agent.
#[derive(Debug)]
pub struct Slots {
    file: File,
    memory: Arc<SlotMemory>,
    geometry: Geometry,
    in_memory: bool,
    ahead: Option<Ahead>,
}

impl Slots {
    /// Makes or opens the slots. Invalidates every slot of a file at once; a slot in memory gets its invalid header at
    /// its first lease.
    pub fn open(backing: &Backing, geometry: Geometry) -> Result<Self, BackingError> {
        let SlotFile { file, in_memory } = backing::open(backing, geometry)?;
        let bytes = geometry.total_bytes();
        let map = || SlotMemory::map(file.try_clone()?, in_memory, geometry);
        let refused = |error| BackingError::Map { bytes, source: ddlp_csd::memory::refused(bytes, error) };
        let memory = Arc::new(map().map_err(refused)?);
        let ahead = in_memory.then(|| Ahead::start(memory.clone()));
        Ok(Self { file, memory, geometry, in_memory, ahead })
    }

    /// Returns the file behind the slots, for reads by offset.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Sends up to `bytes` bytes from `offset` on, without a copy in this process. `more` announces that data follows
    /// at once.
    pub fn send(&self, socket: BorrowedFd<'_>, offset: u64, bytes: usize, more: bool) -> io::Result<usize> {
        let more = if more { libc::MSG_MORE } else { 0 };
        self.memory.send(socket, offset, bytes, libc::MSG_NOSIGNAL | more)
    }

    /// Returns whether reading the file never waits for storage.
    pub fn in_memory(&self) -> bool {
        self.in_memory
    }

    /// Returns number and size of the slots.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Takes the exclusive right to write to a slot. Allocates the slot's memory if need be, and invalidates its
    /// header.
    pub fn lease(&self, slot: u32, layout: ddlp_csd::slot::SlotLayout) -> Result<WriteLease, LeaseError> {
        let lease = WriteLease::take(&self.memory, slot, layout)?;
        if let Some(ahead) = &self.ahead {
            ahead.leased(slot);
        }
        Ok(lease)
    }
}

#[cfg(test)]
mod tests;
