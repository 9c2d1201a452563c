//! The path to a drive that alone holds the dataset: an association and its queues, which the threads that read share.

use super::{DriveBlocks, READ_WITHIN};
use ddlp_cause::with_causes;
use ddlp_csd::DATASET_NSID;
use ddlp_dataset::{Backoff, BackoffLimits};
use ddlp_driver::namespace::{self, BlockGeometry};
use ddlp_driver::tcp::Closer;
use ddlp_driver::{Controller, DriverError, Queue};
use ddlp_stores::PathClock;
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{io, mem};

/// Pauses between attempts to reach the drive.
const PAUSES: BackoffLimits =
    BackoffLimits { first: Duration::from_millis(50), cap: Duration::from_secs(1), attempts_max: u32::MAX };

/// The path to the drive.
pub(super) struct DrivePath {
    /// The association, unless the path is lost.
    controller: Option<Arc<dyn Controller>>,
    /// Queues of the association that no thread uses.
    idle: Vec<Box<dyn Queue>>,
    /// Number of queues of the association that threads use.
    used: usize,
    /// Number of the association.
    pub session: u64,
    /// The blocks that the drive had when the path was found last.
    pub geometry: BlockGeometry,
    is_connecting: bool,
    /// Ends the attempt to connect that is under way.
    attempt: Option<Closer>,
    /// Earliest time to connect or to open a queue.
    next_attempt: Instant,
    /// Pauses between attempts to connect.
    pauses: Backoff,
    /// Why the last attempt, or the association, failed.
    pub failure: Option<DriverError>,
    /// How long reads have waited for any answer, and when they give up. The drive may answer each attempt to connect,
    /// and then break off: only the answer to a read counts.
    pub clock: PathClock,
    /// Number of times that all waits were interrupted.
    interrupts: u64,
}

/// An association that is over. Dropping it may wait for the drive: the path must not be locked then.
type EndedAssociation = (Vec<Box<dyn Queue>>, Option<Arc<dyn Controller>>);

/// A queue that a thread uses, and the number of its association.
pub(super) struct Taken {
    pub queue: Box<dyn Queue>,
    session: u64,
}

/// A read that waits for its answer, from its beginning until this is dropped.
pub(super) struct Wait<'b> {
    blocks: &'b DriveBlocks,
    /// Interrupts of all waits before it began.
    interrupts: u64,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        // After a panic under the lock, nothing is measured any more.
        if let Ok(mut path) = self.blocks.path.lock() {
            path.clock.end(Instant::now());
        }
    }
}

/// What a thread that needs a queue does next.
enum Step {
    /// It uses this queue.
    Use(Taken),
    /// It opens a queue of this association.
    Open(Arc<dyn Controller>, u64),
    /// It connects to the drive.
    Connect,
    /// It waits for another thread, or for the end of this pause.
    Pause(Duration),
}

impl DriveBlocks {
    /// Begins the wait of a read, whose bytes may take the time `allowed`.
    pub(super) fn begin_wait(&self, allowed: Duration) -> Wait<'_> {
        let mut path = self.path();
        path.clock.begin(Instant::now(), allowed);
        Wait { blocks: self, interrupts: path.interrupts }
    }

    /// Connects to the drive and asks for its blocks: it may have come back with another dataset. Gives up after the
    /// time `within`.
    fn connect(&self, within: Duration) -> Result<(Arc<dyn Controller>, BlockGeometry), DriverError> {
        let until = Instant::now() + within;
        let controller = self.endpoint.connect(within, |closer| self.path().attempt = Some(closer))?;
        let left = until.saturating_duration_since(Instant::now());
        let geometry = namespace::geometry(&*controller, DATASET_NSID, left.min(READ_WITHIN))?;
        Ok((controller, geometry))
    }

    /// Takes a queue: an idle one, or a new one. Connects first if the path is lost. Returns also the time until the
    /// read gives up.
    pub(super) fn take_queue(&self, wait: &Wait<'_>) -> io::Result<(Taken, Duration)> {
        loop {
            let (mut path, now) = (self.path(), Instant::now());
            if path.interrupts != wait.interrupts {
                // Another run may read the same dataset: it tries again.
                return Err(io::Error::from_raw_os_error(libc::EINTR));
            }
            let left = path.clock.remaining(now);
            if left.is_zero() {
                path.clock.give_up(now);
                self.changed.notify_all();
                return Err(no_answer(path.clock.patience(), path.failure.as_ref()));
            }
            if path.controller.is_some() && path.geometry.block_bytes != self.block_bytes {
                return Err(blocks_changed(self.block_bytes, path.geometry.block_bytes));
            }
            match path.next_step(now) {
                Step::Use(taken) => return Ok((taken, left)),
                Step::Pause(pause) => {
                    drop(self.changed.wait_timeout(path, pause.min(left)).expect("no panic while the path is locked"));
                }
                Step::Open(controller, session) => {
                    drop(path);
                    let opened = controller.open_queue(0);
                    let ended = self.path().opened(session, opened);
                    drop(ended);
                    self.changed.notify_all();
                }
                Step::Connect => {
                    drop(path);
                    let connected = self.connect(left);
                    self.path().connected(connected);
                    self.changed.notify_all();
                }
            }
        }
    }

    /// Gives back a queue whose association goes on.
    pub(super) fn put_back(&self, taken: Taken) {
        let mut path = self.path();
        if path.session == taken.session && path.controller.is_some() {
            path.used -= 1;
            path.idle.push(taken.queue);
            self.changed.notify_one();
        }
    }

    /// Records that the association of a queue ended.
    pub(super) fn lose(&self, taken: Taken, error: DriverError) {
        tracing::debug!(error = &error as &dyn Error, "the path to the drive that holds the dataset is lost");
        let mut path = self.path();
        let ended = path.lose(taken.session);
        if ended.is_some() {
            path.failure = Some(error);
        }
        drop(path);
        drop(ended);
        self.changed.notify_all();
    }
}

impl DrivePath {
    /// Creates a path that was found.
    pub fn new(controller: Arc<dyn Controller>, geometry: BlockGeometry) -> Self {
        Self {
            controller: Some(controller),
            idle: Vec::new(),
            used: 0,
            session: 0,
            geometry,
            is_connecting: false,
            attempt: None,
            next_attempt: Instant::now(),
            pauses: Backoff::new(PAUSES, 0),
            failure: None,
            clock: PathClock::new(Instant::now()),
            interrupts: 0,
        }
    }

    /// Ends all waits that have begun, and the association with them. Reads that begin from now on have their full
    /// time, since they may be another run's.
    pub fn interrupt(&mut self) {
        self.interrupts += 1;
        self.clock.forget_giving_up();
        if let Some(controller) = &self.controller {
            controller.close();
        }
        if let Some(attempt) = &self.attempt {
            attempt.close();
        }
    }

    /// Decides what a thread that needs a queue does next.
    fn next_step(&mut self, now: Instant) -> Step {
        let pause = self.next_attempt.saturating_duration_since(now);
        let Some(controller) = &self.controller else {
            if self.is_connecting {
                // The thread that connects wakes the others.
                return Step::Pause(PAUSES.cap);
            }
            if !pause.is_zero() {
                return Step::Pause(pause);
            }
            self.is_connecting = true;
            return Step::Connect;
        };
        if let Some(queue) = self.idle.pop() {
            self.used += 1;
            return Step::Use(Taken { queue, session: self.session });
        }
        if !pause.is_zero() {
            return Step::Pause(pause);
        }
        self.used += 1;
        Step::Open(controller.clone(), self.session)
    }

    /// Records the end of an attempt to connect.
    fn connected(&mut self, connected: Result<(Arc<dyn Controller>, BlockGeometry), DriverError>) {
        (self.is_connecting, self.attempt) = (false, None);
        match connected {
            Ok((controller, geometry)) => {
                (self.controller, self.geometry) = (Some(controller), geometry);
                self.session += 1;
                (self.pauses, self.failure) = (Backoff::new(PAUSES, 0), None);
            }
            Err(error) => self.retry_later(error),
        }
    }

    /// Records the end of an attempt to open a queue of an association, which is then idle. Returns the association if
    /// it is over.
    fn opened(&mut self, session: u64, opened: Result<Box<dyn Queue>, DriverError>) -> Option<EndedAssociation> {
        if self.session != session || self.controller.is_none() {
            return None;
        }
        self.used -= 1;
        match opened {
            Ok(queue) => self.idle.push(queue),
            Err(error) if error.ends_association() || (self.used == 0 && self.idle.is_empty()) => {
                let ended = self.lose(session);
                self.retry_later(error);
                return ended;
            }
            // The drive has no more queues for this host: another thread will give one back.
            Err(_) => self.next_attempt = Instant::now() + PAUSES.cap,
        }
        None
    }

    /// Keeps all threads from connecting for a while.
    fn retry_later(&mut self, failure: DriverError) {
        self.next_attempt = Instant::now() + self.pauses.next_delay().unwrap_or(PAUSES.cap);
        self.failure = Some(failure);
    }

    /// Forgets an association, and returns it if it was the current one.
    fn lose(&mut self, session: u64) -> Option<EndedAssociation> {
        if self.session != session {
            return None;
        }
        self.used = 0;
        // The drive may answer each attempt and then fail at once.
        self.next_attempt = Instant::now() + PAUSES.first;
        Some((mem::take(&mut self.idle), self.controller.take()))
    }
}

/// Returns the error of a read when the drive came back with blocks of another size.
fn blocks_changed(opened: u32, now: u32) -> io::Error {
    io::Error::other(format!(
        "the size of the drive's blocks changed from {opened} to {now} bytes: start the run again"
    ))
}

/// Returns the error of a read when the drive has not answered for too long.
fn no_answer(patience: Duration, last: Option<&DriverError>) -> io::Error {
    let failure = last.map(|error| format!(" (last failure: {})", with_causes(&*error.cause()))).unwrap_or_default();
    let what = format!(
        "the drive has not answered for {} s{failure}; check that its agent runs and that the network is up",
        patience.as_secs()
    );
    io::Error::new(io::ErrorKind::TimedOut, what)
}
