//! A batch as Python sees it.

use crate::array::Array;
use crate::device::DeviceBatch;
use crate::errors;
use ddlp_host::pixels::SIZE;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::Arc;

/// A batch: its fields, and where it belongs.
#[pyclass(frozen, module = "ddlp._ddlp")]
pub struct Batch {
    /// The prepared images.
    #[pyo3(get)]
    images: Py<Array>,
    /// The class index of each image, int64; under MixUp or CutMix a number for each class, float32.
    #[pyo3(get)]
    labels: Py<Array>,
    /// The fields beside the dataset, each with its name.
    #[pyo3(get)]
    others: Vec<(String, Py<Array>)>,
    /// Height and width of each image on its canvas, if the images lie on canvases.
    #[pyo3(get)]
    sizes: Option<Vec<(i64, i64)>>,
    /// The sample id of each image.
    #[pyo3(get)]
    sample_ids: Vec<u64>,
    /// The sample id that the epoch's order has for each image: another one if the policy replaced that sample.
    #[pyo3(get)]
    requested_ids: Vec<u64>,
    /// The batch's epoch.
    #[pyo3(get)]
    epoch: u32,
    /// The batch's number within its epoch.
    #[pyo3(get)]
    index: u32,
    /// The prong that prepared it: 0 is the host's CPU, the drives follow.
    #[pyo3(get)]
    prong: usize,
    /// The batch on its device, if the run delivers to one.
    on_device: Option<Arc<DeviceBatch>>,
}

impl Batch {
    /// Makes views of a batch, which share its memory. `on_device` is the same batch, if the run delivers to a device.
    pub fn new(py: Python<'_>, batch: &ddlp_host::Batch, on_device: Option<Arc<DeviceBatch>>) -> PyResult<Self> {
        let mut arrays = batch.fields().enumerate().map(|(at, described)| -> PyResult<(String, Py<Array>)> {
            let field = batch.field(&described.name).map_err(|error| errors::wrong_options(&error))?;
            let array = match &on_device {
                None => Array::new(field),
                Some(on_device) => Array::on_device(field, on_device.clone(), at),
            };
            Ok((described.name.clone(), Py::new(py, array)?))
        });
        // The first two fields come from the dataset.
        let mut next = || arrays.next().expect("a batch has images and labels");
        let (images, labels) = (next()?.1, next()?.1);
        let sizes = batch.field(SIZE).ok().and_then(|sizes| sizes.as_slice::<i64>().ok());
        Ok(Self {
            images,
            labels,
            others: arrays.collect::<PyResult<_>>()?,
            sizes: sizes.map(|sizes| sizes.chunks_exact(2).map(|size| (size[0], size[1])).collect()),
            sample_ids: batch.sample_ids().to_vec(),
            requested_ids: batch.requested_ids().to_vec(),
            epoch: batch.epoch(),
            index: batch.index(),
            prong: batch.prong(),
            on_device,
        })
    }

    /// Finishes the batch on its device, if the consumer has named a place there.
    pub fn finish(&self, py: Python<'_>) -> PyResult<()> {
        self.on_device.as_ref().map_or(Ok(()), |batch| batch.finish(py))
    }
}

#[pymethods]
impl Batch {
    /// Names the stream and the addresses of memory on the device where the consumer wants the batch: an address for
    /// each field, images and labels first. The batch is finished there when the consumer gets it.
    fn deliver_to(&self, stream: u64, addresses: Vec<u64>) -> PyResult<()> {
        let Some(batch) = &self.on_device else { return Err(PyValueError::new_err("the batch is in host memory")) };
        if addresses.len() != 2 + self.others.len() {
            return Err(PyValueError::new_err("an address is needed for each field"));
        }
        batch.deliver_to(stream, addresses);
        Ok(())
    }
}
