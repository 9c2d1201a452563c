//! Result slots: the memory behind namespace 2.
//!
//! - `backing`: where the bytes live: anonymous memory, a file on flash, or a file that the loader handed down.
//! - `memory`: the mapping, and the leases through which workers write. Contains unsafe code.
//! - `ahead`: a thread that allocates the next slots before their first lease.
//!
//! A slot in memory is allocated at its first lease or shortly before, so that a run that uses few of many slots takes
//! memory for only those. Until then the slot reads as zeros.
//!
//! A slot's bytes belong to the host for which it was leased last, and only that host can read them over the network;
//! to all others the slot reads as zeros. A slot that is leased for another host is cleared first, so that the parts
//! that its batch leaves unwritten hold nothing of the former host.
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

use crate::host::ConnectedHost;
use ahead::Ahead;
use backing::SlotFile;
use ddlp_csd::slot::SlotLayout;
use memory::SlotMemory;
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
        let refused = |error| BackingError::Map { bytes, source: ddlp_csd::memory::refused(bytes, error) };
        let memory = Arc::new(SlotMemory::map(file, in_memory, geometry).map_err(refused)?);
        let ahead = in_memory.then(|| Ahead::start(memory.clone()));
        Ok(Self { memory, geometry, in_memory, ahead })
    }

    /// Fills `buffer` with the bytes from `offset` on, as `reader` sees them.
    pub fn read(&self, reader: &ConnectedHost, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.memory.read(reader, offset, buffer)
    }

    /// Sends up to `bytes` bytes from `offset` on, as `reader` sees them, without a copy in this process. `more`
    /// announces that data follows at once.
    pub fn send(
        &self,
        reader: &ConnectedHost,
        socket: BorrowedFd<'_>,
        offset: u64,
        bytes: usize,
        more: bool,
    ) -> io::Result<usize> {
        let more = if more { libc::MSG_MORE } else { 0 };
        self.memory.send(reader, socket, offset, bytes, libc::MSG_NOSIGNAL | more)
    }

    /// Returns whether reading the file never waits for storage.
    pub fn in_memory(&self) -> bool {
        self.in_memory
    }

    /// Returns number and size of the slots.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Takes the exclusive right to write to a slot for a host. Allocates the slot's memory if need be, invalidates its
    /// header, and clears the slot if it may hold bytes of another host.
    pub fn lease(&self, slot: u32, layout: SlotLayout, host: &Arc<ConnectedHost>) -> Result<WriteLease, LeaseError> {
        let lease = WriteLease::take(&self.memory, slot, layout, host)?;
        if let Some(ahead) = &self.ahead {
            ahead.leased(slot);
        }
        Ok(lease)
    }
}

#[cfg(test)]
mod tests;
