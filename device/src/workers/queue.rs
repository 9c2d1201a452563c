//! Queue of jobs: which sample is next, and when a job is finished or let go.
//!
//! A job leaves the queue once, finished or released. Its lease is gone before anybody is told, so the slot can be
//! leased again right away. Whoever works for a job has a [`Hold`] on it; a worker that panics loses its hold, and with
//! the sample that it does not bring back the job is given up.

use super::kit::Made;
use super::row_crc::RowCrc;
use crate::job::{Job, JobId};
use crate::slots::SlotLease;
use ddlp_csd::prepare::close_gaps;
use ddlp_csd::slot::{HEADER_BYTES, SampleRecord, SlotHeader, table_to_bytes};
use std::collections::VecDeque;
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
            entry.cancelled = true;
        }
    }
}

/// One sample to prepare. Fields are dropped in this order: the slot is let go before the hold.
pub struct Task<'a> {
    pub(super) job: Arc<Job>,
    pub(super) lease: Arc<SlotLease>,
    pub(super) position: usize,
    hold: Hold<'a>,
}

impl Task<'_> {
    /// The job it belongs to.
    pub fn id(&self) -> JobId {
        self.job.id
    }
}

struct Entry {
    job: Arc<Job>,
    lease: Arc<SlotLease>,
    cancelled: bool,
    /// First position nobody has started.
    next: usize,
    /// [`Hold`]s there are: of workers that have a task of this job or finish it.
    holders: usize,
    done: usize,
    made: Vec<Option<(SampleRecord, u32)>>,
    busy: Duration,
}

#[derive(Default)]
struct State {
    entries: VecDeque<Entry>,
    stopping: bool,
}

impl State {
    fn position(&self, id: JobId) -> Option<usize> {
        self.entries.iter().position(|entry| entry.job.id == id)
    }
}

/// The queue shared by all workers.
#[derive(Default)]
pub struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

/// What follows from a recorded sample.
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
    job: Arc<Job>,
    lease: Arc<SlotLease>,
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
        self.job.id
    }

    /// Bytes of one row.
    pub fn row_bytes(&self) -> usize {
        self.lease.layout().row_bytes
    }

    /// Samples that followed the corrupt-sample policy.
    pub fn corrupt(&self) -> u32 {
        self.records.iter().filter(|record| record.is_corrupt()).count() as u32
    }

    /// Closes the gaps of left-out samples and makes table and header.
    pub fn finish(&self, row_crc: &RowCrc, start: Instant) -> Finished {
        let rows = self.lease.payload().expect("every row is back, and a job is finished once");
        let delivered = close_gaps(&self.records, rows, self.row_bytes());
        let kept = self.records.iter().zip(&self.row_crcs).filter(|(record, _)| record.has_row());
        let payload_crc = row_crc.of_rows(kept.map(|(_, &crc)| crc));
        let table = table_to_bytes(&self.records);
        let request = &self.job.request;
        let busy = self.busy + start.elapsed();
        let header = SlotHeader {
            epoch: request.epoch,
            batch: request.batch,
            generation: request.generation,
            requested: self.records.len() as u32,
            delivered: delivered as u32,
            shape: self.job.program.pipeline.output(),
            table_crc: crc32c::crc32c(&table),
            payload_crc,
            busy_us: u64::try_from(busy.as_micros()).unwrap_or(u64::MAX),
        };
        Finished { header: header.to_block(), table }
    }
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Queues a job behind the others.
    pub fn push(&self, job: Job, lease: SlotLease) {
        let samples = job.request.sample_ids.len();
        assert_eq!(samples, lease.layout().samples, "the lease is for this batch");
        self.state().entries.push_back(Entry {
            job: Arc::new(job),
            lease: Arc::new(lease),
            cancelled: false,
            next: 0,
            holders: 0,
            done: 0,
            made: vec![None; samples],
            busy: Duration::ZERO,
        });
        self.changed.notify_all();
    }

    /// Next sample to prepare: of the oldest job that has an unstarted one. Waits; `None` when the pool stops.
    pub fn next(&self) -> Option<Task<'_>> {
        let mut state = self.state();
        loop {
            if state.stopping {
                return None;
            }
            let open = |entry: &&mut Entry| !entry.cancelled && entry.next < entry.made.len();
            if let Some(entry) = state.entries.iter_mut().find(open) {
                let position = entry.next;
                entry.next += 1;
                entry.holders += 1;
                let hold = Hold { queue: self, id: entry.job.id };
                return Some(Task { job: entry.job.clone(), lease: entry.lease.clone(), position, hold });
            }
            state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    /// Waits for `time`, less when the job is cancelled or the pool stops.
    pub fn rest(&self, id: JobId, time: Duration) {
        let deadline = Instant::now() + time;
        let mut state = self.state();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let given_up = state.position(id).is_none_or(|at| state.entries[at].cancelled);
            if left.is_zero() || state.stopping || given_up {
                return;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
    }

    /// Records a prepared sample.
    pub fn record<'a>(&self, task: Task<'a>, made: Made, busy: Duration) -> Recorded<'a> {
        let Task { job, lease, position, hold } = task;
        // The worker lets go of the slot before it says so.
        drop((job, lease));
        let mut state = self.state();
        let at = state.position(hold.id).expect("a job stays queued while a worker holds a task of it");
        let entry = &mut state.entries[at];
        entry.done += 1;
        entry.busy += busy;
        entry.made[position] = Some((made.record, made.row_crc));
        if entry.cancelled {
            hold.end(entry);
            return Self::release_if_idle(state, at).map_or(Recorded::More, Recorded::Released);
        }
        if entry.done < entry.made.len() {
            hold.end(entry);
            return Recorded::More;
        }
        let (records, row_crcs) = std::mem::take(&mut entry.made).into_iter().flatten().unzip();
        Recorded::Complete(Box::new(Finishing {
            job: entry.job.clone(),
            lease: entry.lease.clone(),
            records,
            row_crcs,
            busy: entry.busy,
            hold,
        }))
    }

    /// Makes the slot valid unless the job was cancelled meanwhile, and takes the job off the queue. False when it was
    /// cancelled.
    pub fn publish(&self, finishing: Finishing<'_>, finished: &Finished) -> bool {
        let Finishing { job, lease, hold, .. } = finishing;
        drop((job, lease));
        let mut state = self.state();
        let at = state.position(hold.id).expect("a job stays queued while a worker finishes it");
        let mut entry = state.entries.remove(at).expect("position was just found");
        hold.end(&mut entry);
        if !entry.cancelled {
            // Under the lock: a cancel that returned before this point is never followed by a valid header.
            entry.lease.publish(&finished.header, &finished.table);
        }
        drop(state);
        !entry.cancelled
    }

    /// Marks a job as cancelled. True when that released it at once.
    pub fn cancel(&self, id: JobId) -> bool {
        let mut state = self.state();
        let Some(at) = state.position(id) else { return false };
        state.entries[at].cancelled = true;
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
        Some(entry.job.id)
    }

    /// Lets every worker leave at its next sample boundary.
    pub fn stop(&self) {
        self.state().stopping = true;
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
        let task = queue.next().unwrap();
        let sample_id = task.position as u64;
        drop(task.lease.row(task.position).unwrap());
        let record = SampleRecord { sample_id, index: 0, label: 0, outcome: Outcome::Prepared, warned: false };
        queue.record(task, Made { record, row_crc: 0, times: Default::default() }, Duration::ZERO)
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
        let running = [queue.next().unwrap(), queue.next().unwrap()];
        assert!(!queue.cancel(ID));
        let record = SampleRecord { sample_id: 0, index: 0, label: 0, outcome: Outcome::Prepared, warned: false };
        let ends = running.map(|task| {
            let recorded = queue.record(task, Made { record, row_crc: 0, times: Default::default() }, Duration::ZERO);
            matches!(recorded, Recorded::Released(ID))
        });
        assert_eq!(ends, [false, true]);
        assert!(is_free(&slots) && !is_valid(&slots));
    }

    #[test]
    fn what_a_panicking_worker_held_is_let_go() {
        let slots = slots();
        let queue = queue(&slots, 3);
        let other = queue.next().unwrap();
        let panicked = std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let task = queue.next().unwrap();
                let _row = task.lease.row(task.position).unwrap();
                panic!("a defect");
            });
            worker.join().is_err()
        });
        assert!(panicked && !is_free(&slots));
        let record = SampleRecord { sample_id: 0, index: 0, label: 0, outcome: Outcome::Prepared, warned: false };
        let recorded = queue.record(other, Made { record, row_crc: 0, times: Default::default() }, Duration::ZERO);
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
