//! The loader: an iterator of batches over threads and drives.

use crate::batch::Batch;
use crate::config::LoaderBuilder;
use crate::cpu::{self, Doing, DoingBoard};
use crate::drive::{
    self, DriveLink, DriveProng, DriveSetup, DriveSpec, Endpoint, Expected, LinkError, LocalAgent, SlotTable,
};
use crate::engine::{Core, Engine, Task};
use crate::error::LoaderError;
use crate::order::Cut;
use crate::plan::Plan;
use crate::recorder::Recorder;
use crate::report::Report;
use crate::schedule::{CPU, Schedule, ScheduleConfig, Strategy};
use crate::state::{LoaderState, STATE_VERSION};
use crate::usage;
use ddlp_csd::program::Program;
use ddlp_csd::slot::SlotLayout;
use ddlp_dataset::Dataset;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Result slots of a local drive, unless the strategy can use more.
const LOCAL_SLOTS: u32 = 16;
/// Share of the available memory that a local drive's slots may take by default.
const LOCAL_SLOTS_SHARE: u64 = 4;

/// Delivers the batches of a run, prepared by the host's CPU and by drives.
///
/// Made by [`Loader::builder`]. Iterating yields every batch of every epoch exactly once, or an error after which nothing
/// follows. Dropping it ends its threads and the drives that it started.
pub struct Loader {
    engine: Arc<Engine>,
    fresh: LoaderState,
    epochs: u32,
    batches: u32,
    threads: usize,
    cores: Vec<usize>,
    stall_after: Duration,
    doing: Arc<DoingBoard>,
    waiting: Vec<DriveProng>,
    running: Vec<JoinHandle<()>>,
    is_over: bool,
}

impl Loader {
    /// Starts to collect options.
    pub fn builder() -> LoaderBuilder {
        LoaderBuilder::default()
    }

    pub(crate) fn start(options: LoaderBuilder) -> Result<Self, LoaderError> {
        let setup = Setup::new(&options)?;
        let drives = setup.open_drives(&options)?;
        let slots: usize = drives.iter().map(|drive| drive.slots.free()).sum();
        let window = options.window.unwrap_or(options.buffers + slots);
        let schedule = Schedule::new(ScheduleConfig {
            strategy: options.strategy,
            batches: setup.batches,
            epochs: setup.first_epoch..options.epochs,
            window: u32::try_from(window).unwrap_or(u32::MAX),
            drives: drives.len(),
            delivered: options.resume.as_ref().map(|state| state.delivered.clone()).unwrap_or_default(),
            replay: options.replay.clone().map(|plan| plan.epochs).unwrap_or_default(),
        });
        let recorder = setup.recorder(&options, &drives);
        let task = Task {
            dataset: setup.dataset.clone(),
            program: setup.program.clone(),
            seed: options.seed,
            cut: setup.cut,
            shape: setup.program.pipeline.output(),
        };
        let engine = Arc::new(Engine::new(task, schedule, recorder, options.buffers));
        let waiting = (1..)
            .zip(drives)
            .map(|(prong, open)| {
                let timing = DriveSetup { prong, depth: options.drive_depth, timeout: options.drive_timeout };
                DriveProng::new(engine.clone(), timing, open.endpoint, setup.expected, open.link, open.slots)
            })
            .collect();
        Ok(Self {
            engine,
            fresh: setup.fresh,
            epochs: options.epochs,
            batches: setup.batches,
            threads: options.threads,
            cores: options.cores,
            stall_after: options.stall_after,
            doing: Arc::new((0..options.threads).map(|_| Mutex::new(None)).collect()),
            waiting,
            running: Vec::new(),
            is_over: false,
        })
    }

    /// Batches of an epoch.
    pub fn batches_per_epoch(&self) -> u32 {
        self.batches
    }

    /// Where the run stands after the batch that was returned last (`state_dict`).
    pub fn state(&self) -> LoaderState {
        let core = self.engine.lock();
        LoaderState {
            epoch: core.schedule.current_epoch().unwrap_or(self.epochs),
            delivered: core.schedule.delivered(),
            ..self.fresh.clone()
        }
    }

    /// The order of delivery of the epochs that were delivered whole, to be replayed by [`LoaderBuilder::replay`].
    pub fn plan(&self) -> Plan {
        let core = self.engine.lock();
        let whole = core.plan.iter().filter(|epoch| epoch.deliveries.len() == self.batches as usize);
        Plan { epochs: whole.cloned().collect(), ..self.empty_plan() }
    }

    fn empty_plan(&self) -> Plan {
        plan_for(&self.engine.task, self.batches)
    }

    /// The figures of the run up to now.
    pub fn report(&self) -> Report {
        self.engine.lock().recorder.report()
    }

    /// A handle that shows from another thread how far the run is.
    pub fn progress(&self) -> ProgressHandle {
        ProgressHandle { engine: self.engine.clone(), epochs: self.epochs, batches: self.batches }
    }

    /// A handle that ends the run from another thread.
    pub fn stopper(&self) -> Stopper {
        Stopper { engine: self.engine.clone() }
    }

    fn begin(&mut self) -> Result<(), LoaderError> {
        if !self.running.is_empty() || self.is_over {
            return Ok(());
        }
        self.engine.lock().recorder.start();
        for drive in self.waiting.drain(..) {
            self.running.push(spawn("ddlp-drive".into(), &self.cores, move || drive.run())?);
        }
        for number in 0..self.threads {
            let (engine, doing) = (self.engine.clone(), self.doing.clone());
            let thread = spawn(format!("ddlp-cpu-{number}"), &self.cores, move || cpu::work(&engine, &doing[number]))?;
            self.running.push(thread);
        }
        Ok(())
    }

    fn wait(&self) -> Option<Result<Batch, LoaderError>> {
        let asked = Instant::now();
        let mut warned_at = asked;
        let mut core = self.engine.lock();
        let asked_s = core.recorder.now();
        loop {
            if self.engine.is_stopped() {
                return None;
            }
            if let Some(batch) = self.engine.deliver(&mut core, asked_s) {
                return Some(batch);
            }
            if core.schedule.is_done() {
                return None;
            }
            core = self.engine.wait_for_delivery(core, self.stall_after.min(Duration::from_secs(1)));
            core.recorder.sample_memory();
            if warned_at.elapsed() >= self.stall_after {
                warned_at = Instant::now();
                self.name_stall(&mut core, asked.elapsed());
            }
        }
    }

    /// Says what the consumer waits for.
    fn name_stall(&self, core: &mut Core, waited: Duration) {
        let dataset = &self.engine.task.dataset;
        let mut busy: Vec<Doing> =
            self.doing.iter().filter_map(|doing| *doing.lock().expect("no panic while the board is locked")).collect();
        busy.sort_by_key(|doing| doing.since);
        let cpu = match busy.first() {
            None => "no CPU thread has work".to_string(),
            Some(doing) => format!(
                "the CPU works on sample {} (id {}) of epoch {} batch {} since {:.1} s",
                dataset.name(doing.sample_id % dataset.len()),
                doing.sample_id,
                doing.id.epoch,
                doing.id.batch,
                doing.since.elapsed().as_secs_f64()
            ),
        };
        let outstanding = core.schedule.describe_outstanding();
        let what = format!("nothing arrived for {:.1} s; {cpu}; {outstanding}", waited.as_secs_f64());
        core.recorder.fault(CPU, None, "stall", what);
    }

    /// Ends all threads and waits for them.
    fn shut_down(&mut self) {
        self.is_over = true;
        self.engine.stop();
        for thread in self.running.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the loader panicked");
            }
        }
        self.waiting.clear();
    }
}

impl Iterator for Loader {
    type Item = Result<Batch, LoaderError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let next = match self.begin() {
            Ok(()) => self.wait(),
            Err(error) => Some(Err(error)),
        };
        if !matches!(next, Some(Ok(_))) {
            self.shut_down();
        }
        next
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.shut_down();
    }
}

/// Ends a run from another thread: the iterator returns `None` soon.
#[derive(Clone)]
pub struct Stopper {
    engine: Arc<Engine>,
}

impl Stopper {
    /// Ends the run.
    pub fn stop(&self) {
        self.engine.stop();
    }
}

/// Shows how far a run is.
#[derive(Clone)]
pub struct ProgressHandle {
    engine: Arc<Engine>,
    epochs: u32,
    batches: u32,
}

/// How far a run is.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// The epoch that is delivered.
    pub epoch: u32,
    /// Number of epochs.
    pub epochs: u32,
    /// Batches of an epoch.
    pub batches: u32,
    /// Batches delivered of this epoch.
    pub delivered: u32,
    /// Batches of this epoch that the CPU claimed.
    pub head: u32,
    /// Batches of this epoch that drives claimed.
    pub tail: u32,
    /// Images delivered in the run.
    pub images: u64,
    /// Seconds since the first batch was asked for.
    pub elapsed_s: f64,
    /// One entry per prong.
    pub prongs: Vec<ProngProgress>,
    /// Faults so far.
    pub faults: usize,
    /// Corrupt samples so far.
    pub corrupt: usize,
}

/// How far a prong is.
#[derive(Clone, Debug, Default)]
pub struct ProngProgress {
    /// `cpu`, or the drive's name.
    pub name: String,
    /// Images of it that were delivered.
    pub images: u64,
    /// Images delivered per second of its work.
    pub images_per_s: f64,
    /// Batches in its work.
    pub outstanding: usize,
    /// False while the drive is away.
    pub is_up: bool,
}

impl ProgressHandle {
    /// How far the run is now.
    pub fn snapshot(&self) -> Progress {
        let core = self.engine.lock();
        let epoch = core.schedule.progress();
        let prongs =
            core.recorder.images_by_prong().into_iter().enumerate().map(|(prong, (name, images, images_per_s))| {
                ProngProgress {
                    name,
                    images,
                    images_per_s,
                    outstanding: core.schedule.outstanding(prong),
                    is_up: core.schedule.is_up(prong),
                }
            });
        Progress {
            epoch: epoch.epoch,
            epochs: self.epochs,
            batches: self.batches,
            delivered: epoch.delivered,
            head: epoch.head,
            tail: epoch.tail,
            images: core.recorder.images(),
            elapsed_s: core.recorder.now(),
            prongs: prongs.collect(),
            faults: core.recorder.fault_count(),
            corrupt: core.recorder.corrupt_count(),
        }
    }
}

/// What the options come to.
struct Setup {
    dataset: Arc<dyn Dataset>,
    program: Program,
    cut: Cut,
    batches: u32,
    layout: SlotLayout,
    expected: Expected,
    fresh: LoaderState,
    first_epoch: u32,
}

/// A drive that was reached and fits.
struct OpenDrive {
    name: String,
    endpoint: Endpoint,
    link: DriveLink,
    slots: SlotTable,
}

impl Setup {
    fn new(options: &LoaderBuilder) -> Result<Self, LoaderError> {
        let shape = options.pipeline.validate().map_err(LoaderError::Pipeline)?;
        let dataset: Arc<dyn Dataset> = match (&options.dataset, &options.dataset_path) {
            (Some(dataset), _) => dataset.clone(),
            (None, Some(path)) => ddlp_dataset::open(path).map_err(LoaderError::Dataset)?.into(),
            (None, None) => return Err(LoaderError::Options("no dataset is given".into())),
        };
        let samples = options.epoch_samples.unwrap_or(dataset.len());
        if samples == 0 || dataset.is_empty() {
            return Err(LoaderError::Options("the epoch has no samples".into()));
        }
        if samples > u64::from(u32::MAX) {
            return Err(LoaderError::Options(format!("an epoch of {samples} samples, {} are possible", u32::MAX)));
        }
        let cut = Cut {
            samples,
            batch: options.batch_size as u64,
            last: options.last,
            rank: u64::from(options.rank),
            world: u64::from(options.world),
        };
        let batches = u32::try_from(cut.batches()).expect("not more batches than samples");
        let rows = options.batch_size.div_ceil(options.world as usize);
        let layout = SlotLayout::new(rows, shape)
            .ok_or_else(|| LoaderError::Options(format!("a batch of {rows} samples of {shape:?} is too large")))?;
        let program = Program { pipeline: options.pipeline.clone(), limits: options.limits, policy: options.policy };
        let fresh = LoaderState {
            version: STATE_VERSION,
            seed: options.seed,
            dataset: dataset.identity().to_string(),
            epoch_samples: samples,
            batch_size: cut.batch,
            last: cut.last,
            strategy: options.strategy,
            world: options.world,
            epoch: 0,
            delivered: Vec::new(),
        };
        let expected = Expected {
            dataset: *dataset.identity().as_bytes(),
            fingerprint: *ddlp_pixels::fingerprint().as_bytes(),
            slot_bytes: layout.total_bytes,
        };
        let setup = Self { dataset, program, cut, batches, layout, expected, fresh, first_epoch: 0 };
        setup.with_history(options)
    }

    /// Checks what an earlier run left: a state to resume from, a plan to replay.
    fn with_history(mut self, options: &LoaderBuilder) -> Result<Self, LoaderError> {
        if let Some(state) = &options.resume {
            state.check_fits(&self.fresh, self.batches).map_err(LoaderError::State)?;
            self.first_epoch = state.epoch;
        }
        if let Some(plan) = &options.replay {
            let task = Plan {
                seed: options.seed,
                dataset: self.expected.dataset,
                epoch_samples: self.cut.samples,
                batch_size: self.cut.batch,
                batches: self.batches,
                epochs: Vec::new(),
            };
            plan.check_is_for(&task).map_err(LoaderError::Plan)?;
        }
        Ok(self)
    }

    fn recorder(&self, options: &LoaderBuilder, drives: &[OpenDrive]) -> Recorder {
        let report = Report {
            strategy: options.strategy.to_string(),
            dataset: options
                .dataset_path
                .as_ref()
                .map_or(self.dataset.kind().into(), |path| path.display().to_string()),
            epoch_samples: self.cut.samples,
            batch_size: self.cut.batch,
            seed: options.seed,
            threads: options.threads,
            ..Report::default()
        };
        let names = std::iter::once("cpu".to_string()).chain(drives.iter().map(|drive| drive.name.clone())).collect();
        let mut recorder = Recorder::new(report, names);
        let slots: usize = drives.iter().map(|drive| drive.slots.free()).sum();
        if options.strategy == Strategy::Mte && !drives.is_empty() && slots < self.batches as usize {
            recorder.note(format!("the tail is at most {slots} batches long, as many as the drives have result slots"));
        }
        recorder
    }

    fn open_drives(&self, options: &LoaderBuilder) -> Result<Vec<OpenDrive>, LoaderError> {
        if options.strategy == Strategy::Cpu {
            return Ok(Vec::new());
        }
        let many = options.drives.len() > 1;
        (1..)
            .zip(&options.drives)
            .map(|(number, spec)| {
                let name = match spec {
                    DriveSpec::Tcp(url) => url.clone(),
                    DriveSpec::Local(_) if many => format!("csd {number}"),
                    DriveSpec::Local(_) => "csd".to_string(),
                };
                self.open_drive(options, spec, &name)
                    .map_err(|reason| LoaderError::Drive { drive: name.clone(), reason })
                    .map(|(endpoint, link, slots)| OpenDrive { name, endpoint, link, slots })
            })
            .collect()
    }

    fn open_drive(
        &self,
        options: &LoaderBuilder,
        spec: &DriveSpec,
        name: &str,
    ) -> Result<(Endpoint, DriveLink, SlotTable), String> {
        let (endpoint, local_slots) = match spec {
            DriveSpec::Tcp(url) => (Endpoint::remote(url).map_err(|error| error.to_string())?, None),
            DriveSpec::Local(local) => {
                let slots = local.slots.unwrap_or_else(|| self.local_slots(options));
                let path = options.dataset_path.as_ref().expect("checked with the options");
                let (agent, table) = LocalAgent::start(local, path, slots, self.layout.total_bytes)
                    .map_err(|error| error.to_string())?;
                tracing::debug!(drive = name, pid = agent.pid(), "agent started");
                (Endpoint::local(agent).map_err(|error| error.to_string())?, Some(table))
            }
        };
        let link =
            drive::connect(&endpoint, &self.expected, &self.program, options.drive_depth).map_err(
                |error| match error {
                    LinkError::Driver(error) => format!("{error}; is the agent running there?"),
                    LinkError::Refused(reason) => reason,
                },
            )?;
        let slots = match local_slots {
            Some(table) => table,
            None => SlotTable::remote(link.identity.slots, link.identity.slot_bytes as usize),
        };
        Ok((endpoint, link, slots))
    }

    /// Slots for a local drive: for `mte` the whole tail, as far as memory allows.
    fn local_slots(&self, options: &LoaderBuilder) -> u32 {
        let drives = options.drives.len().max(1) as u64;
        let memory = usage::available_bytes().unwrap_or(1 << 30) / LOCAL_SLOTS_SHARE / drives;
        let fitting = u32::try_from(memory / self.layout.total_bytes as u64).unwrap_or(u32::MAX);
        let useful = if options.strategy == Strategy::Mte { self.batches } else { LOCAL_SLOTS.min(self.batches) };
        useful.min(fitting).max(options.drive_depth as u32 + 1)
    }
}

fn plan_for(task: &Task, batches: u32) -> Plan {
    Plan {
        seed: task.seed,
        dataset: *task.dataset.identity().as_bytes(),
        epoch_samples: task.cut.samples,
        batch_size: task.cut.batch,
        batches,
        epochs: Vec::new(),
    }
}

fn spawn(name: String, cores: &[usize], body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, LoaderError> {
    let cores = cores.to_vec();
    let pinned = move || {
        if let Err(error) = pin(&cores) {
            tracing::warn!("threads cannot run on cores {cores:?} only: {error}");
        }
        body();
    };
    std::thread::Builder::new()
        .name(name)
        .spawn(pinned)
        .map_err(|source| LoaderError::System { what: "a thread", source })
}

/// Lets the calling thread run on these cores only; empty: on any.
fn pin(cores: &[usize]) -> nix::Result<()> {
    if cores.is_empty() {
        return Ok(());
    }
    let mut set = nix::sched::CpuSet::new();
    for &core in cores {
        set.set(core)?;
    }
    nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set)
}
