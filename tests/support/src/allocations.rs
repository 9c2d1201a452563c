//! A counting allocator. A test program that sets it as its `#[global_allocator]` can measure the allocations of its
//! threads.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Allocations of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocations {
    /// Number of allocations.
    pub count: usize,
    /// Bytes of the largest allocation.
    pub largest: usize,
    /// Bytes of all allocations together.
    pub bytes: usize,
}

thread_local! {
    static ALLOCATED: Cell<Allocations> = const { Cell::new(Allocations { count: 0, largest: 0, bytes: 0 }) };
}

/// Counts the allocations of `work` on this thread, in a program whose allocator is [`Counting`].
pub fn allocations_of(work: impl FnOnce()) -> Allocations {
    ALLOCATED.set(Allocations::default());
    work();
    ALLOCATED.get()
}

fn note(size: usize) {
    let Allocations { count, largest, bytes } = ALLOCATED.get();
    ALLOCATED.set(Allocations { count: count + 1, largest: largest.max(size), bytes: bytes + size });
}

/// The system's allocator, with counters.
pub struct Counting;

// SAFETY: every call is passed on to the system's allocator unchanged; counting touches a thread-local without a
// destructor and allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
