//! A Python function that returns the fidelity of an epoch.

use ddlp_host::Fidelity;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// Calls the function, which `ddlp/_fidelity.py` makes of that of the program.
pub fn of_epoch(function: &Py<PyAny>, epoch: u32) -> Result<Fidelity, String> {
    let called = Python::try_attach(|py| function.call1(py, (epoch,))?.extract::<u8>(py));
    let called: PyResult<u8> = called.unwrap_or_else(|| Err(PyRuntimeError::new_err("the interpreter is ending")));
    let number = called.map_err(|error| error.to_string())?;
    Fidelity::new(number).ok_or_else(|| format!("it is {number}, but must be a number from 1 to 10"))
}
