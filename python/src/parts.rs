//! A pack that many machines make and push: the functions behind `ddlp.spark` and `ddlp.ray`.

use crate::errors;
use crate::packing::{Packing, pushed_part};
use ddlp_cause::with_causes;
use ddlp_host::dataset::Identity;
use ddlp_host::dataset::pack::{self, JoinError, Pack, PartIndex};
use ddlp_host::{Host, open_pack};
use ddlp_stores::PushPart;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Returns the bytes of a pack in front of its samples.
#[pyfunction]
pub fn index_of_part<'py>(py: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyBytes>> {
    let read = || -> PyResult<Vec<u8>> {
        let pack = opened(&path)?;
        let mut index = vec![0; pack.layout().data_offset as usize];
        let read = pack.read_bytes(0, &mut index);
        read.map_err(|error| errors::unavailable(with_causes(&error), None))?;
        Ok(index)
    };
    Ok(PyBytes::new(py, &py.detach(read)?))
}

/// Joins parts of a pack: the index and the ids (int64) of each. `source` is the identity of the dataset that every
/// machine opens, if there is one. Returns the index of the whole, and for each part the indices that its samples have
/// there (int64).
#[pyfunction]
#[pyo3(signature = (parts, source = None))]
pub fn join_parts<'py>(
    py: Python<'py>,
    parts: Vec<(PyBackedBytes, PyBackedBytes)>,
    source: Option<[u8; 32]>,
) -> PyResult<(Bound<'py, PyBytes>, Vec<Bound<'py, PyBytes>>)> {
    let joined = py.detach(|| {
        let part =
            |(index, ids): (PyBackedBytes, PyBackedBytes)| PartIndex { index: index.to_vec(), ids: numbers(&ids) };
        pack::join(&parts.into_iter().map(part).collect::<Vec<_>>(), source.map(Identity::from_bytes))
    });
    let joined = joined.map_err(|error| unjoined(&error))?;
    let bytes = |numbers: &Vec<u64>| {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
        PyBytes::new(py, &bytes)
    };
    Ok((PyBytes::new(py, &joined.index), joined.numbers.iter().map(bytes).collect()))
}

/// Makes a step of pushing a whole pack with this index: `"begin"`, `"samples"` or `"end"`. The samples are those of a
/// part: its file, and the indices (int64) that they have in the whole. Returns what `ddlp.push` returns.
#[pyfunction]
#[pyo3(signature = (step, index, url, packing, progress, part = None))]
pub fn push_part<'py>(
    py: Python<'py>,
    step: &str,
    index: PyBackedBytes,
    url: &str,
    packing: Packing,
    progress: Py<PyAny>,
    part: Option<(PathBuf, PyBackedBytes)>,
) -> PyResult<Bound<'py, PyDict>> {
    let part = part.map(|(path, samples)| (path, numbers(&samples)));
    let whole = py.detach(|| -> PyResult<Pack> {
        let index: Arc<[u8]> = Arc::from(&index[..]);
        match &part {
            Some((path, numbers)) => pack::pack_of_part(index, opened(path)?, numbers),
            None => pack::pack_of_index(index),
        }
        .map_err(|error| unjoined(&error))
    })?;
    let part = match step {
        "begin" => PushPart::Begin,
        "end" => PushPart::End,
        _ => PushPart::Samples(part.map_or(Vec::new(), |(_, numbers)| numbers).into()),
    };
    pushed_part(py, &whole, url, (&packing, part), &progress)
}

/// Opens a pack: a file, or the URL of one.
fn opened(path: &Path) -> PyResult<Pack> {
    open_pack(path, &Host::system()).map_err(|error| errors::exception(&error))
}

/// Reads numbers (int64). None is negative: the Python code checks that.
fn numbers(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks().0.iter().map(|number| u64::from_ne_bytes(*number)).collect()
}

/// Returns the exception for parts that make no pack.
fn unjoined(error: &JoinError) -> PyErr {
    let said = with_causes(error);
    match error {
        JoinError::NoneDecodes { .. } => errors::corrupt(said),
        JoinError::Source { .. } | JoinError::Changed { .. } | JoinError::Record(_) | JoinError::Index(_) => {
            errors::unavailable(said, None)
        }
        _ => errors::configuration(said),
    }
}
