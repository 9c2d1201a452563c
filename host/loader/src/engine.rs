//! State that the threads of a loader share: the schedule, the batches that are ready, the figures, and the means to
//! wait for each other.
//!
//! One mutex guards the [`Core`]. A thread holds it for decisions and their records only, never while a sample is
//! prepared, a command waits or bytes move. The methods here change the schedule, and keep schedule, records and
//! waiting threads in step; a drive's prong takes its cancels and sets its state itself, under the same mutex.
//!
//! - `claims`: claims of batches, for the CPU and for drives. `job`: a batch in the CPU's work.
//! - `fetching`: the fetch stage, if the dataset's reads have latency.
//! - `holder`: what the run records when the drive that holds the dataset is silent, or samples arrive damaged from it.
//!   `silence`: which silences the report names.
//! - `buffers`: buffers for batches, and the step that makes a filled buffer ready for delivery.
//! - `consumer`: delivery of batches, and records of their samples. `drives`: what drives report of themselves.

mod buffers;
mod claims;
mod consumer;
mod drives;
mod fetching;
mod holder;
mod job;
mod silence;

pub(crate) use buffers::{ResultPlace, buffer_bytes};
pub(crate) use consumer::KeptPlaces;
use consumer::LookedUp;
pub(crate) use drives::Loss;
pub(crate) use fetching::Exchanged;
pub(crate) use job::{CpuJob, CpuWork};
use silence::SilenceRecord;

use crate::announcing::Announced;
use crate::batch::FieldMemory;
use crate::bucket::Bucket;
use crate::corrupt::CorruptCount;
use crate::delivery::{BatchMemory, BufferNeed, BufferReturned, DeliveryError, DeliveryTarget, HostPool, MakeTarget};
use crate::error::LoaderError;
use crate::fetch::{FetchOptions, FetchPlan, Fetching, HedgeCounts, Samples};
use crate::fidelity::RunFidelity;
use crate::finishing::Finishing;
use crate::mixing::{BatchMix, Mixing};
use crate::moved::Moved;
use crate::order::{EpochCut, Orders, Walks};
use crate::plan::PlanRecord;
use crate::recorder::{Delivered, Recorder};
use crate::report::{CorruptReport, FaultKind, Report};
use crate::schedule::{BatchId, CPU, ProngId, ResultUse, Schedule};
use crate::signal::Signal;
use crate::usage::{MemoryPeak, ReadSum, WorkTimes};
use ddlp_csd::memory;
use ddlp_csd::prepare::EpochContext;
use ddlp_csd::program::CorruptPolicy;
use ddlp_csd::slot::SampleRecord;
use ddlp_dataset::{Ahead, Dataset, FetchedSample, ImageSize, SampleFields};
use ddlp_pixels::Functions;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The task of a run, fixed during the run.
pub(crate) struct RunTask {
    pub dataset: Arc<dyn Dataset>,
    /// Buckets of the samples, at least one.
    pub buckets: Vec<Bucket>,
    /// Sizes of the dataset's images; empty if no field needs them.
    pub sizes: Vec<ImageSize>,
    pub seed: u64,
    /// How exactly the images of each epoch are read.
    pub fidelity: RunFidelity,
    /// Whether the samples of an epoch are shuffled.
    pub shuffle: bool,
    /// The samples of every epoch.
    pub walks: Arc<Walks>,
    pub cut: EpochCut,
    /// How batches are mixed, if they are.
    pub mixing: Option<Mixing>,
    /// What the pipelines' operations `Function` call.
    pub functions: Functions,
    /// Fields beside the dataset.
    pub beside: SampleFields,
    /// Epochs of the run: the last one's number plus one.
    pub epochs: u32,
    /// Distinct corrupt samples of an epoch that the run tolerates.
    pub max_corrupt: u64,
    /// What the options say about fetching from a store.
    pub fetch: FetchOptions,
}

/// A batch that waits for delivery.
pub(crate) struct ReadyBatch {
    records: Vec<SampleRecord>,
    memory: FieldMemory,
    place: BatchPlace,
    /// How the delivery target finishes the batch, if it does.
    finishing: Option<Finishing>,
    /// Samples that followed the corrupt-sample policy, each with its index in the dataset.
    corrupt: Vec<(u64, CorruptReport)>,
}

/// Place in which the rows of a batch lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BatchPlace {
    /// A buffer of the delivery target.
    Buffer,
    /// A drive's slot.
    Slot,
}

impl ReadyBatch {
    fn new(
        records: Vec<SampleRecord>,
        place: BatchPlace,
        images: Box<dyn BatchMemory>,
        finishing: Option<Finishing>,
        looked_up: LookedUp,
    ) -> Self {
        let memory = std::iter::once(images.into()).chain(looked_up.filled).collect();
        Self { records, memory, place, finishing, corrupt: looked_up.corrupt }
    }
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
    Failed { kind: FaultKind, what: String },
    /// The drive reported this sample, or the neighbour at `index`, as corrupt, which only the host may decide. The CPU
    /// prepares the batch, and the report is a fault if the CPU makes the sample's row from `index`.
    Doubted { sample_id: u64, index: u64, what: String },
    /// The batch has a sample that only this machine can decode or judge. The CPU prepares the batch. This is not a
    /// fault; the report has the note once.
    LeftToHost { note: String },
    /// The prong has no place for the batch: any prong may claim it again.
    Returned,
    /// Another prong was first.
    Cancelled,
}

/// State that the mutex guards.
pub(crate) struct Core {
    pub schedule: Schedule,
    pub recorder: Recorder,
    pub ready: HashMap<BatchId, Result<ReadyBatch, LoaderError>>,
    /// Batches of the CPU prong whose rows are not all handed out.
    pub jobs: VecDeque<Arc<CpuJob>>,
    /// The fetch stage, if the dataset's reads have latency.
    fetching: Option<Fetching>,
    /// Threads of the fetch stage that wait for a sample to fetch.
    idle_fetchers: usize,
    /// Memory for samples to fetch, and how many are kept.
    spare: Vec<FetchedSample>,
    spare_max: usize,
    /// Requests that the store has pushed back, as far as the fetch stage knows.
    pushed_back: u64,
    /// Samples that may be in flight, if there is a bound; kept after the end of the run.
    fetch_depth: Option<usize>,
    pub plan: PlanRecord,
    /// The batch that was delivered last.
    last: Option<Delivered>,
    /// A batch that the schedule calls delivered, but that did not reach the consumer.
    pub taken_back: Option<BatchId>,
    /// Whether the consumer has asked for a batch and got none yet.
    pub consumer_waits: bool,
    announced: Announced,
    orders: Orders,
    /// Samples of the batches that exchange some, from their first claim to their delivery.
    exchanging: HashMap<BatchId, Samples>,
    /// Samples that moved up to the batch that was delivered last.
    pub moved: Moved,
    /// The same up to the batch before it.
    pub moved_before: Moved,
    corrupt: CorruptCount,
    /// Error that ends the run and belongs to no batch.
    failure: Option<LoaderError>,
    /// Verdicts of drives that the CPU has to confirm.
    doubts: HashMap<BatchId, Doubt>,
    /// For each drive, the number of refuted verdicts that its thread has not taken yet.
    refuted: HashMap<ProngId, u32>,
    /// What was recorded of the silences of the drive that holds the dataset.
    pub silence: SilenceRecord,
}

/// State shared by consumer, CPU threads and drive threads.
pub(crate) struct Engine {
    pub task: RunTask,
    /// Lends the buffers of batches.
    pub target: Arc<dyn DeliveryTarget>,
    /// Batches between the end of their preparation and the moment at which they are ready for delivery.
    making_ready: AtomicUsize,
    core: Mutex<Core>,
    /// Something may be deliverable, or the run ended.
    delivery: Condvar,
    /// The CPU prong may have work.
    work: Arc<Signal>,
    /// There may be a sample to fetch.
    fetch: Arc<Signal>,
    fetch_plan: FetchPlan,
    /// Whether the run was ended for good.
    stop: AtomicBool,
    /// Whether the threads end but keep their drives, since the run goes on at another position.
    keeps_drives: AtomicBool,
    /// Peak memory of the process.
    pub memory: MemoryPeak,
    /// Bytes that the CPU prong has read.
    pub read: ReadSum,
    /// Time that the threads of the CPU prong and of its fetch stage have worked.
    pub work_times: WorkTimes,
    /// Samples that were asked for a second time.
    pub hedges: HedgeCounts,
    /// For each drive, a function that ends its association or the attempt to make one.
    links: Mutex<BTreeMap<ProngId, Box<dyn Fn() + Send>>>,
}

impl Engine {
    /// Creates the state of a run that needs `buffers` buffers. `make` makes the delivery target, if the consumer has
    /// named one; the default is memory of this process.
    pub fn new(
        task: RunTask,
        schedule: Schedule,
        mut recorder: Recorder,
        buffers: usize,
        make: Option<Arc<MakeTarget>>,
    ) -> Result<Self, DeliveryError> {
        let work = Arc::new(Signal::default());
        let fetch_plan = task.fetch_plan();
        let bytes = buffer_bytes(&task.cut, &task.buckets);
        let table = task.buckets[0].images.finishing().map(|finishing| finishing.table.clone()).unwrap_or_default();
        let need = BufferNeed { count: buffers, bytes, table, returned: BufferReturned::new(work.clone()) };
        let target = match make {
            Some(make) => make(need)?,
            None => Arc::new(HostPool::new(need)),
        };
        recorder.delivers_to(target.device());
        Ok(Self {
            target,
            making_ready: AtomicUsize::new(0),
            core: Mutex::new(Core::new(&task, schedule, recorder)),
            task,
            delivery: Condvar::new(),
            work,
            fetch: Arc::default(),
            fetch_plan,
            stop: AtomicBool::new(false),
            keeps_drives: AtomicBool::new(false),
            memory: MemoryPeak::new(),
            read: ReadSum::default(),
            work_times: WorkTimes::default(),
            hedges: HedgeCounts::default(),
            links: Mutex::default(),
        })
    }

    pub fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().expect("no thread panics while it holds the core")
    }

    /// Returns whether threads should end: the run was stopped, for good or until [`Self::restart`].
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire) || self.keeps_drives.load(Ordering::Acquire)
    }

    /// Returns whether threads should end: the run was stopped, or everything was delivered.
    pub fn is_over(&self) -> bool {
        self.is_stopped() || self.lock().schedule.is_done()
    }

    /// Ends the run for good: its threads end, and the consumer gets no further batch.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake_all();
    }

    /// Lets all threads see that they should end.
    fn wake_all(&self) {
        // Taking the lock makes a thread that is about to wait see the flag before it waits.
        drop(self.lock());
        self.delivery.notify_all();
        self.wake_cpu();
    }

    /// Wakes the threads of the CPU prong that wait for work, and those of its fetch stage.
    pub fn wake_cpu(&self) {
        self.work.notify_all();
        self.fetch.notify_all();
    }

    /// Ends the threads until [`Self::restart`]. Threads of drives keep their drives, so that these stay connected.
    pub fn stop_keeping_drives(&self) {
        self.keeps_drives.store(true, Ordering::Release);
        self.wake_all();
    }

    /// Returns whether a drive's thread that ends keeps its drive.
    pub fn keeps_drives(&self) -> bool {
        self.keeps_drives.load(Ordering::Acquire) && !self.stop.load(Ordering::Acquire)
    }

    /// Begins again with another schedule, and samples that moved before, when no thread is left. The figures and the
    /// plan go on. A run that was stopped for good, or whose drive was refused, still ends at the next request.
    pub fn restart(&self, schedule: Schedule, moved: Moved) {
        let mut core = self.lock();
        let unused = Recorder::new(Report::default(), Vec::new());
        let mut recorder = mem::replace(&mut core.recorder, unused);
        recorder.restart();
        let (failure, mut plan) = (core.failure.take(), mem::take(&mut core.plan));
        let silence = mem::take(&mut core.silence);
        plan.moved();
        let new = Core { failure, plan, silence, moved, ..Core::new(&self.task, schedule, recorder) };
        let old = mem::replace(&mut *core, new);
        self.keeps_drives.store(false, Ordering::Release);
        drop(core);
        // Finished batches give their buffers and slots back without the lock.
        drop(old);
    }

    /// Frees the memory of batches that nobody will get, when no thread is left. Figures and position stay.
    pub fn free_batches(&self) {
        let mut core = self.lock();
        let unused = (mem::take(&mut core.ready), mem::take(&mut core.jobs), core.fetching.take());
        core.spare.clear();
        drop(core);
        // Buffers and slots return without the lock.
        drop(unused);
        let _core = self.lock();
        self.target.end();
    }

    /// Records that a prong's processor is done with a batch. Returns false when another prong was first.
    pub fn executed(&self, prong: ProngId, id: BatchId) -> bool {
        let mut core = self.lock();
        if prong == CPU {
            self.watch_silence(&mut core);
        }
        let used = core.executed(prong, id);
        drop(core);
        // Another prong may have to stop, or has less to wait for.
        self.wake_cpu();
        used
    }

    /// Records that the CPU cannot prepare a batch. The run ends with that error when the batch is due.
    pub fn failed(&self, id: BatchId, error: LoaderError) {
        let mut core = self.lock();
        if core.executed(CPU, id) {
            self.make_ready(&mut core, CPU, id, Err(error));
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
            core.recorder.fault(doubt.prong, Some(id), FaultKind::Damaged, doubt.what);
        }
        if let Ok(batch) = &ready {
            let images = batch.records.iter().filter(|record| record.has_row()).count();
            core.recorder.prepared(prong, images);
        }
        core.ready.insert(id, ready);
        self.delivery.notify_all();
        self.wake_cpu();
    }

    /// Gives up a batch that a prong claimed, whether the prong still works on it or holds an unusable result.
    pub fn give_up(&self, prong: ProngId, id: BatchId, why: GivenUp) {
        self.lock().give_up(prong, id, why);
        self.wake_cpu();
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

impl RunTask {
    /// Returns among which batches of its epoch a batch may exchange samples: those of its bucket, except one that may
    /// have a sample of another batch, too. `None` if samples come in order.
    pub fn exchanges_among(&self, id: BatchId) -> Option<usize> {
        let may = self.fetch.is_out_of_order() && !self.cut.may_wrap(id.batch);
        may.then(|| self.cut.bucket(id.batch))
    }

    /// Returns how samples are fetched.
    pub fn fetch_plan(&self) -> FetchPlan {
        FetchPlan::new(&*self.dataset, self.fetch, self.cut.rows(), self.walks.window())
    }

    /// Returns what all samples of an epoch have in common.
    pub fn epoch_context(&self, epoch: u32) -> EpochContext {
        let fidelity = self.fidelity.known(epoch).expect("an epoch begins with a known fidelity");
        EpochContext { seed: self.seed, epoch, fidelity }
    }

    /// Returns how the samples of an epoch are read.
    pub fn ahead(&self, epoch: u32) -> Ahead {
        let window = self.walks.window().map(|window| window.lanes.count);
        Ahead { fidelity: self.epoch_context(epoch).fidelity, window }
    }

    /// Returns what happens to a corrupt sample, which is the same in all buckets.
    pub fn policy(&self) -> CorruptPolicy {
        self.buckets[0].program.policy
    }

    /// Returns whether images lie in buffers as they were prepared, which is the same in all buckets.
    pub fn is_as_prepared(&self) -> bool {
        self.buckets[0].images.is_as_prepared()
    }

    /// Returns whether the delivery target finishes batches.
    pub fn is_finished_by_target(&self) -> bool {
        self.buckets[0].images.finishing().is_some()
    }

    /// Returns the bucket of a batch.
    pub fn bucket(&self, id: BatchId) -> &Bucket {
        &self.buckets[self.cut.bucket(id.batch)]
    }

    /// Returns what is done to the images of a batch of this many rows.
    pub fn mix(&self, id: BatchId, rows: usize) -> BatchMix {
        let draw = |mixing: &Mixing| mixing.draw(id, rows, self.bucket(id).images.prepared());
        self.mixing.as_ref().map_or(BatchMix::Unmixed, draw)
    }

    /// Mixes the rows of a batch, as they are delivered.
    pub fn mix_images(&self, id: BatchId, rows: &mut [u8]) -> Result<(), LoaderError> {
        let images = &self.bucket(id).images;
        let row_bytes = images.row_bytes();
        self.mix(id, rows.len() / row_bytes).mix_images(images, rows).map_err(|error| LoaderError::System {
            what: "memory for mixing a batch",
            source: memory::refused(row_bytes as u64, error.into()),
        })
    }
}

impl Core {
    fn new(task: &RunTask, schedule: Schedule, recorder: Recorder) -> Self {
        let plan = task.fetch_plan();
        Self {
            schedule,
            recorder,
            ready: HashMap::new(),
            jobs: VecDeque::new(),
            fetching: plan.stage(),
            idle_fetchers: 0,
            spare: Vec::new(),
            spare_max: plan.spare_max,
            pushed_back: 0,
            fetch_depth: None,
            plan: PlanRecord::new(task.cut.batches()),
            last: None,
            taken_back: None,
            consumer_waits: false,
            announced: Announced::default(),
            orders: Orders::new(task.walks.clone(), task.cut.clone()),
            exchanging: HashMap::new(),
            moved: Moved::default(),
            moved_before: Moved::default(),
            corrupt: CorruptCount::new(task.max_corrupt),
            failure: None,
            doubts: HashMap::new(),
            refuted: HashMap::new(),
            silence: SilenceRecord::of(&*task.dataset),
        }
    }

    fn executed(&mut self, prong: ProngId, id: BatchId) -> bool {
        if prong == CPU {
            self.stop_fetching(id);
        }
        let now = self.recorder.now();
        let used = self.schedule.executed(prong, id, now) == ResultUse::Used;
        self.recorder.released(prong, id, used);
        used
    }

    fn give_up(&mut self, prong: ProngId, id: BatchId, why: GivenUp) {
        if prong == CPU {
            self.stop_fetching(id);
        }
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
            GivenUp::LeftToHost { note } => {
                self.schedule.failed(prong, id, now);
                let name = self.recorder.name(prong);
                self.recorder.note(format!("drive {name}: {note}"));
            }
            GivenUp::Returned => self.schedule.returned(prong, id, now),
            GivenUp::Cancelled => self.schedule.cancelled(prong, id, now),
        }
    }
}
