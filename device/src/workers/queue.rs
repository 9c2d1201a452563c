//! Queue of jobs: which samples are next, and when a job is finished or let go.
//!
//! A job leaves the queue once, finished or released. Its lease is gone before anybody is told, so the slot can be
//! leased again right away. Whoever works for a job has a [`Hold`] on it; a worker that panics loses its hold, and with
//! the samples that it does not bring back the job is given up.

use super::row_crc::RowCrc;
use crate::job::{Job, JobId};
use crate::slots::SlotLease;
use ddlp_csd::prepare::close_gaps;
use ddlp_csd::slot::{HEADER_BYTES, Outcome, SampleRecord, SlotHeader, table_to_bytes};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// A worker's hold on a job: the job keeps its slot until the last one is gone. Dropping it, as a panic does, gives up
/// the job.
struct Hold<'a> {
    queue: &'a Queue,
    id: JobId,
}

impl Hold<'_> {
    /// Ends in good order, while the queue is locked.
    fn end(self, entry: &mut Entry) {
        entry.holders -= 1;
        std::mem::forget(self);
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.state();
        if let Some(at) = state.position(self.id) {
            let entry = &mut state.entries[at];
            entry.holders -= 1;
            entry.work.cancelled.store(true, Ordering::Relaxed);
        }
    }
}

/// What the workers of a job share.
pub struct Work {
    pub(super) job: Job,
    pub(super) lease: SlotLease,
    /// Set while the queue is locked; a worker looks at it before each sample.
    cancelled: AtomicBool,
}

impl Work {
    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}

/// A run of samples to prepare. Fields are dropped in this order: the slot is let go before the hold.
pub struct Task<'a> {
    pub(super) work: Arc<Work>,
    pub(super) positions: Range<usize>,
    /// Samples of jobs that were queued since the last task: nobody has told the dataset of them yet.
    pub(super) ahead: Vec<u64>,
    hold: Hold<'a>,
}

impl Task<'_> {
    /// The job it belongs to.
    pub fn id(&self) -> JobId {
        self.work.job.id
    }

    /// True when nobody wants its samples any more: the batch was cancelled, or the pool stops.
    pub fn is_over(&self) -> bool {
        self.work.is_cancelled() || self.hold.queue.is_stopping()
    }
}

/// What became of one sample: its record, and the checksum of its row if it has one.
pub type Sample = (SampleRecord, u32);

struct Entry {
    work: Arc<Work>,
    /// Whether its samples were handed out to be announced.
    is_announced: bool,
    /// First position nobody has started.
    next: usize,
    /// [`Hold`]s there are: of workers that have a task of this job or finish it.
    holders: usize,
    done: usize,
    made: Vec<Option<Sample>>,
    busy: Duration,
}

#[derive(Default)]
struct State {
    entries: VecDeque<Entry>,
}

impl State {
    fn position(&self, id: JobId) -> Option<usize> {
        self.entries.iter().position(|entry| entry.work.job.id == id)
    }

    /// Samples of the jobs that were queued since the last call.
    fn take_unannounced(&mut self) -> Vec<u64> {
        let mut samples = Vec::new();
        for entry in self.entries.iter_mut().filter(|entry| !entry.is_announced) {
            entry.is_announced = true;
            samples.extend(&entry.work.job.request.sample_ids);
        }
        samples
    }
}

/// The queue shared by all workers.
#[derive(Default)]
pub struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    /// Set while the queue is locked; a worker looks at it before each sample.
    stopping: AtomicBool,
}

/// What follows from a recorded run.
pub enum Recorded<'a> {
    /// Other samples of the job are outstanding.
    More,
    /// That was the last one: finish the batch.
    Complete(Box<Finishing<'a>>),
    /// The job was cancelled and nobody is at it any more.
    Released(JobId),
}

/// A job all of whose samples are recorded. Fields are dropped in this order: the slot is let go before the hold.
pub struct Finishing<'a> {
    work: Arc<Work>,
    records: Vec<SampleRecord>,
    row_crcs: Vec<u32>,
    busy: Duration,
    hold: Hold<'a>,
}

/// The blocks that make a slot valid.
pub struct Finished {
    header: [u8; HEADER_BYTES],
    table: Vec<u8>,
}

impl Finishing<'_> {
    /// The job.
    pub fn id(&self) -> JobId {
        self.work.job.id
    }

    /// Bytes of one row.
    pub fn row_bytes(&self) -> usize {
        self.work.lease.layout().row_bytes
    }

    /// Samples that followed the corrupt-sample policy.
    pub fn corrupt(&self) -> u32 {
        self.records.iter().filter(|record| record.is_corrupt()).count() as u32
    }

    /// Takes back all that was made: the dataset is not the one that was opened.
    pub fn withdraw(&mut self) {
        self.records.iter_mut().for_each(|record| record.outcome = Outcome::Unavailable);
    }

    /// Closes the gaps of left-out samples and makes table and header.
    pub fn finish(&self, row_crc: &RowCrc, start: Instant) -> Finished {
        let rows = self.work.lease.payload().expect("every row is back, and a job is finished once");
        let delivered = close_gaps(&self.records, rows, self.row_bytes());
        let kept = self.records.iter().zip(&self.row_crcs).filter(|(record, _)| record.has_row());
        let payload_crc = row_crc.of_rows(kept.map(|(_, &crc)| crc));
        let table = table_to_bytes(&self.records);
        let request = &self.work.job.request;
        let busy = self.busy + start.elapsed();
        let header = SlotHeader {
            epoch: request.epoch,
            batch: request.batch,
            generation: request.generation,
            requested: self.records.len() as u32,
            delivered: delivered as u32,
            shape: self.work.job.program.pipeline.output(),
            table_crc: crc32c::crc32c(&table),
            payload_crc,
            busy_us: u64::try_from(busy.as_micros()).unwrap_or(u64::MAX),
        };
        Finished { header: header.to_block(), table }
    }
}

impl Queue {
    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Queues a job behind the others.
    pub fn push(&self, job: Job, lease: SlotLease) {
        let samples = job.request.sample_ids.len();
        assert_eq!(samples, lease.layout().samples, "the lease is for this batch");
        self.state().entries.push_back(Entry {
            work: Arc::new(Work { job, lease, cancelled: AtomicBool::new(false) }),
            is_announced: false,
            next: 0,
            holders: 0,
            done: 0,
            made: vec![None; samples],
            busy: Duration::ZERO,
        });
        self.changed.notify_all();
    }

    /// The next samples to prepare, at most `most`: of the oldest job that has unstarted ones. Waits; `None` when the pool stops.
    pub fn next(&self, most: usize) -> Option<Task<'_>> {
        let mut state = self.state();
        loop {
            if self.is_stopping() {
                return None;
            }
            let open = |entry: &&mut Entry| !entry.work.is_cancelled() && entry.next < entry.made.len();
            if let Some(entry) = state.entries.iter_mut().find(open) {
                let positions = entry.next..entry.made.len().min(entry.next + most.max(1));
                entry.next = positions.end;
                entry.holders += 1;
                let hold = Hold { queue: self, id: entry.work.job.id };
                let work = entry.work.clone();
                return Some(Task { work, positions, ahead: state.take_unannounced(), hold });
            }
            state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    /// Waits for `time`, less when the job is cancelled or the pool stops.
    pub fn rest(&self, id: JobId, time: Duration) {
        if time.is_zero() {
            return;
        }
        let deadline = Instant::now() + time;
        let mut state = self.state();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let given_up = state.position(id).is_none_or(|at| state.entries[at].work.is_cancelled());
            if left.is_zero() || self.is_stopping() || given_up {
                return;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
    }

    /// Records a run: what became of its samples; of fewer than it has only if it [is over](Task::is_over).
    pub fn record<'a>(&self, task: Task<'a>, made: &[Sample], busy: Duration) -> Recorded<'a> {
        let Task { work, positions, hold, .. } = task;
        // The worker lets go of the slot before it says so.
        drop(work);
        let mut state = self.state();
        let at = state.position(hold.id).expect("a job stays queued while a worker holds a task of it");
        let entry = &mut state.entries[at];
        entry.busy += busy;
        if entry.work.is_cancelled() {
            hold.end(entry);
            return Self::release_if_idle(state, at).map_or(Recorded::More, Recorded::Released);
        }
        if self.is_stopping() {
            hold.end(entry);
            return Recorded::More;
        }
        assert_eq!(made.len(), positions.len(), "a run is cut short by a cancellation only");
        entry.done += made.len();
        entry.made[positions].iter_mut().zip(made).for_each(|(place, &sample)| *place = Some(sample));
        if entry.done < entry.made.len() {
            hold.end(entry);
            return Recorded::More;
        }
        let (records, row_crcs) = std::mem::take(&mut entry.made).into_iter().flatten().unzip();
        Recorded::Complete(Box::new(Finishing { work: entry.work.clone(), records, row_crcs, busy: entry.busy, hold }))
    }

    /// Makes the slot valid unless the job was cancelled meanwhile, and takes the job off the queue. False when it was
    /// cancelled.
    pub fn publish(&self, finishing: Finishing<'_>, finished: &Finished) -> bool {
        let Finishing { work, hold, .. } = finishing;
        drop(work);
        let mut state = self.state();
        let at = state.position(hold.id).expect("a job stays queued while a worker finishes it");
        let mut entry = state.entries.remove(at).expect("position was just found");
        hold.end(&mut entry);
        let is_wanted = !entry.work.is_cancelled();
        if is_wanted {
            // Under the lock: a cancel that returned before this point is never followed by a valid header.
            entry.work.lease.publish(&finished.header, &finished.table);
        }
        drop(state);
        is_wanted
    }

    /// Marks a job as cancelled. True when that released it at once.
    pub fn cancel(&self, id: JobId) -> bool {
        let state = self.state();
        let Some(at) = state.position(id) else { return false };
        state.entries[at].work.cancelled.store(true, Ordering::Relaxed);
        let released = Self::release_if_idle(state, at).is_some();
        self.changed.notify_all();
        released
    }

    fn release_if_idle(mut state: MutexGuard<'_, State>, at: usize) -> Option<JobId> {
        if state.entries[at].holders > 0 {
            return None;
        }
        let entry = state.entries.remove(at)?;
        drop(state);
        Some(entry.work.job.id)
    }

    /// Lets every worker leave at its next sample boundary.
    pub fn stop(&self) {
        let state = self.state();
        self.stopping.store(true, Ordering::Relaxed);
        drop(state);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests;
