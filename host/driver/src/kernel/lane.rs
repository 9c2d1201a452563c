//! How passthrough commands travel: by io_uring, many in flight from one thread, or by threads that each wait in an ioctl.
//!
//! A command's buffer belongs to the lane until the command is over. A lane that is dropped with commands in flight leaves them and
//! their buffers to a thread that ends with the last of them: the kernel may read or write the memory until then.

use super::passthrough::{Data, Kind, Outcome, run};
use super::ring::Ring;
use crate::contract::Command;
use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A command on its way.
pub(super) struct Request {
    pub(super) tag: u64,
    pub(super) node: Arc<File>,
    pub(super) command: Command,
    pub(super) data: Data,
    /// When the kernel gives up.
    pub(super) within: Duration,
}

/// A command that is over.
pub(super) struct Finished {
    pub(super) tag: u64,
    pub(super) outcome: Outcome,
    pub(super) data: Data,
}

/// A way for commands.
pub(super) enum Lane {
    Ring(Box<Ring>),
    Threads(Threads),
}

impl Lane {
    /// Sends a command on its way.
    pub(super) fn start(&mut self, request: Request) -> std::io::Result<()> {
        match self {
            Self::Ring(ring) => ring.start(request),
            Self::Threads(threads) => threads.start(request),
        }
    }

    /// The next command that is over, or nothing by `until`.
    pub(super) fn next(&mut self, until: Instant) -> std::io::Result<Option<Finished>> {
        match self {
            Self::Ring(ring) => ring.next(until),
            Self::Threads(threads) => threads.next(until),
        }
    }
}

/// Threads that run one command each at a time; there are as many as commands were in flight at most.
pub(super) struct Threads {
    kind: Kind,
    requests: (Sender<Request>, Receiver<Request>),
    finished: (Sender<Finished>, Receiver<Finished>),
    in_flight: usize,
    threads: usize,
}

impl Threads {
    pub(super) fn new(kind: Kind) -> Self {
        Self { kind, requests: unbounded(), finished: unbounded(), in_flight: 0, threads: 0 }
    }

    fn start(&mut self, request: Request) -> std::io::Result<()> {
        if self.in_flight == self.threads {
            let (kind, requests, finished) = (self.kind, self.requests.1.clone(), self.finished.0.clone());
            let thread = std::thread::Builder::new().name("nvme-passthrough".into());
            thread.spawn(move || work(kind, &requests, &finished))?;
            self.threads += 1;
        }
        // This side holds a receiver as well.
        if self.requests.0.send(request).is_ok() {
            self.in_flight += 1;
        }
        Ok(())
    }

    fn next(&mut self, until: Instant) -> std::io::Result<Option<Finished>> {
        match self.finished.1.recv_deadline(until) {
            Ok(finished) => {
                self.in_flight -= 1;
                Ok(Some(finished))
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Ok(None),
        }
    }
}

/// A thread: ends when its lane is gone.
fn work(kind: Kind, requests: &Receiver<Request>, finished: &Sender<Finished>) {
    while let Ok(Request { tag, node, command, mut data, within }) = requests.recv() {
        let outcome = run(kind, &node, &command, &mut data, within);
        if finished.send(Finished { tag, outcome, data }).is_err() {
            return;
        }
    }
}
