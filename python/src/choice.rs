//! The choice of samples that a program gives, and the division of a dataset.

use crate::errors;
use crate::of_epoch::OfEpoch;
use ddlp_host::{Choice, Indices, Weights};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use std::sync::Arc;

/// The choice as `ddlp/_choice.py` makes it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct GivenChoice {
    /// Indices as int64, or a function that returns those of an epoch.
    indices: Option<GivenIndices>,
    /// Weights as float64. Empty stands for balanced classes.
    weights: Option<PyBackedBytes>,
}

#[derive(FromPyObject)]
enum GivenIndices {
    Fixed(PyBackedBytes),
    ByEpoch(Py<PyAny>),
}

impl GivenChoice {
    /// Returns the choice, and its function if it has one.
    pub fn choice(self) -> PyResult<(Choice, Option<Arc<OfEpoch>>)> {
        let mut calls = None;
        let indices = match self.indices {
            None => None,
            Some(GivenIndices::Fixed(bytes)) => {
                Some(Indices::Fixed(indices_of("`indices`", &bytes).map_err(errors::configuration)?.into()))
            }
            Some(GivenIndices::ByEpoch(function)) => {
                let function = OfEpoch::new(function);
                calls = Some(function.clone());
                Some(Indices::ByEpoch(Arc::new(move |epoch| {
                    indices_of("it", &function.call(epoch, |made| Ok(made.extract::<PyBackedBytes>()?))?)
                })))
            }
        };
        let weights = self.weights.map(|bytes| match &bytes[..] {
            [] => Weights::Balanced,
            bytes => Weights::Given(bytes.chunks_exact(8).map(|bytes| f64::from_ne_bytes(eight(bytes))).collect()),
        });
        Ok((Choice { indices, weights }, calls))
    }
}

fn eight(bytes: &[u8]) -> [u8; 8] {
    bytes.try_into().expect("chunks of eight bytes")
}

/// Reads indices, none of which may be negative.
fn indices_of(name: &str, bytes: &[u8]) -> Result<Vec<u64>, String> {
    let numbers = bytes.chunks_exact(8).map(|bytes| i64::from_ne_bytes(eight(bytes)));
    let index = |(at, number): (usize, i64)| {
        u64::try_from(number).map_err(|_| format!("{name}[{at}] is {number}, but samples are numbered from 0"))
    };
    numbers.enumerate().map(index).collect()
}

/// Divides samples into parts of these sizes, as `ddlp_host::split` does. The groups and the returned positions are
/// int64.
#[pyfunction]
pub fn split_samples<'py>(
    py: Python<'py>,
    groups: PyBackedBytes,
    sizes: Vec<u64>,
    seed: u64,
) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    let parts = py.detach(|| {
        let groups: Vec<i64> = groups.chunks_exact(8).map(|bytes| i64::from_ne_bytes(eight(bytes))).collect();
        ddlp_host::split(&groups, &sizes, seed)
    });
    let parts = parts.map_err(|error| errors::configuration(error.to_string()))?;
    let bytes = |part: Vec<u64>| PyBytes::new(py, &part.iter().flat_map(|at| at.to_ne_bytes()).collect::<Vec<u8>>());
    Ok(parts.into_iter().map(bytes).collect())
}
