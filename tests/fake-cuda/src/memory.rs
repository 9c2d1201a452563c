//! Memory of the devices, and page-locked memory of the host.
//!
//! Device addresses lie in a range that this process may not touch. The bytes lie elsewhere, under an address that no
//! program gets. A device address is used again only after all others, so accesses to freed memory are found.

use std::collections::BTreeMap;

use memmap2::MmapMut;

use crate::code::Code;
use crate::order::{Access, Accesses, Clock};
use crate::random::Random;
use crate::twin::{Region, Touched};

/// Device addresses are reserved in this many bytes of address space, or in a half, a quarter … of them.
const RESERVED_BYTES: usize = 32 << 30;
/// A real driver promises this alignment. Addresses here have no better one, so that nobody relies on it.
const ALIGNMENT: u64 = 256;
/// Addresses between two allocations belong to none: at least this many.
const GAP: u64 = 64 << 10;

/// Memory of all devices.
pub(crate) struct DeviceMemory {
    range: std::ops::Range<u64>,
    next: u64,
    allocations: BTreeMap<u64, Allocation>,
    /// Sizes of allocations that were freed.
    freed: BTreeMap<u64, u64>,
}

/// A piece of device memory.
pub(crate) struct Allocation {
    pub bytes: u64,
    pub device: i32,
    pub context: u64,
    storage: MmapMut,
    accesses: Accesses,
}

impl DeviceMemory {
    pub fn new() -> Self {
        let mut bytes = RESERVED_BYTES;
        loop {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            // SAFETY: maps new address space, which nobody uses.
            let address = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
            if address != libc::MAP_FAILED {
                let start = address as u64;
                let range = start..start + bytes as u64;
                return Self { next: start + GAP, range, allocations: BTreeMap::new(), freed: BTreeMap::new() };
            }
            bytes /= 2;
            assert!(bytes > 1 << 30, "there is no address space for device memory");
        }
    }

    /// Returns whether an address is one of a device, whatever lies there.
    pub fn owns(&self, address: u64) -> bool {
        self.range.contains(&address)
    }

    /// Allocates memory, full of bytes that nobody wrote. Returns its address.
    pub fn allocate(&mut self, bytes: u64, device: i32, context: u64, random: &mut Random) -> Result<u64, Code> {
        let address = self.place(bytes, random).ok_or(Code::OUT_OF_MEMORY)?;
        let mut storage = MmapMut::map_anon(bytes as usize).map_err(|_| Code::OUT_OF_MEMORY)?;
        storage.fill(poison(random));
        self.next = address + bytes;
        self.allocations.insert(address, Allocation { bytes, device, context, storage, accesses: Accesses::default() });
        Ok(address)
    }

    /// Returns an unused address: one that was never used, while there are any.
    fn place(&self, bytes: u64, random: &mut Random) -> Option<u64> {
        let gap = GAP + random.number() % 64 * 2 * ALIGNMENT;
        [self.next, self.range.start].into_iter().find_map(|from| self.place_behind(from + gap, bytes))
    }

    fn place_behind(&self, mut from: u64, bytes: u64) -> Option<u64> {
        loop {
            let address = from.next_multiple_of(2 * ALIGNMENT) + ALIGNMENT;
            let end = address.checked_add(bytes).filter(|&end| end + GAP < self.range.end)? + GAP;
            let before = self.allocations.range(..end).next_back().map(|(start, found)| start + found.bytes + GAP);
            match before.filter(|&behind| behind > address) {
                None => return Some(address),
                Some(behind) => from = behind,
            }
        }
    }

    /// Frees the allocation that begins at an address, and returns it.
    pub fn free(&mut self, address: u64) -> Option<Allocation> {
        let allocation = self.allocations.remove(&address)?;
        self.freed.insert(address, allocation.bytes);
        Some(allocation)
    }

    pub fn allocations(&self) -> &BTreeMap<u64, Allocation> {
        &self.allocations
    }

    /// Forgets what belongs to a context.
    pub fn forget(&mut self, context: u64) {
        self.allocations.retain(|_, allocation| allocation.context != context);
    }

    /// Returns the allocation that contains an extent, and the extent's place in it. Fails with a sentence.
    pub fn find(&self, address: u64, bytes: u64) -> Result<(&Allocation, usize), String> {
        let nearest = self.allocations.range(..=address).next_back();
        let inside = nearest.filter(|(start, allocation)| address - *start < allocation.bytes);
        match inside {
            Some((start, allocation)) if bytes <= allocation.bytes - (address - start) => {
                Ok((allocation, (address - start) as usize))
            }
            Some((start, allocation)) => Err(format!(
                "{bytes} bytes at {address:#x} exceed the {} bytes that were allocated at {start:#x}",
                allocation.bytes
            )),
            None => Err(self.describe(address)),
        }
    }

    fn describe(&self, address: u64) -> String {
        match self.freed.range(..=address).next_back().filter(|(start, bytes)| address - *start < **bytes) {
            Some((start, bytes)) => format!("{address:#x} lies in {bytes} bytes at {start:#x} that were freed"),
            None if self.owns(address) => format!("{address:#x} lies in no allocation"),
            None => format!("{address:#x} is no address of a device"),
        }
    }

    /// Returns the bytes of an extent.
    pub fn bytes_mut(&mut self, address: u64, bytes: u64) -> Result<&mut [u8], String> {
        let (_, at) = self.find(address, bytes)?;
        let (_, allocation) = self.allocations.range_mut(..=address).next_back().expect("was found");
        Ok(&mut allocation.storage[at..at + bytes as usize])
    }

    /// Copies from one extent to another.
    pub fn copy(&mut self, from: u64, to: u64, bytes: u64) -> Result<(), String> {
        let copied = self.bytes_mut(from, bytes)?.to_vec();
        self.bytes_mut(to, bytes)?.copy_from_slice(&copied);
        Ok(())
    }

    /// Records that an operation accesses an extent. Returns a sentence if nothing orders it and an earlier one.
    pub fn access(&mut self, address: u64, access: Access, clock: &Clock) -> Option<String> {
        let (_, allocation) = self.allocations.range_mut(..=address).next_back()?;
        let (stream, verb) = (access.stream, if access.writes { "writes" } else { "reads" });
        let (start, bytes) = (access.bytes.start, access.bytes.end - access.bytes.start);
        let before = allocation.accesses.add(access, clock)?;
        let (other, other_verb) = (before.stream, if before.writes { "writes" } else { "reads" });
        Some(format!(
            "stream {stream:#x} {verb} {bytes} bytes at {start:#x}, which stream {other:#x} {other_verb}: no event \
             orders them"
        ))
    }

    /// Returns what a kernel on a device may access, sorted by address.
    pub fn regions(&mut self, device: i32) -> Vec<Region> {
        let of_device = self.allocations.iter_mut().filter(|(_, allocation)| allocation.device == device);
        of_device
            .map(|(&address, allocation)| Region {
                address,
                bytes: allocation.bytes,
                storage: allocation.storage.as_mut_ptr(),
                read: Touched::default(),
                written: Touched::default(),
            })
            .collect()
    }
}

/// Returns what fills memory that nobody wrote: one byte, neither 0 nor 255.
pub(crate) fn poison(random: &mut Random) -> u8 {
    1 + random.below(254) as u8
}

/// Page-locked memory of the host, by address.
#[derive(Default)]
pub(crate) struct PinnedMemory {
    pieces: BTreeMap<u64, Pinned>,
}

/// A piece of page-locked memory.
pub(crate) struct Pinned {
    pub context: u64,
    pub bytes: u64,
    pub flags: u32,
    /// Memory that the driver allocated; `None` if it is the program's, which registered it.
    pub allocated: Option<MmapMut>,
}

/// Whether host memory is page-locked.
#[derive(Debug, PartialEq)]
pub(crate) enum Lock {
    /// It lies in one piece.
    Pinned,
    /// No page of it is locked.
    Pageable,
    /// It begins or ends in one piece, or covers one.
    Partly,
}

impl PinnedMemory {
    pub fn pieces(&self) -> &BTreeMap<u64, Pinned> {
        &self.pieces
    }

    /// Forgets what belongs to a context.
    pub fn forget(&mut self, context: u64) {
        self.pieces.retain(|_, piece| piece.context != context);
    }

    pub fn insert(&mut self, address: u64, pinned: Pinned) {
        self.pieces.insert(address, pinned);
    }

    pub fn remove(&mut self, address: u64) -> Option<Pinned> {
        self.pieces.remove(&address)
    }

    /// Returns the piece that contains an address.
    pub fn at(&self, address: u64) -> Option<(u64, &Pinned)> {
        let (&start, pinned) = self.pieces.range(..=address).next_back()?;
        (address - start < pinned.bytes).then_some((start, pinned))
    }

    /// Returns whether an extent and a piece overlap.
    pub fn overlaps(&self, address: u64, bytes: u64) -> bool {
        self.at(address).is_some() || self.pieces.range(address..address + bytes).next().is_some()
    }

    /// Returns whether an extent is page-locked.
    pub fn lock(&self, address: u64, bytes: u64) -> Lock {
        if let Some((start, pinned)) = self.at(address) {
            return if bytes <= pinned.bytes - (address - start) { Lock::Pinned } else { Lock::Partly };
        }
        if self.overlaps(address, bytes) { Lock::Partly } else { Lock::Pageable }
    }
}

pub(crate) fn page_bytes() -> u64 {
    // SAFETY: asks for a constant of the system.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as u64 }
}

/// Makes the pages of a mapping resident, as locking them does. Fails with a sentence if the kernel would not lock
/// them for writing: memory that is not mapped or is read-only, and shared mappings of files on disks.
pub(crate) fn lock_pages(address: u64, bytes: u64) -> Result<(), String> {
    let page = page_bytes();
    let (start, end) = (address / page * page, (address + bytes).next_multiple_of(page));
    let maps = std::fs::read_to_string("/proc/self/maps").map_err(|error| error.to_string())?;
    let mut next = start;
    for mapping in maps.lines().filter_map(Mapping::parse).filter(|mapping| mapping.end > start && mapping.start < end)
    {
        if mapping.start > next {
            break;
        }
        if !mapping.rights.starts_with("rw") {
            return Err(format!("{next:#x} cannot be read and written"));
        }
        if mapping.is_shared_file() {
            return Err(format!("{next:#x} belongs to the file {}: its pages cannot be locked", mapping.path));
        }
        next = mapping.end;
    }
    if next < end {
        return Err(format!("{next:#x} is not mapped"));
    }
    // SAFETY: only makes pages resident that the process has mapped.
    let done = unsafe { libc::madvise(start as *mut _, (end - start) as usize, libc::MADV_POPULATE_WRITE) };
    let error = std::io::Error::last_os_error();
    // Kernels before 5.14 do not know it: there, pages come when they are touched.
    if done != 0 && error.raw_os_error() != Some(libc::EINVAL) {
        return Err(format!("{start:#x} cannot be locked: {error}"));
    }
    Ok(())
}

/// Returns whether all pages of an extent are mapped.
pub(crate) fn is_mapped(address: u64, bytes: u64) -> bool {
    let page = page_bytes();
    let (start, end) = (address / page * page, (address + bytes).next_multiple_of(page));
    let mut resident = vec![0u8; ((end - start) / page) as usize];
    // SAFETY: asks about pages, and writes a byte for each.
    unsafe { libc::mincore(start as *mut _, (end - start) as usize, resident.as_mut_ptr()) == 0 }
}

/// A line of /proc/self/maps.
struct Mapping<'a> {
    start: u64,
    end: u64,
    rights: &'a str,
    path: &'a str,
}

impl<'a> Mapping<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let rights = words.next()?;
        Some(Self { start: number(start)?, end: number(end)?, rights, path: words.nth(3).unwrap_or_default() })
    }

    /// Returns whether it is shared with a file on a disk. Files in memory can be locked.
    fn is_shared_file(&self) -> bool {
        let in_memory = ["/memfd:", "/dev/shm/", "/dev/zero", "/SYSV", "/anon_hugepage"];
        let is_file = !self.path.is_empty() && !in_memory.iter().any(|prefix| self.path.starts_with(prefix));
        self.rights.ends_with('s') && is_file
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_used_again_after_all_others() {
        let range = 0x1000_0000..0x1000_0000 + (4 << 20);
        let (allocations, freed) = (BTreeMap::new(), BTreeMap::new());
        let mut memory = DeviceMemory { next: range.start, range, allocations, freed };
        let mut random = Random::new(0);
        let mut allocate = |memory: &mut DeviceMemory| memory.allocate(300_000, 0, 0, &mut random);
        let kept = allocate(&mut memory).expect("room");
        let mut used = Vec::new();
        for _ in 0..100 {
            let address = allocate(&mut memory).expect("room");
            assert!(address.abs_diff(kept) >= 300_000 + GAP, "apart from what is in use");
            used.push(address);
            memory.free(address);
        }
        let first = used.iter().position(|address| used[0].abs_diff(*address) < 300_000 && *address != used[0]);
        assert!(first.is_some_and(|first| first >= 7), "{first:?}");
        while memory.allocations.len() < 100 {
            if allocate(&mut memory).is_err() {
                assert!(memory.allocations.len() >= 7);
                return;
            }
        }
        panic!("more than there are addresses");
    }
}
