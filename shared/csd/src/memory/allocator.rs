//! The allocator of the programs: the system's, but that a refusal ends the program with a sentence.
//!
//! Large allocations are fallible: whoever makes one handles its refusal. Small ones are everywhere, in libraries too, and
//! Rust ends a process by SIGABRT when one is refused.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};

/// Most bytes of an allocation whose refusal ends the program. The caller of a larger one handles it.
const SMALL_BYTES: usize = 64 << 20;

/// The exit status of a program that is refused memory.
const EXIT_STATUS: i32 = 1;

const SAID: &[u8] =
    b"error: the system refuses memory that this program cannot do without: raise the limit (ulimit -v, \
ulimit -d, or that of the control group), or use fewer threads, smaller batches, fewer buffers or fewer result slots\n";

/// To be made the `#[global_allocator]` of a program.
#[derive(Debug)]
pub struct Allocator;

// SAFETY: each call goes to the system's allocator, whose answer is returned as it is.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: what holds for the caller of this function holds for this call.
        checked(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        checked(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: as above.
        checked(unsafe { System.realloc(block, layout, bytes) }, bytes)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

#[inline]
fn checked(block: *mut u8, bytes: usize) -> *mut u8 {
    if block.is_null() && bytes <= SMALL_BYTES {
        end();
    }
    block
}

#[cold]
fn end() -> ! {
    // SAFETY: both take no memory; the text lives as long as the program.
    unsafe {
        libc::write(libc::STDERR_FILENO, SAID.as_ptr().cast(), SAID.len());
        libc::_exit(EXIT_STATUS)
    }
}

/// Lets all threads of a program share the arenas of its first one where what it maps is limited. glibc reserves 64 MiB of
/// address space for the arena of each thread. To be called before the program starts threads.
pub fn spare_address_space() {
    #[cfg(target_env = "gnu")]
    if !super::left_to_map().is_empty() {
        // SAFETY: it sets a number within the allocator, which no other thread uses yet.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    }
}
