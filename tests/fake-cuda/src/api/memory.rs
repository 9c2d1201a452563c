//! Memory of devices, and page-locked memory of the host.

use std::ffi::{c_int, c_uint, c_void};

use memmap2::MmapMut;

use super::{driver_functions, put};
use crate::code::{Code, Failure};
use crate::memory::{Pinned, is_mapped, lock_pages, poison};
use crate::session::Session;

/// Types of memory, as the attribute MEMORY_TYPE numbers them.
const HOST: u32 = 1;
const DEVICE: u32 = 2;

fn defect(code: Code, sentence: impl Into<String>) -> Failure {
    Failure::defect(code, sentence)
}

/// Makes page-locked memory of the host unknown to the driver. Copies that still need it are a mistake.
fn release(call: &mut Session, address: u64, is_allocated: bool) -> Result<Option<MmapMut>, Failure> {
    let found = call.pinned.pieces().get(&address).filter(|pinned| pinned.allocated.is_some() == is_allocated);
    let Some(bytes) = found.map(|pinned| pinned.bytes) else {
        let is_unknown = call.pinned.at(address).is_none() && !is_allocated;
        let code = if is_unknown { Code::HOST_MEMORY_NOT_REGISTERED } else { Code::INVALID_VALUE };
        return Err(defect(code, format!("no such page-locked memory begins at {address:#x}")));
    };
    if !is_mapped(address, bytes) {
        let name = call.name;
        call.note(format!("{name}: the {bytes} bytes at {address:#x} were unmapped before"));
    }
    call.lose_host_memory(address, bytes);
    let copies = call.sources.free(address, bytes);
    if copies > 0 {
        let (name, of) = (call.name, format!("the {bytes} bytes at {address:#x}"));
        call.note(format!("{name}: copies read {of}, and the program cannot know whether {copies} of them have run"));
    }
    Ok(call.pinned.remove(address).and_then(|pinned| pinned.allocated))
}

driver_functions! {
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) Init |call| {
        let context = call.context()?;
        let (memory, allocated) = (call.settings.memory, call.allocated(call.contexts[&context].device));
        put(free, memory.saturating_sub(allocated) as usize)?;
        put(total, memory as usize)?;
    }

    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) Init |call| {
        let context = call.context()?;
        call.check_capture()?;
        if bytes == 0 {
            return Err(defect(Code::INVALID_VALUE, "an allocation of 0 bytes"));
        }
        let device = call.contexts[&context].device;
        if call.allocated(device).saturating_add(bytes as u64) > call.settings.memory {
            return Err(Code::OUT_OF_MEMORY.into());
        }
        let driver = &mut **call;
        let found = driver.memory.allocate(bytes as u64, device, context, &mut driver.random)?;
        put(address, found)?;
        let live: u64 = driver.memory.allocations().values().map(|allocation| allocation.bytes).sum();
        driver.statistics.peak_bytes = driver.statistics.peak_bytes.max(live);
    }

    fn cuMemFree_v2(address: u64) Init |call| {
        let context = call.context()?;
        if address == 0 {
            return Ok(());
        }
        call.check_capture()?;
        if !call.memory.allocations().contains_key(&address) {
            let reason = call.memory.find(address, 1).err().unwrap_or("an address inside of an allocation".into());
            return Err(defect(Code::INVALID_VALUE, reason));
        }
        // As the real driver does: nothing that is queued loses its memory.
        if call.streams.values().any(|stream| !stream.queue.is_empty()) {
            call.statistics.frees_that_waited += 1;
        }
        call.wait_for_all(context, |_| true)?;
        call.memory.free(address);
    }

    fn cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, flags: c_uint) Init |call| {
        let context = call.context()?;
        call.check_capture()?;
        if bytes == 0 || flags > 7 {
            return Err(defect(Code::INVALID_VALUE, format!("{bytes} bytes of host memory with flags {flags}")));
        }
        let mut memory = MmapMut::map_anon(bytes).map_err(|_| Code::OUT_OF_MEMORY)?;
        memory.fill(poison(&mut call.random));
        let found = memory.as_mut_ptr();
        put(address, found.cast())?;
        call.pinned.insert(found as u64, Pinned { context, bytes: bytes as u64, flags, allocated: Some(memory) });
    }

    fn cuMemFreeHost(address: u64) Init |call| {
        call.context()?;
        call.check_capture()?;
        release(call, address, true)?;
    }

    fn cuMemHostRegister_v2(address: u64, bytes: usize, flags: c_uint) Init |call| {
        let context = call.context()?;
        call.check_capture()?;
        if !call.settings.registration {
            return Err(Code::NOT_SUPPORTED.into());
        }
        if address == 0 || bytes == 0 || flags > 15 {
            return Err(defect(Code::INVALID_VALUE, format!("{bytes} bytes at {address:#x} with flags {flags}")));
        }
        if flags & 0b1100 != 0 {
            // Memory of devices on the bus, and read-only memory, which attribute 113 denies.
            return Err(Code::NOT_SUPPORTED.into());
        }
        if call.pinned.overlaps(address, bytes as u64) {
            let sentence = format!("{bytes} bytes at {address:#x}, or some of them, are page-locked already");
            return Err(defect(Code::HOST_MEMORY_ALREADY_REGISTERED, sentence));
        }
        // Programs may try, and go on without it.
        if lock_pages(address, bytes as u64).is_err() {
            return Err(Code::INVALID_VALUE.into());
        }
        call.pinned.insert(address, Pinned { context, bytes: bytes as u64, flags, allocated: None });
    }

    fn cuMemHostUnregister(address: u64) Init |call| {
        call.context()?;
        call.check_capture()?;
        release(call, address, false)?;
    }

    fn cuMemHostGetFlags(flags: *mut c_uint, address: u64) Init |call| {
        call.context()?;
        // Memory that the driver allocated is always mapped: flag 2.
        let mapped = |is_allocated: bool| if is_allocated { 2 } else { 0 };
        let found = call.pinned.at(address).map(|(_, pinned)| pinned.flags | mapped(pinned.allocated.is_some()));
        put(flags, found.ok_or_else(|| defect(Code::INVALID_VALUE, format!("{address:#x} is not page-locked")))?)?;
    }

    fn cuPointerGetAttribute(value: *mut c_void, attribute: c_int, address: u64) Init |call| {
        call.context()?;
        let on_device = call.memory.find(address, 1).ok().map(|(found, at)| (found, address - at as u64));
        let on_host = call.pinned.at(address);
        // Programs may ask about any pointer.
        if on_device.is_none() && on_host.is_none() {
            return Err(Code::INVALID_VALUE.into());
        }
        let extent = on_device.as_ref().map(|(found, start)| (*start, found.bytes));
        let (start, bytes) = extent.or(on_host.map(|(start, pinned)| (start, pinned.bytes))).expect("one is there");
        match (attribute, on_device) {
            (1, Some((found, _))) => put(value.cast(), found.context)?,
            (2, found) => put(value.cast(), if found.is_some() { DEVICE } else { HOST })?,
            (3 | 4, None) => put(value.cast(), address)?,
            (3, Some(_)) => put(value.cast(), address)?,
            (9, Some((found, _))) => put(value.cast(), found.device)?,
            (11, _) => put(value.cast(), start)?,
            (12, _) => put(value.cast(), bytes)?,
            _ => return Err(Code::INVALID_VALUE.into()),
        }
    }
}
