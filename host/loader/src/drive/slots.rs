//! The result slots of one drive as the host sees them: which are free, and, where drive and host share the memory, their
//! bytes.

#![allow(unsafe_code)]

use memmap2::{Mmap, MmapOptions};
use std::fs::File;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// Slots of a drive that are used at most.
const SLOTS_USED_MAX: u32 = 65_536;

/// The slots of one drive.
#[derive(Debug)]
pub(crate) struct SlotTable {
    free: Mutex<Vec<u32>>,
    count: AtomicU32,
    slot_bytes: usize,
    /// The drive's result memory, when it is shared.
    map: Option<Mmap>,
}

impl SlotTable {
    /// Slots that are read over the link.
    pub fn remote(slots: u32, slot_bytes: usize) -> Self {
        let slots = slots.min(SLOTS_USED_MAX);
        Self { free: Mutex::new((0..slots).rev().collect()), count: slots.into(), slot_bytes, map: None }
    }

    /// Slots in memory or a file that the drive's agent maps too. With `populate` every page is there when this returns, so
    /// that none is cleared while the epoch runs.
    pub fn shared(slots: u32, slot_bytes: usize, memory: &File, populate: bool) -> std::io::Result<Self> {
        let mut options = MmapOptions::new();
        if populate {
            options.populate();
        }
        // SAFETY: memory is sealed against shrinking, and a file is locked by the agent, which never truncates it. The agent
        // writes only into slots that this host named in a request and that no lease refers to; bytes are read after the
        // agent completed the request.
        let map = unsafe { options.len(slots as usize * slot_bytes).map(memory)? };
        Ok(Self { map: Some(map), ..Self::remote(slots, slot_bytes) })
    }

    pub fn is_shared(&self) -> bool {
        self.map.is_some()
    }

    /// Bytes of shared memory or of a shared file.
    pub fn shared_bytes(&self) -> usize {
        self.map.as_ref().map_or(0, |map| map.len())
    }

    pub fn take(&self) -> Option<u32> {
        self.lock().pop()
    }

    pub fn put(&self, slot: u32) {
        self.lock().push(slot);
    }

    pub fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// Takes the slots in that a drive has shown at last, unless they are known. Slots of an agent that shares its memory always are.
    pub fn know(&self, slots: u32) {
        if self.count() == 0 {
            let slots = slots.min(SLOTS_USED_MAX);
            self.lock().extend((0..slots).rev());
            self.count.store(slots, Ordering::Relaxed);
        }
    }

    /// The bytes of a slot in shared memory.
    pub fn bytes(&self, slot: u32) -> Option<&[u8]> {
        let start = slot as usize * self.slot_bytes;
        self.map.as_ref()?.get(start..start + self.slot_bytes)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        self.free.lock().expect("no panic while the slots are locked")
    }
}

/// A slot whose payload the consumer reads in place; it is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct SlotLease {
    table: Arc<SlotTable>,
    slot: u32,
    payload: Range<usize>,
}

impl SlotLease {
    /// `payload` is the extent within the slot.
    pub fn new(table: Arc<SlotTable>, slot: u32, payload: Range<usize>) -> Self {
        Self { table, slot, payload }
    }

    /// The payload.
    pub fn payload(&self) -> &[u8] {
        let slot = self.table.bytes(self.slot).expect("leases are made of shared slots");
        &slot[self.payload.clone()]
    }
}

impl Drop for SlotLease {
    fn drop(&mut self) {
        self.table.put(self.slot);
    }
}
