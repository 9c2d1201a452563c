//! The path to a drive that alone holds the dataset: an association and its queues, which the threads that read share.

use super::{DriveBlocks, READ_WITHIN};
use ddlp_csd::DATASET_NSID;
use ddlp_dataset::SilenceWatch;
use ddlp_driver::namespace::{self, BlockGeometry};
use ddlp_driver::tcp::Closer;
use ddlp_driver::{Backoff, BackoffLimits, Controller, DriverError, Queue};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest time without a path to the drive before reads fail.
pub const LOST_MAX: Duration = Duration::from_secs(60);
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
    /// When a thread may connect next, the pauses between attempts, and why the last attempt failed.
    next_attempt: Instant,
    pauses: Backoff,
    pub failure: Option<DriverError>,
    /// How long reads have waited for any answer.
    pub silence: SilenceWatch,
    /// When a read first found the path lost, until the drive answers a read: it may answer each attempt to connect,
    /// and then break off.
    lost_since: Option<Instant>,
    /// Number of times that all waits were interrupted.
    interrupts: u64,
}

/// A queue that a thread uses, and the number of its association.
pub(super) struct Taken {
    pub queue: Box<dyn Queue>,
    pub session: u64,
}

/// A read that waits for a queue.
pub(super) struct Wait {
    /// Interrupts of all waits before it began.
    interrupts: u64,
    until: Instant,
}

impl DriveBlocks {
    /// Connects to the drive and asks for its blocks: it may have come back with another dataset.
    fn connect(&self) -> Result<(Arc<dyn Controller>, BlockGeometry), DriverError> {
        let controller = self.endpoint.connect(|closer| self.path().attempt = Some(closer))?;
        let geometry = namespace::geometry(&*controller, DATASET_NSID, READ_WITHIN)?;
        Ok((controller, geometry))
    }

    /// Takes a queue: an idle one, or a new one. Connects first if the path is lost.
    pub(super) fn take_queue(&self, wait: &Wait) -> io::Result<Taken> {
        let mut path = self.path();
        loop {
            if path.interrupts != wait.interrupts {
                // Another run may read the same dataset: it tries again.
                return Err(io::Error::from_raw_os_error(libc::EINTR));
            }
            // Whoever waits for another thread is woken by it.
            let mut again_at = Instant::now() + PAUSES.cap;
            match path.controller.clone() {
                Some(_) if path.geometry.block_bytes != self.block_bytes => {
                    return Err(blocks_changed(self.block_bytes, path.geometry.block_bytes));
                }
                Some(controller) => {
                    let session = path.session;
                    path.used += 1;
                    if let Some(queue) = path.idle.pop() {
                        return Ok(Taken { queue, session });
                    }
                    drop(path);
                    let opened = controller.open_queue(0);
                    path = self.path();
                    if path.session != session || path.controller.is_none() {
                        continue;
                    }
                    match opened {
                        Ok(queue) => return Ok(Taken { queue, session }),
                        Err(error) => {
                            path.used -= 1;
                            // Otherwise the drive has no more queues for this host, and a thread will give one back.
                            if error.ends_association() || (path.used == 0 && path.idle.is_empty()) {
                                path.lose(session);
                                path.retry_later(error);
                                self.changed.notify_all();
                                continue;
                            }
                            if !path.idle.is_empty() {
                                continue;
                            }
                        }
                    }
                }
                None if path.is_connecting => {}
                None if Instant::now() < path.next_attempt => again_at = path.next_attempt,
                None => {
                    path.is_connecting = true;
                    drop(path);
                    let connected = self.connect();
                    path = self.path();
                    (path.is_connecting, path.attempt) = (false, None);
                    match connected {
                        Ok((controller, geometry)) => {
                            (path.controller, path.geometry) = (Some(controller), geometry);
                            path.session += 1;
                            (path.pauses, path.failure) = (Backoff::new(PAUSES, 0), None);
                        }
                        Err(error) => path.retry_later(error),
                    }
                    self.changed.notify_all();
                    continue;
                }
            }
            let now = Instant::now();
            let is_lost = path.controller.is_none();
            let until = if is_lost { wait.until.min(give_up_at(&mut path.lost_since, now)) } else { wait.until };
            if now >= until {
                path.silence.gave_up();
                return Err(path_lost(path.failure.as_ref()));
            }
            let pause = again_at.min(until).saturating_duration_since(now);
            path = self.changed.wait_timeout(path, pause).expect("no panic while the path is locked").0;
        }
    }

    pub(super) fn put_back(&self, taken: Taken) {
        let mut path = self.path();
        path.lost_since = None;
        path.silence.answered();
        if path.session == taken.session && path.controller.is_some() {
            path.used -= 1;
            path.idle.push(taken.queue);
            self.changed.notify_one();
        }
    }

    /// Records that an association ended.
    pub(super) fn lose(&self, session: u64, error: DriverError) {
        tracing::debug!(%error, "the path to the drive that holds the dataset is lost");
        let mut path = self.path();
        if path.lose(session) {
            path.failure = Some(error);
        }
        drop(path);
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
            silence: SilenceWatch::new(Instant::now()),
            lost_since: None,
            interrupts: 0,
        }
    }

    /// Returns the wait of a read that begins now, whose bytes may take the time `allowed`. Tell `silence` when the
    /// read ends.
    pub fn begin_wait(&mut self, allowed: Duration) -> Wait {
        let now = Instant::now();
        self.silence.begin(now, allowed);
        Wait { interrupts: self.interrupts, until: now + LOST_MAX }
    }

    /// Ends all waits that have begun, and the association with them.
    pub fn interrupt(&mut self) {
        self.interrupts += 1;
        if let Some(controller) = &self.controller {
            controller.close();
        }
        if let Some(attempt) = &self.attempt {
            attempt.close();
        }
    }

    /// Keeps all threads from connecting for a while.
    fn retry_later(&mut self, failure: DriverError) {
        self.next_attempt = Instant::now() + self.pauses.next_delay().unwrap_or(PAUSES.cap);
        self.failure = Some(failure);
    }

    /// Forgets an association, if it is the current one.
    fn lose(&mut self, session: u64) -> bool {
        let is_current = self.session == session;
        if is_current {
            self.controller = None;
            self.idle.clear();
            self.used = 0;
            // The drive may answer each attempt and then fail at once.
            self.next_attempt = Instant::now() + PAUSES.first;
        }
        is_current
    }
}

/// Returns when reads give up a lost path. Reads in quick succession share one deadline, since several reads may
/// concern the same sample; a much later read gets a new one.
fn give_up_at(lost_since: &mut Option<Instant>, now: Instant) -> Instant {
    let since = lost_since.filter(|since| now < *since + 2 * LOST_MAX).unwrap_or(now);
    *lost_since = Some(since);
    since + LOST_MAX
}

/// Returns the error of a read when the drive came back with blocks of another size.
fn blocks_changed(opened: u32, now: u32) -> io::Error {
    io::Error::other(format!("the drive's blocks had {opened} bytes, and have {now} now: start the run again"))
}

/// Returns the error of a read when there has been no path to the drive for too long.
fn path_lost(error: Option<&DriverError>) -> io::Error {
    let reason = error.map(|error| format!(": {}", error.reason())).unwrap_or_default();
    io::Error::other(format!("there was no path to the drive for {LOST_MAX:?}{reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_that_follow_upon_one_another_share_their_patience() {
        let (mut lost_since, lost) = (None, Instant::now());
        for (after, expected) in [(0, 1), (30, 1), (59, 1), (61, 1), (119, 1), (120, 3), (150, 3)] {
            let until = give_up_at(&mut lost_since, lost + Duration::from_secs(after));
            assert_eq!(until, lost + expected * LOST_MAX, "after {after} s");
        }
    }
}
