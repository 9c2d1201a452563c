//! The loader: an iterator of batches that threads and drives prepare. `running`: its threads. `stall`: what it says
//! when the consumer waits for long. `waiting`: what it asks a consumer that waits.

mod running;
mod stall;
mod waiting;

pub use waiting::Waiting;

use crate::batch::Batch;
use crate::builder::LoaderBuilder;
use crate::cpu::Desk;
use crate::delivery::SlotTable;
use crate::drive::{DriveDepth, DriveProng, DriveSetup};
use crate::engine::{Engine, RunTask};
use crate::error::LoaderError;
use crate::fetch::{FetchOptions, FetchOrder, FetchPlan};
use crate::metrics;
use crate::moved::Moved;
use crate::options::LoaderOptions;
use crate::plan::Plan;
use crate::progress::ProgressHandle;
use crate::report::Report;
use crate::schedule::{Schedule, ScheduleConfig, Strategy};
use crate::setup::RunSetup;
use crate::state::LoaderState;
use crate::threads::ThreadShares;
use ddlp_dataset::{Dataset, SampleFields};
use ddlp_metrics::{LocalServer, MetricsServer};
use running::RunThreads;
use std::fmt;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use waiting::{Asked, Waited};

/// Time that a consumer which keeps all buffers may wait for a batch before the loader warns it.
const KEPT_AFTER: Duration = Duration::from_secs(3);
/// How often the loader asks a consumer that waits whether it still wants to wait.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// Delivers the batches of a run, prepared by the host's CPU and by drives.
///
/// Built with [`Loader::builder`] or [`Loader::open`]. The iterator yields every batch of every epoch exactly once, or
/// an error and then nothing more. Dropping the loader ends its threads and the drives that it started.
///
/// Each batch occupies one of a few buffers until it is dropped, so `collect` needs copies, or as many
/// [`buffers`](LoaderOptions::buffers) as batches:
///
/// ```no_run
/// # let loader = ddlp_host::Loader::open(ddlp_host::LoaderOptions::default())?;
/// let all: Vec<ddlp_host::Batch> = loader.map(|batch| batch?.into_owned()).collect::<Result<_, _>>()?;
/// # Ok::<(), ddlp_host::LoaderError>(())
/// ```
pub struct Loader {
    pub(crate) engine: Arc<Engine>,
    fresh: LoaderState,
    epochs: u32,
    batches: u32,
    threads: usize,
    cores: Vec<usize>,
    stall_after: Duration,
    /// Result slots of each drive.
    slots: Vec<Arc<SlotTable>>,
    /// One for each CPU thread, and then one for each thread that fetches.
    desks: Arc<[Desk]>,
    waiting: Vec<DriveProng>,
    running: RunThreads,
    /// Earlier waits for the next batch.
    asked: Asked,
    /// Whether the loader has said that the consumer keeps all places for batches. It says so once.
    has_named_kept: bool,
    is_over: bool,
    /// Serves the figures at the address that the options name.
    metrics: Option<MetricsServer>,
    /// Serves the figures to programs of the same user.
    local_metrics: Option<LocalServer>,
}

impl fmt::Debug for Loader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loader")
            .field("epochs", &self.epochs)
            .field("batches_per_epoch", &self.batches)
            .field("threads", &self.threads)
            .field("is_over", &self.is_over)
            .finish_non_exhaustive()
    }
}

impl Loader {
    /// Returns a builder, which collects the options.
    pub fn builder() -> LoaderBuilder {
        LoaderBuilder::default()
    }

    /// Starts a run with these options.
    ///
    /// # Errors
    ///
    /// As [`LoaderBuilder::build`].
    pub fn open(options: LoaderOptions) -> Result<Self, LoaderError> {
        Self::builder().options(options).build()
    }
}

impl LoaderBuilder {
    /// Opens the dataset, starts or reaches the drives, and checks that they fit. Preparation begins when the first
    /// batch is requested.
    ///
    /// # Errors
    ///
    /// [`LoaderError`] names the option, dataset or drive that does not fit.
    pub fn build(self) -> Result<Loader, LoaderError> {
        Loader::start(self)
    }
}

impl Loader {
    /// Sets up a run.
    fn start(builder: LoaderBuilder) -> Result<Self, LoaderError> {
        builder.options.check()?;
        let begun = Instant::now();
        let setup = RunSetup::new(&builder)?;
        if builder.given_up.load(Ordering::Relaxed) {
            return Err(LoaderError::System { what: "the start of a run", source: ErrorKind::Interrupted.into() });
        }
        let drives = setup.open_drives(&builder)?;
        let LoaderBuilder { mut options, target, functions, .. } = builder;
        let (resume, replay) = (options.resume.take(), options.replay.take());
        let moved = moved_of(resume.as_ref());
        let slots: usize = drives.iter().map(|drive| drive.slots_expected() as usize).sum();
        let fetch_plan = {
            let fetching = FetchOptions::of(&options);
            FetchPlan::new(&*setup.dataset, fetching, setup.cut.rows(), setup.walks.window())
        };
        if options.fetch == FetchOrder::OutOfOrder && !fetch_plan.is_at_once && setup.dataset.requests().is_none() {
            return Err(LoaderError::Options(
                "`fetch` is \"out-of-order\", but the dataset is not the URL of a pack in a store, so no sample comes \
                 late: leave `fetch` out"
                    .into(),
            ));
        }
        // Samples are fetched for batches that have no buffer yet. Drives need not go as far ahead.
        let fetched = if drives.is_empty() { fetch_plan.batches_ahead() } else { 0 };
        let window = options.window.unwrap_or(options.buffers + slots + fetched);
        let schedule = Schedule::new(ScheduleConfig {
            strategy: options.strategy,
            batches: setup.batches,
            short_last: setup.cut.has_short_last(),
            epochs: setup.first_epoch..options.epochs,
            window: u32::try_from(window).unwrap_or(u32::MAX),
            drives: drives.len(),
            delivered: resume.map(|state| state.delivered).unwrap_or_default(),
            replay: replay.map(|plan| plan.epochs).unwrap_or_default(),
        });
        let recorder = setup.recorder(&options, &drives, begun.elapsed().as_secs_f64());
        let threads = ThreadShares::of(&options).cpu;
        let fetchers = fetch_plan.threads;
        let slots = drives.iter().map(|drive| drive.slots.clone()).collect();
        let task = RunTask {
            dataset: setup.dataset.clone(),
            buckets: setup.buckets,
            sizes: setup.sizes,
            seed: options.seed,
            fidelity: setup.fidelity,
            shuffle: options.shuffle,
            walks: setup.walks,
            mixing: setup.mixing,
            functions,
            beside: setup.beside,
            epochs: options.epochs,
            max_corrupt: options.max_corrupt.of(&setup.cut),
            fetch: FetchOptions::of(&options),
            cut: setup.cut,
        };
        let engine = Engine::new(task, schedule, recorder, options.buffers, target.map(|target| target.make));
        let engine = Arc::new(engine.map_err(LoaderError::Delivery)?);
        engine.lock().moved = moved;
        let waiting = (1..)
            .zip(drives)
            .map(|(prong, open)| {
                if open.link.is_none() {
                    engine.pause(prong);
                }
                let timing =
                    DriveSetup { prong, depth: DriveDepth::of(options.drive_depth), timeout: options.drive_timeout };
                DriveProng::new(engine.clone(), timing, open.endpoint, setup.expected.clone(), open.link, open.slots)
            })
            .collect();
        let mut loader = Self {
            engine,
            fresh: setup.fresh,
            epochs: options.epochs,
            batches: setup.batches,
            threads,
            cores: options.cores,
            stall_after: options.stall_after,
            slots,
            desks: (0..threads + fetchers).map(|_| Desk::default()).collect(),
            waiting,
            running: RunThreads::default(),
            asked: Asked::default(),
            has_named_kept: false,
            is_over: false,
            metrics: None,
            local_metrics: None,
        };
        loader.metrics = options.metrics.map(|address| metrics::serve(address, loader.progress())).transpose()?;
        loader.local_metrics = metrics::serve_locally(loader.progress());
        Ok(loader)
    }

    /// Returns the number of batches of an epoch.
    pub fn batches_per_epoch(&self) -> u32 {
        self.batches
    }

    /// Returns the number of samples of an epoch that this rank gets. Several views of a sample count once.
    pub fn samples_of_rank(&self) -> u64 {
        self.engine.task.cut.samples_of_rank()
    }

    /// Returns the names of the classes; a label is an index into them. The dataset names the classes, unless a table
    /// of fields names others.
    pub fn classes(&self) -> &[String] {
        let RunTask { beside, dataset, .. } = &self.engine.task;
        beside.classes().unwrap_or_else(|| dataset.classes())
    }

    /// Returns the fields beside the dataset.
    pub fn fields(&self) -> &SampleFields {
        &self.engine.task.beside
    }

    /// Returns the dataset.
    pub fn dataset(&self) -> &Arc<dyn Dataset> {
        &self.engine.task.dataset
    }

    /// Returns the position of the run after the batch that was returned last (`state_dict`).
    pub fn state(&self) -> LoaderState {
        self.progress().state()
    }

    /// Returns the plan of the epochs that this loader has delivered completely; [`LoaderOptions::replay`] replays it.
    /// A [`go_to`](Self::go_to) leaves them in the plan, and an epoch that the loader delivers again replaces the
    /// earlier one. An epoch that `go_to` left or entered in the middle is not in the plan, nor is one that the run
    /// resumed in the middle.
    pub fn plan(&self) -> Plan {
        let task = &self.engine.task;
        let (order, identity) = ((task.seed, task.shuffle, self.fresh.strategy), task.dataset.identity());
        let programs = task.buckets.iter().map(|bucket| &bucket.program);
        let recorded = (task.walks.portions(), &self.fresh.choice, task.fidelity.recorded(), self.fresh.shuffle_window);
        let plan = Plan::empty(order, programs, &identity, &task.cut, recorded, self.batches);
        Plan { epochs: self.engine.lock().plan.whole_epochs(), ..plan }
    }

    /// Returns the address at which the figures can be read, if the option `metrics` asks for it.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(MetricsServer::address)
    }

    /// Returns the figures of the run up to now.
    pub fn report(&self) -> Report {
        self.progress().report()
    }

    /// Returns a handle through which another thread sees the progress, position and figures of the run.
    pub fn progress(&self) -> ProgressHandle {
        ProgressHandle {
            engine: self.engine.clone(),
            fresh: self.fresh.clone(),
            epochs: self.epochs,
            batches: self.batches,
            slots: self.slots.clone(),
        }
    }

    /// Returns the strategy of the run.
    pub(crate) fn strategy(&self) -> Strategy {
        self.fresh.strategy
    }

    /// Returns the number of cores to which the CPU prong is restricted, if it is.
    pub(crate) fn pinned_cores(&self) -> Option<usize> {
        Some(self.cores.len()).filter(|&cores| cores > 0)
    }

    /// Returns the desks of the CPU prong's threads.
    pub(crate) fn cpu_desks(&self) -> &[Desk] {
        &self.desks[..self.threads]
    }

    /// Returns the number of threads that fetch samples.
    pub(crate) fn fetch_threads(&self) -> usize {
        self.desks.len() - self.threads
    }

    /// Returns a handle through which another thread ends the run.
    pub fn stopper(&self) -> Stopper {
        Stopper { engine: self.engine.clone() }
    }

    fn begin(&mut self) -> Result<(), LoaderError> {
        if !self.running.is_empty() || self.is_over {
            return Ok(());
        }
        let first_epoch = self.engine.lock().schedule.current_epoch().unwrap_or(self.epochs);
        self.engine.make_orders(first_epoch)?;
        self.engine.lock().recorder.start();
        let drives = self.waiting.drain(..);
        self.running.start(&self.engine, drives, &self.desks, self.threads, &self.cores)
    }

    fn wait(&mut self, go_on: &mut dyn FnMut(Waiting) -> bool) -> Waited {
        let begun = Instant::now();
        let (mut go_on_at, mut asked) = (begun, std::mem::take(&mut self.asked));
        let mut core = self.engine.lock();
        let asked_s = core.recorder.now() - asked.waited.as_secs_f64();
        loop {
            if self.engine.is_stopped() {
                return Waited::Ended(None);
            }
            if let Some(delivered) = self.engine.deliver(&mut core, asked_s) {
                drop(core);
                self.engine.memory.look();
                return match delivered {
                    Ok(batch) => {
                        self.engine.delivered(&batch);
                        Waited::Batch(batch)
                    }
                    Err(error) => {
                        self.engine.lock().recorder.failed(asked_s);
                        Waited::Ended(Some(error))
                    }
                };
            }
            if core.schedule.is_done() {
                return Waited::Ended(None);
            }
            if !std::mem::replace(&mut core.consumer_waits, true) && self.engine.target.free() == 0 {
                // A finished batch may have to make way for the one that the consumer waits for.
                self.engine.wake_cpu();
            }
            let silence = self.engine.watch_silence(&mut core);
            let waited = asked.waited + begun.elapsed();
            if !self.has_named_kept
                && waited >= self.stall_after.min(KEPT_AFTER)
                && let Some(kept) = self.engine.kept_whole(&core, &self.slots)
            {
                self.has_named_kept = true;
                stall::name_kept(&mut core, &kept);
            }
            if waited - asked.warned_at >= self.stall_after {
                asked.warned_at = waited;
                // Naming a sample may read from the disk that causes the stall.
                drop(core);
                match silence {
                    // The report has the drive's loss already.
                    Some(silence) => tracing::warn!("the CPU waits for its dataset: {silence}"),
                    None => self.name_stall(asked.waited + begun.elapsed()),
                }
                core = self.engine.lock();
            }
            core = self.engine.wait_for_delivery(core, self.stall_after.min(ASK_EVERY));
            let asks = go_on_at.elapsed() >= ASK_EVERY;
            let keeps_all = asks && self.engine.kept_whole(&core, &self.slots).is_some();
            drop(core);
            if asks {
                go_on_at = Instant::now();
                if !go_on(Waiting { time: begun.elapsed(), keeps_all }) {
                    // Nobody waits now, so no finished batch has to make way for another.
                    self.engine.lock().consumer_waits = false;
                    self.asked = Asked { waited: asked.waited + begun.elapsed(), ..asked };
                    return Waited::GaveUp;
                }
            }
            self.engine.memory.look();
            core = self.engine.lock();
        }
    }

    /// Returns the next batch, as [`next`](Iterator::next) does, but stops waiting for it as soon as `go_on` returns
    /// `false`. Then it returns `None`, although the run has not ended, and a later call waits for the same batch. The
    /// loader calls `go_on` about every 50 ms while the batch is not ready, without holding a lock.
    pub fn next_while(&mut self, mut go_on: impl FnMut(Waiting) -> bool) -> Option<Result<Batch, LoaderError>> {
        if self.is_over {
            return None;
        }
        let begun = self.engine.ask_fidelity().and_then(|()| self.begin());
        let waited = match begun {
            Ok(()) => self.wait(&mut go_on),
            Err(error) => Waited::Ended(Some(error)),
        };
        match waited {
            Waited::Batch(batch) => Some(Ok(batch)),
            Waited::GaveUp => None,
            Waited::Ended(error) => {
                self.shut_down();
                error.map(Err)
            }
        }
    }

    /// Returns whether the run has ended: everything was delivered, it failed, or a [`Stopper`] ended it.
    pub fn is_over(&self) -> bool {
        self.is_over || self.engine.is_over()
    }

    /// Goes on at another position: the next batch is the first one after `state`. Batches that were prepared ahead are
    /// dropped. The dataset stays open, and the figures and the [plan](Self::plan) go on. Drives stay
    /// connected, unless a drive does not end its work on the dropped batches within a few seconds: then the report has
    /// a fault, and the loader connects to the drive again.
    ///
    /// # Errors
    ///
    /// [`LoaderError::State`] if the state is of another run, and [`LoaderError::Options`] if this run
    /// [has ended](Self::is_over), and its drives with it. Neither changes the position.
    pub fn go_to(&mut self, state: &LoaderState) -> Result<(), LoaderError> {
        let fidelity = &self.engine.task.fidelity;
        if state.epoch < self.epochs {
            fidelity.ask(state.epoch).map_err(LoaderError::Options)?;
        }
        state.check_fits(&self.fresh, self.batches, fidelity).map_err(LoaderError::State)?;
        state.check_rank(&self.fresh, self.engine.task.cut.rank as u32).map_err(LoaderError::State)?;
        if self.is_over() {
            // After the last batch, drives may be about to end: a new loader may need their files.
            self.shut_down();
            return Err(LoaderError::Options("the run has ended, and its drives with it: build a new loader".into()));
        }
        self.engine.stop_keeping_drives();
        let kept = self.running.end(&self.engine);
        self.waiting.extend(kept);
        let schedule = self.engine.lock().schedule.beginning_at(state.epoch, state.delivered.clone());
        self.engine.restart(schedule, moved_of(Some(state)));
        for prong in 1..=self.slots.len() {
            let is_ready = |drive: &DriveProng| drive.number() == prong && drive.is_linked();
            if !self.waiting.iter().any(is_ready) {
                self.engine.pause(prong);
            }
        }
        self.asked = Asked::default();
        Ok(())
    }

    /// Counts the batch that was returned last as not delivered, because it did not reach the device that was to have
    /// it, and ends the run. [`state`](Self::state), [`plan`](Self::plan) and [`report`](Self::report) then lack the
    /// batch; a run that resumes begins with it.
    pub fn take_back(&mut self) {
        self.shut_down();
        self.engine.take_back();
    }

    /// Ends the run, and the drives that it started.
    fn shut_down(&mut self) {
        let was_over = std::mem::replace(&mut self.is_over, true);
        self.engine.stop();
        self.running.end(&self.engine);
        self.waiting.clear();
        if !was_over {
            self.engine.free_batches();
        }
    }
}

impl Iterator for Loader {
    type Item = Result<Batch, LoaderError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_while(|_| true)
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.shut_down();
    }
}

/// Handle that ends a run from another thread: the iterator then soon returns `None`.
#[derive(Clone)]
pub struct Stopper {
    engine: Arc<Engine>,
}

impl fmt::Debug for Stopper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stopper").field("is_stopped", &self.engine.is_stopped()).finish()
    }
}

impl Stopper {
    /// Ends the run.
    pub fn stop(&self) {
        self.engine.stop();
    }
}

/// Returns the samples that moved before a position.
fn moved_of(state: Option<&LoaderState>) -> Moved {
    let moved = state.and_then(|state| Some((state.epoch, state.moved.as_ref()?)));
    moved.map(|(epoch, moved)| Moved::of(epoch, moved)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_drive_ends_the_run_at_its_next_position_too() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("data_batch_1.bin"), [3u8; 8 * 3073]).unwrap();
        let mut loader =
            Loader::builder().with(|o| (o.dataset, o.batch_size) = (Some(folder.path().into()), 4)).build().unwrap();
        loader.engine.refuse(0, "it holds another dataset".to_string().into());
        loader.go_to(&loader.state()).unwrap();
        assert!(matches!(loader.next(), Some(Err(LoaderError::Drive { .. }))));
        assert!(loader.next().is_none());
    }
}
