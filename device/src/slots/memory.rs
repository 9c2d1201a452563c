//! The mapped result slots, and the leases through which workers write to them.
//!
//! Soundness rests on three facts, each enforced at run time:
//!
//! 1. a slot has at most one [`WriteLease`] (a flag per slot, taken and released atomically);
//! 2. a row of a lease is handed out at most once (a flag per row, never reset), so rows never alias;
//! 3. the whole payload is handed out only after every row was handed out and given back, and at most once.
//!
//! Other processes may map the same file and change its bytes at any time. The agent never decides anything by bytes
//! that it reads back from a slot, and the reader notices a change as a checksum mismatch. The backing keeps the mapped
//! bytes in place, since it never shrinks a file.
//!
//! Over the network, a slot shows its bytes to one host. A reader holds the slot's owner locked while it copies bytes,
//! and a lease for another host takes the owner away before it touches the bytes. So a reader that was let in never
//! sees the next host's bytes.
//!
//! Slots in memory have no pages at first. A slot gets all its pages before its first lease, by `fallocate`, where too
//! little memory is an error. If a worker wrote to a missing page, too little memory would be a fatal signal.
#![allow(unsafe_code)]

use super::Geometry;
use super::backing::{allocate, held_bytes};
use crate::host::ConnectedHost;
use ddlp_csd::memory::check_pages;
use ddlp_csd::slot::{HEADER_BYTES, MAGIC, MAGIC_FREE, SlotLayout};
use memmap2::{Advice, MmapOptions, MmapRaw};
use nix::errno::Errno;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Bytes of the mark at the start of a slot, which says whether the slot holds a batch. Written in one atomic store.
const MAGIC_BYTES: usize = size_of::<u64>();
const _: () = assert!(MAGIC.len() == MAGIC_BYTES);
/// The mark of a slot without a batch, as a number in native byte order.
const FREE: u64 = u64::from_ne_bytes(MAGIC_FREE);

/// The mapping of all slots.
#[derive(Debug)]
pub(super) struct SlotMemory {
    map: MmapRaw,
    pub(super) file: File,
    slot_bytes: usize,
    leased: Box<[AtomicBool]>,
    /// Host that may read each slot.
    owners: Box<[RwLock<Option<Arc<ConnectedHost>>>]>,
    /// Whether all pages of each slot are allocated.
    present: Box<[AtomicBool]>,
    /// Held while a slot gets its pages, so that no two threads count the same available memory.
    allocating: Mutex<()>,
}

/// Contents of a slot without pages, and of a slot for a host that does not own it.
static ZEROS: [u8; 4096] = [0; 4096];

impl SlotMemory {
    /// Maps the slots. Marks slots in a file as free; slots in memory get their pages and their mark later.
    pub(super) fn map(file: File, in_memory: bool, geometry: Geometry) -> io::Result<Self> {
        let too_big = || io::Error::new(io::ErrorKind::InvalidInput, "slots exceed the address space");
        let total = usize::try_from(geometry.total_bytes()).map_err(|_| too_big())?;
        let slot_bytes = usize::try_from(geometry.slot_bytes).map_err(|_| too_big())?;
        assert!(slot_bytes >= HEADER_BYTES && slot_bytes.is_multiple_of(HEADER_BYTES), "slots are whole blocks");
        let map = MmapOptions::new().len(total).map_raw(&file)?;
        let flags = |value: bool| (0..geometry.slots).map(|_| AtomicBool::new(value)).collect();
        let memory = Self {
            map,
            file,
            slot_bytes,
            leased: flags(false),
            owners: (0..geometry.slots).map(|_| RwLock::default()).collect(),
            present: flags(!in_memory),
            allocating: Mutex::new(()),
        };
        if !in_memory {
            for slot in 0..geometry.slots as usize {
                memory.magic(slot).store(FREE, Ordering::Release);
            }
        }
        Ok(memory)
    }

    /// Returns the number of slots.
    pub(super) fn count(&self) -> usize {
        self.leased.len()
    }

    /// Returns whether all pages of a slot are allocated; false for a slot that does not exist.
    pub(super) fn is_present(&self, slot: usize) -> bool {
        self.present.get(slot).is_some_and(|present| present.load(Ordering::Acquire))
    }

    /// Allocates and clears the pages of a slot, unless it has them. Fails if the system refuses memory.
    pub(super) fn make_present(&self, slot: usize) -> io::Result<()> {
        self.make_present_if(slot, check_pages)
    }

    /// Does the same as [`Self::make_present`]; `check` fails if that many bytes of memory are not available.
    pub(super) fn make_present_if(&self, slot: usize, check: impl FnOnce(u64) -> io::Result<()>) -> io::Result<()> {
        if self.is_present(slot) {
            return Ok(());
        }
        let allocating = self.allocating.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if self.is_present(slot) {
            return Ok(());
        }
        let (start, bytes) = (slot * self.slot_bytes, self.slot_bytes as u64);
        // An earlier agent may have left pages: a restarted local agent gets the same memory.
        let missing = bytes - held_bytes(&self.file, start as u64, bytes);
        if missing > 0 {
            check(missing)?;
            allocate(&self.file, start as u64, bytes)?;
        }
        self.present[slot].store(true, Ordering::Release);
        drop(allocating);
        // Clears the pages, so that no worker waits for that and `held_bytes` counts them. No effect before Linux 5.14.
        let _ = self.map.advise_range(Advice::PopulateWrite, start, self.slot_bytes);
        Ok(())
    }

    /// Calls `step`, and tells it whether `reader` owns the slot. The slot keeps its owner until `step` returns.
    fn as_owner<R>(&self, slot: usize, reader: &ConnectedHost, step: impl FnOnce(bool) -> R) -> R {
        let owner = self.owners[slot].read().unwrap_or_else(PoisonError::into_inner);
        step(owner.as_deref() == Some(reader))
    }

    /// Clears a slot for a new owner, unless it has that owner already. The slot has a lease, which keeps other changes
    /// away.
    fn give_to(&self, slot: usize, host: &Arc<ConnectedHost>) {
        let set = |owner| *self.owners[slot].write().unwrap_or_else(PoisonError::into_inner) = owner;
        if self.as_owner(slot, host, |is_owner| is_owner) {
            return;
        }
        // Nobody may read the slot while it is cleared, and readers do not wait for that.
        set(None);
        // SAFETY: `base` has `slot_bytes` bytes, more than the mark. The caller is the only writer of the slot and has
        // made no reference to its bytes yet.
        unsafe { self.base(slot).add(MAGIC_BYTES).write_bytes(0, self.slot_bytes - MAGIC_BYTES) };
        set(Some(host.clone()));
    }

    /// Fills `buffer` with the bytes from `offset` on, and with zeros for slots that `reader` does not own.
    pub(super) fn read(&self, reader: &ConnectedHost, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let (mut at, mut rest) = (self.position(offset)?, buffer);
        while !rest.is_empty() {
            let slot = at / self.slot_bytes;
            if slot == self.leased.len() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let (here, after) = rest.split_at_mut(rest.len().min((slot + 1) * self.slot_bytes - at));
            self.as_owner(slot, reader, |is_owner| {
                if is_owner {
                    return self.file.read_exact_at(here, at as u64);
                }
                here.fill(0);
                Ok(())
            })?;
            (at, rest) = (at + here.len(), after);
        }
        Ok(())
    }

    /// Returns an offset in the mapping, or its end.
    fn position(&self, offset: u64) -> io::Result<usize> {
        let position = usize::try_from(offset).ok().filter(|&position| position <= self.map.len());
        position.ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }

    /// Sends up to `bytes` bytes from `offset` on to a socket, and returns how many were sent, which may be fewer, as
    /// with `send`. The kernel copies straight from the slots, even while a worker writes to them. A slot without pages
    /// is sent as zeros, which allocates no pages, and so is a slot that `reader` does not own. The socket must not
    /// block.
    pub(super) fn send(
        &self,
        reader: &ConnectedHost,
        socket: BorrowedFd<'_>,
        offset: u64,
        bytes: usize,
        flags: i32,
    ) -> io::Result<usize> {
        let start = self.position(offset)?;
        let slot = start / self.slot_bytes;
        if slot == self.leased.len() {
            return Ok(0);
        }
        let bytes = bytes.min((slot + 1) * self.slot_bytes - start);
        self.as_owner(slot, reader, |is_owner| {
            let (from, bytes) = if is_owner && self.is_present(slot) {
                // SAFETY: `start` lies in a slot, and so in the mapping.
                (unsafe { self.map.as_ptr().add(start) }, bytes)
            } else {
                (ZEROS.as_ptr(), bytes.min(ZEROS.len()))
            };
            // SAFETY: the range was just limited to the slot or to the zeros. Only the kernel reads it, and no
            // reference is made, so a worker or another process that writes there at the same time causes no data race
            // in this program.
            let sent = unsafe { libc::send(socket.as_raw_fd(), from.cast(), bytes, flags) };
            Ok(Errno::result(sent)? as usize)
        })
    }

    fn base(&self, slot: usize) -> *mut u8 {
        assert!(slot < self.leased.len(), "slot {slot} of {}", self.leased.len());
        // SAFETY: the mapping has slots × slot_bytes bytes and `slot` was checked, so the offset stays inside it.
        unsafe { self.map.as_mut_ptr().add(slot * self.slot_bytes) }
    }

    fn magic(&self, slot: usize) -> &AtomicU64 {
        let start = self.base(slot).cast::<u64>();
        // SAFETY: slots start at multiples of the page size, so the pointer is aligned; it is valid as long as the
        // mapping, which `self` owns; this process touches these 8 bytes only through this atomic.
        unsafe { AtomicU64::from_ptr(start) }
    }
}

/// Reason why a slot cannot be leased.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// There is no slot of this number.
    #[error("there is no such slot")]
    Missing,
    /// The slot has another lease.
    #[error("the slot is leased")]
    Leased,
    /// The system refused memory for the slot.
    #[error("there is no memory for the slot: {0}")]
    Memory(#[source] io::Error),
}

/// Exclusive right to write to one slot. Dropping it releases the slot.
#[derive(Debug)]
pub struct WriteLease {
    memory: Arc<SlotMemory>,
    slot: usize,
    layout: SlotLayout,
    taken: Box<[AtomicBool]>,
    rows_out: AtomicUsize,
    payload_taken: AtomicBool,
    published: AtomicBool,
}

impl WriteLease {
    pub(super) fn take(
        memory: &Arc<SlotMemory>,
        slot: u32,
        layout: SlotLayout,
        host: &Arc<ConnectedHost>,
    ) -> Result<Self, LeaseError> {
        let slot = slot as usize;
        let flag = memory.leased.get(slot).ok_or(LeaseError::Missing)?;
        assert!(layout.total_bytes <= memory.slot_bytes, "batch of {} bytes in a slot", layout.total_bytes);
        memory.make_present(slot).map_err(LeaseError::Memory)?;
        if flag.swap(true, Ordering::Acquire) {
            return Err(LeaseError::Leased);
        }
        memory.magic(slot).store(FREE, Ordering::Release);
        memory.give_to(slot, host);
        // Readers, including those in other processes, see the invalid header before any later byte of the payload.
        std::sync::atomic::fence(Ordering::SeqCst);
        Ok(Self {
            memory: memory.clone(),
            slot,
            layout,
            taken: (0..layout.samples).map(|_| AtomicBool::new(false)).collect(),
            rows_out: AtomicUsize::new(0),
            payload_taken: AtomicBool::new(false),
            published: AtomicBool::new(false),
        })
    }

    /// Returns the layout of the batch in the slot.
    pub fn layout(&self) -> SlotLayout {
        self.layout
    }

    /// Hands out neighbouring rows of the payload for writing, each at most once. Returns `None` if one of the rows was
    /// handed out before, or is beyond the batch.
    pub fn rows(&self, rows: Range<usize>) -> Option<RowsMut<'_>> {
        let taken = self.taken.get(rows.clone())?;
        // Counted before the flags are set: a thread that sees all flags set also sees all rows that are still out.
        let out = RowCount::of(&self.rows_out);
        let free = taken.iter().filter(|taken| !taken.swap(true, Ordering::AcqRel)).count();
        if free < rows.len() {
            return None;
        }
        let row_bytes = self.layout.row_bytes;
        let (offset, length) = (self.layout.payload_offset + rows.start * row_bytes, rows.len() * row_bytes);
        // SAFETY: the layout fits the slot (checked in `take`) and the rows are below `samples`, so the range lies
        // inside the slot. The flags just set are never reset, so `rows` has made no other reference to these bytes and
        // never will; `payload` makes one only after all rows are back. The lease is the only writer of the slot and
        // outlives the reference.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.memory.base(self.slot).add(offset), length) };
        Some(RowsMut { bytes, row_bytes, _out: out })
    }

    /// Hands out the whole payload, once, after every row has been handed out and given back. Returns `None` otherwise.
    #[allow(clippy::mut_from_ref)]
    pub fn payload(&self) -> Option<&mut [u8]> {
        let complete =
            self.taken.iter().all(|taken| taken.load(Ordering::Acquire)) && self.rows_out.load(Ordering::Acquire) == 0;
        if !complete || self.payload_taken.swap(true, Ordering::AcqRel) {
            return None;
        }
        let bytes = self.layout.samples * self.layout.row_bytes;
        // SAFETY: the range lies inside the slot as in `rows`. Every row was taken, so `rows` hands out no further one,
        // and none is out; the flag just set keeps this from happening twice.
        Some(unsafe {
            std::slice::from_raw_parts_mut(self.memory.base(self.slot).add(self.layout.payload_offset), bytes)
        })
    }

    /// Writes the sample table and then the header, its magic last. Then readers find the batch.
    ///
    /// # Panics
    /// Panics if called twice or with a table of the wrong length, both defects of the agent.
    pub fn publish(&self, header: &[u8; HEADER_BYTES], table: &[u8]) {
        assert_eq!(table.len(), self.layout.table_bytes(), "one record per sample");
        assert!(!self.published.swap(true, Ordering::AcqRel), "a batch is published once");
        let base = self.memory.base(self.slot);
        // SAFETY: header block and table lie inside the slot, before the payload; no reference to them is ever made,
        // and the flag above makes this thread their only writer. Only the atomic touches the first 8 bytes.
        unsafe {
            std::ptr::copy_nonoverlapping(table.as_ptr(), base.add(HEADER_BYTES), table.len());
            let rest = HEADER_BYTES - MAGIC_BYTES;
            std::ptr::copy_nonoverlapping(header.as_ptr().add(MAGIC_BYTES), base.add(MAGIC_BYTES), rest);
        }
        let mut magic = [0; MAGIC_BYTES];
        magic.copy_from_slice(&header[..MAGIC_BYTES]);
        self.memory.magic(self.slot).store(u64::from_ne_bytes(magic), Ordering::Release);
    }
}

impl Drop for WriteLease {
    fn drop(&mut self) {
        self.memory.leased[self.slot].store(false, Ordering::Release);
    }
}

/// Guard that counts a group of rows as handed out while it lives.
#[derive(Debug)]
struct RowCount<'a>(&'a AtomicUsize);

impl<'a> RowCount<'a> {
    fn of(rows_out: &'a AtomicUsize) -> Self {
        rows_out.fetch_add(1, Ordering::AcqRel);
        Self(rows_out)
    }
}

impl Drop for RowCount<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Neighbouring rows of a batch, exclusively held.
#[derive(Debug)]
pub struct RowsMut<'a> {
    bytes: &'a mut [u8],
    row_bytes: usize,
    _out: RowCount<'a>,
}

impl RowsMut<'_> {
    /// Returns the rows one by one.
    pub fn each(&mut self) -> impl ExactSizeIterator<Item = &mut [u8]> {
        self.bytes.chunks_exact_mut(self.row_bytes)
    }
}
