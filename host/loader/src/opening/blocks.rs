//! The blocks of a drive's dataset namespace, read over NVMe.
//!
//! Each thread that reads has a queue of its own while it reads. When the path to the drive is lost, one thread
//! connects again, and the others wait for it.

use crate::drive::{Endpoint, LinkError};
use crate::error::DriveError;
use ddlp_csd::DATASET_NSID;
use ddlp_dataset::FetchDepth;
use ddlp_dataset::pack::{Blocks, BlocksRead};
use ddlp_driver::namespace::{self, BlockGeometry};
use ddlp_driver::tcp::Closer;
use ddlp_driver::{Backoff, BackoffLimits, BlockRead, Controller, DriverError, Queue};
use ddlp_nvme::Status;
use std::cell::RefCell;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Longest wait for a small read, and for the commands that open an association.
const READ_WITHIN: Duration = Duration::from_secs(10);
/// A long read may take a second more for each of these bytes.
const BYTES_A_SECOND: usize = 1 << 20;
/// Largest buffer that a thread keeps after a read.
const KEPT_BYTES: usize = 1 << 20;
/// Longest time without a path to the drive before reads fail.
const PATIENCE: Duration = Duration::from_secs(60);
/// Threads that fetch, each by a queue of its own: their calls overlap.
const FETCH_THREADS: usize = 2;
/// Samples of one call, for which a thread sleeps once.
const FETCH_SAMPLES: usize = 8;
/// Pauses between attempts to reach the drive.
const PAUSES: BackoffLimits =
    BackoffLimits { first: Duration::from_millis(50), cap: Duration::from_secs(1), attempts_max: u32::MAX };

thread_local! {
    /// Whole blocks around the bytes that a thread reads.
    static WHOLE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The dataset namespace of a drive.
pub(super) struct DriveBlocks {
    endpoint: Endpoint,
    /// Bytes of one block.
    block_bytes: u32,
    path: Mutex<DrivePath>,
    /// A queue is free, or the path was found or given up.
    changed: Condvar,
}

/// The path to the drive.
struct DrivePath {
    /// The association, unless the path is lost.
    controller: Option<Arc<dyn Controller>>,
    /// Queues of the association that no thread uses.
    idle: Vec<Box<dyn Queue>>,
    /// Number of queues of the association that threads use.
    used: usize,
    /// Number of the association.
    session: u64,
    /// The blocks that the drive had when the path was found last.
    geometry: BlockGeometry,
    is_connecting: bool,
    /// Ends the attempt to connect that is under way.
    attempt: Option<Closer>,
    /// When a thread may connect next, the pauses between attempts, and why the last attempt failed.
    next_attempt: Instant,
    pauses: Backoff,
    failure: Option<DriverError>,
    /// When a read first found the path lost, until the drive answers a read: it may answer each attempt to connect,
    /// and then break off.
    lost_since: Option<Instant>,
    /// Number of times that all waits were interrupted.
    interrupts: u64,
}

/// A queue that a thread uses, and the number of its association.
struct Taken {
    queue: Box<dyn Queue>,
    session: u64,
}

impl DriveBlocks {
    /// Connects to a drive. The error says what to do.
    pub fn open(endpoint: Endpoint) -> Result<Self, DriveError> {
        let said = |error| endpoint.unusable(LinkError::Driver(error), "");
        let controller = endpoint.connect(|_| ()).map_err(said)?;
        let geometry = namespace::geometry(&*controller, DATASET_NSID, READ_WITHIN).map_err(said)?;
        let path = DrivePath {
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
            lost_since: None,
            interrupts: 0,
        };
        Ok(Self { endpoint, block_bytes: geometry.block_bytes, path: Mutex::new(path), changed: Condvar::new() })
    }

    fn path(&self) -> MutexGuard<'_, DrivePath> {
        self.path.lock().expect("no panic while the path is locked")
    }

    fn read_blocks(&self, reads: &mut [BlockRead<'_>]) -> io::Result<()> {
        let begun = self.path().interrupts;
        let until = Instant::now() + PATIENCE;
        let bytes: usize = reads.iter().map(|read| read.buf.len()).sum();
        let within = READ_WITHIN + Duration::from_secs((bytes / BYTES_A_SECOND) as u64);
        loop {
            let Taken { mut queue, session } = self.take_queue(begun, until)?;
            match queue.read_many(DATASET_NSID, reads, within) {
                Ok(()) => {
                    self.put_back(Taken { queue, session });
                    return Ok(());
                }
                Err(error @ DriverError::Status { .. }) => {
                    self.put_back(Taken { queue, session });
                    return Err(refused(error));
                }
                Err(error) if error.ends_association() => self.lose(session, error),
                Err(error) => {
                    self.put_back(Taken { queue, session });
                    return Err(io::Error::other(error));
                }
            }
        }
    }

    /// Returns the block with the byte at `offset`, and the number of bytes in front of that byte.
    fn block_of(&self, offset: u64) -> (u64, usize) {
        let block_bytes = u64::from(self.block_bytes);
        (offset / block_bytes, (offset % block_bytes) as usize)
    }

    /// Returns where in its memory a read puts whole blocks; `None` if there is no room for them.
    fn blocks_of(&self, read: &BlocksRead<'_>) -> Option<Range<usize>> {
        let (_, skipped) = self.block_of(read.offset);
        blocks_around(&read.place, skipped, self.block_bytes as usize).filter(|blocks| blocks.end <= read.memory.len())
    }

    /// Connects to the drive and asks for its blocks: it may have come back with another dataset.
    fn connect(&self) -> Result<(Arc<dyn Controller>, BlockGeometry), DriverError> {
        let controller = self.endpoint.connect(|closer| self.path().attempt = Some(closer))?;
        let geometry = namespace::geometry(&*controller, DATASET_NSID, READ_WITHIN)?;
        Ok((controller, geometry))
    }

    /// Takes a queue: an idle one, or a new one. Connects first if the path is lost.
    fn take_queue(&self, begun: u64, until: Instant) -> io::Result<Taken> {
        let mut path = self.path();
        loop {
            if path.interrupts != begun {
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
            let until = if is_lost { until.min(give_up_at(&mut path.lost_since, now)) } else { until };
            if now >= until {
                return Err(path_lost(path.failure.as_ref()));
            }
            let pause = again_at.min(until).saturating_duration_since(now);
            path = self.changed.wait_timeout(path, pause).expect("no panic while the path is locked").0;
        }
    }

    fn put_back(&self, taken: Taken) {
        let mut path = self.path();
        path.lost_since = None;
        if path.session == taken.session && path.controller.is_some() {
            path.used -= 1;
            path.idle.push(taken.queue);
            self.changed.notify_one();
        }
    }

    /// Records that an association ended.
    fn lose(&self, session: u64, error: DriverError) {
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

impl Blocks for DriveBlocks {
    fn len_bytes(&self) -> u64 {
        let geometry = self.path().geometry;
        geometry.blocks.saturating_mul(geometry.block_bytes.into())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let (block_bytes, (lba, skipped)) = (self.block_bytes as usize, self.block_of(offset));
        if skipped == 0 && out.len().is_multiple_of(block_bytes) {
            return self.read_blocks(&mut [BlockRead { lba, buf: out }]);
        }
        WHOLE.with_borrow_mut(|whole| {
            let bytes = (skipped + out.len()).next_multiple_of(block_bytes);
            let missing = bytes.saturating_sub(whole.len());
            whole.try_reserve(missing).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
            if missing > 0 {
                whole.resize(bytes, 0);
            }
            let read = self.read_blocks(&mut [BlockRead { lba, buf: &mut whole[..bytes] }]);
            if read.is_ok() {
                out.copy_from_slice(&whole[skipped..skipped + out.len()]);
            }
            if whole.len() > KEPT_BYTES {
                *whole = Vec::new();
            }
            read
        })
    }

    fn read_within(&self, offset: u64, memory: &mut [u8], place: Range<usize>) -> io::Result<()> {
        self.read_many(&mut [BlocksRead { offset, memory, place }])
    }

    /// Reads whole blocks straight into the memory of all reads, by one call of the driver, and then restores the bytes
    /// that block alignment overwrote in front of each place.
    fn read_many(&self, reads: &mut [BlocksRead<'_>]) -> io::Result<()> {
        if !reads.iter().all(|read| self.blocks_of(read).is_some()) {
            return reads.iter_mut().try_for_each(|read| self.read(read.offset, &mut read.memory[read.place.clone()]));
        }
        let mut before = Vec::new();
        let mut of_blocks = Vec::with_capacity(reads.len());
        for read in &mut *reads {
            let Some(blocks) = self.blocks_of(read) else { continue };
            before.extend_from_slice(&read.memory[blocks.start..read.place.start]);
            of_blocks.push(BlockRead { lba: self.block_of(read.offset).0, buf: &mut read.memory[blocks] });
        }
        let outcome = self.read_blocks(&mut of_blocks);
        let mut before = &before[..];
        for read in reads {
            let (own, others) = before.split_at(self.block_of(read.offset).1);
            read.memory[read.place.start - own.len()..read.place.start].copy_from_slice(own);
            before = others;
        }
        outcome
    }

    fn fetch_depth(&self) -> FetchDepth {
        // A joined read then reads no block that its extents alone would not read.
        let join_gap = Some(u64::from(self.block_bytes) - 1);
        FetchDepth { threads: FETCH_THREADS, samples: FETCH_SAMPLES, join_gap }
    }

    fn session(&self) -> u64 {
        self.path().session
    }

    fn interrupt(&self) {
        let mut path = self.path();
        path.interrupts += 1;
        if let Some(controller) = &path.controller {
            controller.close();
        }
        if let Some(attempt) = &path.attempt {
            attempt.close();
        }
        self.changed.notify_all();
    }
}

/// Returns where whole blocks go so that their bytes after the first `skipped` ones fill `place`; `None` if that is
/// before the beginning of the memory.
fn blocks_around(place: &Range<usize>, skipped: usize, block_bytes: usize) -> Option<Range<usize>> {
    let start = place.start.checked_sub(skipped)?;
    Some(start..start + (skipped + place.len()).next_multiple_of(block_bytes))
}

/// Returns when reads give up a lost path. Reads in quick succession share one deadline, since several reads may
/// concern the same sample; a much later read gets a new one.
fn give_up_at(lost_since: &mut Option<Instant>, now: Instant) -> Instant {
    let since = lost_since.filter(|since| now < *since + 2 * PATIENCE).unwrap_or(now);
    *lost_since = Some(since);
    since + PATIENCE
}

/// Returns the error of a read that the drive refused.
fn refused(error: DriverError) -> io::Error {
    let errno = match &error {
        error if error.is_status(Status::UNRECOVERED_READ) => libc::EIO,
        error if error.is_transient() => libc::EREMOTEIO,
        _ => return io::Error::other(error),
    };
    tracing::debug!(%error, "the drive refused a read");
    io::Error::from_raw_os_error(errno)
}

/// Returns the error of a read when the drive came back with blocks of another size.
fn blocks_changed(opened: u32, now: u32) -> io::Error {
    io::Error::other(format!("the drive's blocks had {opened} bytes, and have {now} now: start the run again"))
}

/// Returns the error of a read when there has been no path to the drive for too long.
fn path_lost(error: Option<&DriverError>) -> io::Error {
    let reason = error.map(|error| format!(" ({error})")).unwrap_or_default();
    io::Error::other(format!("there was no path to the drive for {PATIENCE:?}{reason}"))
}

impl fmt::Debug for DriveBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DriveBlocks").field("geometry", &self.path().geometry).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_blocks_lie_around_their_place() {
        for (skipped, length, expected) in [(0, 8, 10..18), (3, 5, 7..15), (3, 6, 7..23), (7, 0, 3..11), (0, 0, 10..10)]
        {
            let blocks = blocks_around(&(10..10 + length), skipped, 8).expect("there is room");
            assert_eq!(blocks, expected, "{skipped} {length}");
        }
        assert_eq!(blocks_around(&(2..8), 3, 8), None);
    }

    #[test]
    fn reads_that_follow_upon_one_another_share_their_patience() {
        let (mut lost_since, lost) = (None, Instant::now());
        for (after, expected) in [(0, 1), (30, 1), (59, 1), (61, 1), (119, 1), (120, 3), (150, 3)] {
            let until = give_up_at(&mut lost_since, lost + Duration::from_secs(after));
            assert_eq!(until, lost + expected * PATIENCE, "after {after} s");
        }
    }
}
