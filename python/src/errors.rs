//! The package's exceptions, which `ddlp/_errors.py` defines.

use ddlp_cause::with_causes;
use ddlp_cuda::CudaError;
use ddlp_host::{LoaderError, LoaderErrorKind};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use serde::Serialize;
use std::error::Error;
use std::io;

/// Returns the exception for an error of the loader: its class follows from the kind, and its message names all causes.
/// An exception of Python code that ends the program stays as it is.
pub fn exception(error: &LoaderError) -> PyErr {
    exception_of(error, python_cause(error))
}

/// Returns the exception for an error of the loader that comes from this exception of Python code, if from one.
pub fn exception_of(error: &LoaderError, raised: Option<PyErr>) -> PyErr {
    if let Some(error) = device_cause(error) {
        return of_device(error);
    }
    let raised = match raised {
        Some(raised) if ends_program(&raised) => return raised,
        raised => raised,
    };
    let class = match error.kind() {
        LoaderErrorKind::Configuration => "ConfigurationError",
        LoaderErrorKind::Unavailable => "UnavailableError",
        LoaderErrorKind::Corrupt => "CorruptError",
        LoaderErrorKind::Drive => "DriveError",
        LoaderErrorKind::Function => "FunctionError",
        LoaderErrorKind::Memory => "OutOfMemoryError",
        LoaderErrorKind::System => "SystemRefusedError",
        _ => "Error",
    };
    caused_by(of_class(class, with_causes(error)), raised)
}

/// Returns whether an exception ends the program, such as `KeyboardInterrupt` or `SystemExit`.
pub fn ends_program(raised: &PyErr) -> bool {
    Python::attach(|py| !raised.is_instance_of::<PyException>(py))
}

/// Returns the exception for an error of a GPU.
pub fn of_device(error: &CudaError) -> PyErr {
    let class = match error {
        CudaError::Name(_) => "ConfigurationError",
        CudaError::OutOfMemory { .. } | CudaError::NoRoom { .. } => "OutOfMemoryError",
        CudaError::Capturing | CudaError::Finished | CudaError::Forked => "UsageError",
        CudaError::System { .. } => "SystemRefusedError",
        _ => "DeviceError",
    };
    of_class(class, with_causes(error))
}

/// Returns the error of a GPU from which an error comes.
fn device_cause(error: &LoaderError) -> Option<&CudaError> {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(LoaderError::Delivery(error)) = error.downcast_ref() {
            return error.inner().downcast_ref();
        }
        cause = error.source();
    }
    None
}

/// Returns the exception from which an error comes, if Python code raised one.
pub fn python_cause(error: &(dyn Error + 'static)) -> Option<PyErr> {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        let within = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let raised = within.and_then(|within| within.downcast_ref()).or_else(|| error.downcast_ref::<PyErr>());
        if let Some(raised) = raised {
            return Some(Python::attach(|py| raised.clone_ref(py)));
        }
        cause = error.source();
    }
    None
}

/// Returns the exception for options that are wrong.
pub fn configuration(message: String) -> PyErr {
    of_class("ConfigurationError", message)
}

/// Returns the exception for wrong options. The error says what is wrong.
pub fn wrong_options(error: &dyn Error) -> PyErr {
    configuration(with_causes(error))
}

/// Returns the exception for a loader that is used in a way that it does not allow.
pub fn usage(message: String) -> PyErr {
    of_class("UsageError", message)
}

/// Returns the exception for a thread that the system refuses.
pub fn thread(error: io::Error) -> PyErr {
    exception(&LoaderError::System { what: "a thread", source: error })
}

/// Returns the exception for a dataset that cannot be read, or what its code has raised if that ends the program.
pub fn unavailable(message: String, cause: Option<PyErr>) -> PyErr {
    match cause {
        Some(cause) if ends_program(&cause) => cause,
        cause => caused_by(of_class("UnavailableError", message), cause),
    }
}

/// Returns an exception that was raised because of another one.
pub fn caused_by(raised: PyErr, cause: Option<PyErr>) -> PyErr {
    Python::attach(|py| raised.set_cause(py, cause));
    raised
}

/// Returns the exception for samples that are corrupt.
pub fn corrupt(message: String) -> PyErr {
    of_class("CorruptError", message)
}

/// Returns the exception for something that the system refuses.
pub fn refused(error: &dyn Error) -> PyErr {
    of_class("SystemRefusedError", with_causes(error))
}

/// Returns the exception for a defect of this package.
pub fn defect(message: &str) -> PyErr {
    of_class("Error", message.into())
}

/// Writes plain data as JSON.
pub fn json(value: &impl Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|error| of_class("Error", error.to_string()))
}

fn of_class(class: &str, message: String) -> PyErr {
    let raised = Python::attach(|py| -> PyResult<PyErr> {
        let class = py.import("ddlp._errors")?.getattr(class)?;
        Ok(PyErr::from_value(class.call1((message,))?))
    });
    raised.unwrap_or_else(|error| error)
}
