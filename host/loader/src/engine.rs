//! What the threads of a loader share: the schedule, the batches that are ready, the figures, and how to wait for each other.
//!
//! One mutex guards the [`Core`]; it is held for the decisions only, never while a sample is prepared, a command waits or
//! bytes move.

use crate::batch::{Batch, Pixels};
use crate::buffers::{BufferPool, PooledBuffer};
use crate::cpu::CpuJob;
use crate::error::LoaderError;
use crate::order::{Cut, EpochOrder};
use crate::plan::PlanEpoch;
use crate::recorder::Recorder;
use crate::report::CorruptReport;
use crate::schedule::{BatchId, CPU, Finished, ProngId, Room, Schedule};
use ddlp_csd::program::Program;
use ddlp_csd::slot::{Outcome, SampleRecord};
use ddlp_dataset::Dataset;
use ddlp_pixels::Shape;
use memmap2::MmapMut;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How long an idle CPU thread sleeps at most before it looks whether another prong's batch is worth taking over.
const IDLE_LOOK: Duration = Duration::from_millis(20);

/// What a run works on; fixed while it goes on.
pub(crate) struct Task {
    pub dataset: Arc<dyn Dataset>,
    pub program: Program,
    pub seed: u64,
    pub cut: Cut,
    pub shape: Shape,
}

/// A batch that waits for delivery.
pub(crate) struct ReadyBatch {
    pub records: Vec<SampleRecord>,
    pub pixels: Pixels,
}

/// What the mutex guards.
pub(crate) struct Core {
    pub schedule: Schedule,
    pub recorder: Recorder,
    pub ready: HashMap<BatchId, Result<ReadyBatch, LoaderError>>,
    /// Batches of the CPU prong whose samples are not all handed out.
    pub jobs: VecDeque<Arc<CpuJob>>,
    pub plan: Vec<PlanEpoch>,
    orders: Vec<(u32, Arc<EpochOrder>)>,
}

/// Shared by consumer, CPU threads and drive threads.
pub(crate) struct Engine {
    pub task: Task,
    pub pool: Arc<BufferPool>,
    core: Mutex<Core>,
    /// Something may be deliverable, or the run ended.
    delivery: Condvar,
    /// The CPU prong may have work.
    work: Arc<Condvar>,
    stop: AtomicBool,
}

impl Engine {
    pub fn new(task: Task, schedule: Schedule, recorder: Recorder, buffers: usize) -> Self {
        let work = Arc::new(Condvar::new());
        let rows = usize::try_from(task.cut.batch).unwrap_or(usize::MAX);
        let bytes = (rows.saturating_mul(task.shape.bytes())).next_multiple_of(ddlp_csd::BLOCK_BYTES);
        Self {
            pool: Arc::new(BufferPool::new(buffers, bytes, work.clone())),
            task,
            core: Mutex::new(Core {
                schedule,
                recorder,
                ready: HashMap::new(),
                jobs: VecDeque::new(),
                plan: Vec::new(),
                orders: Vec::new(),
            }),
            delivery: Condvar::new(),
            work,
            stop: AtomicBool::new(false),
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().expect("no thread panics while it holds the core")
    }

    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Ends the run: threads leave, the consumer gets nothing more.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        // Taking the lock orders the flag before the next look of a thread that is about to wait.
        drop(self.lock());
        self.delivery.notify_all();
        self.work.notify_all();
    }

    /// Tells the CPU prong that there may be work for it.
    pub fn wake_workers(&self) {
        self.work.notify_all();
    }

    /// Waits for a delivery or the timeout.
    pub fn wait_for_delivery<'a>(&self, core: MutexGuard<'a, Core>, timeout: Duration) -> MutexGuard<'a, Core> {
        self.delivery.wait_timeout(core, timeout).expect("no thread panics while it holds the core").0
    }

    /// The room for another batch in the pool of buffers.
    pub fn buffer_room(&self, core: &Core) -> Option<Room> {
        match self.pool.free() {
            0 => None,
            1 if core.schedule.must_reserve() => Some(Room::Critical),
            _ => Some(Room::Any),
        }
    }

    /// The next batch for an idle CPU thread: one that others work on and that has rows left, or a new one. Waits for it;
    /// `None` when the run is over.
    pub fn next_cpu_job(&self) -> Option<Arc<CpuJob>> {
        let mut core = self.lock();
        loop {
            if self.is_stopped() || core.schedule.is_done() {
                return None;
            }
            self.close_lost_jobs(&mut core);
            core.jobs.retain(|job| !job.rows.is_exhausted());
            if let Some(job) = core.jobs.front() {
                return Some(job.clone());
            }
            match self.claim_for_cpu(&mut core) {
                Ok(Some(job)) => {
                    core.jobs.push_back(job.clone());
                    self.work.notify_all();
                    return Some(job);
                }
                Ok(None) => {}
                Err(source) => {
                    core.recorder.fault(CPU, None, "status", format!("no memory for a batch buffer: {source}"));
                }
            }
            core = self.work.wait_timeout(core, IDLE_LOOK).expect("no thread panics while it holds the core").0;
        }
    }

    /// Stops work on batches that a drive finished first. Those whose rows are all handed out finish by themselves.
    fn close_lost_jobs(&self, core: &mut Core) {
        for id in core.schedule.take_cancels(CPU) {
            let Some(job) = core.jobs.iter().find(|job| job.id == id).cloned() else { continue };
            if let Some(buffer) = job.rows.close() {
                self.pool.put(buffer);
                core.schedule.cancelled(CPU, id);
                core.recorder.released(CPU, id, false);
            }
        }
    }

    fn claim_for_cpu(&self, core: &mut Core) -> std::io::Result<Option<Arc<CpuJob>>> {
        let Some(room) = self.buffer_room(core) else { return Ok(None) };
        let now = core.recorder.now();
        let Some(id) = core.schedule.claim(CPU, now, room) else { return Ok(None) };
        let buffer = match self.pool.take() {
            Ok(buffer) => buffer.expect("buffers are taken under the core's lock only"),
            Err(error) => {
                core.schedule.failed(CPU, id);
                return Err(error);
            }
        };
        core.recorder.claimed(CPU, id);
        let sample_ids = self.sample_ids(core, id);
        if sample_ids.is_empty() {
            // A rank's share of a short last batch can be empty.
            self.finish_cpu(core, id, Vec::new(), buffer);
            return Ok(None);
        }
        Ok(Some(Arc::new(CpuJob::new(id, sample_ids, buffer, self.task.shape.bytes()))))
    }

    /// Claims a batch for a drive that has a free slot. `None`: nothing to do now.
    pub fn claim_for_drive(&self, prong: ProngId) -> Option<(BatchId, Vec<u64>)> {
        let mut core = self.lock();
        let now = core.recorder.now();
        let id = core.schedule.claim(prong, now, Room::Any)?;
        let sample_ids = self.sample_ids(&mut core, id);
        core.recorder.claimed(prong, id);
        if sample_ids.is_empty() {
            core.recorder.released(prong, id, false);
            core.schedule.failed(prong, id);
            self.work.notify_all();
            return None;
        }
        Some((id, sample_ids))
    }

    /// A CPU thread returned the last rows of a batch.
    pub fn finish_cpu(&self, core: &mut Core, id: BatchId, records: Vec<SampleRecord>, buffer: MmapMut) {
        let now = core.recorder.now();
        let used = core.schedule.executed(CPU, id, now) == Finished::Used;
        core.recorder.released(CPU, id, used);
        if used {
            let pixels = Pixels::Pooled(PooledBuffer::new(buffer, self.pool.clone()));
            self.make_ready(core, CPU, id, records, pixels);
        } else {
            self.pool.put(buffer);
        }
    }

    /// A batch that the schedule wants is at hand.
    pub fn make_ready(&self, core: &mut Core, prong: ProngId, id: BatchId, records: Vec<SampleRecord>, pixels: Pixels) {
        core.schedule.finished(prong, id);
        let failed = records.iter().find_map(|record| match record.outcome {
            Outcome::Failed(reason) => Some(self.corrupt_error(id, record, reason)),
            _ => None,
        });
        core.ready.insert(id, failed.map_or(Ok(ReadyBatch { records, pixels }), Err));
        self.delivery.notify_all();
        self.work.notify_all();
    }

    /// Takes the next batch out for the consumer, when it is ready.
    pub fn deliver(&self, core: &mut Core, asked_s: f64) -> Option<Result<Batch, LoaderError>> {
        let (id, prong) = core.schedule.deliverable()?;
        let ready = core.ready.remove(&id).expect("what the schedule calls ready is kept here");
        let met = core.schedule.meeting_point();
        let ready = match ready {
            Ok(ready) => ready,
            Err(error) => return Some(Err(error)),
        };
        core.schedule.deliver(id, prong);
        self.record_plan(core, id, prong);
        self.record_samples(core, id, &ready.records);
        let batch = Batch::new(id, prong, self.task.shape, ready.records, ready.pixels);
        core.recorder.delivered(prong, id, batch.len(), asked_s, met);
        self.work.notify_all();
        Some(Ok(batch))
    }

    fn record_plan(&self, core: &mut Core, id: BatchId, prong: ProngId) {
        if core.plan.last().is_none_or(|plan| plan.epoch != id.epoch) {
            core.plan.push(PlanEpoch { epoch: id.epoch, deliveries: Vec::new() });
        }
        core.plan.last_mut().expect("pushed above").deliveries.push((id.batch, prong));
    }

    fn record_samples(&self, core: &mut Core, id: BatchId, records: &[SampleRecord]) {
        core.recorder.warned(records.iter().filter(|record| record.warned).count());
        for record in records {
            let (reason, action) = match record.outcome {
                Outcome::Prepared => continue,
                Outcome::Skipped(reason) => (reason, "skipped".to_string()),
                Outcome::Replaced(reason) => (reason, format!("replaced by {}", self.task.dataset.name(record.index))),
                Outcome::Failed(_) => unreachable!("a batch with a failed sample is delivered as an error"),
            };
            core.recorder.corrupt(CorruptReport {
                sample: self.own_name(record),
                sample_id: record.sample_id,
                epoch: id.epoch,
                reason: reason.to_string(),
                action,
            });
        }
    }

    fn own_name(&self, record: &SampleRecord) -> String {
        self.task.dataset.name(record.sample_id % self.task.dataset.len())
    }

    fn corrupt_error(&self, id: BatchId, record: &SampleRecord, reason: ddlp_pixels::CorruptReason) -> LoaderError {
        LoaderError::CorruptSample {
            sample: self.own_name(record),
            sample_id: record.sample_id,
            location: self.task.dataset.location(record.sample_id % self.task.dataset.len()).to_string(),
            epoch: id.epoch,
            reason: reason.to_string(),
        }
    }

    /// Sample ids of this rank's share of a batch; orders of the active epochs are kept.
    fn sample_ids(&self, core: &mut Core, id: BatchId) -> Vec<u64> {
        if let Some((_, order)) = core.orders.iter().find(|(epoch, _)| *epoch == id.epoch) {
            return order.sample_ids(id.batch);
        }
        let order = Arc::new(EpochOrder::new(self.task.seed, id.epoch, self.task.cut));
        let ids = order.sample_ids(id.batch);
        let current = core.schedule.current_epoch().unwrap_or(id.epoch);
        core.orders.retain(|(epoch, _)| *epoch >= current);
        core.orders.push((id.epoch, order));
        ids
    }

    /// Waits until the run is stopped or the time is over; true when stopped.
    pub fn sleep(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut core = self.lock();
        while !self.is_stopped() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            core = self.wait_for_delivery(core, left);
        }
        true
    }
}
