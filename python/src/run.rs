//! A run of the loader as Python sees it. Rust works and waits without the interpreter's lock. `headspace`: a
//! measurement with steps in Python. `figures`: position and figures, which outlive the loader.

mod figures;
mod headspace;

use crate::arrow::Columns;
use crate::choice::GivenChoice;
use crate::dataset::{Member, OpenDataset, in_memory, mixed};
use crate::device::{self, DeviceBatch};
use crate::epoch::Epoch;
use crate::errors;
use crate::fidelity;
use crate::function;
use crate::of_epoch::{self, OfEpoch};
use crate::opening;
use crate::source::Sequence;
use crate::turn::{Owned, Turn};
use ddlp_cuda::CudaTarget;
use ddlp_host::dataset::SampleFields;
use ddlp_host::pixels::LABEL;
use ddlp_host::{
    Batch, DType, Dataset, Field, FieldKind, FieldTable, Loader, LoaderError, LoaderOptions, LoaderState, Waiting,
};
use figures::Figures;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyDict, PyList};
use std::mem::{self, ManuallyDrop};
use std::path::PathBuf;
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// How long a consumer that keeps all batches may wait if no other thread could let go of one.
const KEPT_FOR: Duration = Duration::from_secs(2);
/// How often a thread looks whether another one is done with the loader.
const LOOK: Duration = Duration::from_millis(1);
/// How many of these looks come between two looks for signals.
const LOOKS: u32 = 50;

/// A run: the batches of its epochs, one after the other.
#[pyclass(frozen, module = "ddlp._ddlp")]
pub struct Run {
    /// Locked while a thread waits for a batch. Handlers of signals run on that thread meanwhile: what they may call
    /// asks `waits_here` first.
    state: Arc<Mutex<RunState>>,
    /// The thread that waits for a batch.
    waits: Mutex<Option<ThreadId>>,
    turn: Turn,
    /// The position to which the loader goes back after the headspace that is being measured.
    measured_from: Mutex<Option<LoaderState>>,
    /// The batch that the loader has delivered and Python does not have yet.
    due: Arc<Mutex<Option<Arc<Batch>>>>,
    /// Number of the latest iteration, or move to another position.
    iteration: Arc<AtomicU64>,
    /// How often the latest iteration has been asked for a batch.
    asks: AtomicU64,
    /// Number of the latest move.
    moves: Arc<AtomicU64>,
    /// Whether `close` was called.
    closes: AtomicBool,
    /// Whether a buffer has come back while the consumer waited and kept all buffers: then another thread lets go of
    /// batches.
    lets_go: AtomicBool,
    figures: Arc<Mutex<Figures>>,
    epochs: u32,
    buffers: usize,
    /// Batches of an epoch.
    #[pyo3(get)]
    batches_per_epoch: u32,
    /// Samples of an epoch that this rank gets.
    #[pyo3(get)]
    samples_of_rank: u64,
    /// The Python objects that are the dataset, or a part of it. The loader inside `state` reads them.
    objects: Vec<Arc<Sequence>>,
    /// The dataset, until the run is closed.
    dataset: Mutex<Option<Arc<dyn Dataset>>>,
    /// Fields beside the dataset.
    beside: SampleFields,
    /// The functions that pipelines call. The loader inside `state` calls them.
    functions: Vec<Arc<Py<PyAny>>>,
    /// The function that returns the indices of an epoch. The loader inside `state` calls it.
    indices: Option<Arc<OfEpoch>>,
    /// The function that returns the fidelity of an epoch. The loader inside `state` calls it.
    fidelity: Option<Arc<OfEpoch>>,
    /// The device to which the run delivers; `None` if batches lie in host memory.
    device: Option<ddlp_cuda::Device>,
    /// Names of the classes.
    #[pyo3(get)]
    classes: Vec<String>,
    /// Names of the fields beside images and labels.
    #[pyo3(get)]
    fields: Vec<String>,
    /// Says that a list numbers its own classes, if that is so.
    #[pyo3(get)]
    note_of_classes: Option<String>,
    /// Samples of the dataset.
    #[pyo3(get)]
    samples: u64,
    /// The process that began the run. Its threads do not exist in a forked one.
    process: u32,
}

/// A table with fields: its name, the names of the samples, and names and cells of the columns.
type NamedTable = (PathBuf, Vec<String>, Vec<(String, Vec<String>)>);

/// Fields beside the dataset: of each its name, the type of its elements, the shape of a sample's value, and the values
/// of all samples; or a table.
type Beside = (Vec<(String, String, Vec<u32>, PyBackedBytes)>, Option<NamedTable>);

/// A run's loader, unless the run is closed.
enum RunState {
    /// Only [`Closing`] drops the loader: in a forked process its threads, for which dropping it waits, do not exist.
    Open(Box<ManuallyDrop<Loader>>),
    Closed,
}

/// The loader of a run that is being closed.
struct Closing {
    loader: Loader,
    figures: Arc<Mutex<Figures>>,
}

impl Closing {
    /// Ends the run, its threads, and the drives that it started, which may take a while.
    fn end(self) {
        let report = locked(&self.figures).report();
        drop(self.loader);
        let kept = locked(&self.figures).kept(report);
        let last_handle = mem::replace(&mut *locked(&self.figures), kept);
        // The dataset goes with it, which may need the interpreter's lock.
        drop(last_handle);
    }
}

/// Reason why a wait ended without a batch, unless the run is complete.
enum NoBatch {
    /// The handler of a signal raised this.
    Interrupted(PyErr),
    /// The consumer has kept all batches for this time.
    Kept {
        waited: Duration,
    },
    /// A later iteration or position has ended this one.
    Superseded,
    Failed(LoaderError),
    /// The run ended early, by an error that an earlier call returned.
    HasFailed,
    Closed,
}

#[pymethods]
impl Run {
    /// Opens the dataset and the drives. The options are JSON, as `ddlp_host::LoaderOptions` describes them. The
    /// dataset is what the options name, a Python object, a table with these columns, or a mix of datasets with their
    /// weights. `beside` has the fields beside it, and `functions` those that pipelines call, by name. Batches lie on
    /// `device`. `choice` says which samples epochs have, and `fidelity` returns the fidelity of an epoch.
    #[new]
    #[pyo3(signature = (
        options, dataset = None, columns = None, beside = (Vec::new(), None), mix = None, functions = Vec::new(),
        device = None, choice = None, fidelity = None
    ))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        options: &str,
        dataset: Option<Bound<'_, PyAny>>,
        columns: Option<Columns>,
        beside: Beside,
        mix: Option<(Vec<Member<'_>>, Option<Vec<f64>>)>,
        functions: Vec<(String, Py<PyAny>)>,
        device: Option<Py<device::Device>>,
        choice: Option<GivenChoice>,
        fidelity: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let options = LoaderOptions::from_json(options).map_err(|error| errors::exception(&error))?;
        let (buffers, epochs, how, cache) = (options.buffers, options.epochs, options.opening(), options.cache());
        let (host, mut objects) = (options.host().map_err(|error| errors::exception(&error))?, Vec::new());
        let mut builder = Loader::builder().options(options);
        let (mut calls_python, mut indices) = (dataset.is_some() || mix.is_some(), None);
        if let Some(choice) = choice {
            let (choice, function) = choice.choice()?;
            builder = builder.choose(choice);
            calls_python |= function.is_some();
            indices = function;
        }
        if let Some(dataset) = dataset {
            builder = builder.dataset(in_memory(&dataset, columns, &mut objects)?);
        } else if let Some((members, weights)) = mix {
            builder = builder.dataset(mixed(py, members, weights, (&host, &how, cache.as_ref()), &mut objects)?);
        }
        let (fields, table) = beside;
        for (name, dtype, shape, values) in fields {
            let dtype = DType::ALL.into_iter().find(|known| known.name() == dtype);
            let dtype = dtype.ok_or_else(|| errors::configuration(format!("field {name:?} has an unknown dtype")))?;
            let kind = if name == LABEL { FieldKind::Label } else { FieldKind::Vector };
            builder = builder.field(Field { name, kind, dtype, layout: None, shape }, values.to_vec());
        }
        if let Some((path, names, columns)) = table {
            builder = builder.fields_table(FieldTable { path, names, columns });
        }
        let mut called = Vec::with_capacity(functions.len());
        for (name, function) in functions {
            let function = Arc::new(function);
            called.push(function.clone());
            builder = builder.function(&name, move |given, out| function::call(&function, given, out));
        }
        let fidelity = fidelity.map(OfEpoch::new);
        if let Some(function) = fidelity.clone() {
            builder = builder.fidelity_by(move |epoch| fidelity::of_epoch(&function, epoch));
            calls_python = true;
        }
        let device = device.map(|device| device.get().0.clone());
        if let Some(device) = &device {
            builder = builder.deliver_prepared_to(CudaTarget::on(device));
        }
        let built = opening::until_given_up(py, calls_python, |given_up| builder.given_up_by(given_up).build())?;
        let loader = built.map_err(|error| of_epoch::exception(&error, indices.iter().chain(&fidelity)))?;
        Ok(Self {
            figures: Arc::new(Mutex::new(Figures::Now {
                progress: Box::new(loader.progress()),
                stopper: loader.stopper(),
            })),
            batches_per_epoch: loader.batches_per_epoch(),
            samples_of_rank: loader.samples_of_rank(),
            classes: loader.classes().to_vec(),
            fields: loader.fields().fields().map(|field| field.name.clone()).filter(|name| name != LABEL).collect(),
            note_of_classes: ddlp_host::note_of_classes(&**loader.dataset(), &how.classes, loader.fields()),
            samples: loader.dataset().len(),
            dataset: Mutex::new(Some(loader.dataset().clone())),
            beside: loader.fields().clone(),
            state: Arc::new(Mutex::new(RunState::Open(Box::new(ManuallyDrop::new(loader))))),
            waits: Mutex::default(),
            measured_from: Mutex::default(),
            turn: Turn::default(),
            due: Arc::default(),
            iteration: Arc::default(),
            asks: AtomicU64::new(0),
            moves: Arc::default(),
            closes: AtomicBool::new(false),
            lets_go: AtomicBool::new(false),
            epochs,
            buffers,
            objects,
            functions: called,
            indices,
            fidelity,
            device,
            process: process::id(),
        })
    }

    /// Whether this process is not the one that began the run, but a fork of it.
    #[getter]
    fn is_forked(&self) -> bool {
        self.process != process::id()
    }

    /// How often the latest iteration has been asked for a batch, whether or not it got one.
    #[getter]
    fn asks(&self) -> u64 {
        self.asks.load(Ordering::Acquire)
    }

    /// Returns an iterator over what is left of the current epoch. It ends all earlier ones. `convert` makes the
    /// consumer's batch of each native one.
    fn iterate(slf: Py<Self>, convert: Py<PyAny>) -> Epoch {
        let run = slf.get();
        let number = run.iteration.fetch_add(1, Ordering::AcqRel) + 1;
        run.asks.store(0, Ordering::Release);
        let epoch = run.position().epoch;
        Epoch::new(slf, epoch, number, convert)
    }

    /// Refuses what `go_to` would refuse: a position of another run, or a call that `go_to` does not allow.
    fn check(&self, py: Python<'_>, state: &str) -> PyResult<()> {
        self.checked(py, state).map(drop)
    }

    /// Goes on at another position, with the same dataset and drives. The position is JSON: a `LoaderState`. Returns
    /// false, and changes nothing, if the run has ended. If the handler of a signal raises meanwhile, its exception
    /// comes at once, and the run goes there as soon as its threads have ended their work.
    fn go_to(&self, py: Python<'_>, state: &str) -> PyResult<bool> {
        let position = self.checked(py, state)?;
        // A thread that waits for a batch gives up.
        self.iteration.fetch_add(1, Ordering::AcqRel);
        let number = self.moves.fetch_add(1, Ordering::AcqRel) + 1;
        let (state, due, iteration) = (self.state.clone(), self.due.clone(), self.iteration.clone());
        let moves = self.moves.clone();
        let moved = opening::elsewhere(py, move || {
            let mut run = locked(&state);
            if moves.load(Ordering::Acquire) != number {
                // A later move may have got the lock before this one, for which nobody waits after an exception.
                return Ok(true);
            }
            let RunState::Open(loader) = &mut *run else { return Ok(false) };
            match loader.go_to(&position) {
                Err(_) if loader.is_over() => return Ok(false),
                moved => moved?,
            }
            *locked(&due) = None;
            // After an exception, an iteration may have begun at the position before.
            iteration.fetch_add(1, Ordering::AcqRel);
            Ok(true)
        })?;
        moved.map_err(|error: LoaderError| self.exception(&error))
    }

    /// Returns the dataset of the run; `None` if the run is closed.
    fn dataset(&self) -> Option<OpenDataset> {
        let dataset = locked(&self.dataset).clone()?;
        Some(OpenDataset::new(dataset, self.beside.clone(), self.objects.clone()))
    }

    /// Returns the position of the run as JSON: a `LoaderState`.
    fn state(&self, py: Python<'_>) -> PyResult<String> {
        errors::json(&py.detach(|| self.position()))
    }

    /// Returns the figures of the run as JSON: a `Report`.
    fn report(&self, py: Python<'_>) -> PyResult<String> {
        errors::json(&py.detach(|| locked(&self.figures).report()))
    }

    /// Returns what can be said about the run at any time, even while another thread waits for a batch.
    fn progress<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let now = py.detach(|| locked(&self.figures).progress());
        let prongs = PyList::empty(py);
        for prong in now.prongs {
            let figures = PyDict::new(py);
            figures.set_item("name", prong.name)?;
            figures.set_item("images", prong.images)?;
            figures.set_item("images_per_s", prong.images_per_s)?;
            figures.set_item("in_work", prong.outstanding)?;
            figures.set_item("is_up", prong.is_up)?;
            prongs.append(figures)?;
        }
        let figures = PyDict::new(py);
        figures.set_item("epoch", now.epoch)?;
        figures.set_item("batches_delivered", now.delivered)?;
        figures.set_item("batches_per_epoch", now.batches)?;
        figures.set_item("images", now.images)?;
        figures.set_item("seconds", now.elapsed_s)?;
        figures.set_item("faults", now.faults)?;
        figures.set_item("corrupt", now.corrupt)?;
        figures.set_item("prongs", prongs)?;
        Ok(figures)
    }

    /// Measures what training would gain if loading were free, in about this many seconds. Returns JSON: a `Headspace`,
    /// and its `text`.
    fn headspace(&self, py: Python<'_>, step: Py<PyAny>, convert: Py<PyAny>, seconds: f64) -> PyResult<String> {
        self.measure(py, &step, &convert, Duration::from_secs_f64(seconds))
    }

    /// Shows the garbage collector the objects whose samples the run reads, which may hold the run in turn.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.functions.iter().try_for_each(|function| visit.call(&**function))?;
        self.indices.iter().chain(&self.fidelity).try_for_each(|function| function.traverse(&visit))?;
        self.objects.iter().try_for_each(|object| object.traverse(&visit))
    }

    /// Ends the run, its threads, and the drives that it started. Position and figures remain. If the handler of a
    /// signal raises meanwhile, its exception comes at once, and threads and drives end later.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if !self.begins_to_close(py) {
            return Ok(());
        }
        let closing = py.detach(|| self.lock_state().map(|mut state| self.closing(&mut state)))?;
        closing.map_or(Ok(()), |closing| opening::elsewhere(py, || closing.end()))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Run {
    /// Returns the exception for an error of the loader.
    fn exception(&self, error: &LoaderError) -> PyErr {
        of_epoch::exception(error, self.indices.iter().chain(&self.fidelity))
    }

    /// Stops the run. Returns whether this thread can close it now: in a forked process none can, and below a handler
    /// of a signal, the wait closes the run as soon as the handler returns.
    fn begins_to_close(&self, py: Python<'_>) -> bool {
        if self.is_forked() {
            return false;
        }
        self.closes.store(true, Ordering::Release);
        py.detach(|| locked(&self.figures).stop());
        !self.waits_here()
    }

    /// Takes the loader out of the run, if the run is open.
    fn closing(&self, state: &mut RunState) -> Option<Closing> {
        match mem::replace(state, RunState::Closed) {
            RunState::Open(loader) => {
                *locked(&self.dataset) = None;
                Some(Closing { loader: ManuallyDrop::into_inner(*loader), figures: self.figures.clone() })
            }
            RunState::Closed => None,
        }
    }

    /// Waits until no other thread uses the loader. Handles signals meanwhile.
    fn lock_state(&self) -> PyResult<MutexGuard<'_, RunState>> {
        for look in 1.. {
            match self.state.try_lock() {
                Ok(state) => return Ok(state),
                Err(TryLockError::Poisoned(state)) => return Ok(state.into_inner()),
                Err(TryLockError::WouldBlock) => thread::sleep(LOOK),
            }
            if look % LOOKS == 0 {
                Python::attach(|py| py.check_signals())?;
            }
        }
        unreachable!("the loop has no end")
    }

    /// Waits for this thread's turn to take a batch.
    pub fn turn(&self, py: Python<'_>) -> PyResult<Owned<'_>> {
        if self.is_forked() {
            return Err(errors::usage(
                "this loader began in another process, and its threads did not come along when that process was \
                 forked: make the loader in this process, or start processes by the method 'spawn'"
                    .into(),
            ));
        }
        self.turn.take(py)
    }

    /// Returns the batch that is due in iteration `number`, over `epoch`; `None` when that epoch is over. The batch
    /// stays due until [`Self::took`]. Handlers of signals run while it waits.
    pub fn due(&self, py: Python<'_>, epoch: u32, number: u64) -> PyResult<Option<Arc<Batch>>> {
        if self.iteration.load(Ordering::Acquire) == number {
            self.asks.fetch_add(1, Ordering::AcqRel);
        }
        let due = py.detach(|| self.wait(epoch, number));
        due.map_err(|why| self.without_batch(why))
    }

    /// Returns the batch as one on the device, if the run delivers to one.
    pub fn on_device(&self, batch: &Arc<Batch>) -> Option<Arc<DeviceBatch>> {
        let device = self.device.as_ref()?;
        Some(Arc::new(DeviceBatch::new(batch.clone(), device.index())))
    }

    /// Records that Python has the batch that was due.
    pub fn took(&self) {
        *locked(&self.due) = None;
    }

    fn wait(&self, epoch: u32, number: u64) -> Result<Option<Arc<Batch>>, NoBatch> {
        let mut state = self.lock_state().map_err(NoBatch::Interrupted)?;
        let is_superseded = || self.iteration.load(Ordering::Acquire) != number;
        let RunState::Open(loader) = &mut *state else { return Err(NoBatch::Closed) };
        if is_superseded() {
            return Err(NoBatch::Superseded);
        }
        if let Some(batch) = &*locked(&self.due) {
            return Ok(Some(batch.clone()));
        }
        // A run that has failed is still in the epoch.
        if locked(&self.figures).state().epoch != epoch {
            return Ok(None);
        }
        let (mut ended, mut kept) = (None, Kept::default());
        *locked(&self.waits) = Some(thread::current().id());
        let next = loader.next_while(|waiting| {
            ended = if is_superseded() {
                Some(NoBatch::Superseded)
            } else {
                Python::attach(|py| self.look(py, waiting, &mut kept)).err()
            };
            ended.is_none()
        });
        *locked(&self.waits) = None;
        let closes = self.closes.load(Ordering::Acquire);
        let closing = if closes { self.closing(&mut state) } else { None };
        drop(state);
        let due = match (next, ended) {
            (Some(Ok(batch)), _) => {
                kept.is_over(self);
                let batch = Arc::new(batch);
                *locked(&self.due) = Some(batch.clone());
                Ok(Some(batch))
            }
            (Some(Err(error)), _) => Err(NoBatch::Failed(error)),
            (None, Some(ended)) => Err(ended),
            (None, None) if locked(&self.figures).state().epoch >= self.epochs => Ok(None),
            (None, None) => Err(if closes { NoBatch::Closed } else { NoBatch::HasFailed }),
        };
        if let Some(closing) = closing {
            Python::attach(|py| opening::elsewhere(py, || closing.end())).map_err(NoBatch::Interrupted)?;
        }
        due
    }

    /// Handles signals, and decides whether a consumer that keeps all batches may go on waiting.
    fn look(&self, py: Python<'_>, waiting: Waiting, kept: &mut Kept) -> Result<(), NoBatch> {
        py.check_signals().map_err(NoBatch::Interrupted)?;
        if !waiting.keeps_all {
            kept.is_over(self);
            return Ok(());
        }
        let since = *kept.since.get_or_insert_with(Instant::now);
        let threads = py.import("ddlp._threads").map_err(NoBatch::Interrupted)?;
        let patience = threads
            .call_method1("patience", (self.lets_go.load(Ordering::Relaxed),))
            .and_then(|patience| patience.extract::<Option<f64>>())
            .map_err(NoBatch::Interrupted)?;
        let is_hopeless = match patience {
            Some(seconds) => {
                kept.alone_since = None;
                since.elapsed().as_secs_f64() >= seconds
            }
            None => kept.alone_since.get_or_insert_with(Instant::now).elapsed() >= KEPT_FOR,
        };
        if since.elapsed() >= KEPT_FOR && !mem::replace(&mut kept.has_collected, true) {
            // A cycle, such as that of an exception and its traceback, may keep batches.
            threads.call_method0("collect").map_err(NoBatch::Interrupted)?;
            return Ok(());
        }
        if is_hopeless { Err(NoBatch::Kept { waited: since.elapsed() }) } else { Ok(()) }
    }

    /// Reads a position to which the run can go now.
    fn checked(&self, py: Python<'_>, state: &str) -> PyResult<LoaderState> {
        // Values have no lines and columns, which would be those of a text that the program never sees.
        let state = serde_json::from_str(state).and_then(serde_json::from_value::<LoaderState>);
        let state =
            state.map_err(|error| errors::configuration(format!("this is not a state of state_dict(): {error}")))?;
        if self.waits_here() {
            return Err(errors::usage(
                "a signal's handler cannot move a loader that it has interrupted, nor can a step of headspace: save \
                 state_dict() instead"
                    .into(),
            ));
        }
        py.detach(|| locked(&self.figures).check(&state)).map_err(|error| errors::exception(&error))?;
        Ok(state)
    }

    /// Returns the position after the batch that Python took last.
    fn position(&self) -> LoaderState {
        let due = locked(&self.due);
        let state = locked(&self.measured_from).clone().unwrap_or_else(|| locked(&self.figures).state());
        match &*due {
            Some(batch) => state.without(batch.epoch(), batch.index(), self.batches_per_epoch),
            None => state,
        }
    }

    /// Returns whether this thread waits for a batch: then a handler of a signal has interrupted it.
    fn waits_here(&self) -> bool {
        *locked(&self.waits) == Some(thread::current().id())
    }

    fn kept(&self, waited: Duration) -> PyErr {
        let (buffers, seconds) = (self.buffers, waited.as_secs());
        errors::usage(format!(
            "this program keeps the images of all batches that it got, and let go of none for {seconds} s; the loader \
             has {buffers} buffers: let go of batches (`list(loader)` keeps them all), copy them (`images.clone()`), \
             or give the loader more `buffers`"
        ))
    }
}

/// The time for which a consumer that waits has kept all batches.
#[derive(Default)]
struct Kept {
    since: Option<Instant>,
    /// Since when no other thread could let a batch go.
    alone_since: Option<Instant>,
    /// Whether Python's garbage was collected meanwhile.
    has_collected: bool,
}

impl Kept {
    /// Records that a batch was let go, and by whom: garbage says nothing about other threads.
    fn is_over(&mut self, run: &Run) {
        let Self { since, has_collected, .. } = mem::take(self);
        if since.is_some() && !has_collected {
            run.lets_go.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // Other threads use the interpreter meanwhile, unless it is ending. An exception of a signal's handler cannot
        // be raised here.
        let closed = Python::try_attach(|py| {
            if self.begins_to_close(py) {
                py.detach(|| self.closing(&mut locked(&self.state)).map(Closing::end));
            }
        });
        if closed.is_none() {
            locked(&self.figures).stop();
        }
    }
}
