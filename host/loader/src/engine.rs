//! State that the threads of a loader share: the schedule, the batches that are ready, the figures, and the means to
//! wait for each other.
//!
//! One mutex guards the [`Core`]. A thread holds it for decisions and their records only, never while a sample is
//! prepared, a command waits or bytes move. The methods here change the schedule, and keep schedule, records and
//! waiting threads in step; a drive's prong takes its cancels and sets its state itself, under the same mutex. The
//! module `delivery` serves the consumer.

mod delivery;

pub(crate) use delivery::Kept;

use crate::announcing::Announced;
use crate::batch::Rows;
use crate::buffers::{BufferPool, PooledBuffer};
use crate::corrupt::CorruptCount;
use crate::cpu::CpuJob;
use crate::error::LoaderError;
use crate::order::{Cut, Orders};
use crate::plan::PlanEpoch;
use crate::recorder::Recorder;
use crate::report::CorruptReport;
use crate::schedule::{BatchId, CPU, Finished, HeldResults, ProngId, Room, Schedule};
use crate::usage::MemoryPeak;
use crate::value::Output;
use ddlp_csd::program::Program;
use ddlp_csd::slot::SampleRecord;
use ddlp_dataset::{Dataset, Unavailable};
use ddlp_pixels::Shape;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Longest sleep of an idle CPU thread before it checks whether to take over another prong's batch.
const IDLE_LOOK: Duration = Duration::from_millis(20);

/// The task of a run, fixed during the run.
pub(crate) struct Task {
    pub dataset: Arc<dyn Dataset>,
    pub program: Program,
    pub seed: u64,
    pub cut: Cut,
    pub shape: Shape,
    pub output: Output,
    /// Epochs of the run: the last one's number plus one.
    pub epochs: u32,
    /// Distinct corrupt samples of an epoch that the run tolerates.
    pub max_corrupt: u64,
}

/// A batch that waits for delivery.
pub(crate) struct ReadyBatch {
    pub records: Vec<SampleRecord>,
    pub rows: Rows,
    /// Samples that followed the corrupt-sample policy, each with its index in the dataset.
    corrupt: Vec<(u64, CorruptReport)>,
}

/// A drive's verdict on a sample, which the host has to confirm: it is the drive's fault unless the CPU finds the same.
struct Doubt {
    prong: ProngId,
    sample_id: u64,
    /// Index in the dataset of the sample, or of its replacement, that the drive could not prepare.
    index: u64,
    what: String,
}

/// Why a prong gives up a batch that it claimed.
#[derive(Debug)]
pub(crate) enum GivenUp {
    /// The prong cannot prepare the batch, so the CPU does. Has the kind of fault, and what happened.
    Failed { kind: &'static str, what: String },
    /// The drive reported this sample, or the neighbour at `index`, as corrupt, which only the host may decide. The CPU
    /// prepares the batch, and the report is a fault if the CPU makes the sample's row from `index`.
    Doubted { sample_id: u64, index: u64, what: String },
    /// The prong has no place for the batch: any prong may claim it again.
    Returned,
    /// Another prong was first.
    Cancelled,
}

/// A place for a finished batch that lies in a drive's slot.
#[derive(Debug)]
pub(crate) enum Place {
    /// Buffer for the batch.
    Buffer(PooledBuffer),
    /// The batch is no longer wanted.
    Unwanted,
}

/// State that the mutex guards.
pub(crate) struct Core {
    pub schedule: Schedule,
    pub recorder: Recorder,
    pub ready: HashMap<BatchId, Result<ReadyBatch, LoaderError>>,
    /// Batches of the CPU prong whose samples are not all handed out.
    pub jobs: VecDeque<Arc<CpuJob>>,
    pub plan: Vec<PlanEpoch>,
    /// Whether the consumer has asked for a batch and got none yet.
    pub consumer_waits: bool,
    announced: Announced,
    orders: Orders,
    corrupt: CorruptCount,
    /// Error that ends the run and belongs to no batch.
    failure: Option<LoaderError>,
    /// Verdicts of drives that the CPU has to confirm.
    doubts: HashMap<BatchId, Doubt>,
    /// For each drive, the number of refuted verdicts that its thread has not taken yet.
    refuted: HashMap<ProngId, u32>,
}

/// State shared by consumer, CPU threads and drive threads.
pub(crate) struct Engine {
    pub task: Task,
    pub pool: Arc<BufferPool>,
    core: Mutex<Core>,
    /// Something may be deliverable, or the run ended.
    delivery: Condvar,
    /// The CPU prong may have work.
    work: Arc<Condvar>,
    stop: AtomicBool,
    /// Peak memory of the process.
    pub memory: MemoryPeak,
    /// For each drive, a function that ends its association or the attempt to make one.
    links: Mutex<BTreeMap<ProngId, Box<dyn Fn() + Send>>>,
}

impl Engine {
    pub fn new(task: Task, schedule: Schedule, recorder: Recorder, buffers: usize) -> Self {
        let work = Arc::new(Condvar::new());
        let orders = Orders::new(task.seed, task.cut);
        let bytes = buffer_bytes(&task.cut, task.row_bytes());
        Self {
            pool: Arc::new(BufferPool::new(buffers, bytes, work.clone())),
            core: Mutex::new(Core {
                schedule,
                recorder,
                ready: HashMap::new(),
                jobs: VecDeque::new(),
                plan: Vec::new(),
                consumer_waits: false,
                announced: Announced::default(),
                orders,
                corrupt: CorruptCount::new(task.max_corrupt),
                failure: None,
                doubts: HashMap::new(),
                refuted: HashMap::new(),
            }),
            task,
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

    /// Returns whether threads should end: the run was stopped, or everything was delivered.
    pub fn is_over(&self) -> bool {
        self.is_stopped() || self.lock().schedule.is_done()
    }

    /// Ends the run: its threads end, and the consumer gets no further batch.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        // Taking the lock makes a thread that is about to wait see the flag before it waits.
        drop(self.lock());
        self.delivery.notify_all();
        self.work.notify_all();
    }

    /// Remembers how to end a drive's association or the attempt to make one, for [`Self::close_links`]. Ends it at
    /// once if the run has been stopped.
    pub fn watch(&self, prong: ProngId, close: impl Fn() + Send + 'static) {
        let mut links = self.links.lock().expect("no panic while the links are locked");
        if self.is_stopped() {
            close();
        }
        links.insert(prong, Box::new(close));
    }

    /// Ends all associations at once: no thread waits for a drive any longer.
    pub fn close_links(&self) {
        let links = self.links.lock().expect("no panic while the links are locked");
        links.values().for_each(|close| close());
    }

    /// Waits for a delivery or the timeout.
    pub fn wait_for_delivery<'a>(&self, core: MutexGuard<'a, Core>, timeout: Duration) -> MutexGuard<'a, Core> {
        self.delivery.wait_timeout(core, timeout).expect("no thread panics while it holds the core").0
    }

    /// Returns the room for another batch in the buffer pool.
    fn buffer_room(&self, core: &Core) -> Option<Room> {
        match self.pool.free() {
            0 => None,
            1 if core.schedule.must_reserve() => Some(Room::Critical),
            _ => Some(Room::Any),
        }
    }

    /// Frees a buffer for a batch that delivery waits for, by giving up the finished batch that would be delivered
    /// last. That is necessary when the consumer keeps batches, and so their buffers. Returns false when no batch can
    /// be given up.
    fn make_way(&self, core: &mut Core) -> bool {
        if !core.consumer_waits || core.schedule.deliverable().is_some() {
            return false;
        }
        let Core { schedule, ready, recorder, .. } = core;
        let is_pooled = |id| matches!(ready.get(&id), Some(Ok(ReadyBatch { rows: Rows::Pooled(_), .. })));
        let Some((id, maker)) = schedule.give_way(is_pooled) else { return false };
        ready.remove(&id);
        recorder.wasted(maker, id);
        recorder.note(
            "finished batches were given up for earlier ones, since the consumer keeps batches: use more buffers \
             (--buffers)"
                .into(),
        );
        true
    }

    /// Waits for the next batch for an idle CPU thread, and returns it: a batch that others work on and that has rows
    /// left, or a new one. A new one comes with the samples that the thread has to announce. `None` when the run is
    /// over.
    pub fn next_cpu_job(&self) -> Option<(Arc<CpuJob>, Vec<u64>)> {
        let mut core = self.lock();
        loop {
            if self.is_stopped() || core.schedule.is_done() {
                return None;
            }
            self.close_lost_jobs(&mut core);
            core.jobs.retain(|job| !job.rows.is_exhausted());
            if let Some(job) = core.jobs.front() {
                return Some((job.clone(), Vec::new()));
            }
            if let Some(job) = self.claim_for_cpu(&mut core) {
                core.jobs.push_back(job.clone());
                let ahead = core.samples_ahead(job.id);
                drop(core);
                self.work.notify_all();
                return Some((job, ahead));
            }
            core = self.work.wait_timeout(core, IDLE_LOOK).expect("no thread panics while it holds the core").0;
        }
    }

    /// Stops work on batches that a drive finished first.
    fn close_lost_jobs(&self, core: &mut Core) {
        for id in core.schedule.take_cancels(CPU) {
            let Some(job) = core.jobs.iter().find(|job| job.id == id).cloned() else { continue };
            if job.rows.close() {
                core.give_up(CPU, id, GivenUp::Cancelled);
            }
        }
    }

    fn claim_for_cpu(&self, core: &mut Core) -> Option<Arc<CpuJob>> {
        if core.consumer_waits && self.pool.free() == 0 && core.schedule.awaits_cpu() {
            self.make_way(core);
        }
        let room = self.buffer_room(core)?;
        let now = core.recorder.now();
        let id = core.schedule.claim(CPU, now, room)?;
        core.recorder.claimed(CPU, id);
        let buffer = match self.pool.take() {
            Ok(buffer) => buffer.expect("buffers are taken under the core's lock only"),
            Err(source) => {
                // Without memory nobody can prepare the batch, so the run ends with this error.
                core.executed(CPU, id);
                self.make_ready(core, CPU, id, Err(LoaderError::System { what: "a batch buffer", source }));
                return None;
            }
        };
        let sample_ids = match core.sample_ids(id) {
            Ok(sample_ids) => sample_ids,
            Err(source) => {
                core.executed(CPU, id);
                self.make_ready(core, CPU, id, Err(LoaderError::of_order(source)));
                return None;
            }
        };
        if sample_ids.is_empty() {
            // A rank's share of a short last batch can be empty.
            core.executed(CPU, id);
            self.make_ready(
                core,
                CPU,
                id,
                Ok(ReadyBatch { records: Vec::new(), rows: Rows::Pooled(buffer), corrupt: Vec::new() }),
            );
            return None;
        }
        Some(Arc::new(CpuJob::new(id, sample_ids, buffer, self.task.row_bytes())))
    }

    /// Claims a batch for a drive that has a free slot. Returns `None` if there is nothing to claim now.
    pub fn claim_for_drive(&self, prong: ProngId, is_last_slot: bool) -> Option<(BatchId, Vec<u64>)> {
        let mut core = self.lock();
        let now = core.recorder.now();
        let is_reserved = is_last_slot && core.schedule.must_reserve_slot(prong);
        let room = if is_reserved { Room::Critical } else { Room::Any };
        let id = core.schedule.claim(prong, now, room)?;
        core.recorder.claimed(prong, id);
        let sample_ids = core.sample_ids(id).unwrap_or_default();
        if sample_ids.is_empty() {
            // The CPU delivers the empty batch, as it does a failed one. If memory for the epoch's order was refused,
            // the CPU reports that.
            core.recorder.released(prong, id, false);
            core.schedule.failed(prong, id, now);
            self.work.notify_all();
            return None;
        }
        Some((id, sample_ids))
    }

    /// Records that a prong's processor is done with a batch. Returns false when another prong was first.
    pub fn executed(&self, prong: ProngId, id: BatchId) -> bool {
        self.lock().executed(prong, id)
    }

    /// Makes a batch ready that [`Self::executed`] called wanted.
    pub fn ready(&self, prong: ProngId, id: BatchId, records: Vec<SampleRecord>, rows: Rows) {
        // Names are read from the dataset before the lock is taken.
        let corrupt = self.corrupt_samples(id, &records);
        let ready = corrupt.map(|corrupt| ReadyBatch { records, rows, corrupt });
        self.make_ready(&mut self.lock(), prong, id, ready);
    }

    /// Records that the CPU cannot prepare a batch since the dataset cannot be read. The run ends with that error when
    /// the batch is due.
    pub fn unavailable(&self, id: BatchId, error: Unavailable) {
        let mut core = self.lock();
        if core.executed(CPU, id) {
            self.make_ready(&mut core, CPU, id, Err(LoaderError::Unavailable(error)));
        }
    }

    fn make_ready(&self, core: &mut Core, prong: ProngId, id: BatchId, ready: Result<ReadyBatch, LoaderError>) {
        if !core.schedule.finished(prong, id) {
            return;
        }
        if let Some(doubt) = core.doubts.remove(&id)
            && let Ok(batch) = &ready
            && batch
                .records
                .iter()
                .any(|record| (record.sample_id, record.index) == (doubt.sample_id, doubt.index) && record.has_row())
        {
            *core.refuted.entry(doubt.prong).or_default() += 1;
            core.recorder.fault(doubt.prong, Some(id), "damaged", doubt.what);
        }
        if let Ok(batch) = &ready {
            let images = batch.records.iter().filter(|record| record.has_row()).count();
            core.recorder.prepared(prong, images);
        }
        core.ready.insert(id, ready);
        self.delivery.notify_all();
        self.work.notify_all();
    }

    /// Gives up a batch that a prong claimed, whether the prong still works on it or holds an unusable result.
    pub fn give_up(&self, prong: ProngId, id: BatchId, why: GivenUp) {
        self.lock().give_up(prong, id, why);
        self.work.notify_all();
    }

    /// Gives up those of these batches that a drive has finished but not handed over.
    pub fn give_up_held(&self, prong: ProngId, ids: &[BatchId], what: &str) {
        let mut core = self.lock();
        for &id in ids {
            if core.schedule.is_wanted(prong, id) {
                core.give_up(prong, id, GivenUp::Failed { kind: "defect", what: what.into() });
            }
        }
        drop(core);
        self.work.notify_all();
    }

    /// Records the loss of a drive and of its batches in work (`flights`). `held` says whether its finished batches are
    /// lost too.
    pub fn lose(&self, prong: ProngId, flights: &[BatchId], held: HeldResults, kind: &'static str, what: String) {
        let mut core = self.lock();
        for &id in flights {
            core.recorder.released(prong, id, false);
        }
        core.schedule.prong_down(prong, held);
        core.recorder.fault(prong, flights.first().copied(), kind, what);
        drop(core);
        self.work.notify_all();
    }

    /// Records that a drive works, for the first time or again. `what` is the message, if its absence was reported.
    pub fn regain(&self, prong: ProngId, what: Option<&str>) {
        let mut core = self.lock();
        core.schedule.prong_up(prong);
        if let Some(what) = what {
            core.recorder.fault(prong, None, "rejoined", what.into());
        }
    }

    /// Ends the run because a drive cannot be used, with the reason.
    pub fn refuse(&self, prong: ProngId, reason: String) {
        let mut core = self.lock();
        let drive = core.recorder.name(prong);
        core.failure.get_or_insert(LoaderError::Drive { drive, reason });
        self.delivery.notify_all();
    }

    /// Records that a drive takes no batches until [`Self::regain`]. The drive must have no batch outstanding.
    pub fn pause(&self, prong: ProngId) {
        self.lock().schedule.prong_down(prong, HeldResults::Kept);
        self.work.notify_all();
    }

    /// Takes the number of a drive's verdicts that the CPU has refuted.
    pub fn take_refuted(&self, prong: ProngId) -> u32 {
        self.lock().refuted.remove(&prong).unwrap_or_default()
    }

    /// Records a fault that does not change the schedule.
    pub fn fault(&self, prong: ProngId, kind: &'static str, what: String) {
        self.lock().recorder.fault(prong, None, kind, what);
    }

    /// Returns a place for a drive's finished batch, if there is one now. Fails when the operating system refuses
    /// memory.
    pub fn place_for(&self, prong: ProngId, id: BatchId) -> std::io::Result<Option<Place>> {
        let mut core = self.lock();
        if !core.schedule.is_wanted(prong, id) {
            return Ok(Some(Place::Unwanted));
        }
        let has_room = match self.buffer_room(&core) {
            Some(Room::Any) => true,
            Some(Room::Critical) => core.schedule.is_critical(id),
            None => core.schedule.is_critical(id) && self.make_way(&mut core),
        };
        if !has_room {
            return Ok(None);
        }
        let buffer = self.pool.take()?;
        Ok(Some(Place::Buffer(buffer.expect("buffers are taken under the core's lock only"))))
    }

    /// Waits until the run is stopped or the time is over. Returns whether the run was stopped.
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

impl Task {
    /// Converts pixels to rows as they are delivered, at the beginning of a batch's buffer.
    pub fn write_rows(&self, pixels: &[u8], buffer: &mut [u8]) {
        let bytes = pixels.len() / self.shape.bytes() * self.row_bytes();
        self.output.write(pixels, self.shape, &mut buffer[..bytes]);
    }

    /// Returns the bytes of a row as it is delivered.
    pub fn row_bytes(&self) -> usize {
        self.output.row_bytes(self.shape)
    }
}

impl Core {
    /// Returns the sample ids of this rank's share of a batch.
    fn sample_ids(&mut self, id: BatchId) -> std::io::Result<Vec<u64>> {
        self.orders.sample_ids(id, self.schedule.current_epoch())
    }

    /// Returns the ids of the samples to announce when the CPU has claimed a batch.
    fn samples_ahead(&mut self, id: BatchId) -> Vec<u64> {
        let batches = self.announced.ahead_of(id, &self.schedule);
        batches.into_iter().flat_map(|id| self.sample_ids(id).unwrap_or_default()).collect()
    }

    fn executed(&mut self, prong: ProngId, id: BatchId) -> bool {
        let now = self.recorder.now();
        let used = self.schedule.executed(prong, id, now) == Finished::Used;
        self.recorder.released(prong, id, used);
        used
    }

    fn give_up(&mut self, prong: ProngId, id: BatchId, why: GivenUp) {
        let now = self.recorder.now();
        self.recorder.released(prong, id, false);
        match why {
            GivenUp::Failed { kind, what } => {
                self.schedule.failed(prong, id, now);
                self.recorder.fault(prong, Some(id), kind, what);
            }
            GivenUp::Doubted { sample_id, index, what } => {
                self.schedule.failed(prong, id, now);
                self.doubts.insert(id, Doubt { prong, sample_id, index, what });
            }
            GivenUp::Returned => self.schedule.returned(prong, id, now),
            GivenUp::Cancelled => self.schedule.cancelled(prong, id, now),
        }
    }
}

/// Returns the bytes of a batch buffer: whole blocks, since a drive's results are read in blocks.
pub(crate) fn buffer_bytes(cut: &Cut, row_bytes: usize) -> usize {
    cut.rows().saturating_mul(row_bytes).next_multiple_of(ddlp_csd::BLOCK_BYTES)
}
