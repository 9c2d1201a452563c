//! What the threads of a loader share: the schedule, the batches that are ready, the figures, and how to wait for each other.
//!
//! One mutex guards the [`Core`]; it is held for decisions and their records only, never while a sample is prepared, a command
//! waits or bytes move. The prongs change the schedule through the methods here alone, which keep it, the records and the
//! waiting threads in step.

use crate::batch::{Batch, Pixels};
use crate::buffers::{BufferPool, PooledBuffer};
use crate::cpu::CpuJob;
use crate::error::LoaderError;
use crate::order::{Cut, EpochOrder};
use crate::plan::PlanEpoch;
use crate::recorder::Recorder;
use crate::report::CorruptReport;
use crate::schedule::{BatchId, CPU, Finished, ProngId, Room, Schedule};
use crate::usage::MemoryPeak;
use ddlp_csd::program::Program;
use ddlp_csd::slot::{Outcome, SampleRecord};
use ddlp_dataset::Dataset;
use ddlp_driver::Controller;
use ddlp_pixels::Shape;
use memmap2::MmapMut;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

/// How long an idle CPU thread sleeps at most before it looks whether another prong's batch is worth taking over.
const IDLE_LOOK: Duration = Duration::from_millis(20);

/// Batches whose samples are announced to the dataset before the CPU comes to them: reading them takes less time than preparing one.
const ANNOUNCED_BATCHES: u32 = 2;

/// What a run works on; fixed while it goes on.
pub(crate) struct Task {
    pub dataset: Arc<dyn Dataset>,
    pub program: Program,
    pub seed: u64,
    pub cut: Cut,
    pub shape: Shape,
    /// Epochs of the run: the last one's number plus one.
    pub epochs: u32,
}

/// A batch that waits for delivery.
pub(crate) struct ReadyBatch {
    pub records: Vec<SampleRecord>,
    pub pixels: Pixels,
}

/// Why a prong gives up a batch that it claimed.
#[derive(Debug)]
pub(crate) enum GivenUp {
    /// It cannot make it, so the CPU prepares it; with the kind of fault and what happened.
    Failed { kind: &'static str, what: String },
    /// It has no place for it: any prong may claim it again.
    Returned,
    /// Another prong was first.
    Cancelled,
}

/// A place for a finished batch that lies in a drive's slot.
#[derive(Debug)]
pub(crate) enum Place {
    /// Read it into this.
    Buffer(MmapMut),
    /// There is none now.
    Later,
    /// Nobody wants the batch any more.
    Unwanted,
}

/// What the mutex guards.
pub(crate) struct Core {
    pub schedule: Schedule,
    pub recorder: Recorder,
    pub ready: HashMap<BatchId, Result<ReadyBatch, LoaderError>>,
    /// Batches of the CPU prong whose samples are not all handed out.
    pub jobs: VecDeque<Arc<CpuJob>>,
    pub plan: Vec<PlanEpoch>,
    /// The batch up to which samples were announced to the dataset, itself not.
    announced: Option<BatchId>,
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
    /// Of the process.
    pub memory: MemoryPeak,
    /// The associations with drives, by prong.
    links: Mutex<BTreeMap<ProngId, Weak<dyn Controller>>>,
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
                announced: None,
                orders: Vec::new(),
            }),
            delivery: Condvar::new(),
            work,
            stop: AtomicBool::new(false),
            memory: MemoryPeak::new(),
            links: Mutex::default(),
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

    /// Remembers a drive's association, for [`Self::close_links`].
    pub fn watch(&self, prong: ProngId, controller: Weak<dyn Controller>) {
        self.links.lock().expect("no panic while the links are locked").insert(prong, controller);
    }

    /// Ends all associations at once: no thread waits for a drive any longer.
    pub fn close_links(&self) {
        let links = self.links.lock().expect("no panic while the links are locked");
        links.values().filter_map(Weak::upgrade).for_each(|controller| controller.close());
    }

    /// Waits for a delivery or the timeout.
    pub fn wait_for_delivery<'a>(&self, core: MutexGuard<'a, Core>, timeout: Duration) -> MutexGuard<'a, Core> {
        self.delivery.wait_timeout(core, timeout).expect("no thread panics while it holds the core").0
    }

    /// The room for another batch in the pool of buffers.
    fn buffer_room(&self, core: &Core) -> Option<Room> {
        match self.pool.free() {
            0 => None,
            1 if core.schedule.must_reserve() => Some(Room::Critical),
            _ => Some(Room::Any),
        }
    }

    /// The next batch for an idle CPU thread: one that others work on and that has rows left, or a new one. Waits for it;
    /// `None` when the run is over. With a new one, the thread tells the dataset what will be read next.
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
            if let Some(job) = self.claim_for_cpu(&mut core) {
                core.jobs.push_back(job.clone());
                let ahead = self.samples_ahead(&mut core, job.id);
                drop(core);
                self.work.notify_all();
                self.task.dataset.announce(&ahead);
                return Some(job);
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
                core.give_up(CPU, id, GivenUp::Cancelled);
            }
        }
    }

    fn claim_for_cpu(&self, core: &mut Core) -> Option<Arc<CpuJob>> {
        let room = self.buffer_room(core)?;
        let now = core.recorder.now();
        let id = core.schedule.claim(CPU, now, room)?;
        core.recorder.claimed(CPU, id);
        let buffer = match self.pool.take() {
            Ok(buffer) => buffer.expect("buffers are taken under the core's lock only"),
            Err(source) => {
                // Nobody can prepare it without memory: the run ends with this.
                core.executed(CPU, id);
                self.make_ready(core, CPU, id, Err(LoaderError::System { what: "a batch buffer", source }));
                return None;
            }
        };
        let sample_ids = self.sample_ids(core, id);
        if sample_ids.is_empty() {
            // A rank's share of a short last batch can be empty.
            core.executed(CPU, id);
            let pixels = Pixels::Pooled(PooledBuffer::new(buffer, self.pool.clone()));
            self.make_ready(core, CPU, id, Ok(ReadyBatch { records: Vec::new(), pixels }));
            return None;
        }
        Some(Arc::new(CpuJob::new(id, sample_ids, buffer, self.task.shape.bytes())))
    }

    /// Places in the dataset of the samples that the CPU prong comes to after a batch and that were not announced yet: those of
    /// the epoch's next batches, as far as nobody has claimed them.
    fn samples_ahead(&self, core: &mut Core, id: BatchId) -> Vec<u64> {
        let end = BatchId { batch: id.batch.saturating_add(1 + ANNOUNCED_BATCHES), ..id };
        let start =
            core.announced.filter(|announced| announced.epoch == id.epoch).map_or(id, |announced| announced.max(id));
        core.announced = core.announced.max(Some(end));
        let samples = self.task.dataset.len();
        let mut ahead = Vec::new();
        for next in (start.batch..end.batch).map(|batch| BatchId { batch, ..id }) {
            if next == id || core.schedule.is_open(next) {
                ahead.extend(self.sample_ids(core, next).into_iter().map(|sample_id| sample_id % samples));
            }
        }
        ahead
    }

    /// Claims a batch for a drive that has a free slot. `None`: nothing to do now.
    pub fn claim_for_drive(&self, prong: ProngId) -> Option<(BatchId, Vec<u64>)> {
        let mut core = self.lock();
        let now = core.recorder.now();
        let id = core.schedule.claim(prong, now, Room::Any)?;
        core.recorder.claimed(prong, id);
        let sample_ids = self.sample_ids(&mut core, id);
        if sample_ids.is_empty() {
            // The CPU delivers it, as it does a batch that failed.
            core.recorder.released(prong, id, false);
            core.schedule.failed(prong, id);
            self.work.notify_all();
            return None;
        }
        Some((id, sample_ids))
    }

    /// A prong's processor is done with a batch; false when another prong was first.
    pub fn executed(&self, prong: ProngId, id: BatchId) -> bool {
        self.lock().executed(prong, id)
    }

    /// A batch that [`Self::executed`] called wanted is at hand.
    pub fn ready(&self, prong: ProngId, id: BatchId, records: Vec<SampleRecord>, pixels: Pixels) {
        let failed = records.iter().find_map(|record| match record.outcome {
            Outcome::Failed(reason) => Some(self.corrupt_error(id, record, reason)),
            _ => None,
        });
        let ready = failed.map_or(Ok(ReadyBatch { records, pixels }), Err);
        self.make_ready(&mut self.lock(), prong, id, ready);
    }

    fn make_ready(&self, core: &mut Core, prong: ProngId, id: BatchId, ready: Result<ReadyBatch, LoaderError>) {
        core.schedule.finished(prong, id);
        if let Ok(batch) = &ready {
            let images = batch.records.iter().filter(|record| record.has_row()).count();
            core.recorder.prepared(prong, images);
        }
        core.ready.insert(id, ready);
        self.delivery.notify_all();
        self.work.notify_all();
    }

    /// A prong gives up a batch that it claimed, whether it worked on it or holds an unusable result.
    pub fn give_up(&self, prong: ProngId, id: BatchId, why: GivenUp) {
        self.lock().give_up(prong, id, why);
        self.work.notify_all();
    }

    /// A drive is away, and with it what it had in work (`flights`) or finished without handing it over.
    pub fn lose(&self, prong: ProngId, flights: &[BatchId], kind: &'static str, what: String) {
        let mut core = self.lock();
        for &id in flights {
            core.recorder.released(prong, id, false);
        }
        core.schedule.prong_down(prong);
        core.recorder.fault(prong, flights.first().copied(), kind, what);
        drop(core);
        self.work.notify_all();
    }

    /// A drive works again.
    pub fn regain(&self, prong: ProngId) {
        let mut core = self.lock();
        core.schedule.prong_up(prong);
        core.recorder.fault(prong, None, "rejoined", "the drive works again".into());
    }

    /// Something went wrong that changes nothing in the schedule.
    pub fn fault(&self, prong: ProngId, kind: &'static str, what: String) {
        self.lock().recorder.fault(prong, None, kind, what);
    }

    /// A place for a finished batch of a drive.
    pub fn place_for(&self, prong: ProngId, id: BatchId) -> Place {
        let mut core = self.lock();
        if !core.schedule.is_wanted(prong, id) {
            return Place::Unwanted;
        }
        let has_room = match self.buffer_room(&core) {
            Some(Room::Any) => true,
            Some(Room::Critical) => core.schedule.is_critical(id),
            None => false,
        };
        if !has_room {
            return Place::Later;
        }
        match self.pool.take() {
            Ok(buffer) => Place::Buffer(buffer.expect("buffers are taken under the core's lock only")),
            Err(source) => {
                core.give_up(prong, id, failed("memory", format!("no memory for a batch buffer: {source}")));
                Place::Unwanted
            }
        }
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
        core.record_plan(id, prong);
        let batch = Batch::new(id, prong, self.task.shape, ready.records, ready.pixels);
        core.recorder.delivered(prong, id, batch.len(), asked_s, met);
        self.work.notify_all();
        Some(Ok(batch))
    }

    /// Takes down what became of the samples of a delivered batch, and gets the next epoch's order ready. Without the lock:
    /// names are read from the dataset, and an order may be long.
    pub fn delivered(&self, batch: &Batch) {
        let epoch = batch.epoch();
        let mut corrupt = Vec::new();
        for record in batch.records() {
            let (reason, action) = match record.outcome {
                Outcome::Prepared => continue,
                Outcome::Skipped(reason) => (reason, "skipped".to_string()),
                Outcome::Replaced(reason) => (reason, format!("replaced by {}", self.task.dataset.name(record.index))),
                Outcome::Failed(_) => unreachable!("a batch with a failed sample is delivered as an error"),
            };
            let (sample, reason) = (self.own_name(record), reason.to_string());
            corrupt.push(CorruptReport { sample, sample_id: record.sample_id, epoch, reason, action });
        }
        let warned = batch.records().iter().filter(|record| record.warned).count();
        if warned > 0 || !corrupt.is_empty() {
            let recorder = &mut self.lock().recorder;
            recorder.warned(warned);
            corrupt.into_iter().for_each(|sample| recorder.corrupt(sample));
        }
        self.prepare_order(epoch + 1);
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

    /// Makes the order of an epoch that will be claimed from, unless it is there.
    pub fn prepare_order(&self, epoch: u32) {
        if epoch < self.task.epochs && self.lock().order(epoch).is_none() {
            let order = Arc::new(EpochOrder::new(self.task.seed, epoch, self.task.cut));
            self.lock().keep_order(epoch, order);
        }
    }

    /// Sample ids of this rank's share of a batch. The order is made here only when the prongs are ahead of the consumer by a
    /// whole epoch.
    fn sample_ids(&self, core: &mut Core, id: BatchId) -> Vec<u64> {
        if let Some(order) = core.order(id.epoch) {
            return order.sample_ids(id.batch);
        }
        let order = Arc::new(EpochOrder::new(self.task.seed, id.epoch, self.task.cut));
        core.keep_order(id.epoch, order.clone());
        order.sample_ids(id.batch)
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

impl Core {
    fn executed(&mut self, prong: ProngId, id: BatchId) -> bool {
        let now = self.recorder.now();
        let used = self.schedule.executed(prong, id, now) == Finished::Used;
        self.recorder.released(prong, id, used);
        used
    }

    fn give_up(&mut self, prong: ProngId, id: BatchId, why: GivenUp) {
        self.recorder.released(prong, id, false);
        match why {
            GivenUp::Failed { kind, what } => {
                self.schedule.failed(prong, id);
                self.recorder.fault(prong, Some(id), kind, what);
            }
            GivenUp::Returned => self.schedule.returned(prong, id),
            GivenUp::Cancelled => self.schedule.cancelled(prong, id),
        }
    }

    fn record_plan(&mut self, id: BatchId, prong: ProngId) {
        if self.plan.last().is_none_or(|plan| plan.epoch != id.epoch) {
            self.plan.push(PlanEpoch { epoch: id.epoch, deliveries: Vec::new() });
        }
        self.plan.last_mut().expect("pushed above").deliveries.push((id.batch, prong));
    }

    fn order(&self, epoch: u32) -> Option<&Arc<EpochOrder>> {
        self.orders.iter().find(|(number, _)| *number == epoch).map(|(_, order)| order)
    }

    /// Keeps an order; those of epochs that were delivered whole are dropped.
    fn keep_order(&mut self, epoch: u32, order: Arc<EpochOrder>) {
        let current = self.schedule.current_epoch().unwrap_or(epoch);
        self.orders.retain(|(number, _)| *number >= current && *number != epoch);
        self.orders.push((epoch, order));
    }
}

fn failed(kind: &'static str, what: String) -> GivenUp {
    GivenUp::Failed { kind, what }
}
