//! Queue of jobs: which samples are next, and when a job is finished or released.
//!
//! A job leaves the queue once, finished or released. The worker that takes its first samples leases its slot; until
//! then no other worker gets samples of the job. The lease is dropped before the job's event is sent, so that the slot
//! can be leased again at once. Every worker that works on a job has a [`Hold`] on it. A worker that panics drops its
//! hold, which gives up the job, since that worker's samples are missing.
//!
//! `supply`: which samples of a job workers can take. `fetching`: the queue as the thread sees it that fetches samples.
//! `finishing`: the end of a job.

mod fetching;
mod finishing;
mod supply;

pub use fetching::Ask;
pub use finishing::{Finishing, SlotSeal};

use crate::job::{Job, JobId};
use crate::slots::WriteLease;
use ddlp_csd::slot::SampleRecord;
use ddlp_dataset::FetchedSample;
use fetching::FetchedBytes;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};
use supply::{Supply, Taken};
use tokio::sync::Notify;

/// A worker's hold on a job. The job keeps its slot until the last hold is gone. Dropping a hold, as a panic does,
/// gives up the job.
struct Hold<'a> {
    queue: &'a JobQueue,
    id: JobId,
}

impl Hold<'_> {
    /// Ends the hold without giving up the job. The queue is locked.
    fn end(self, entry: &mut QueuedJob) {
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

/// A job and its slot, shared by its workers.
pub struct SharedJob {
    pub(super) job: Job,
    /// Set by [`JobQueue::leased`].
    lease: OnceLock<WriteLease>,
    /// Whether the job is cancelled. Set under the queue's lock; workers check it before each sample.
    cancelled: AtomicBool,
    /// Whether the dataset cannot be read, so that samples of the job will not come. Set under the queue's lock.
    unread: AtomicBool,
}

impl SharedJob {
    /// Returns the job's right to its slot.
    pub(super) fn lease(&self) -> &WriteLease {
        self.lease.get().expect("the worker that takes a job's first samples leases its slot")
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Returns whether samples that the job lacks will not come.
    pub(super) fn is_unread(&self) -> bool {
        self.unread.load(Ordering::Relaxed)
    }
}

/// A chunk of samples to prepare. Fields are dropped in this order, so that the slot is released before the hold.
pub struct WorkerTask<'a> {
    pub(super) work: Arc<SharedJob>,
    pub(super) positions: Range<usize>,
    /// What was fetched of each sample; empty if the worker reads them.
    pub(super) fetched: Vec<FetchedSample>,
    is_first: bool,
    /// Samples of the jobs queued since the last task, still to be announced to the dataset.
    pub(super) ahead: Vec<u64>,
    hold: Hold<'a>,
}

impl WorkerTask<'_> {
    /// Returns the job to which the chunk belongs.
    pub fn id(&self) -> JobId {
        self.work.job.id
    }

    /// Returns whether the worker has to lease the job's slot.
    pub fn is_first(&self) -> bool {
        self.is_first
    }

    /// Returns whether the samples are no longer wanted: the batch was cancelled, or the pool stops.
    pub fn is_over(&self) -> bool {
        self.work.is_cancelled() || self.hold.queue.is_stopping()
    }
}

/// Result of one sample: its record, and the checksum of its row if it has one.
pub type Sample = (SampleRecord, u32);

struct QueuedJob {
    work: Arc<SharedJob>,
    /// Whether the job's samples were handed out to be announced.
    is_announced: bool,
    /// Whether a worker has taken samples, and leases the slot or has leased it.
    has_begun: bool,
    supply: Supply,
    /// Number of [`Hold`]s, one for each worker that has a task of this job or finishes it.
    holders: usize,
    done: usize,
    made: Vec<Option<Sample>>,
    busy: Duration,
}

#[derive(Default)]
struct QueueState {
    entries: VecDeque<QueuedJob>,
    /// The bytes of fetched samples.
    bytes: FetchedBytes,
}

impl QueueState {
    fn position(&self, id: JobId) -> Option<usize> {
        self.entries.iter().position(|entry| entry.work.job.id == id)
    }

    /// Returns the samples of all jobs queued since the last call.
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
pub struct JobQueue {
    state: Mutex<QueueState>,
    /// Wakes workers that wait for samples.
    changed: Condvar,
    /// Wakes workers that rest.
    ended: Condvar,
    /// Whether samples are fetched before workers take them.
    fetches: bool,
    /// Wakes the thread that fetches them.
    pub(super) asked: Notify,
    /// Whether the pool stops. Set under the lock; workers check it before each sample.
    stopping: AtomicBool,
}

/// Next step after a recorded chunk.
pub enum Recorded<'a> {
    /// Nothing to do: other samples or workers of the job are outstanding, or the pool stops.
    More,
    /// All samples are recorded: finish the batch.
    Complete(Box<Finishing<'a>>),
    /// The job was cancelled, and no worker works on it any more.
    Released(JobId),
}

impl JobQueue {
    /// Creates an empty queue, for jobs whose samples are fetched before workers take them, or are not.
    pub fn new(fetches: bool) -> Self {
        Self { fetches, ..Self::default() }
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Adds a job to the end of the queue.
    pub fn push(&self, job: Job) {
        let samples = job.request.sample_ids.len();
        assert_eq!(samples, job.layout.samples, "the layout is for this batch");
        self.state().entries.push_back(QueuedJob {
            work: Arc::new(SharedJob {
                job,
                lease: OnceLock::new(),
                cancelled: AtomicBool::new(false),
                unread: AtomicBool::new(false),
            }),
            is_announced: false,
            has_begun: false,
            supply: Supply::new(samples, self.fetches),
            holders: 0,
            done: 0,
            made: vec![None; samples],
            busy: Duration::ZERO,
        });
        self.changed.notify_all();
        self.asked.notify_one();
    }

    /// Waits for the next samples to prepare, and returns at most `most` from the oldest job with unstarted samples.
    /// Returns `None` when the pool stops.
    pub fn next(&self, most: usize) -> Option<WorkerTask<'_>> {
        let mut state = self.state();
        loop {
            if self.is_stopping() {
                return None;
            }
            let open = |entry: &mut QueuedJob| {
                let has_slot = !entry.has_begun || entry.work.lease.get().is_some();
                let is_open = has_slot && !entry.work.is_cancelled();
                is_open.then(|| entry.supply.take(most.max(1), entry.work.is_unread())).flatten()
            };
            let taken = state.entries.iter_mut().find_map(|entry| open(entry).map(|taken| (entry, taken)));
            if let Some((entry, Taken { positions, fetched })) = taken {
                let is_first = !std::mem::replace(&mut entry.has_begun, true);
                entry.holders += 1;
                let hold = Hold { queue: self, id: entry.work.job.id };
                let work = entry.work.clone();
                if state.takes_full() {
                    self.asked.notify_one();
                }
                return Some(WorkerTask { work, positions, fetched, is_first, ahead: state.take_unannounced(), hold });
            }
            state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    /// Gives a job its slot, so that other workers can take samples too.
    pub fn leased(&self, task: &WorkerTask<'_>, lease: WriteLease) {
        let state = self.state();
        assert!(task.work.lease.set(lease).is_ok(), "one worker leases the slot");
        drop(state);
        self.changed.notify_all();
    }

    /// Takes a job off the queue because its slot cannot be leased. No other worker has samples of the job. Those that
    /// wait take no more memory, so that others can be fetched.
    pub fn remove(&self, task: WorkerTask<'_>) {
        let WorkerTask { hold, .. } = task;
        let mut state = self.state();
        let at = state.position(hold.id).expect("a job stays queued while a worker holds a task of it");
        let mut entry = state.entries.remove(at).expect("position was just found");
        hold.end(&mut entry);
        self.asked.notify_one();
    }

    /// Waits for `time`, or until the job is cancelled or the pool stops.
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
            let waited = self.ended.wait_timeout(state, left);
            state = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
    }

    /// Records the results of a chunk. `made` may have fewer results than the chunk has samples only if the chunk
    /// [is over](WorkerTask::is_over).
    pub fn record<'a>(&self, task: WorkerTask<'a>, made: &[Sample], busy: Duration) -> Recorded<'a> {
        let WorkerTask { work, positions, hold, .. } = task;
        // The worker releases the slot before it ends its hold.
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
        assert_eq!(made.len(), positions.len(), "a chunk is cut short by a cancellation only");
        entry.done += made.len();
        entry.made[positions].iter_mut().zip(made).for_each(|(place, &sample)| *place = Some(sample));
        if entry.done < entry.made.len() {
            hold.end(entry);
            return Recorded::More;
        }
        let (records, row_crcs) = std::mem::take(&mut entry.made).into_iter().flatten().unzip();
        Recorded::Complete(Box::new(Finishing { work: entry.work.clone(), records, row_crcs, busy: entry.busy, hold }))
    }

    /// Takes a job off the queue, and makes its slot valid unless the job was cancelled. Returns whether the slot is
    /// valid.
    pub fn publish(&self, finishing: Finishing<'_>, finished: &SlotSeal) -> bool {
        let Finishing { work, hold, .. } = finishing;
        drop(work);
        let mut state = self.state();
        let at = state.position(hold.id).expect("a job stays queued while a worker finishes it");
        let work = &state.entries[at].work;
        let is_wanted = !work.is_cancelled();
        if is_wanted {
            // This happens under the lock, so that no header becomes valid after `cancel` has returned. The job is
            // still queued, so that it can be released if publishing panics.
            work.lease().publish(&finished.header, &finished.table);
        }
        let mut entry = state.entries.remove(at).expect("position was just found");
        hold.end(&mut entry);
        is_wanted
    }

    /// Marks a job as cancelled, and drops the samples that were fetched for it. Returns whether this released the job
    /// at once.
    pub fn cancel(&self, id: JobId) -> bool {
        let mut state = self.state();
        let Some(at) = state.position(id) else { return false };
        let entry = &mut state.entries[at];
        entry.work.cancelled.store(true, Ordering::Relaxed);
        entry.supply.discard();
        let released = Self::release_if_idle(state, at).is_some();
        self.ended.notify_all();
        self.asked.notify_one();
        released
    }

    fn release_if_idle(mut state: MutexGuard<'_, QueueState>, at: usize) -> Option<JobId> {
        if state.entries[at].holders > 0 {
            return None;
        }
        let entry = state.entries.remove(at)?;
        drop(state);
        Some(entry.work.job.id)
    }

    /// Makes every worker leave after its current sample.
    pub fn stop(&self) {
        let state = self.state();
        self.stopping.store(true, Ordering::Relaxed);
        drop(state);
        self.changed.notify_all();
        self.ended.notify_all();
        self.asked.notify_one();
    }
}

#[cfg(test)]
mod tests;
