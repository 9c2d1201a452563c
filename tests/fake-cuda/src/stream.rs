//! Streams and what is queued on them.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crate::order::Clock;
use crate::twin::Kernel;

/// A point in a stream that an event recorded.
#[derive(Debug, Default)]
pub(crate) struct Mark(OnceLock<(Instant, Clock)>);

impl Mark {
    pub fn has_passed(&self) -> bool {
        self.0.get().is_some()
    }

    /// Passes it. `clock` tells what has run before.
    pub fn pass(&self, clock: &Clock) {
        let _ = self.0.set((Instant::now(), clock.clone()));
    }

    /// Returns when it was passed.
    pub fn time(&self) -> Option<Instant> {
        self.0.get().map(|(time, _)| *time)
    }

    /// Returns what has run before, once it was passed.
    pub fn clock(&self) -> Option<&Clock> {
        self.0.get().map(|(_, clock)| clock)
    }
}

/// An event.
pub(crate) struct Event {
    pub context: u64,
    pub flags: u32,
    /// Its last recording; `None` if it was never recorded, or in a capture.
    pub mark: Option<Arc<Mark>>,
    /// Whether it was last recorded in a capture: it is a part of a graph, and no work that runs.
    pub is_captured: bool,
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
    /// What the host knew to have run when it queued the operation.
    pub after: Clock,
    pub work: Work,
}

/// A stream.
pub(crate) struct Stream {
    pub context: u64,
    /// Whether the legacy default stream and this one wait for each other.
    pub is_blocking: bool,
    pub queue: VecDeque<Operation>,
    /// What has surely run before the stream's next operation.
    pub clock: Clock,
    /// Whether the program destroyed it. What is queued still runs.
    pub is_destroyed: bool,
    /// Whether a program made it, by cuStreamCreate.
    pub is_made: bool,
    pub capture: Option<Capture>,
}

/// A capture of a stream's work in a graph.
pub(crate) struct Capture {
    /// Number of the thread that began it.
    pub thread: u64,
    /// As cuStreamBeginCapture numbers modes: 0 global, 1 of the thread, 2 relaxed.
    pub mode: i32,
    pub is_valid: bool,
}

impl Stream {
    pub fn new(context: u64, is_blocking: bool, is_made: bool) -> Self {
        Self {
            context,
            is_blocking,
            queue: VecDeque::new(),
            clock: Clock::default(),
            is_destroyed: false,
            is_made,
            capture: None,
        }
    }
}
