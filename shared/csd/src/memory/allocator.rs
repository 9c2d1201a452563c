//! The programs' allocator: the system's, which also records whether the system has refused memory.
//!
//! Code that can do without an allocation handles the refusal itself. Anywhere else, in libraries too, Rust ends the
//! process by SIGABRT. If the signal follows a refusal that no code has handled, the program ends with a message and
//! exit status 1 instead.
//!
//! Only the stack tells whether a refusal has been handled: Rust may allocate again before it ends the process, for a
//! backtrace, but only deeper in the stack than the code that was refused. So a refusal counts until an allocation
//! succeeds that is no deeper in the stack.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The exit status of a program that is refused memory.
const EXIT_STATUS: i32 = 1;

const SAID: &[u8] =
    b"error: the system refuses memory that this program cannot do without: raise the limit (ulimit -v, \
ulimit -d, or that of the control group), or use fewer threads, smaller batches, fewer buffers or fewer result slots\n";

thread_local! {
    /// Where in the stack the system last refused memory to this thread, unless that was handled; 0 for nowhere.
    static REFUSED_AT: Cell<usize> = const { Cell::new(0) };
}

/// Allocator for a program's `#[global_allocator]`.
#[derive(Debug)]
pub struct Allocator;

// SAFETY: each call goes to the system's allocator, whose answer is returned as it is.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: what holds for the caller of this function holds for this call.
        checked(unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        checked(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: as above.
        checked(unsafe { System.realloc(block, layout, bytes) })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

#[inline]
fn checked(block: *mut u8) -> *mut u8 {
    if block.is_null() || REFUSED_AT.get() != 0 {
        note(block.is_null());
    }
    block
}

/// Records a refusal, or a success after one. Stacks grow downwards.
#[cold]
#[inline(never)]
fn note(is_refusal: bool) {
    let here = (&raw const is_refusal).addr();
    if is_refusal {
        REFUSED_AT.set(here);
    } else if here >= REFUSED_AT.get() {
        REFUSED_AT.set(0);
    }
}

/// Ends the program with a message if the system has refused memory to code that cannot do without, and otherwise lets
/// the signal end it.
extern "C" fn on_abort(_: libc::c_int) {
    if REFUSED_AT.get() != 0 {
        // SAFETY: both may be called in a signal handler; the text lives as long as the program.
        unsafe {
            libc::write(libc::STDERR_FILENO, SAID.as_ptr().cast(), SAID.len());
            libc::_exit(EXIT_STATUS)
        }
    }
    // SAFETY: both may be called in a signal handler. The signal is blocked here, so it ends the program as soon as the
    // handler returns.
    unsafe {
        libc::signal(libc::SIGABRT, libc::SIG_DFL);
        libc::raise(libc::SIGABRT);
    }
}

/// Prepares a program for refused memory. Call it before the program starts threads.
///
/// If an infallible allocation is refused, the program then ends with a message. Where address space is limited, all
/// threads share the first one's arena, since glibc reserves 64 MiB of address space for each arena.
pub fn set_up() {
    let on_abort: extern "C" fn(libc::c_int) = on_abort;
    // SAFETY: the handler calls only what a handler may call, and reads a variable of its thread that needs no
    // initialisation.
    unsafe { libc::signal(libc::SIGABRT, on_abort as libc::sighandler_t) };
    #[cfg(target_env = "gnu")]
    if !super::left_to_map().is_empty() {
        // SAFETY: it sets a number within the allocator, which no other thread uses yet.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    }
}
