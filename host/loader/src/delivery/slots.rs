//! The result slots of one drive as the host sees them: the free ones and, where drive and host share the memory, their
//! bytes.

#![allow(unsafe_code)]

use super::BatchMemory;
use crate::forking::Home;
use memmap2::{MmapOptions, MmapRaw};
use std::any::Any;
use std::collections::HashSet;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// Most slots of a drive that the loader uses.
const SLOTS_USED_MAX: u32 = 65_536;

/// The slots of one drive.
#[derive(Debug)]
pub(crate) struct SlotTable {
    free: Mutex<Free>,
    home: Home,
    slot_bytes: usize,
    /// The drive's result memory, when it is shared.
    memory: Option<Arc<SharedMemory>>,
}

/// Result memory that host and drive share.
#[derive(Debug)]
struct SharedMemory {
    map: MmapRaw,
    file: File,
    /// Whether a forked process has made the memory its own.
    is_own: AtomicBool,
}

/// All shared result memory of this process, for [`HeldSlots`].
static SHARED: Mutex<Vec<Weak<SharedMemory>>> = Mutex::new(Vec::new());

/// All shared result memory of this process, to which no thread can add meanwhile.
#[derive(Debug)]
pub(crate) struct HeldSlots(MutexGuard<'static, Vec<Weak<SharedMemory>>>);

/// Holds all shared result memory, so that the process can fork.
pub(crate) fn hold_slots() -> HeldSlots {
    HeldSlots(SHARED.lock().expect("no panic while the list is locked"))
}

impl HeldSlots {
    /// Makes shared result slots the own memory of a forked process: from then on, what it writes to batches of its
    /// parent no longer reaches the parent's.
    pub fn make_own(self) {
        for memory in self.0.iter().filter_map(Weak::upgrade) {
            if memory.is_own.swap(true, Ordering::Relaxed) {
                continue;
            }
            let (flags, access) = (libc::MAP_PRIVATE | libc::MAP_FIXED, libc::PROT_READ | libc::PROT_WRITE);
            let (start, bytes, file) = (memory.map.as_mut_ptr().cast(), memory.map.len(), memory.file.as_raw_fd());
            // SAFETY: the new mapping takes the place of the whole old one, with the same bytes of the same file. Only
            // this thread exists in the forked process.
            let mapped = unsafe { libc::mmap(start, bytes, access, flags, file, 0) };
            if mapped == libc::MAP_FAILED {
                tracing::warn!("a forked process shares result slots: {}", std::io::Error::last_os_error());
            }
        }
    }
}

/// The slots that are not in use.
#[derive(Debug)]
struct Free {
    /// The free slots as a stack: the slot freed last is taken first.
    slots: Vec<u32>,
    /// Number of slots, free or not.
    count: u32,
    /// Lowest number of free slots so far.
    fewest: u32,
    /// Slots in which the drive has put a result, so that they have memory.
    proven: HashSet<u32>,
}

impl Free {
    fn all(slots: u32) -> Self {
        Self { slots: (0..slots).rev().collect(), count: slots, fewest: slots, proven: HashSet::new() }
    }
}

impl SlotTable {
    /// Creates a table of slots that are read over the link.
    pub fn remote(slots: u32, slot_bytes: usize) -> Self {
        let slots = Self::usable(slots);
        Self { free: Mutex::new(Free::all(slots)), home: Home::here(), slot_bytes, memory: None }
    }

    /// Creates a table of slots in memory or a file that the drive's agent maps too. The agent allocates a slot's pages
    /// before it writes to the slot. The consumer of a batch may write to the batch's slot: the agent neither reads nor
    /// writes it meanwhile, and its next job there overwrites everything.
    pub fn shared(slots: u32, slot_bytes: usize, memory: &File) -> std::io::Result<Self> {
        let bytes = slots as usize * slot_bytes;
        let map = MmapOptions::new().len(bytes).map_raw(memory);
        let map = map.map_err(|error| ddlp_csd::memory::refused(bytes as u64, error))?;
        let memory = Arc::new(SharedMemory { map, file: memory.try_clone()?, is_own: AtomicBool::new(false) });
        let HeldSlots(mut shared) = hold_slots();
        shared.retain(|memory| memory.strong_count() > 0);
        shared.push(Arc::downgrade(&memory));
        Ok(Self { memory: Some(memory), ..Self::remote(slots, slot_bytes) })
    }

    /// Returns how many of a drive's slots the loader uses.
    pub fn usable(slots: u32) -> u32 {
        slots.min(SLOTS_USED_MAX)
    }

    /// Returns the bytes of a slot.
    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    pub fn is_shared(&self) -> bool {
        self.memory.is_some()
    }

    /// Returns the bytes of the largest number of shared slots that were in use at the same time.
    pub fn shared_bytes(&self) -> usize {
        let free = self.lock();
        if self.is_shared() { (free.count - free.fewest) as usize * self.slot_bytes } else { 0 }
    }

    pub fn take(&self) -> Option<u32> {
        let mut free = self.lock();
        let slot = free.slots.pop();
        free.fewest = free.fewest.min(free.slots.len() as u32);
        slot
    }

    /// Takes the free slots that have never held a result.
    pub fn take_unproven(&self) -> Vec<u32> {
        let Free { slots, proven, .. } = &mut *self.lock();
        let (kept, unproven) = slots.iter().partition(|slot| proven.contains(slot));
        *slots = kept;
        unproven
    }

    /// Notes that the drive has put a result into a slot.
    pub fn prove(&self, slot: u32) {
        self.lock().proven.insert(slot);
    }

    pub fn put(&self, slot: u32) {
        self.lock().slots.push(slot);
    }

    /// Puts slots back that are taken only when no other slot is free.
    pub fn put_last(&self, slots: impl IntoIterator<Item = u32>) {
        self.lock().slots.splice(..0, slots);
    }

    /// Returns the number of slots that can be taken now.
    pub fn free(&self) -> usize {
        self.lock().slots.len()
    }

    pub fn count(&self) -> u32 {
        self.lock().count
    }

    /// Adds the slots of a drive when it is first reached. Does nothing when the slots are known already, as they
    /// always are for an agent with shared memory.
    pub fn know(&self, slots: u32) {
        let mut free = self.lock();
        if free.count == 0 {
            *free = Free::all(Self::usable(slots));
        }
    }

    /// Returns the bytes of a slot in shared memory.
    pub fn bytes(&self, slot: u32) -> Option<&[u8]> {
        let start = self.first_byte(slot)?;
        // SAFETY: the slot lies in the mapping. Memory is sealed against shrinking, and a file is locked by the agent,
        // which never truncates it. The agent writes only into slots that this host named in a request and that no
        // batch lies in; bytes are read after the agent completed the request, when all pages of the slot are there.
        Some(unsafe { std::slice::from_raw_parts(start.as_ptr(), self.slot_bytes) })
    }

    /// Returns the beginning of a slot in shared memory.
    fn first_byte(&self, slot: u32) -> Option<NonNull<u8>> {
        let (map, start) = (&self.memory.as_ref()?.map, slot as usize * self.slot_bytes);
        if start + self.slot_bytes > map.len() {
            return None;
        }
        // SAFETY: checked above.
        NonNull::new(unsafe { map.as_mut_ptr().add(start) })
    }

    fn lock(&self) -> MutexGuard<'_, Free> {
        self.free.lock().expect("no panic while the slots are locked")
    }
}

/// A slot whose payload the consumer reads in place. Dropping it frees the slot, except in a forked process: the slot
/// is its parent's.
#[derive(Debug)]
pub(crate) struct SlotRows {
    table: Arc<SlotTable>,
    slot: u32,
    payload: Range<usize>,
}

impl SlotRows {
    /// Takes over a slot; `payload` is the extent within the slot.
    pub fn new(table: Arc<SlotTable>, slot: u32, payload: Range<usize>) -> Self {
        Self { table, slot, payload }
    }

    /// Returns the payload for code that changes it before the batch is delivered.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let (address, bytes) = (self.address(), self.payload.len());
        assert!(self.payload.end <= self.table.slot_bytes(), "the payload lies in the slot");
        // SAFETY: the slot has these bytes, as checked. Nothing else uses them: the slot belongs to this value alone,
        // which is borrowed, and the agent does not touch the slot before it is free again.
        unsafe { std::slice::from_raw_parts_mut(address.as_ptr(), bytes) }
    }
}

// SAFETY: a slot stays where it is, and the agent does not touch it before it is free again.
unsafe impl BatchMemory for SlotRows {
    fn address(&self) -> NonNull<u8> {
        let slot = self.table.first_byte(self.slot).expect("made of a shared slot");
        // SAFETY: the payload lies in the slot, as `bytes` checks.
        unsafe { slot.add(self.payload.start) }
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn bytes(&self) -> Option<&[u8]> {
        let slot = self.table.bytes(self.slot).expect("made of a shared slot");
        Some(&slot[self.payload.clone()])
    }

    fn mapping(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(self.table.memory.clone()?)
    }
}

impl Drop for SlotRows {
    fn drop(&mut self) {
        if self.table.home.is_here() {
            self.table.put(self.slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forking::tests::in_fork;

    #[test]
    fn a_fork_drops_a_slot_whatever_its_parent_is_doing() {
        let memory = tempfile::tempfile().unwrap();
        memory.set_len(4096).unwrap();
        let table = Arc::new(SlotTable::shared(1, 4096, &memory).unwrap());
        let slot = table.take().unwrap();
        let mut rows = Some(SlotRows::new(table.clone(), slot, 0..4096));
        let locked = table.lock();
        in_fork(|| drop(rows.take()));
        drop(locked);
        assert_eq!(table.free(), 0);
        drop(rows);
        assert_eq!(table.free(), 1);
    }

    #[test]
    fn only_slots_in_use_at_the_same_time_count_as_memory() {
        let memory = tempfile::tempfile().unwrap();
        memory.set_len(10 * 4096).unwrap();
        let table = SlotTable::shared(10, 4096, &memory).unwrap();
        assert_eq!(table.shared_bytes(), 0);
        for _ in 0..5 {
            let slots = [table.take().unwrap(), table.take().unwrap()];
            assert_eq!(slots.iter().max(), Some(&1), "slots that were used are used again");
            slots.into_iter().for_each(|slot| table.put(slot));
        }
        assert_eq!(table.shared_bytes(), 2 * 4096);
    }

    #[test]
    fn slots_without_memory_are_taken_last() {
        let table = SlotTable::remote(5, 4096);
        let good = [table.take().unwrap(), table.take().unwrap()];
        good.iter().for_each(|&slot| table.prove(slot));
        let refused = table.take().unwrap();
        table.put(good[0]);
        let mut away = table.take_unproven();
        away.push(refused);
        assert_eq!(away.len(), 3, "the slot that has held a result stays");
        table.put_last(away);
        assert_eq!(table.take(), Some(good[0]));
        table.put(good[1]);
        assert_eq!(table.take(), Some(good[1]));
        assert!(!good.contains(&table.take().unwrap()));
    }

    #[test]
    fn only_shared_slots_count_as_memory_of_the_host() {
        assert_eq!(SlotTable::remote(3, 4096).shared_bytes(), 0);
    }
}
