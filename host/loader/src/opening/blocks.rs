//! The blocks of a drive's dataset namespace, read over NVMe.
//!
//! Each thread that reads has a queue of its own while it reads. When the path to the drive is lost, one thread
//! connects again, and the others wait for it. `path`: that path, with its queues.

mod path;

use crate::drive::{Endpoint, LinkError, round_trip};
use crate::error::DriveError;
use ddlp_cause::with_causes;
use ddlp_csd::DATASET_NSID;
use ddlp_dataset::pack::{Blocks, BlocksError, BlocksRead};
use ddlp_dataset::{FetchDepth, Silence, Silences};
use ddlp_driver::{BlockRead, DriverError, namespace};
use ddlp_nvme::Status;
use path::DrivePath;
use std::cell::RefCell;
use std::fmt;
use std::io;
use std::ops::{Range, RangeInclusive};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Longest wait for a small read, and for the commands that open an association.
const READ_WITHIN: Duration = Duration::from_secs(10);
/// A long read may take a second more for each of these bytes.
const BYTES_A_SECOND: usize = 1 << 20;
/// A read that ends by more than this after its limit was held up by this machine: the process was stopped, say.
const LATE: Duration = Duration::from_secs(1);
/// Largest buffer that a thread keeps after a read.
const KEPT_BYTES: usize = 1 << 20;
/// Threads that fetch, each by a queue of its own: their calls overlap.
const FETCH_THREADS: usize = 2;
/// Samples of one call, for which a thread sleeps once, if the drive is near, and most of a call if it is far away: an
/// agent's queue has 127 commands.
const FETCH_SAMPLES: RangeInclusive<usize> = 8..=128;

thread_local! {
    /// Whole blocks around the bytes that a thread reads.
    static WHOLE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The dataset namespace of a drive.
pub(super) struct DriveBlocks {
    endpoint: Endpoint,
    /// Address of the drive, for messages.
    address: String,
    /// Bytes of one block.
    block_bytes: u32,
    /// Samples that one call fetches.
    fetched_together: usize,
    path: Mutex<DrivePath>,
    /// A queue is free, or the path was found or given up.
    changed: Condvar,
}

impl DriveBlocks {
    /// Connects to a drive, which messages call `address`. The error says what to do.
    pub fn open(endpoint: Endpoint, address: &str) -> Result<Self, DriveError> {
        let unusable = |error| endpoint.unusable(LinkError::Driver(error), "");
        let controller = endpoint.connect(Duration::MAX, |_| ()).map_err(unusable)?;
        let ask = || {
            let asked = Instant::now();
            let geometry = namespace::geometry(&*controller, DATASET_NSID, READ_WITHIN)?;
            Ok((geometry, asked.elapsed()))
        };
        let ((_, first), (geometry, second)) = (ask().map_err(unusable)?, ask().map_err(unusable)?);
        let fetched_together = fetched_together(round_trip([first, second]));
        let path = Mutex::new(DrivePath::new(controller, geometry));
        let (address, block_bytes) = (address.to_owned(), geometry.block_bytes);
        Ok(Self { endpoint, address, block_bytes, fetched_together, path, changed: Condvar::new() })
    }

    fn path(&self) -> MutexGuard<'_, DrivePath> {
        self.path.lock().expect("no panic while the path is locked")
    }

    fn read_blocks(&self, reads: &mut [BlockRead<'_>]) -> io::Result<()> {
        let bytes: usize = reads.iter().map(|read| read.buf.len()).sum();
        // All threads that fetch share the path.
        let allowed = Duration::from_secs((FETCH_THREADS * bytes / BYTES_A_SECOND) as u64);
        let wait = self.begin_wait(allowed);
        loop {
            let (mut taken, left) = self.take_queue(&wait)?;
            let (begun, limit) = (Instant::now(), left.min(READ_WITHIN + allowed));
            match taken.queue.read_many(DATASET_NSID, reads, limit) {
                Err(error) if error.ends_association() => {
                    if begun.elapsed() > limit + LATE {
                        self.path().clock.overran(Instant::now(), limit);
                    }
                    self.lose(taken, error);
                }
                // The drive was asked nothing: another thread's command waits for its answer.
                Err(DriverError::Busy { .. }) => self.put_back(taken),
                outcome => {
                    self.path().clock.answered(Instant::now());
                    self.put_back(taken);
                    return outcome.map_err(|error| match error {
                        DriverError::Status { .. } => refused(error),
                        error => io::Error::other(error),
                    });
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
        FetchDepth { threads: FETCH_THREADS, samples: self.fetched_together, join_gap, at_once: None }
    }

    fn session(&self) -> u64 {
        self.path().session
    }

    fn interrupt(&self) {
        self.path().interrupt();
        self.changed.notify_all();
    }

    fn silences(&self) -> Silences {
        let (path, now) = (self.path(), Instant::now());
        let silence = |lasts| Silence {
            holder: format!("the drive {}", self.address),
            lasts,
            patience: path.clock.patience(),
            failure: path.failure.as_ref().map(|error| with_causes(&*error.cause())),
        };
        Silences { total: path.clock.total(now), now: path.clock.lasts(now).map(silence) }
    }
}

/// Returns how many samples one call fetches from a drive that answers in this time: the more, the longer it is.
fn fetched_together(round_trip: Duration) -> usize {
    let (least, most) = FETCH_SAMPLES.into_inner();
    (least as u128 * round_trip.as_millis()).clamp(least as u128, most as u128) as usize
}

/// Returns where whole blocks go so that their bytes after the first `skipped` ones fill `place`; `None` if that is
/// before the beginning of the memory.
fn blocks_around(place: &Range<usize>, skipped: usize, block_bytes: usize) -> Option<Range<usize>> {
    let start = place.start.checked_sub(skipped)?;
    Some(start..start + (skipped + place.len()).next_multiple_of(block_bytes))
}

/// Returns the error of a read that the drive refused.
fn refused(error: DriverError) -> io::Error {
    io::Error::other(if error.is_status(Status::UNRECOVERED_READ) {
        let what = format!("{error}: the drive's storage fails at these bytes, and the agent's log has the reason");
        BlocksError::Damaged(what.into())
    } else if error.is_status(Status::NAMESPACE_NOT_READY) {
        let what = format!(
            "{error}: the agent's pack was replaced or cut short while the agent served it; restore the pack, then \
             restart the agent"
        );
        BlocksError::Lasting(what.into())
    } else if error.is_transient() {
        BlocksError::Momentary(error.into())
    } else {
        BlocksError::Lasting(error.into())
    })
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
    fn the_farther_the_drive_the_more_samples_come_by_one_call() {
        let at = |ms| fetched_together(Duration::from_millis(ms));
        assert_eq!([at(0), at(1), at(5), at(100), at(100_000)], [8, 8, 40, 128, 128]);
    }
}
