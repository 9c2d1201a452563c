//! Fields beside a dataset: numbers for each of its samples, which the host adds to every batch.
//!
//! A field named `label` takes the place of the dataset's own labels. The drives know nothing of these fields: a batch
//! gets them when it is complete, whoever prepared its images.

mod csv;

use ddlp_pixels::{DType, Field, FieldKind, IMAGE, LABEL};
use std::path::PathBuf;
use std::sync::Arc;

/// Largest number of fields.
const FIELDS_MAX: usize = 1024;
/// Largest number of bytes that the value of one sample may have.
const VALUE_BYTES_MAX: usize = 1 << 20;

/// Fields beside a dataset, with a value of each for every sample.
#[derive(Clone, Debug, Default)]
pub struct SampleFields {
    columns: Vec<Column>,
    classes: Option<Vec<String>>,
}

/// The values of one field: those of sample 0 first, without gaps.
#[derive(Clone, Debug)]
struct Column {
    field: Field,
    values: Arc<Vec<u8>>,
}

/// Reason why fields do not fit a dataset, or why a table cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FieldsError {
    /// The table cannot be read, or is no table.
    #[error("cannot read the table {}", .path.display())]
    Unreadable {
        /// The table.
        path: PathBuf,
        /// What failed, and in which line.
        #[source]
        source: ::csv::Error,
    },
    /// A line of the table cannot be used.
    #[error("{}, line {line}: {what}", .path.display())]
    Line {
        /// The table.
        path: PathBuf,
        /// Number of the line, from 1.
        line: u64,
        /// What is wrong, and what to do.
        what: String,
    },
    /// Some samples have no line in the table.
    #[error(
        "{} has no line for {count} of the {samples} samples, such as {first}: its first column must name every sample \
         as `ddlp inspect` does",
        .path.display()
    )]
    MissingSamples {
        /// The table.
        path: PathBuf,
        /// Number of samples without a line.
        count: u64,
        /// Number of samples.
        samples: u64,
        /// Name of the first of them.
        first: String,
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

impl SampleFields {
    /// Returns whether there is no field.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// Adds a field for a dataset of `samples` samples. `values` has the value of sample 0 first, then that of sample
    /// 1, without gaps, in this machine's byte order. The field is of kind [`FieldKind::Vector`]; a field named `label`
    /// of kind [`FieldKind::Label`].
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
            let found = values.len();
            let needed = field.bytes();
            return refused(format!("{found} bytes are given, but {samples} samples of {needed} bytes are needed"));
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

    /// Returns the names of the classes, if the labels come from a table that names them.
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
