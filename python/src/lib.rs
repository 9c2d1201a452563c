//! The native part of the Python package `ddlp`: a run of the loader, and views of its batches without a copy.
//!
//! - `run`: a run as Python sees it: batches, position, figures. Rust works and waits without the interpreter's lock.
//!   `opening`: opens it. `epoch`: the iterator over an epoch; `turn`: the turn of a thread to take a batch.
//! - `batch`: a batch. `array`: one field of a batch, exported by the buffer protocol and by DLPack (`dlpack`).
//!   `device`: batches on a GPU.
//! - `dataset`: datasets that a program names. `choice`: which of their samples epochs have.
//! - `source`: samples of a Python object. `arrow`: samples of a table in Arrow memory. `arrays`: decoded images in one
//!   array. `packing`: packs all of these, and files.
//! - `function`: Python functions that pipelines call.
//! - `forking`: what a forked process needs. `logging`: the log, for Python's `logging`. `errors`: the package's
//!   exceptions.
//!
//! The Python code in `ddlp/` has everything that needs no Rust: options, epochs, states, NumPy and PyTorch.
#![deny(unsafe_code)]

mod array;
mod arrays;
mod arrow;
mod batch;
mod choice;
mod dataset;
mod device;
mod dlpack;
mod epoch;
mod errors;
mod fidelity;
mod forking;
mod function;
mod labels;
mod logging;
mod of_epoch;
mod opening;
mod packing;
mod parts;
mod run;
mod source;
mod turn;

use pyo3::prelude::*;

/// The native part of the package `ddlp`.
#[pymodule(gil_used = false)]
mod _ddlp {
    use super::errors;
    use ddlp_host::pixels::ops::Operation;
    use ddlp_host::{LoaderOptions, Pipeline, Report};
    use pyo3::prelude::*;
    use serde_json::{Value, json};

    #[pymodule_export]
    use super::array::Array;
    #[pymodule_export]
    use super::batch::Batch;
    #[pymodule_export]
    use super::choice::{read_split, split_samples, split_sizes};
    #[pymodule_export]
    use super::dataset::OpenDataset;
    #[pymodule_export]
    use super::device::Device;
    #[pymodule_export]
    use super::epoch::Epoch;
    #[pymodule_export]
    use super::packing::pack_dataset;
    #[pymodule_export]
    use super::packing::push_dataset;
    #[pymodule_export]
    use super::parts::index_of_part;
    #[pymodule_export]
    use super::parts::join_parts;
    #[pymodule_export]
    use super::parts::push_part;
    #[pymodule_export]
    use super::run::Run;

    /// Version of the package.
    #[pymodule_export(name = "VERSION")]
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_init]
    fn begin(_module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::logging::begin();
        // The module links its own copy of Rust's standard library, so its panic hook belongs to this module alone.
        ddlp_host::pixels::silence_decoder_panics();
        Ok(())
    }

    /// Returns the report of a run as a page of HTML. The figures are JSON: a `Report`.
    #[pyfunction]
    fn report_page(py: Python<'_>, figures: &str) -> PyResult<String> {
        // Values have no lines and columns, which would be those of a text that the program never sees.
        let report: Report = serde_json::from_str(figures)
            .and_then(serde_json::from_value)
            .map_err(|error| errors::configuration(format!("these are not the figures of a run: {error}")))?;
        let context = ddlp_report::Context { version: VERSION.into(), ..ddlp_report::Context::default() };
        Ok(py.detach(|| ddlp_report::render(&report, &context)))
    }

    /// Checks options in JSON, as `ddlp_host::LoaderOptions` describes them, without opening anything.
    #[pyfunction]
    fn check_options(json: &str) -> PyResult<()> {
        let checked = LoaderOptions::from_json(json).and_then(|options| options.check());
        checked.map_err(|error| errors::exception(&error))
    }

    /// Sets the lowest level of `logging` at which records are made.
    #[pyfunction]
    fn set_log_level(level: u8) {
        super::logging::set_least(level);
    }

    /// Asks the threads that open datasets and end runs to end, and waits for them.
    #[pyfunction]
    fn end_all(py: Python<'_>) -> PyResult<()> {
        super::opening::end_all(py)
    }

    /// Hands all records that wait to `logging`.
    #[pyfunction]
    fn flush_log(py: Python<'_>) -> PyResult<()> {
        super::logging::empty(py)
    }

    /// Holds what a forked process could not get from threads that do not exist there. Called before a fork.
    #[pyfunction]
    fn before_fork() {
        super::forking::begin();
    }

    /// Gives back what `before_fork` holds. Called after a fork, in both processes.
    #[pyfunction]
    fn after_fork(is_child: bool) {
        super::forking::end(is_child);
    }

    /// Returns a built-in pipeline as JSON.
    #[pyfunction]
    fn named_pipeline(name: &str) -> PyResult<String> {
        let names = Pipeline::NAMES.join(", ");
        let pipeline = Pipeline::named(name)
            .ok_or_else(|| errors::configuration(format!("there is no pipeline '{name}': the names are {names}")))?;
        errors::json(&pipeline)
    }

    /// Parses a pipeline in TOML, checks it, and returns it as JSON.
    #[pyfunction]
    fn toml_pipeline(text: &str) -> PyResult<String> {
        let pipeline = Pipeline::from_toml(text).map_err(|error| errors::wrong_options(&error))?;
        errors::json(&pipeline)
    }

    /// Reads a pipeline in JSON. The error names the operation in which something is wrong.
    fn pipeline_of(json: &str) -> Result<Pipeline, String> {
        let value: Value = serde_json::from_str(json).map_err(|error| error.to_string())?;
        let whole = serde_json::from_value(value.clone());
        whole.map_err(|error| {
            let wrong = wrong_operation("operation", &value["operations"]);
            wrong.unwrap_or_else(|| format!("this is not a pipeline: {error}"))
        })
    }

    /// Says which operation of a list is wrong, and what is wrong. `kind` is the word for it.
    fn wrong_operation(kind: &str, operations: &Value) -> Option<String> {
        operations.as_array()?.iter().enumerate().find_map(|(number, operation)| {
            let error = serde_json::from_value::<Operation>(operation.clone()).err()?.to_string();
            let named = operation.as_object();
            let names = named.map(|named| named.keys().cloned().collect::<Vec<_>>().join(", "));
            let within = named.and_then(|named| wrong_operation("transform", &named.values().next()?["transforms"]));
            let wrong = within.or_else(|| wrong_parameter(operation, &error)).unwrap_or(error);
            Some(format!("{kind} {number}, {}: {wrong}", names.unwrap_or_else(|| operation.to_string())))
        })
    }

    /// Says which parameter an operation's error is about, as without that parameter the error is another, and what the
    /// parameter must be.
    fn wrong_parameter(operation: &Value, error: &str) -> Option<String> {
        let (name, parameters) = operation.as_object()?.iter().next()?;
        let (_, expected) = error.split_once(", expected ").or_else(|| error.split_once(" is not "))?;
        let must_be = match expected {
            "f64" => "a number",
            "u8" | "u32" => "a whole number of 0 or more",
            "an array of length 2" => "two numbers",
            "a boolean" => "True or False",
            expected => expected,
        };
        parameters.as_object()?.iter().find_map(|(parameter, value)| {
            let mut others = parameters.clone();
            others.as_object_mut()?.remove(parameter);
            let left = serde_json::from_value::<Operation>(json!({ name: others })).err();
            left.is_none_or(|left| left.to_string() != error).then(|| match value {
                Value::Null => format!("`{parameter}` is None, but must be {must_be}"),
                value => format!("`{parameter}` is {value}, but must be {must_be}"),
            })
        })
    }

    /// Checks a pipeline in JSON. Returns it with all parameters, and the height and width of its images.
    #[pyfunction]
    fn checked_pipeline(json: &str) -> PyResult<(String, u32, u32)> {
        let pipeline = pipeline_of(json).map_err(errors::configuration)?;
        let shape = pipeline.validate().map_err(|error| errors::wrong_options(&error))?;
        Ok((errors::json(&pipeline)?, shape.height, shape.width))
    }
}
