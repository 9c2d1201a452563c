//! A Python function that changes the image of each sample.

use ddlp_host::pixels::Shape;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyByteArray;
use std::error::Error;

/// Changes an image by a Python function. Threads of the loader call this, and wait for the interpreter's lock.
pub fn change(
    function: &Py<PyAny>,
    image: &mut [u8],
    shape: Shape,
    seed: u64,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let changed = Python::try_attach(|py| -> PyResult<()> {
        // The function may keep the array, so it gets a copy of the image.
        let given = PyByteArray::new(py, image);
        let shape = (shape.height, shape.width, shape.channels);
        let call = py.import("ddlp._per_sample")?.getattr("changed")?;
        let made = call.call1((function, given, shape, seed))?.cast_into::<PyByteArray>()?;
        image.copy_from_slice(&made.to_vec());
        Ok(())
    });
    Ok(changed.unwrap_or_else(|| Err(PyRuntimeError::new_err("the interpreter is ending")))?)
}
