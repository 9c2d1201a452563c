//! The choice of samples that a program gives, and the division of a dataset.

use crate::errors;
use crate::of_epoch::OfEpoch;
use ddlp_host::dataset::{SampleFields, destination, is_input};
use ddlp_host::splits::{self, Split, SplitPart, SplitQuery};
use ddlp_host::{Choice, Dataset, Indices, Weights};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The choice as `ddlp/_choice.py` makes it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct GivenChoice {
    /// Indices as int64, or a function that returns the indices of an epoch.
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

/// Divides samples into parts of these sizes, as `ddlp_host::split` does, or `ddlp_host::split_evenly`. The groups and
/// the returned positions are int64.
#[pyfunction]
pub fn split_samples<'py>(
    py: Python<'py>,
    groups: PyBackedBytes,
    sizes: Vec<u64>,
    seed: u64,
    evenly: bool,
) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    let parts = py.detach(|| {
        let groups: Vec<i64> = groups.chunks_exact(8).map(|bytes| i64::from_ne_bytes(eight(bytes))).collect();
        let split = if evenly { ddlp_host::split_evenly } else { ddlp_host::split };
        split(&groups, &sizes, seed)
    });
    let parts = parts.map_err(|error| errors::wrong_options(&error))?;
    Ok(parts.iter().map(|part| as_bytes(py, part)).collect())
}

/// Returns indices as int64.
fn as_bytes<'py>(py: Python<'py>, indices: &[u64]) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &indices.iter().flat_map(|at| at.to_ne_bytes()).collect::<Vec<u8>>())
}

/// Returns the sizes of parts that are these shares of `count` samples.
#[pyfunction]
pub fn split_sizes(ratios: Vec<f64>, count: u64) -> PyResult<Vec<u64>> {
    splits::sizes(&ratios, count).map_err(|error| errors::wrong_options(&error))
}

/// Returns the parts in the file of a split.
#[pyfunction]
pub fn read_split<'py>(py: Python<'py>, path: PathBuf) -> PyResult<Vec<(String, Bound<'py, PyBytes>)>> {
    let split = py.detach(|| Split::read(&path)).map_err(|error| errors::wrong_options(&error))?;
    Ok(split.parts().iter().map(|part| (part.name.clone(), as_bytes(py, &part.indices))).collect())
}

/// How the parts of a split were made: `where`, shares, balance and seed.
pub type GivenQuery = (Option<String>, Vec<f64>, String, u64);

/// Returns the indices of the samples for which the answer to a question is yes, as int64.
pub fn samples_where<'py>(
    py: Python<'py>,
    dataset: &dyn Dataset,
    beside: &SampleFields,
    question: &str,
) -> PyResult<Bound<'py, PyBytes>> {
    let found = py.detach(|| splits::samples_where(question, dataset, beside));
    found.map(|found| as_bytes(py, &found)).map_err(|error| errors::wrong_options(&error))
}

/// Writes the file of a split with these parts, each of indices as int64. `root` is the dataset's place, if that is a
/// path. The error says what to do.
pub fn write_split(
    dataset: &dyn Dataset,
    (path, root): (&Path, Option<&Path>),
    names: Option<Vec<String>>,
    parts: &[PyBackedBytes],
    query: Option<GivenQuery>,
) -> Result<(), String> {
    let names = names.unwrap_or_else(|| splits::default_names(parts.len()));
    if names.len() != parts.len() {
        return Err(format!("`names` has {} names for {} parts: name each", names.len(), parts.len()));
    }
    let query = query.map(|(filter, ratios, balance, seed)| {
        Ok::<_, String>(SplitQuery { filter, ratios, balance: balance.parse()?, seed })
    });
    let part = |(name, indices): (String, &PyBackedBytes)| {
        Ok::<_, String>(SplitPart { name, indices: indices_of("a part", indices)? })
    };
    let parts = names.into_iter().zip(parts).map(part).collect::<Result<_, _>>()?;
    let split = Split::of_parts(dataset, query.transpose()?, parts).map_err(|error| error.to_string())?;
    let shown = path.display();
    let there = fs::metadata(path).ok();
    let place = destination(path).map_err(|error| format!("`out`: {shown} cannot be written: {error}"))?;
    let is_sample = || there.as_ref().is_some_and(|there| dataset.sample_in(there).is_some());
    if root.map_or_else(is_sample, |root| is_input(dataset, root, &place).unwrap_or(false)) {
        return Err(format!("`out` would write to {shown}, which belongs to the dataset: name another file"));
    }
    let written = match &there {
        // A device or a pipe.
        Some(there) if !there.is_file() => fs::write(path, split.to_bytes()),
        _ => replace(&place, &split.to_bytes(), there.map(|there| there.permissions())),
    };
    written.map_err(|error| format!("`out`: {shown} cannot be written: {error}"))
}

/// Writes a file as a whole: each rank may write it, while another one reads it. `path` is no link.
fn replace(path: &Path, bytes: &[u8], permissions: Option<Permissions>) -> io::Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    // Ranks on other machines may have the same number of a process.
    let partial = path.with_file_name(format!(".ddlp-split-{}-{now:x}.partial", std::process::id()));
    let mut file = File::create_new(&partial)?;
    let filled = permissions
        .map_or(Ok(()), |permissions| file.set_permissions(permissions))
        .and_then(|()| file.write_all(bytes))
        .and_then(|()| file.sync_all());
    filled.and_then(|()| fs::rename(&partial, path)).inspect_err(|_| {
        let _ = fs::remove_file(&partial);
    })
}
