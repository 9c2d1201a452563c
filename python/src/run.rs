//! A run of the loader as Python sees it. Rust works and waits without the interpreter's lock.

use crate::array::Array;
use crate::errors;
use ddlp_host::{Loader, LoaderError, LoaderOptions, ProgressHandle, Report, Stopper};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::mem::{self, ManuallyDrop};
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

/// Time that a consumer which keeps all batches may wait before that is an error.
const KEPT_FOR: Duration = Duration::from_secs(2);

/// A run: the batches of its epochs, one after the other.
#[pyclass(frozen, module = "ddlp._ddlp")]
pub struct Run {
    /// Locked while a thread waits for a batch. Handlers of signals run on that thread meanwhile: what they may call
    /// asks `waits_here` first.
    state: Mutex<RunState>,
    /// The thread that waits for a batch.
    waits: Mutex<Option<ThreadId>>,
    /// Whether `close` was called.
    closes: AtomicBool,
    stopper: Stopper,
    progress: ProgressHandle,
    epochs: u32,
    buffers: usize,
    /// Batches of an epoch.
    #[pyo3(get)]
    batches_per_epoch: u32,
    /// The process that began the run. Its threads do not exist in a forked one.
    process: u32,
}

/// A run, or what is left of it.
enum RunState {
    /// Only `close` drops the loader: in a forked process its threads, for which dropping it waits, do not exist.
    Open(Box<ManuallyDrop<Loader>>),
    Closed {
        report: Box<Report>,
    },
}

/// A batch: its fields, and where it belongs.
#[pyclass(frozen, get_all, module = "ddlp._ddlp")]
pub struct Batch {
    /// The prepared images.
    images: Py<Array>,
    /// The class index of each image, int64.
    labels: Py<Array>,
    /// The sample id of each image.
    sample_ids: Vec<u64>,
    /// The batch's epoch.
    epoch: u32,
    /// The batch's number within its epoch.
    index: u32,
    /// The prong that prepared it: 0 is the host's CPU, the drives follow.
    prong: usize,
}

/// Reason why a wait ended without a batch, unless the run is complete.
enum NoBatch {
    /// The handler of a signal raised this.
    Interrupted(PyErr),
    /// The consumer keeps all batches.
    Kept,
    Failed(LoaderError),
    /// The run ended early, by an error that an earlier call returned.
    HasFailed,
    Closed,
}

#[pymethods]
impl Run {
    /// Opens the dataset and the drives. The options are JSON, as `ddlp_host::LoaderOptions` describes them.
    #[new]
    fn new(py: Python<'_>, options: &str) -> PyResult<Self> {
        let options: LoaderOptions =
            serde_json::from_str(options).map_err(|error| errors::configuration(error.to_string()))?;
        let (buffers, epochs) = (options.buffers, options.epochs);
        let loader = py.detach(|| Loader::open(options)).map_err(|error| errors::exception(&error))?;
        Ok(Self {
            stopper: loader.stopper(),
            progress: loader.progress(),
            batches_per_epoch: loader.batches_per_epoch(),
            state: Mutex::new(RunState::Open(Box::new(ManuallyDrop::new(loader)))),
            waits: Mutex::new(None),
            closes: AtomicBool::new(false),
            epochs,
            buffers,
            process: process::id(),
        })
    }

    /// Whether this process is not the one that began the run, but a fork of it.
    #[getter]
    fn is_forked(&self) -> bool {
        self.process != process::id()
    }

    /// Returns the next batch, or `None` when the run is over. Handlers of signals run while it waits.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        if self.waits_here() {
            return Err(errors::usage(
                "a signal's handler cannot take a batch of a loader that it has interrupted".into(),
            ));
        }
        let next = py.detach(|| {
            let mut state = locked(&self.state);
            let RunState::Open(loader) = &mut *state else { return Err(NoBatch::Closed) };
            let mut ended = None;
            *locked(&self.waits) = Some(thread::current().id());
            let next = loader.next_while(|waiting| {
                ended = if waiting.keeps_all && waiting.time >= KEPT_FOR {
                    Some(NoBatch::Kept)
                } else {
                    Python::attach(|py| py.check_signals()).err().map(NoBatch::Interrupted)
                };
                ended.is_none()
            });
            *locked(&self.waits) = None;
            let closes = self.closes.load(Ordering::Acquire);
            if closes {
                state.close();
            }
            match (next, ended) {
                (Some(batch), _) => batch.map(Some).map_err(NoBatch::Failed),
                (None, Some(ended)) => Err(ended),
                (None, None) if self.progress.state().epoch >= self.epochs => Ok(None),
                (None, None) => Err(if closes { NoBatch::Closed } else { NoBatch::HasFailed }),
            }
        });
        match next {
            Ok(Some(batch)) => Batch::new(py, &batch).map(Some),
            Ok(None) => Ok(None),
            Err(NoBatch::Interrupted(raised)) => Err(raised),
            Err(NoBatch::Kept) => Err(self.kept()),
            Err(NoBatch::Failed(error)) => Err(errors::exception(&error)),
            Err(NoBatch::HasFailed) => Err(errors::usage(
                "the run has ended with an error: go on behind the last batch that you got, by \
                 loader.load_state_dict(loader.state_dict()), or make a new loader"
                    .into(),
            )),
            Err(NoBatch::Closed) => Err(errors::usage("the loader is closed: make a new one".into())),
        }
    }

    /// Returns the position of the run as JSON: a `LoaderState`.
    fn state(&self, py: Python<'_>) -> PyResult<String> {
        errors::json(&py.detach(|| self.progress.state()))
    }

    /// Returns the figures of the run as JSON: a `Report`.
    fn report(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| match self.state.try_lock().as_deref() {
            Ok(RunState::Closed { report }) => errors::json(report),
            // The lock is not needed, and a thread that waits for a batch has it.
            _ => errors::json(&self.progress.report()),
        })
    }

    /// Returns what can be said about the run at any time, also while another thread waits for a batch.
    fn progress<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let now = py.detach(|| self.progress.snapshot());
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

    /// Ends the run, its threads, and the drives that it started. Position and figures remain.
    fn close(&self, py: Python<'_>) {
        if self.is_forked() {
            return;
        }
        self.closes.store(true, Ordering::Release);
        self.stopper.stop();
        // Below a handler of a signal, `next` closes the run as soon as the handler returns.
        if !self.waits_here() {
            py.detach(|| locked(&self.state).close());
        }
    }
}

impl RunState {
    /// Ends the run, if it is open. The figures remain.
    fn close(&mut self) {
        let Self::Open(loader) = &*self else { return };
        let closed = Self::Closed { report: Box::new(loader.report()) };
        if let Self::Open(loader) = mem::replace(self, closed) {
            drop(ManuallyDrop::into_inner(*loader));
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Run {
    /// Returns whether this thread waits for a batch: then a handler of a signal has interrupted it.
    fn waits_here(&self) -> bool {
        *locked(&self.waits) == Some(thread::current().id())
    }

    fn kept(&self) -> PyErr {
        let buffers = self.buffers;
        errors::usage(format!(
            "this program keeps the images of all batches that it got, and the loader has {buffers} buffers: let go of \
             batches (`list(loader)` keeps them all), copy them (`images.clone()`), or give the loader more `buffers`"
        ))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // Other threads use the interpreter meanwhile, unless it is ending.
        if Python::try_attach(|py| self.close(py)).is_none() {
            self.stopper.stop();
        }
    }
}

impl Batch {
    fn new(py: Python<'_>, batch: &ddlp_host::Batch) -> PyResult<Self> {
        let field = |name| -> PyResult<Py<Array>> {
            let field = batch.field(name).map_err(|error| errors::configuration(error.to_string()))?;
            Py::new(py, Array::new(field.share()))
        };
        Ok(Self {
            images: field("image")?,
            labels: field("label")?,
            sample_ids: batch.sample_ids().to_vec(),
            epoch: batch.epoch(),
            index: batch.index(),
            prong: batch.prong(),
        })
    }
}
