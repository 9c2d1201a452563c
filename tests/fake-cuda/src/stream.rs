//! Streams and what is queued on them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::twin::Kernel;

/// A point in a stream that an event recorded.
#[derive(Debug, Default)]
pub(crate) struct Mark {
    passed: AtomicBool,
    at: std::sync::OnceLock<Instant>,
}

impl Mark {
    pub fn has_passed(&self) -> bool {
        self.passed.load(Ordering::Acquire)
    }

    pub fn pass(&self) {
        let _ = self.at.set(Instant::now());
        self.passed.store(true, Ordering::Release);
    }

    /// Returns when it was passed.
    pub fn time(&self) -> Option<Instant> {
        self.at.get().copied()
    }
}

/// An event.
pub(crate) struct Event {
    pub context: u64,
    pub flags: u32,
    /// Its last recording; `None` if it was never recorded.
    pub mark: Option<Arc<Mark>>,
}

/// Work of a stream.
pub(crate) enum Work {
    /// Copies from page-locked host memory, which is read when the copy runs, piece by piece.
    ToDevice {
        from: u64,
        to: u64,
        bytes: u64,
        is_source_lost: bool,
    },
    /// Copies from what was read of pageable memory when the copy was queued.
    StagedToDevice {
        from: Vec<u8>,
        to: u64,
    },
    /// Copies to host memory.
    ToHost {
        from: u64,
        to: u64,
        bytes: u64,
        is_target_lost: bool,
    },
    OnDevice {
        from: u64,
        to: u64,
        bytes: u64,
    },
    Fill {
        to: u64,
        bytes: u64,
        value: u8,
    },
    Launch {
        kernel: &'static Kernel,
        dimensions: [[u32; 3]; 2],
        arguments: Vec<u64>,
    },
    Record(Arc<Mark>),
    Wait(Arc<Mark>),
}

/// Work in the order in which it was queued.
pub(crate) struct Operation {
    pub sequence: u64,
    pub work: Work,
}

/// A stream.
pub(crate) struct Stream {
    pub context: u64,
    /// Whether the legacy default stream and this one wait for each other.
    pub is_blocking: bool,
    pub queue: VecDeque<Operation>,
    /// Whether the program destroyed it. What is queued still runs.
    pub is_destroyed: bool,
    /// Whether a program made it, by cuStreamCreate.
    pub is_made: bool,
    pub capture: Option<Capture>,
}

/// A capture of a stream's work in a graph.
pub(crate) struct Capture {
    pub thread: std::thread::ThreadId,
    /// As cuStreamBeginCapture numbers modes: 0 global, 1 of the thread, 2 relaxed.
    pub mode: i32,
    pub is_valid: bool,
}

impl Stream {
    pub fn new(context: u64, is_blocking: bool, is_made: bool) -> Self {
        Self { context, is_blocking, queue: VecDeque::new(), is_destroyed: false, is_made, capture: None }
    }
}
