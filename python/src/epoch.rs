//! An iteration over an epoch. It is native so that no handler of a signal can run between the moment at which a batch
//! counts as delivered and the moment at which a `for` loop has it: Python handles signals only between its own
//! instructions. After an explicit call of `next`, Python handles signals before it stores the result.

use crate::batch::Batch;
use crate::run::Run;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

/// One iteration: what is left of an epoch. Several threads may share it.
#[pyclass(frozen, weakref, module = "ddlp._ddlp")]
pub struct Epoch {
    run: Py<Run>,
    epoch: u32,
    /// Number of the iteration: a later one of the run ends this one.
    number: u64,
    /// Function that makes the consumer's batch of a native one.
    convert: Py<PyAny>,
}

impl Epoch {
    pub fn new(run: Py<Run>, epoch: u32, number: u64, convert: Py<PyAny>) -> Self {
        Self { run, epoch, number, convert }
    }
}

#[pymethods]
impl Epoch {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.run)?;
        visit.call(&self.convert)
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let run = self.run.get();
        let _turn = run.turn(py)?;
        let Some(batch) = run.due(py, self.epoch, self.number)? else { return Ok(None) };
        let native = Py::new(py, Batch::new(py, &batch, run.on_device(&batch))?)?;
        // If this fails or is interrupted, the batch is still due.
        let converted = self.convert.call1(py, (&native,))?;
        // On a device, a batch can be finished only once, so no handler of a signal may run from here on.
        native.get().finish(py)?;
        drop(batch);
        run.took();
        Ok(Some(converted))
    }
}
