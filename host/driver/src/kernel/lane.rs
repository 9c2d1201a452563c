//! Carries passthrough commands: by io_uring, many in flight from one thread, or by threads that each wait in an ioctl.
//!
//! A command's buffer belongs to the lane until the command is over, because the kernel may read or write the memory
//! until then. A lane that is dropped with commands in flight leaves them and their buffers to a thread that ends with
//! the last of them.

use super::association::{KernelAssociation, SystemCall};
use super::passthrough;
use super::request::{Answered, Data, Request};
use super::ring::Ring;
use crate::contract::Completion;
use crate::error::DriverError;
use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Interval at which a thread that waits for a command checks whether the association was closed.
const CLOSED_LOOK: Duration = Duration::from_millis(50);

/// A command that is over, in the contract's terms.
pub(super) struct FinishedCommand {
    pub(super) tag: u64,
    pub(super) completion: Result<Completion, DriverError>,
    pub(super) data: Data,
}

/// Carrier of the commands of an association.
pub(super) struct Lane {
    association: Arc<KernelAssociation>,
    carrier: Carrier,
}

enum Carrier {
    Ring(Box<Ring>),
    Threads(IoctlThreads),
}

impl Lane {
    /// Opens a lane with room for `commands` in flight.
    pub(super) fn open(association: Arc<KernelAssociation>, commands: usize) -> Result<Self, DriverError> {
        let carrier = match association.call() {
            SystemCall::Ioctl => Carrier::Threads(IoctlThreads::new()),
            SystemCall::IoUring => Carrier::Ring(Box::new(Ring::new(commands).map_err(|error| {
                DriverError::Invalid(format!("{}: no io_uring for passthrough: {error}", association.peer()))
            })?)),
        };
        Ok(Self { association, carrier })
    }

    /// Starts a command.
    pub(super) fn start(&mut self, request: Request) -> Result<(), DriverError> {
        self.association.check()?;
        let started = match &mut self.carrier {
            Carrier::Ring(ring) => ring.start(request),
            Carrier::Threads(threads) => threads.start(request),
        };
        started.map_err(|error| self.association.lose(format!("a command could not be sent: {error}")))
    }

    /// Returns the next command that is over, or `None` at `until`. Returns an error if the association is closed
    /// meanwhile.
    pub(super) fn next(&mut self, until: Instant) -> Result<Option<FinishedCommand>, DriverError> {
        loop {
            self.association.check()?;
            let slice = until.min(Instant::now() + CLOSED_LOOK);
            let ended = match &mut self.carrier {
                Carrier::Ring(ring) => ring.next(slice),
                Carrier::Threads(threads) => Ok(threads.next(slice)),
            };
            match ended.map_err(|error| self.association.lose(format!("waiting failed: {error}")))? {
                Some((request, outcome)) => {
                    let completion = self.association.judge(outcome, &request);
                    return Ok(Some(FinishedCommand { tag: request.tag, completion, data: request.into_data() }));
                }
                None if slice == until => return Ok(None),
                None => {}
            }
        }
    }
}

/// Threads that each run one command at a time; there are as many as the most commands in flight so far.
struct IoctlThreads {
    requests: (Sender<Request>, Receiver<Request>),
    ended: (Sender<Answered>, Receiver<Answered>),
    in_flight: usize,
    threads: usize,
}

impl IoctlThreads {
    fn new() -> Self {
        Self { requests: unbounded(), ended: unbounded(), in_flight: 0, threads: 0 }
    }

    fn start(&mut self, request: Request) -> io::Result<()> {
        if self.in_flight == self.threads {
            let (requests, ended) = (self.requests.1.clone(), self.ended.0.clone());
            let thread = std::thread::Builder::new().name("nvme-passthrough".into());
            thread.spawn(move || work(&requests, &ended))?;
            self.threads += 1;
        }
        // Sending cannot fail, as this side holds a receiver, too.
        if self.requests.0.send(request).is_ok() {
            self.in_flight += 1;
        }
        Ok(())
    }

    fn next(&mut self, until: Instant) -> Option<Answered> {
        match self.ended.1.recv_deadline(until) {
            Ok(ended) => {
                self.in_flight -= 1;
                Some(ended)
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => None,
        }
    }
}

/// Runs commands on a thread until the lane is gone.
fn work(requests: &Receiver<Request>, ended: &Sender<Answered>) {
    while let Ok(mut request) = requests.recv() {
        let outcome = passthrough::run(&mut request);
        if ended.send((request, outcome)).is_err() {
            return;
        }
    }
}
