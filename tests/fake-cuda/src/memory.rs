//! Memory of the devices, and page-locked memory of the host.
//!
//! Device addresses lie in a range that this process may not touch. The bytes lie elsewhere, under an address that no
//! program gets. No device address is used twice, so each access to freed memory is found.

use std::collections::BTreeMap;

use memmap2::MmapMut;

use crate::code::Code;
use crate::random::Random;
use crate::twin::Region;

/// Device addresses are reserved in this many bytes of address space, or the largest half, quarter … that there is.
const RESERVED_BYTES: usize = 4 << 40;
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
        // An odd multiple of the alignment, behind a gap.
        let gap = GAP + random.number() % 64 * 2 * ALIGNMENT;
        let address = (self.next + gap).next_multiple_of(2 * ALIGNMENT) + ALIGNMENT;
        let end = address.checked_add(bytes).filter(|&end| end + GAP < self.range.end).ok_or(Code::OUT_OF_MEMORY)?;
        let mut storage = MmapMut::map_anon(bytes as usize).map_err(|_| Code::OUT_OF_MEMORY)?;
        storage.fill(poison(random));
        self.next = end;
        self.allocations.insert(address, Allocation { bytes, device, context, storage });
        Ok(address)
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

    /// Returns what a kernel on a device may access, sorted by address.
    pub fn regions(&mut self, device: i32) -> Vec<Region> {
        let of_device = self.allocations.iter_mut().filter(|(_, allocation)| allocation.device == device);
        of_device
            .map(|(&address, allocation)| Region {
                address,
                bytes: allocation.bytes,
                storage: allocation.storage.as_mut_ptr(),
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

    /// Returns whether the pages of an extent and of a piece overlap.
    pub fn shares_pages(&self, address: u64, bytes: u64) -> bool {
        let page = page_bytes();
        let pages = |address: u64, bytes: u64| address / page..(address + bytes).div_ceil(page);
        let wanted = pages(address, bytes);
        self.pieces.iter().any(|(&start, pinned)| {
            let taken = pages(start, pinned.bytes);
            taken.start < wanted.end && wanted.start < taken.end
        })
    }

    pub fn lock(&self, address: u64, bytes: u64) -> Lock {
        if let Some((start, pinned)) = self.at(address) {
            return if bytes <= pinned.bytes - (address - start) { Lock::Pinned } else { Lock::Partly };
        }
        let touches = self.pieces.range(address..address + bytes).next().is_some();
        if touches { Lock::Partly } else { Lock::Pageable }
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
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (Some(range), Some(rights)) = (words.next(), words.next()) else { continue };
        let path = words.nth(3).unwrap_or_default();
        let Some((first, last)) = range.split_once('-') else { continue };
        let parse = |text| u64::from_str_radix(text, 16).unwrap_or(0);
        let (first, last) = (parse(first), parse(last));
        if last <= next || first >= end {
            continue;
        }
        if first > next {
            break;
        }
        if !rights.starts_with("rw") {
            return Err(format!("{next:#x} cannot be read and written"));
        }
        let in_memory = ["", "/memfd:", "/dev/shm/", "/dev/zero", "/SYSV", "/anon_hugepage"];
        let is_memory = path.is_empty() || in_memory[1..].iter().any(|prefix| path.starts_with(prefix));
        if rights.ends_with('s') && !is_memory {
            return Err(format!("{next:#x} belongs to the file {path}, whose pages cannot be locked for writing"));
        }
        next = last;
    }
    if next < end {
        return Err(format!("{next:#x} is not mapped"));
    }
    // SAFETY: only makes pages resident that the process has mapped.
    let done = unsafe { libc::madvise(start as *mut _, (end - start) as usize, libc::MADV_POPULATE_WRITE) };
    // Kernels before 5.14 do not know it: pages come as they are touched.
    let error = std::io::Error::last_os_error();
    if done != 0 && error.raw_os_error() != Some(libc::EINVAL) {
        return Err(format!("{start:#x} cannot be locked: {error}"));
    }
    Ok(())
}
