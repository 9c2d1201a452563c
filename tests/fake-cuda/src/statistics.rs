//! Counts of what a program did with the driver.

/// Counts since the library was loaded. The stand-in's function `fakeCudaStatistics` fills it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Mistakes in the use of the driver; `fakeCudaDefect` has a sentence about each.
    pub defects: u64,
    /// Copies to a device whose host memory was not page-locked. A real driver would have copied it twice, and waited.
    pub pageable_to_device: u64,
    /// The same from a device.
    pub pageable_to_host: u64,
    /// Operations that ran on streams.
    pub operations: u64,
    /// Copies to devices that were queued.
    pub copies_to_device: u64,
    /// Their bytes.
    pub bytes_to_device: u64,
    /// Copies to host memory that were queued.
    pub copies_to_host: u64,
    /// Kernels that were queued.
    pub launches: u64,
    /// Calls of cuMemFree that had to wait for queued work.
    pub frees_that_waited: u64,
    /// Calls in a child process of the one that called cuInit.
    pub calls_in_children: u64,
    /// Allocations of device memory that are not freed.
    pub live_allocations: u64,
    /// Their bytes.
    pub live_bytes: u64,
    /// The most bytes of device memory that were allocated at once.
    pub peak_bytes: u64,
    /// Page-locked host memory that is neither freed nor unregistered: pieces.
    pub live_pinned: u64,
    /// Its bytes.
    pub live_pinned_bytes: u64,
    /// Streams that are not destroyed.
    pub live_streams: u64,
    /// Events that are not destroyed.
    pub live_events: u64,
    /// Modules that are not unloaded.
    pub live_modules: u64,
    /// Times that a primary context was retained, less those that it was released.
    pub live_retains: u64,
    /// Allocations, streams, events and modules that were alive when the program released their context.
    pub left_to_release: u64,
    /// Operations that are queued and have not run.
    pub queued: u64,
}

impl Statistics {
    /// Returns whether the program gave back all that it made, unless an error ended the context.
    pub fn is_clean(&self) -> bool {
        let live = [self.live_allocations, self.live_pinned, self.live_streams, self.live_events, self.live_modules];
        live.iter().sum::<u64>() + self.live_retains + self.left_to_release == 0
    }
}
