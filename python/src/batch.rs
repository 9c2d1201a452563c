//! A batch as Python sees it.

use crate::array::Array;
use crate::errors;
use pyo3::prelude::*;

/// A batch: its fields, and where it belongs.
#[pyclass(frozen, get_all, module = "ddlp._ddlp")]
pub struct Batch {
    /// The prepared images.
    images: Py<Array>,
    /// The class index of each image, int64; under MixUp or CutMix a number for each class, float32.
    labels: Py<Array>,
    /// The fields beside the dataset, each with its name.
    others: Vec<(String, Py<Array>)>,
    /// The sample id of each image.
    sample_ids: Vec<u64>,
    /// The sample id that the epoch's order has for each image: another one if the policy replaced that sample.
    requested_ids: Vec<u64>,
    /// The batch's epoch.
    epoch: u32,
    /// The batch's number within its epoch.
    index: u32,
    /// The prong that prepared it: 0 is the host's CPU, the drives follow.
    prong: usize,
}

impl Batch {
    /// Makes views of a batch, which share its memory.
    pub fn new(py: Python<'_>, batch: &ddlp_host::Batch) -> PyResult<Self> {
        let field = |name: &str| -> PyResult<Py<Array>> {
            let field = batch.field(name).map_err(|error| errors::configuration(error.to_string()))?;
            Py::new(py, Array::new(field.share()))
        };
        // The first two fields are those of the dataset.
        let others = batch.fields().skip(2).map(|described| Ok((described.name.clone(), field(&described.name)?)));
        Ok(Self {
            others: others.collect::<PyResult<_>>()?,
            images: field("image")?,
            labels: field("label")?,
            sample_ids: batch.sample_ids().to_vec(),
            requested_ids: batch.requested_ids().to_vec(),
            epoch: batch.epoch(),
            index: batch.index(),
            prong: batch.prong(),
        })
    }
}
