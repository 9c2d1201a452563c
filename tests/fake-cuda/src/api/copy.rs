//! Copies and fills. They check all addresses when they are queued.

use super::driver_functions;
use crate::code::{Code, Failure};
use crate::memory::{Lock, poison};
use crate::session::Session;
use crate::stream::Work;

/// Checks that an extent lies in device memory of the current context's device.
fn check_device(call: &Session, address: u64, bytes: u64) -> Result<(), Failure> {
    let context = call.context()?;
    let (found, _) =
        call.memory.find(address, bytes).map_err(|sentence| Failure::defect(Code::INVALID_VALUE, sentence))?;
    if found.device != call.contexts[&context].device {
        return Err(Failure::defect(Code::INVALID_VALUE, format!("{address:#x} lies on another device")));
    }
    Ok(())
}

/// Returns whether host memory is page-locked.
fn is_pinned(call: &Session, address: u64, bytes: u64) -> Result<bool, Failure> {
    let invalid = |sentence: &str| Failure::defect(Code::INVALID_VALUE, format!("{address:#x}: {sentence}"));
    if address == 0 || call.memory.owns(address) {
        return Err(invalid("is no address of the host"));
    }
    match call.pinned.lock(address, bytes) {
        Lock::Pinned => Ok(true),
        Lock::Pageable => Ok(false),
        Lock::Partly => Err(invalid("only a part of the bytes is page-locked, or they lie in several pieces")),
    }
}

fn to_device(call: &mut Session, stream: u64, to: u64, from: u64, bytes: u64) -> Result<(), Failure> {
    if bytes == 0 {
        return Ok(());
    }
    check_device(call, to, bytes)?;
    let work = if is_pinned(call, from, bytes)? {
        Work::ToDevice { from, to, bytes, is_source_lost: false }
    } else {
        call.statistics.pageable_to_device += 1;
        // SAFETY: the program gives that many bytes of its memory.
        let from = unsafe { std::slice::from_raw_parts(from as *const u8, bytes as usize) }.to_vec();
        Work::StagedToDevice { from, to }
    };
    call.statistics.copies_to_device += 1;
    call.statistics.bytes_to_device += bytes;
    call.queue(stream, work);
    Ok(())
}

/// Queues a copy to the host. Returns whether the host's memory is page-locked; else the call has to wait.
fn to_host(call: &mut Session, stream: u64, to: u64, from: u64, bytes: u64) -> Result<bool, Failure> {
    if bytes == 0 {
        return Ok(true);
    }
    check_device(call, from, bytes)?;
    let is_pinned = is_pinned(call, to, bytes)?;
    if !is_pinned {
        call.statistics.pageable_to_host += 1;
    }
    // Whoever reads it before the copy has run gets bytes that nobody wrote.
    let value = poison(&mut call.random);
    // SAFETY: the program gives that many bytes of its memory, which the driver may write from now on.
    unsafe { std::ptr::write_bytes(to as *mut u8, value, bytes as usize) };
    call.statistics.copies_to_host += 1;
    call.queue(stream, Work::ToHost { from, to, bytes, is_target_lost: false });
    Ok(is_pinned)
}

fn wait(call: &mut Session, stream: u64) -> Result<(), Failure> {
    let context = call.context()?;
    let mark = call.queue_mark(stream);
    call.wait_for(context, &mark)
}

driver_functions! {
    fn cuMemcpyHtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: u64) Init |call| {
        let stream = call.stream(stream)?;
        to_device(call, stream, to, from, bytes as u64)?;
    }

    fn cuMemcpyHtoD_v2(to: u64, from: u64, bytes: usize) Init |call| {
        let stream = call.stream(0)?;
        call.check_capture()?;
        to_device(call, stream, to, from, bytes as u64)?;
        wait(call, stream)?;
    }

    fn cuMemcpyDtoHAsync_v2(to: u64, from: u64, bytes: usize, stream: u64) Init |call| {
        let stream = call.stream(stream)?;
        if !to_host(call, stream, to, from, bytes as u64)? {
            wait(call, stream)?;
        }
    }

    fn cuMemcpyDtoH_v2(to: u64, from: u64, bytes: usize) Init |call| {
        let stream = call.stream(0)?;
        call.check_capture()?;
        to_host(call, stream, to, from, bytes as u64)?;
        wait(call, stream)?;
    }

    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: u64) Init |call| {
        let stream = call.stream(stream)?;
        if bytes > 0 {
            check_device(call, to, bytes as u64)?;
            check_device(call, from, bytes as u64)?;
            if from < to + bytes as u64 && to < from + bytes as u64 {
                return Err(Failure::defect(Code::INVALID_VALUE, "source and target of a copy overlap"));
            }
            call.queue(stream, Work::OnDevice { from, to, bytes: bytes as u64 });
        }
    }

    fn cuMemsetD8Async(to: u64, value: u8, bytes: usize, stream: u64) Init |call| {
        let stream = call.stream(stream)?;
        if bytes > 0 {
            check_device(call, to, bytes as u64)?;
            call.queue(stream, Work::Fill { to, bytes: bytes as u64, value });
        }
    }
}
