//! Python functions that pipelines call.

use ddlp_host::pixels::{Given, Shape};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes};
use std::error::Error;

/// Has a Python function make an image. Threads of the loader call this, and wait for the interpreter's lock.
pub fn call(function: &Py<PyAny>, given: Given<'_>, out: &mut [u8]) -> Result<(), Box<dyn Error + Send + Sync>> {
    let called = Python::try_attach(|py| -> PyResult<()> {
        // The function may keep the array, so it gets a copy of the image.
        let image = PyByteArray::new(py, given.image);
        let made = function.bind(py).call1((image, sides(given.shape), sides(given.output), given.seed))?;
        out.copy_from_slice(made.cast::<PyBytes>()?.as_bytes());
        Ok(())
    });
    Ok(called.unwrap_or_else(|| Err(PyRuntimeError::new_err("the interpreter is ending")))?)
}

fn sides(Shape { height, width, channels }: Shape) -> (u32, u32, u32) {
    (height, width, channels)
}
