//! Result slots: the memory behind namespace 2.
//!
//! - `backing`: where the bytes live: anonymous memory, a file on flash, or a file that the loader handed down.
//! - `memory`: the mapping and the leases through which workers write; in unsafe code.
//!
//! A slot is written through exactly one [`SlotLease`] at a time. Taking the lease invalidates the slot's header,
//! publishing makes it valid again, last of all. Readers (the network side, a loader that maps the same file) take no lease: they
//! find out by header and checksums whether a slot holds what they expect.

mod backing;
mod memory;

pub(crate) use backing::is_foreign;
pub use backing::{Backing, BackingError};
pub use memory::SlotLease;

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
    /// Bytes of all slots together.
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
}

impl Slots {
    /// Makes or opens the slots and invalidates whatever they hold.
    pub fn open(backing: &Backing, geometry: Geometry) -> Result<Self, BackingError> {
        let opened = backing::open(backing, geometry)?;
        let memory = SlotMemory::map(&opened.file, opened.in_memory, geometry)
            .map_err(|source| BackingError::Map { bytes: geometry.total_bytes(), source })?;
        Ok(Self { file: opened.file, memory: Arc::new(memory), geometry, in_memory: opened.in_memory })
    }

    /// The file behind the slots, for reads by offset.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Sends up to `bytes` bytes from `offset` on, without a copy in this process; `more` says that data follows at once.
    pub fn send(&self, socket: BorrowedFd<'_>, offset: u64, bytes: usize, more: bool) -> io::Result<usize> {
        let more = if more { libc::MSG_MORE } else { 0 };
        self.memory.send(socket, offset, bytes, libc::MSG_NOSIGNAL | more)
    }

    /// True when reading the file never waits for a storage device.
    pub fn in_memory(&self) -> bool {
        self.in_memory
    }

    /// Number and size of the slots.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Exclusive right to write a slot; its header is invalid from here on. `None` while another lease lives, or when
    /// there is no such slot.
    pub fn lease(&self, slot: u32, layout: ddlp_csd::slot::SlotLayout) -> Option<SlotLease> {
        SlotLease::take(&self.memory, slot, layout)
    }
}

#[cfg(test)]
mod tests;
