//! Python functions of the epoch: the indices of its samples, or its fidelity.

use crate::errors;
use ddlp_cause::with_causes;
use ddlp_host::LoaderError;
use pyo3::exceptions::{PyBaseException, PyRuntimeError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A function of the epoch, and what it has raised last.
pub struct OfEpoch {
    function: Py<PyAny>,
    raised: Mutex<Option<Py<PyBaseException>>>,
}

impl OfEpoch {
    pub fn new(function: Py<PyAny>) -> Arc<Self> {
        Arc::new(Self { function, raised: Mutex::default() })
    }

    /// Calls the function for an epoch. The error is the text of the exception, which stays here for
    /// [`exception`].
    pub fn call<T>(&self, epoch: u32, extract: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>) -> Result<T, String> {
        let called = Python::try_attach(|py| extract(self.function.bind(py).call1((epoch,))?.as_any()));
        let called = called.unwrap_or_else(|| Err(PyRuntimeError::new_err("the interpreter is ending")));
        called.map_err(|raised| {
            if let Some(value) = Python::try_attach(|py| raised.clone_ref(py).into_value(py)) {
                // Nothing of Python may run while this thread has the lock.
                drop(self.lock().replace(value));
            }
            raised.to_string()
        })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Py<PyBaseException>>> {
        self.raised.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what the function has raised, if the text of an error has it.
    fn raised_in(&self, text: &str) -> Option<PyErr> {
        Python::attach(|py| {
            let raised = self.lock().as_ref()?.clone_ref(py);
            let raised = PyErr::from_value(raised.into_bound(py).into_any());
            text.contains(&raised.to_string()).then_some(raised)
        })
    }

    /// Shows the garbage collector what this value holds.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.function)?;
        // If another thread holds the lock, the collector sees the exception only at its next collection.
        self.raised.try_lock().map_or(Ok(()), |raised| visit.call(&*raised))
    }
}

/// Returns the exception for an error of a loader that calls these functions.
pub fn exception<'a>(error: &LoaderError, functions: impl IntoIterator<Item = &'a Arc<OfEpoch>>) -> PyErr {
    let text = with_causes(error);
    let of_function = || functions.into_iter().find_map(|function| function.raised_in(&text));
    errors::exception_of(error, errors::python_cause(error).or_else(of_function))
}
