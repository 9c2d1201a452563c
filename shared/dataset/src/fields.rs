//! Fields beside a dataset: numbers for each of its samples, which the host adds to every batch.
//!
//! A field named `label` takes the place of the dataset's own labels. The drives know nothing of these fields: the host
//! adds them to a batch when all images of the batch are prepared.

mod column;
mod csv;
mod devkit;
mod json;
mod labels;
mod rows;
mod text;

use crate::Dataset;
use crate::shards::{ShardError, Shards, shard_paths};
use ddlp_cause::Cause;
use ddlp_pixels::{DType, Field, FieldKind, IMAGE, LABEL};
use rows::Rows;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Largest number of fields.
const FIELDS_MAX: usize = 1024;
/// Largest number of bytes that the value of one sample may have.
const VALUE_BYTES_MAX: usize = 1 << 20;
/// Column of a table with several labels of each sample.
const LABELS: &str = "labels";

/// Fields beside a dataset, with a value of each for every sample.
#[derive(Clone, Debug, Default)]
pub struct SampleFields {
    columns: Vec<Column>,
    classes: Option<Vec<String>>,
}

/// The values of one field, in the order of samples, without gaps.
#[derive(Clone, Debug)]
struct Column {
    field: Field,
    values: Arc<Vec<u8>>,
}

/// Reason why fields do not fit a dataset, or why a file of fields cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FieldsError {
    /// The file cannot be read.
    #[error("cannot read the fields in {}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The operating system's error, or that the text is not UTF-8.
        #[source]
        source: io::Error,
    },
    /// A line of the file, or a row of the table, cannot be used.
    #[error("{}, {unit} {row}: {what}", .path.display())]
    Row {
        /// The file.
        path: PathBuf,
        /// What the row is called.
        unit: &'static str,
        /// Number of the row: of a line from 1, of a row in memory from 0.
        row: u64,
        /// What is wrong, and what to do.
        what: String,
    },
    /// Some samples have no row in the table.
    #[error(
        "{} has no {unit} for {count} of the {samples} samples, such as {first}: every sample needs one, by the name \
         that `ddlp inspect` shows",
        .path.display()
    )]
    MissingSamples {
        /// The table.
        path: PathBuf,
        /// What a row is called.
        unit: &'static str,
        /// Number of samples without a row.
        count: u64,
        /// Number of samples.
        samples: u64,
        /// Name of the first of them.
        first: String,
    },
    /// A text does not have one label for each sample.
    #[error(
        "{} has {labels} labels, but the dataset has {samples} samples: it must have the label of each sample, one a \
         line, in the order of the dataset",
        .path.display()
    )]
    Count {
        /// The text.
        path: PathBuf,
        /// Number of labels.
        labels: u64,
        /// Number of samples.
        samples: u64,
    },
    /// The classes of ImageNet's ground truth are unknown.
    #[error(
        "{} must say which classes the numbers of the ground truth are, but cannot be read: copy it from the \
         development kit, where it lies beside the ground truth, or use LOC_val_solution.csv of Kaggle",
        .path.display()
    )]
    Synsets {
        /// The list of classes.
        path: PathBuf,
        /// What is wrong with it.
        source: Cause,
    },
    /// Shards have no numbers beside the images.
    #[error("{} has no .json members, whose numbers would be fields", .path.display())]
    NoMembers {
        /// The shards.
        path: PathBuf,
    },
    /// Shards, or the members beside the images, cannot be read.
    #[error(transparent)]
    Shards(#[from] ShardError),
    /// The file is one that only the Python package reads.
    #[error("{} is a Parquet file, which only ddlp.Loader in Python reads: write the table as .csv", .path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
    },
    /// A field cannot be added.
    #[error("field {name:?}: {what}")]
    Field {
        /// Name of the field.
        name: String,
        /// What is wrong, and what to do.
        what: String,
    },
}

/// A table in memory, which gives fields beside a dataset as a table in a file does.
#[derive(Clone, Debug, Default)]
pub struct FieldTable {
    /// Name for messages, such as the path of the file from which the table comes.
    pub path: PathBuf,
    /// Names of the samples.
    pub names: Vec<String>,
    /// Name of each other column, and its cells, as many as there are names. They are written as in a file of
    /// comma-separated values: numbers in decimal, the numbers of a vector with spaces between them.
    pub columns: Vec<(String, Vec<String>)>,
}

impl SampleFields {
    /// Makes fields of a table in memory, by the rules of [`read`](Self::read) for tables.
    ///
    /// # Errors
    ///
    /// [`FieldsError`] says in which row what is wrong, which sample has no row, or which column has not as many cells
    /// as there are names.
    pub fn from_table(table: &FieldTable, dataset: &dyn Dataset) -> Result<Self, FieldsError> {
        let header = std::iter::once("").chain(table.columns.iter().map(|(name, _)| name.as_str()));
        let rows = table.names.len();
        if let Some((name, cells)) = table.columns.iter().find(|(_, cells)| cells.len() != rows) {
            let what = format!("the column has {} cells, but the table has {rows} rows", cells.len());
            return Err(FieldsError::Field { name: name.clone(), what });
        }
        let mut rows = Rows::new(&table.path, "row", dataset, header, 0)?;
        for (at, name) in table.names.iter().enumerate() {
            let cells: Vec<&str> = table.columns.iter().map(|(_, cells)| cells[at].as_str()).collect();
            rows.take(at as u64, name, &cells)?;
        }
        rows.finish()
    }

    /// Reads fields from a file.
    ///
    /// - **A text** (`.txt`) has the label of each sample, one a line, in the order of the dataset. The numbers in
    ///   `ILSVRC2012_validation_ground_truth.txt` are those of the development kit, whose `meta.mat` has to lie beside
    ///   it: labels are then as the class folders of ImageNet's training images give them.
    /// - **Tar shards** (a `.tar` or a folder of them), which may be the dataset itself, have a `.json` member beside
    ///   each image. Each key whose value in the first of these members is a number or a list of numbers is a field;
    ///   other keys are left out.
    /// - **Any other file** is a table with comma-separated values. The first line names the columns. The first column
    ///   names the sample, with or without the extension of its file; each other column is a field. Columns of whole
    ///   numbers give int64, others float32. A cell may have several numbers, separated by spaces: the field is then a
    ///   vector. Columns of numbers that have the same name are one field, too. Every sample needs a line; lines about
    ///   other samples are left out. There are no comments. The labels are those of the column `label`, or the first
    ///   words of the column `PredictionString`, as in Kaggle's `LOC_val_solution.csv`. The column `labels` has any
    ///   number of labels, separated by spaces, or by `|` if the column contains one: the field has a float32 for each
    ///   class, 1 for those of the sample and 0 for all others.
    ///
    /// Labels are class indices (`3` or `3.0`) or names of classes. If the dataset has a class for each, names stand
    /// for its classes; if it has one for none, the names in the file are the classes, sorted byte by byte. Errors are
    /// a number among names, a name among numbers, a number that is no class index, and a name that is no class of the
    /// dataset while others are.
    ///
    /// # Errors
    ///
    /// [`FieldsError`] says in which line what is wrong, or which sample has no line.
    pub fn read(path: &Path, dataset: &dyn Dataset) -> Result<Self, FieldsError> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("txt") => text::read(path, dataset),
            Some("tar") => json::read(path, dataset),
            _ if Shards::recognizes(path) => json::read(path, dataset),
            Some("parquet") => Err(FieldsError::Parquet { path: path.into() }),
            _ => csv::read(path, dataset),
        }
    }

    /// Returns the files that [`read`](Self::read) reads at a path, as far as they exist.
    pub fn files(path: &Path) -> Vec<PathBuf> {
        if path.is_dir() {
            return shard_paths(path).unwrap_or_default();
        }
        let beside = text::reads_beside(path).map(|name| path.with_file_name(name));
        std::iter::once(path.to_owned()).chain(beside).collect()
    }

    /// Returns whether there is no field.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// Adds a field for a dataset of `samples` samples. `values` has the samples' values in order, without gaps, in
    /// this machine's byte order. The field is of kind [`FieldKind::Vector`]; a field named `label` of kind
    /// [`FieldKind::Label`].
    ///
    /// # Errors
    ///
    /// [`FieldsError::Field`] if the name is taken or empty, if a label is not one int64, or if there are more or fewer
    /// values.
    pub fn add(&mut self, samples: u64, field: Field, values: Arc<Vec<u8>>) -> Result<(), FieldsError> {
        let refused = |what: String| Err(FieldsError::Field { name: field.name.clone(), what });
        if field.name.is_empty() {
            return refused("a field needs a name".into());
        }
        if field.name == IMAGE {
            return refused("the prepared image has this name: choose another one".into());
        }
        if self.columns.iter().any(|column| column.field.name == field.name) {
            return refused("another field has this name: choose another one".into());
        }
        if self.columns.len() == FIELDS_MAX {
            return refused(format!("a batch has at most {FIELDS_MAX} fields: put numbers of one kind into a vector"));
        }
        let is_label = field.name == LABEL;
        if is_label && field != Field::label() {
            return refused("a label is one int64: give a field of another shape or type another name".into());
        }
        if !is_label && field.kind != FieldKind::Vector {
            return refused(format!("the pipeline or the dataset makes fields of kind {}", field.kind.name()));
        }
        let elements = field.shape.iter().try_fold(1usize, |elements, &size| elements.checked_mul(size as usize));
        if elements == Some(0) {
            return refused("the value of a sample has no elements: leave the field out".into());
        }
        if elements.is_none_or(|elements| elements > VALUE_BYTES_MAX / field.dtype.bytes()) {
            return refused(format!("the value of a sample has more than {VALUE_BYTES_MAX} bytes"));
        }
        if values.len() as u64 != samples * field.bytes() as u64 {
            let needed = field.bytes();
            let given = match (values.len() / needed, values.len() % needed) {
                (count, 0) => format!("{count} values are given"),
                _ => format!("{} bytes are given, for values of {needed} bytes", values.len()),
            };
            return refused(format!("{given}, but the dataset has {samples} samples"));
        }
        self.columns.push(Column { field, values });
        Ok(())
    }

    /// Returns the fields, in the order in which they were added.
    pub fn fields(&self) -> impl Iterator<Item = &Field> {
        self.columns.iter().map(|column| &column.field)
    }

    /// Returns the position of the field with this name.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.fields().position(|field| field.name == name)
    }

    /// Returns the label of a sample of the dataset, from the field `label` if there is one.
    ///
    /// # Panics
    ///
    /// If there is no such sample.
    pub fn label(&self, dataset: &dyn Dataset, index: u64) -> i64 {
        match self.position(LABEL) {
            Some(at) => i64::from_ne_bytes(self.value(at, index).try_into().expect("a label is one int64")),
            None => dataset.label(index).into(),
        }
    }

    /// Returns the names of the classes, if the labels come from a file that names them.
    pub fn classes(&self) -> Option<&[String]> {
        self.classes.as_deref()
    }

    /// Returns the value that a sample has of the field with this position in [`fields`](Self::fields).
    ///
    /// # Panics
    ///
    /// If there is no such field or sample.
    pub fn value(&self, field: usize, index: u64) -> &[u8] {
        let Column { field, values } = &self.columns[field];
        let bytes = field.bytes();
        &values[index as usize * bytes..][..bytes]
    }
}

/// Returns the field of numbers with this name, type and shape.
fn vector(name: &str, dtype: DType, shape: Vec<u32>) -> Field {
    Field { name: name.into(), kind: FieldKind::Vector, dtype, layout: None, shape }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn what(fields: &mut SampleFields, field: Field, values: usize) -> String {
        fields.add(3, field, Arc::new(vec![0; values])).unwrap_err().to_string()
    }

    #[test]
    fn a_value_is_that_of_its_sample_and_field() {
        let mut fields = SampleFields::default();
        let values: Vec<u8> = [0.5f32, 1.0, 1.5, 2.0, 2.5, 3.0].iter().flat_map(|value| value.to_ne_bytes()).collect();
        fields.add(3, vector("at", DType::F32, vec![2]), Arc::new(values)).unwrap();
        let labels = [7i64, 8, 9].iter().flat_map(|label| label.to_ne_bytes()).collect();
        fields.add(3, Field::label(), Arc::new(labels)).unwrap();
        let names: Vec<_> = fields.fields().map(|field| field.name.as_str()).collect();
        assert_eq!(names, ["at", "label"]);
        assert_eq!(fields.value(0, 1), [1.5f32.to_ne_bytes(), 2.0f32.to_ne_bytes()].as_flattened());
        assert_eq!(fields.value(1, 2), 9i64.to_ne_bytes());
    }

    #[test]
    fn a_field_that_does_not_fit_is_refused_by_name() {
        let mut fields = SampleFields::default();
        fields.add(3, vector("weight", DType::F32, vec![]), Arc::new(vec![0; 12])).unwrap();
        assert!(what(&mut fields, vector("weight", DType::F32, vec![]), 12).contains("another field"));
        assert!(what(&mut fields, vector(IMAGE, DType::F32, vec![]), 12).contains("prepared image"));
        assert!(what(&mut fields, vector("", DType::F32, vec![]), 12).contains("needs a name"));
        assert!(what(&mut fields, vector(LABEL, DType::F32, vec![]), 12).contains("one int64"));
        assert!(what(&mut fields, vector("x", DType::U8, vec![4]), 11).contains("11 bytes are given"));
        assert!(what(&mut fields, vector("x", DType::U8, vec![1 << 20, 2]), 1).contains("more than"));
        assert!(what(&mut fields, vector("x", DType::U8, vec![u32::MAX; 3]), 1).contains("more than"));
        assert!(what(&mut fields, vector("x", DType::F32, vec![3, 0]), 0).contains("no elements"));
        assert!(what(&mut fields, Field { name: "x".into(), ..Field::label() }, 24).contains("kind label"));
    }
}
