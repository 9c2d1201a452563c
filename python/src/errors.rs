//! The package's exceptions, which `ddlp/_errors.py` defines.

use ddlp_host::{LoaderError, LoaderErrorKind};
use pyo3::prelude::*;
use serde::Serialize;
use std::error::Error;

/// Returns the exception for an error of the loader: its class follows from the kind, and its message names all causes.
pub fn exception(error: &LoaderError) -> PyErr {
    let class = match error.kind() {
        LoaderErrorKind::Configuration => "ConfigurationError",
        LoaderErrorKind::Unavailable => "UnavailableError",
        LoaderErrorKind::Corrupt => "CorruptError",
        LoaderErrorKind::Drive => "DriveError",
        LoaderErrorKind::Memory => "OutOfMemoryError",
        LoaderErrorKind::System => "SystemRefusedError",
        _ => "Error",
    };
    of_class(class, with_causes(error))
}

/// Returns the exception for options that are wrong.
pub fn configuration(message: String) -> PyErr {
    of_class("ConfigurationError", message)
}

/// Returns the exception for a loader that is used in a way that it does not allow.
pub fn usage(message: String) -> PyErr {
    of_class("UsageError", message)
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

/// Joins an error and its causes. Leaves out a cause with which the text already ends.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let why = error.to_string();
        if !text.ends_with(&why) {
            text = format!("{text}: {why}");
        }
        cause = error.source();
    }
    text
}
