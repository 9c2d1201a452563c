//! Packing: the functions behind `ddlp.pack` and `ddlp.push`.

use crate::arrow::Columns;
use crate::dataset::in_memory;
use crate::errors;
use ddlp_cause::with_causes;
use ddlp_host::dataset::pack::{self, ENCODED, Pack, PackError, PackFormat, PackOptions, PackProgress, Phase};
use ddlp_host::dataset::{self, Classed, Dataset, OpenOptions};
use ddlp_host::{Host, open_pack, remote_address};
use ddlp_stores::{PushError, PushOptions, PushPart, PushProgress, Share};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most samples that a message names.
const NAMED_MAX: usize = 5;

/// What is packed.
#[derive(FromPyObject)]
pub enum PackSource {
    /// Files.
    Path(PathBuf),
    /// An object of Python code.
    Object(Py<PyAny>),
}

/// Kind of the source, and how samples are stored, in words of `ddlp pack`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Packing {
    kind: Option<String>,
    format: String,
    jpeg: Option<String>,
    max_side: Option<u32>,
    bundle: Option<u32>,
    groups: Option<Vec<i64>>,
    force: bool,
    verify: bool,
    allow_unreadable: bool,
    strict: bool,
    threads: Option<usize>,
    share: Option<(u32, u32)>,
    /// The samples to pack, as a part of a pack: the first, and the one after the last.
    part: Option<(u64, u64)>,
}

impl Packing {
    /// Opens files as the kind that the options name.
    fn open(&self, py: Python<'_>, source: &Path, classes: &[String]) -> PyResult<Box<dyn Dataset>> {
        let kind =
            self.kind.as_ref().map(|word| word.parse().map_err(|problem| format!("`kind`: {problem}"))).transpose();
        let kind = kind.map_err(errors::configuration)?;
        let opening = OpenOptions { kind, classes: classes.to_vec(), ..OpenOptions::default() };
        let files = py.detach(|| dataset::open_with(source, &opening));
        files.map_err(|error| errors::unavailable(with_causes(&error), None))
    }

    /// Returns whether the options ask for a certain form.
    fn asks_for_a_form(&self) -> bool {
        self.format != ENCODED || self.jpeg.is_some()
    }

    fn options(&self) -> PyResult<PackOptions> {
        let format = PackFormat::of_options(Some(&self.format), self.jpeg.as_deref(), self.max_side);
        let format = format.map_err(|error| errors::wrong_options(&error))?;
        let groups = match &self.groups {
            None => PackOptions::default().groups,
            Some(groups) => {
                let numbers = groups.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
                numbers.parse().map_err(|error| errors::configuration(format!("`groups`: {error}")))?
            }
        };
        Ok(PackOptions {
            threads: self.threads.unwrap_or(0),
            format,
            bundle_samples: self.bundle.unwrap_or(pack::BUNDLE_SAMPLES),
            groups,
            overwrite: self.force,
            verify: self.verify,
            allow_unreadable: self.allow_unreadable,
            strict: self.strict,
            part: self.part.map(|(begin, end)| begin..end),
            ..PackOptions::default()
        })
    }
}

/// Packs a dataset into a file, with these names of classes if there are any. `progress` is called with the phase, the
/// samples done, and all samples. Returns what `ddlp.pack` returns.
#[pyfunction]
#[pyo3(signature = (source, path, packing, progress, columns = None, classes = None))]
pub fn pack_dataset<'py>(
    py: Python<'py>,
    source: PackSource,
    path: PathBuf,
    packing: Packing,
    progress: Py<PyAny>,
    columns: Option<Columns>,
    classes: Option<Vec<String>>,
) -> PyResult<Bound<'py, PyDict>> {
    let classes = classes.unwrap_or_default();
    let options = packing.options()?;
    match source {
        PackSource::Path(source) => {
            let files = packing.open(py, &source, &classes)?;
            check_part(&*files, &options)?;
            if belongs_to(&*files, &source, &path) {
                let (path, source) = (path.display(), source.display());
                return Err(errors::configuration(format!("{path} belongs to {source}: choose another name")));
            }
            written(py, &*classed(files.into(), &classes)?, &path, &options, &progress, || None)
        }
        PackSource::Object(object) => {
            let mut objects = Vec::new();
            let dataset = classed(in_memory(object.bind(py), columns, &mut objects)?, &classes)?;
            check_part(&*dataset, &options)?;
            let raised = || objects.iter().find_map(|object| object.take_raised());
            written(py, &*dataset, &path, &options, &progress, raised)
        }
    }
}

/// Refuses a part of samples that the dataset does not have.
fn check_part(dataset: &dyn Dataset, options: &PackOptions) -> PyResult<()> {
    match &options.part {
        Some(part) if part.is_empty() || part.end > dataset.len() => {
            let (samples, part) = (dataset.len(), format!("{} to {}", part.start, part.end));
            let why = format!(
                "the source changed while it was packed, or this machine has another copy: it has {samples} samples, \
                 and so no part {part}. See that every machine has the same files under this name, add and remove \
                 none until the end, and begin again"
            );
            Err(errors::unavailable(why, None))
        }
        _ => Ok(()),
    }
}

/// Pushes a dataset to a URL, with these names of classes if there are any. `progress` is called as by
/// [`pack_dataset`]. Returns what `ddlp.push` returns.
#[pyfunction]
#[pyo3(signature = (source, url, packing, progress, columns = None, classes = None))]
pub fn push_dataset<'py>(
    py: Python<'py>,
    source: PackSource,
    url: String,
    packing: Packing,
    progress: Py<PyAny>,
    columns: Option<Columns>,
    classes: Option<Vec<String>>,
) -> PyResult<Bound<'py, PyDict>> {
    let classes = classes.unwrap_or_default();
    let options = packing.options()?;
    match source {
        PackSource::Path(source) => {
            let is_changed = !classes.is_empty() || packing.asks_for_a_form();
            let (pack, files) = if remote_address(&source).is_some() {
                let pack = py.detach(|| open_pack(&source, &Host::system()));
                (Some(pack.map_err(|error| errors::exception(&error))?), None)
            } else {
                let files = packing.open(py, &source, &classes)?;
                let pack = (files.kind() == "pack" && !is_changed).then(|| Pack::open(&source)).transpose();
                (pack.map_err(|error| errors::unavailable(with_causes(&error), None))?, Some(files))
            };
            match (pack, files) {
                (Some(pack), _) if !is_changed => {
                    let rejected = pack.rejected();
                    if packing.strict && rejected > 0 {
                        let what = format!("{} has {rejected} rejected samples", source.display());
                        return Err(errors::corrupt(format!("{what}, and `strict` allows none")));
                    }
                    pushed(py, &pack, &url, &packing, &progress)
                }
                (Some(pack), _) => {
                    made(py, &*classed(Arc::new(pack), &classes)?, &url, (&packing, &options), &progress, || None)
                }
                (None, files) => {
                    let files: Arc<dyn Dataset> = files.expect("files, unless there is a pack").into();
                    made(py, &*classed(files, &classes)?, &url, (&packing, &options), &progress, || None)
                }
            }
        }
        PackSource::Object(object) => {
            let mut objects = Vec::new();
            let dataset = classed(in_memory(object.bind(py), columns, &mut objects)?, &classes)?;
            let raised = || objects.iter().find_map(|object| object.take_raised());
            made(py, &*dataset, &url, (&packing, &options), &progress, raised)
        }
    }
}

/// Makes a pack for a short time and pushes it.
fn made<'py>(
    py: Python<'py>,
    source: &dyn Dataset,
    url: &str,
    (packing, options): (&Packing, &PackOptions),
    progress: &Py<PyAny>,
    cause: impl FnOnce() -> Option<PyErr>,
) -> PyResult<Bound<'py, PyDict>> {
    if packing.share.is_some() {
        return Err(errors::configuration(
            "`share` is a share of a pack, and each machine would make one of all images of this source: make a pack \
             once, by ddlp.pack, where all machines can read it, and push shares of that; or use ddlp.spark.push or \
             ddlp.ray.push, which share this work, too"
                .into(),
        ));
    }
    let folder = std::env::temp_dir();
    let packed = shown(py, progress, |tell| {
        pack::pack_aside(source, &folder, options, &mut |now: PackProgress| {
            tell(phase_name(now.phase), now.samples, now.samples_total)
        })
    })?;
    let packed = packed.map_err(|error| refused(&error, cause))?;
    pushed(py, &packed.pack, url, packing, progress)
}

/// Pushes a pack.
fn pushed<'py>(
    py: Python<'py>,
    pack: &Pack,
    url: &str,
    packing: &Packing,
    progress: &Py<PyAny>,
) -> PyResult<Bound<'py, PyDict>> {
    let part = packing.share.map_or(PushPart::All, |(number, of)| PushPart::Share(Share { number, of }));
    pushed_part(py, pack, url, (packing, part), progress)
}

/// Pushes a pack, or a part of it.
pub fn pushed_part<'py>(
    py: Python<'py>,
    pack: &Pack,
    url: &str,
    (packing, part): (&Packing, PushPart),
    progress: &Py<PyAny>,
) -> PyResult<Bound<'py, PyDict>> {
    let threads = packing.threads.unwrap_or(0);
    let options = PushOptions { threads, force: packing.force, verify: packing.verify, part };
    let outcome = shown(py, progress, |tell| {
        ddlp_stores::push(pack, url, &options, &mut |now: PushProgress| tell("pushing", now.samples, now.samples_total))
    })?;
    let summary = outcome.map_err(|error| match &error {
        PushError::Place { .. } | PushError::Share { .. } => errors::wrong_options(&error),
        PushError::Exists { .. } => errors::configuration(format!("{error}: `force=True` replaces it")),
        PushError::Damaged(_) | PushError::Differs { .. } => errors::corrupt(with_causes(&error)),
        _ => errors::unavailable(with_causes(&error), None),
    })?;
    let figures = PyDict::new(py);
    figures.set_item("samples", summary.samples)?;
    figures.set_item("sent", summary.sent)?;
    figures.set_item("bytes", summary.bytes)?;
    figures.set_item("sent_bytes", summary.sent_bytes)?;
    figures.set_item("identity", summary.identity.to_string())?;
    figures.set_item("evicts", summary.evicts)?;
    figures.set_item("missing_shares", summary.missing_shares)?;
    Ok(figures)
}

/// Does work without the interpreter's lock, and tells `progress` how far it is. An exception of `progress`, or of a
/// signal's handler, ends the work and is returned.
fn shown<T: Send>(
    py: Python<'_>,
    progress: &Py<PyAny>,
    work: impl FnOnce(&mut dyn FnMut(&'static str, u64, u64) -> ControlFlow<()>) -> T + Send,
) -> PyResult<T> {
    let mut raised = None;
    let mut tell = |phase: &'static str, samples: u64, samples_total: u64| {
        let shown = Python::attach(|py| {
            py.check_signals()?;
            progress.call1(py, (phase, samples, samples_total))
        });
        match shown {
            Ok(_) => ControlFlow::Continue(()),
            Err(error) => {
                raised = Some(error);
                ControlFlow::Break(())
            }
        }
    };
    let outcome = py.detach(|| work(&mut tell));
    raised.map_or(Ok(outcome), Err)
}

/// Returns a dataset with the classes of these names; as it is without names.
pub fn classed(dataset: Arc<dyn Dataset>, names: &[String]) -> PyResult<Arc<dyn Dataset>> {
    if names.is_empty() {
        return Ok(dataset);
    }
    let classed = Classed::new(dataset, names);
    Ok(Arc::new(classed.map_err(|error| errors::configuration(format!("`classes`: {error}")))?))
}

/// Returns whether a file at `path` would be one of the source's, which lies at `root`.
fn belongs_to(source: &dyn Dataset, root: &Path, path: &Path) -> bool {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let place = folder.canonicalize().ok().zip(path.file_name()).map(|(folder, name)| folder.join(name));
    place.is_some_and(|place| dataset::is_input(source, root, &place).unwrap_or(false))
}

/// Writes the pack. `cause` returns the exception of the source's own code that ended the work.
fn written<'py>(
    py: Python<'py>,
    source: &dyn Dataset,
    path: &Path,
    options: &PackOptions,
    progress: &Py<PyAny>,
    cause: impl FnOnce() -> Option<PyErr>,
) -> PyResult<Bound<'py, PyDict>> {
    let packed = shown(py, progress, |tell| {
        pack::pack(source, path, options, &mut |now: PackProgress| {
            tell(phase_name(now.phase), now.samples, now.samples_total)
        })
    })?;
    let summary = packed.map_err(|error| refused(&error, cause))?;
    let figures = PyDict::new(py);
    figures.set_item("samples", summary.samples)?;
    figures.set_item("source_bytes", summary.source_bytes)?;
    figures.set_item("file_bytes", summary.file_bytes)?;
    figures.set_item("identity", summary.identity.to_string())?;
    let repaired = summary.repaired.iter().map(|sample| sample.name.as_str());
    figures.set_item("repaired", repaired.collect::<Vec<_>>())?;
    let rejected = summary.rejected.iter().map(|sample| (sample.name.as_str(), sample.message.as_str()));
    figures.set_item("rejected", rejected.collect::<Vec<_>>())?;
    Ok(figures)
}

fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Packing => "packing",
        Phase::Verifying => "verifying",
        _ => "syncing",
    }
}

/// Returns the exception for a pack that was not made.
fn refused(error: &PackError, cause: impl FnOnce() -> Option<PyErr>) -> PyErr {
    match error {
        PackError::Exists { path } => errors::configuration(format!(
            "{} exists: choose another name, or overwrite it by `force=True`",
            path.display()
        )),
        PackError::Lost { unreadable_count, listed, .. } => {
            let named = listed.iter().take(NAMED_MAX).map(|sample| format!("{}: {}", sample.name, sample.message));
            let named = named.collect::<Vec<_>>().join("; ");
            if *unreadable_count == 0 {
                return errors::corrupt(format!("{error}: {named}"));
            }
            errors::unavailable(format!("{error}: {named} (`allow_unreadable=True` packs the others)"), cause())
        }
        PackError::NoneDecodes { .. } | PackError::SourceDamaged { .. } => errors::corrupt(with_causes(error)),
        PackError::SourceUnavailable { .. } => errors::unavailable(with_causes(error), cause()),
        PackError::NoFile { .. }
        | PackError::NameTooLong { .. }
        | PackError::ClassNameTooLong { .. }
        | PackError::TooMany { .. }
        | PackError::TooLarge { .. } => errors::wrong_options(error),
        _ => errors::refused(error),
    }
}
