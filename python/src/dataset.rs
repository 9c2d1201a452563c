//! Datasets that a program names: files, objects, tables, and mixes of these. What a program may ask of one without a
//! run.

use crate::arrays::Arrays;
use crate::arrow::{Columns, Table};
use crate::choice::{self, GivenQuery};
use crate::errors;
use crate::opening;
use crate::source::Sequence;
use ddlp_cause::with_causes;
use ddlp_host::dataset::list::List;
use ddlp_host::dataset::mix::Mix;
use ddlp_host::dataset::{ReadError, SampleFields, Stored};
use ddlp_host::pixels::{LABEL, Source};
use ddlp_host::{CacheOptions, Dataset, Host, OpenOptions, TableOptions};
use pyo3::exceptions::PyIndexError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use std::path::PathBuf;
use std::sync::Arc;

/// A dataset of a mix: its name, its path or samples, and the columns of a table.
pub type Member<'py> = (String, Bound<'py, PyAny>, Option<Columns>);

/// Returns the dataset of a Python object, or of a table with these columns. Adds an object to `objects`.
pub fn in_memory(
    samples: &Bound<'_, PyAny>,
    columns: Option<Columns>,
    objects: &mut Vec<Arc<Sequence>>,
) -> PyResult<Arc<dyn Dataset>> {
    if let Some(columns) = columns {
        return Ok(Arc::new(Table::open(samples, columns)?));
    }
    if let Ok(open) = samples.cast::<OpenDataset>() {
        let OpenDataset { dataset, objects: own, .. } = open.get();
        objects.extend(own.iter().cloned());
        return Ok(dataset.clone());
    }
    let sequence = Arc::new(Sequence::new(samples)?);
    objects.push(sequence.clone());
    Ok(sequence)
}

/// Opens the datasets of a mix. Adds Python objects among them to `objects`.
pub fn mixed(
    py: Python<'_>,
    members: Vec<Member<'_>>,
    weights: Option<Vec<f64>>,
    (host, options, cache): (&Host, &OpenOptions, Option<&CacheOptions>),
    objects: &mut Vec<Arc<Sequence>>,
) -> PyResult<Arc<dyn Dataset>> {
    let mut datasets = Vec::with_capacity(members.len());
    for (name, samples, columns) in members {
        let dataset = match samples.extract::<PathBuf>() {
            Ok(path) => {
                let (host, options, cache) = (host.clone(), options.clone(), cache.cloned());
                let open = move || ddlp_host::open_dataset_with(&path, &host, &options, cache.as_ref());
                let opened = opening::elsewhere(py, open)?;
                opened.map_err(|error| errors::exception(&error))?
            }
            Err(_) => in_memory(&samples, columns, objects)?,
        };
        datasets.push((name, dataset));
    }
    let mix = Mix::new(datasets, weights.as_deref()).map_err(|error| errors::wrong_options(&error))?;
    Ok(Arc::new(mix))
}

/// An opened dataset: its samples by number, without a pass over the images.
#[pyclass(frozen, module = "ddlp._ddlp", name = "Dataset")]
pub struct OpenDataset {
    dataset: Arc<dyn Dataset>,
    beside: SampleFields,
    objects: Vec<Arc<Sequence>>,
}

impl OpenDataset {
    /// Returns a handle on the dataset of a run, with the fields beside it.
    pub fn new(dataset: Arc<dyn Dataset>, beside: SampleFields, objects: Vec<Arc<Sequence>>) -> Self {
        Self { dataset, beside, objects }
    }

    /// Checks that the label of each sample is known without reading an item of an object.
    fn check_labels(&self) -> PyResult<()> {
        match self.objects.iter().find(|object| !object.knows_labels()) {
            Some(unknown) => Err(errors::configuration(format!(
                "the labels of a {} are known only when its items are read: let it have an attribute `targets` with \
                 the label of each item",
                unknown.type_name()
            ))),
            None => Ok(()),
        }
    }

    /// Checks the number of a sample.
    fn checked(&self, index: u64) -> PyResult<u64> {
        let samples = self.dataset.len();
        if index < samples {
            return Ok(index);
        }
        Err(PyIndexError::new_err(format!("sample {index} of a dataset of {samples} samples, numbered from 0")))
    }
}

#[pymethods]
impl OpenDataset {
    /// Opens a path, an object, a table with these columns, or a mix, whose classes have these names. `table` has the
    /// column of the images, that of the labels and the table of the labels, of a table in a database.
    #[new]
    #[pyo3(signature = (
        path = None, kind = None, classes = None, dataset = None, columns = None, mix = None, table = Default::default()
    ))]
    #[allow(clippy::too_many_arguments)]
    fn open(
        py: Python<'_>,
        path: Option<PathBuf>,
        kind: Option<&str>,
        classes: Option<Vec<String>>,
        dataset: Option<Bound<'_, PyAny>>,
        columns: Option<Columns>,
        mix: Option<(Vec<Member<'_>>, Option<Vec<f64>>)>,
        table: (Option<String>, Option<String>, Option<String>),
    ) -> PyResult<Self> {
        let kind = kind.map(|word| word.parse().map_err(|problem| format!("`kind`: {problem}"))).transpose();
        let kind = kind.map_err(errors::configuration)?;
        let classes = classes.unwrap_or_default();
        let (data_column, label_column, metadata_table) = table;
        let table = TableOptions { data_column, label_column, metadata_table };
        let how = OpenOptions { kind, classes: classes.clone(), table, ..OpenOptions::default() };
        let (host, mut objects) = (Host::system(), Vec::new());
        let opened = match (path, dataset, mix) {
            (Some(path), ..) => {
                let opened = opening::elsewhere(py, move || ddlp_host::open_dataset_with(&path, &host, &how, None))?;
                opened.map_err(|error| errors::exception(&error))?
            }
            (None, Some(dataset), _) => in_memory(&dataset, columns, &mut objects)?,
            (None, None, Some((members, weights))) => mixed(py, members, weights, (&host, &how, None), &mut objects)?,
            (None, None, None) => return Err(errors::configuration("no dataset is given".into())),
        };
        Ok(Self { dataset: crate::packing::classed(opened, &classes)?, beside: SampleFields::default(), objects })
    }

    /// Makes a dataset of the files with these paths below `root`, each with a label.
    #[staticmethod]
    fn of_files(
        py: Python<'_>,
        root: PathBuf,
        paths: Vec<PathBuf>,
        labels: Vec<u32>,
        classes: Vec<String>,
    ) -> PyResult<Self> {
        let list = opening::elsewhere(py, move || List::of_files(&root, &paths, labels, classes))?;
        let list = list.map_err(|error| errors::unavailable(with_causes(&error), None))?;
        Ok(Self { dataset: Arc::new(list), beside: SampleFields::default(), objects: Vec::new() })
    }

    /// Makes a dataset of decoded images of this height and width: three planes of each, and their labels.
    #[staticmethod]
    fn of_planes(
        py: Python<'_>,
        planes: PyBackedBytes,
        size: (u32, u32),
        labels: Vec<u32>,
        classes: Vec<String>,
    ) -> Self {
        let arrays = py.detach(|| Arrays::new(planes, size, labels, classes));
        Self { dataset: Arc::new(arrays), beside: SampleFields::default(), objects: Vec::new() }
    }

    fn __len__(&self) -> usize {
        self.dataset.len() as usize
    }

    #[getter]
    fn kind(&self) -> &'static str {
        self.dataset.kind()
    }

    /// The dataset's identity: a digest of 32 bytes.
    #[getter]
    fn identity<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.dataset.identity().as_bytes())
    }

    /// Whether labels come from fields beside the dataset.
    #[getter]
    fn has_other_labels(&self) -> bool {
        self.beside.position(LABEL).is_some()
    }

    #[getter]
    fn classes(&self) -> Vec<String> {
        self.beside.classes().unwrap_or_else(|| self.dataset.classes()).to_vec()
    }

    /// Whether the label of each sample is known without reading an item of an object.
    #[getter]
    fn knows_labels(&self) -> bool {
        self.objects.iter().all(|object| object.knows_labels())
    }

    /// The label of each sample, as int64.
    fn targets<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.check_labels()?;
        let labels = py.detach(|| -> Vec<u8> {
            let label = |index| self.beside.label(&*self.dataset, index).to_ne_bytes();
            (0..self.dataset.len()).flat_map(label).collect()
        });
        Ok(PyBytes::new(py, &labels))
    }

    /// The indices of the samples for which the answer to a question is yes, as int64.
    fn samples_where<'py>(&self, py: Python<'py>, question: &str) -> PyResult<Bound<'py, PyBytes>> {
        self.check_labels()?;
        choice::samples_where(py, &*self.dataset, &self.beside, question)
    }

    /// Writes the file of a split with these parts, each of indices as int64. `root` is the dataset's place, if that is
    /// a path.
    fn write_split(
        &self,
        py: Python<'_>,
        path: PathBuf,
        root: Option<PathBuf>,
        names: Option<Vec<String>>,
        parts: Vec<PyBackedBytes>,
        query: Option<GivenQuery>,
    ) -> PyResult<()> {
        py.detach(|| choice::write_split(&*self.dataset, (&path, root.as_deref()), names, &parts, query))
            .map_err(errors::configuration)
    }

    /// Returns the name of a sample.
    fn name(&self, index: u64) -> PyResult<String> {
        Ok(self.dataset.name(self.checked(index)?))
    }

    /// Returns the file of a sample, if the file has this sample alone.
    fn path(&self, index: u64) -> PyResult<Option<PathBuf>> {
        let index = self.checked(index)?;
        let has_files = matches!(self.dataset.kind(), "folder" | "list" | "files");
        Ok(has_files.then(|| self.dataset.location(index).file))
    }

    /// Returns the file of an image as it is stored, also if it cannot be decoded.
    fn file<'py>(&self, py: Python<'py>, index: u64) -> PyResult<Bound<'py, PyBytes>> {
        let index = self.checked(index)?;
        let mut memory = Vec::new();
        let file = py.detach(|| -> PyResult<Vec<u8>> {
            match self.dataset.stored(index, &mut memory) {
                Ok(Stored::Source(Source::Encoded(file) | Source::Indexed { file, .. })) => Ok(file.to_vec()),
                Ok(Stored::Rejected { bytes, .. }) => Ok(bytes.to_vec()),
                Ok(_) => Err(errors::configuration(format!(
                    "{} is stored as pixels, and so has no file: read it by ddlp.Loader",
                    self.dataset.name(index)
                ))),
                Err(ReadError::Corrupt(error)) => Err(errors::corrupt(with_causes(&error))),
                Err(ReadError::Unavailable(error)) => Err(errors::unavailable(with_causes(&error), None)),
            }
        })?;
        Ok(PyBytes::new(py, &file))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.objects.iter().try_for_each(|object| object.traverse(&visit))
    }
}
