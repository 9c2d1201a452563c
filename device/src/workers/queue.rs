//! Queue of jobs: which samples are next, and when a job is finished or let go.
//!
//! A job leaves the queue once, finished or released. Its lease is gone before anybody is told, so the slot can be
//! leased again right away. Whoever works for a job has a [`Hold`] on it; a worker that panics loses its hold, and with
//! the samples that it does not bring back the job is given up.

use super::row_crc::RowCrc;
use crate::job::{Job, JobId};
use crate::slots::SlotLease;
use ddlp_csd::prepare::close_gaps;
use ddlp_csd::slot::{HEADER_BYTES, SampleRecord, SlotHeader, table_to_bytes};
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
                return Some(Task { work: entry.work.clone(), positions, hold });
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
        let Task { work, positions, hold } = task;
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
mod tests {
    use super::*;
    use crate::slots::{Backing, Geometry, Slots};
    use ddlp_csd::program::CorruptPolicy;
    use ddlp_csd::request::BatchRequest;
    use ddlp_csd::slot::{Outcome, SlotLayout};
    use std::os::unix::fs::FileExt;

    const ID: JobId = JobId(1);

    fn slots() -> Slots {
        Slots::open(&Backing::Memory, Geometry { slots: 1, slot_bytes: 1 << 20 }).unwrap()
    }

    /// A queue with one job of `samples` samples into slot 0.
    fn queue(slots: &Slots, samples: u64) -> Queue {
        let program = Arc::new(crate::test_support::program("cifar-train", CorruptPolicy::Fail));
        let layout = SlotLayout::new(samples as usize, program.pipeline.output()).unwrap();
        let request = BatchRequest {
            program: 7,
            seed: 1,
            epoch: 2,
            batch: 3,
            slot: 0,
            generation: 4,
            epoch_samples: samples,
            sample_ids: (0..samples).collect(),
        };
        let queue = Queue::default();
        queue.push(Job { id: ID, program, request, layout }, slots.lease(0, layout).unwrap());
        queue
    }

    /// Takes the next sample and does as if it had been prepared.
    fn step(queue: &Queue) -> Recorded<'_> {
        let task = queue.next(1).unwrap();
        drop(task.work.lease.rows(task.positions.clone()).unwrap());
        let made = [made(task.positions.start)];
        queue.record(task, &made, Duration::ZERO)
    }

    fn made(position: usize) -> Sample {
        let sample_id = position as u64;
        (SampleRecord { sample_id, index: 0, label: 0, outcome: Outcome::Prepared, warned: false }, 0)
    }

    fn finish(recorded: Recorded<'_>) -> (Finishing<'_>, Finished) {
        let Recorded::Complete(finishing) = recorded else { panic!("the last sample completes the job") };
        let finished = finishing.finish(&RowCrc::new(finishing.row_bytes()), Instant::now());
        (*finishing, finished)
    }

    fn is_valid(slots: &Slots) -> bool {
        let mut block = vec![0; HEADER_BYTES];
        slots.file().read_exact_at(&mut block, 0).unwrap();
        SlotHeader::parse(&block).is_ok()
    }

    fn is_free(slots: &Slots) -> bool {
        slots.lease(0, SlotLayout::new(1, ddlp_pixels::Shape { height: 1, width: 1, channels: 3 }).unwrap()).is_some()
    }

    #[test]
    fn a_batch_becomes_visible_when_it_is_published() {
        let slots = slots();
        let queue = queue(&slots, 2);
        assert!(matches!(step(&queue), Recorded::More));
        let (finishing, finished) = finish(step(&queue));
        assert!(!is_valid(&slots));
        assert!(queue.publish(finishing, &finished));
        assert!(is_valid(&slots));
        assert!(!queue.cancel(ID), "too late, and harmless");
        assert!(is_valid(&slots) && is_free(&slots));
    }

    #[test]
    fn a_batch_cancelled_while_it_is_finished_never_becomes_visible() {
        let slots = slots();
        let queue = queue(&slots, 1);
        let (finishing, finished) = finish(step(&queue));
        assert!(!queue.cancel(ID), "a worker is at it");
        assert!(!is_free(&slots));
        assert!(!queue.publish(finishing, &finished));
        assert!(!is_valid(&slots) && is_free(&slots));
    }

    #[test]
    fn a_queued_batch_is_released_at_once_and_a_running_one_by_its_last_worker() {
        let slots = slots();
        assert!(queue(&slots, 2).cancel(ID));
        assert!(is_free(&slots));
        let queue = queue(&slots, 3);
        let running = [queue.next(1).unwrap(), queue.next(1).unwrap()];
        assert!(!queue.cancel(ID));
        let ends = running.map(|task| matches!(queue.record(task, &[made(0)], Duration::ZERO), Recorded::Released(ID)));
        assert_eq!(ends, [false, true]);
        assert!(is_free(&slots) && !is_valid(&slots));
    }

    #[test]
    fn samples_are_taken_in_runs_and_a_cancelled_run_may_be_cut_short() {
        let slots = slots();
        let queue = queue(&slots, 5);
        let (first, rest) = (queue.next(3).unwrap(), queue.next(3).unwrap());
        assert_eq!((first.positions.clone(), rest.positions.clone()), (0..3, 3..5));
        drop(first.work.lease.rows(0..3).unwrap());
        assert!(matches!(queue.record(first, &[0, 1, 2].map(made), Duration::ZERO), Recorded::More));
        assert!(!rest.is_over());
        assert!(!queue.cancel(ID));
        assert!(rest.is_over(), "the worker sees it between samples");
        assert!(matches!(queue.record(rest, &[], Duration::ZERO), Recorded::Released(ID)));
        assert!(is_free(&slots) && !is_valid(&slots));
    }

    #[test]
    fn a_stopping_queue_ends_runs_and_publishes_nothing() {
        let slots = slots();
        let queue = queue(&slots, 2);
        let task = queue.next(2).unwrap();
        queue.stop();
        assert!(task.is_over());
        assert!(matches!(queue.record(task, &[made(0)], Duration::ZERO), Recorded::More));
        assert!(queue.next(1).is_none() && !is_valid(&slots));
    }

    #[test]
    fn what_a_panicking_worker_held_is_let_go() {
        let slots = slots();
        let queue = queue(&slots, 3);
        let other = queue.next(1).unwrap();
        let panicked = std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let task = queue.next(1).unwrap();
                let _rows = task.work.lease.rows(task.positions.clone()).unwrap();
                panic!("a defect");
            });
            worker.join().is_err()
        });
        assert!(panicked && !is_free(&slots));
        let recorded = queue.record(other, &[made(0)], Duration::ZERO);
        assert!(matches!(recorded, Recorded::Released(ID)), "no sample of it is started any more");
        assert!(is_free(&slots) && !is_valid(&slots));
    }

    #[test]
    fn a_job_whose_last_worker_panicked_while_it_finished_can_be_cancelled() {
        let slots = slots();
        let queue = queue(&slots, 1);
        drop(finish(step(&queue)));
        assert!(!is_free(&slots), "until somebody is there to say so");
        assert!(queue.cancel(ID));
        assert!(is_free(&slots) && !is_valid(&slots));
    }
}
