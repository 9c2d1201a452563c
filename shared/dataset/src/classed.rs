//! A dataset whose classes the program numbers, not the dataset.
//!
//! A folder or a list with names numbers the classes that it has. So a validation list that lacks a class numbers later
//! classes differently from the training list. Inside [`Classed`] with the same names, a class has the same number in
//! both lists. [`read_class_list`](crate::read_class_list) reads the names from a file.
//!
//! The identity stays the dataset's: a drive serves the same samples, and the host alone knows their labels.

use crate::label_text::LabelTexts;
use crate::{CLASSES_MAX, Dataset};
use std::collections::HashMap;
use std::sync::Arc;

/// Most names in a message.
const NAMED_MAX: usize = 5;

/// Reason why a dataset cannot have the given classes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClassesError {
    /// The given names are not names of classes.
    #[error("the given classes {0}")]
    Names(String),
    /// The dataset has classes that are not among the given ones.
    #[error(
        "{count} of the dataset's classes are not among the {given} given ones, such as {}: add them, or correct the \
         dataset",
        .classes.join(", ")
    )]
    Unknown {
        /// Number of these classes.
        count: usize,
        /// The first few of them.
        classes: Vec<String>,
        /// Number of given classes.
        given: usize,
    },
    /// A label of the dataset is beyond the given classes.
    #[error("sample {sample} has the label {label}, but {given} classes are given, numbered from 0: add the others")]
    Label {
        /// Name of the first such sample.
        sample: String,
        /// Its label.
        label: i64,
        /// Number of given classes.
        given: usize,
    },
    /// Labels are numbers, and so are names of classes.
    #[error(
        "the dataset's labels are numbers, and the given class {name} has the number {number}, so nobody knows whether \
         a label is a number or a name: give no classes, or classes whose names are no numbers"
    )]
    Numbers {
        /// Name of the first such class.
        name: String,
        /// Its number.
        number: usize,
    },
    /// The dataset has no labels that the classes could number.
    #[error(
        "classes are given, but the dataset has no labels: every label is 0, and no class has a name. Name the class \
         of each sample, as by a list of files (.csv) with the column label"
    )]
    Unlabelled,
    /// The dataset has numbers without names, and asking for all of them takes too long.
    #[error("classes are given, but the dataset (kind: {kind}) does not name its own: let it name them, too")]
    Unnamed {
        /// Kind of the dataset.
        kind: &'static str,
    },
}

/// A dataset with given classes.
pub struct Classed {
    dataset: Arc<dyn Dataset>,
    classes: Vec<String>,
    /// Number of each class of the dataset; empty if labels stay as they are.
    labels: Vec<u32>,
}

impl Classed {
    /// Numbers the classes of a dataset by their places in `classes`, which may have more. If the classes of the
    /// dataset have no names, its labels stay as they are: `classes` names them.
    ///
    /// # Errors
    ///
    /// [`ClassesError`] names the classes of the dataset that are not among `classes`, or says why labels and classes
    /// do not fit each other.
    pub fn new(dataset: Arc<dyn Dataset>, classes: &[String]) -> Result<Self, ClassesError> {
        let classed = Self::without_labels(dataset, classes)?;
        let dataset = &classed.dataset;
        if dataset.classes().is_empty() {
            check_numbers(&**dataset, classes)?;
            return Ok(classed);
        }
        let numbers: HashMap<&str, u32> = classes.iter().map(String::as_str).zip(0..).collect();
        let number = |class: &String| numbers.get(class.as_str()).copied();
        let unknown: Vec<&String> = dataset.classes().iter().filter(|class| number(class).is_none()).collect();
        if !unknown.is_empty() {
            return Err(ClassesError::Unknown {
                count: unknown.len(),
                classes: unknown.into_iter().take(NAMED_MAX).cloned().collect(),
                given: classes.len(),
            });
        }
        let labels = dataset.classes().iter().filter_map(number).collect();
        Ok(Self { labels, ..classed })
    }

    /// Gives a dataset whose labels nobody uses these classes, for [`SampleFields`](crate::SampleFields) that bring the
    /// labels.
    ///
    /// # Errors
    ///
    /// [`ClassesError::Names`] if the names are not names of classes.
    pub fn without_labels(dataset: Arc<dyn Dataset>, classes: &[String]) -> Result<Self, ClassesError> {
        let wrong = |what: String| Err(ClassesError::Names(what));
        if !(1..=CLASSES_MAX).contains(&classes.len()) {
            return wrong(format!("are {} names, but must be 1 to {CLASSES_MAX}", classes.len()));
        }
        let mut numbers = HashMap::with_capacity(classes.len());
        for (number, class) in classes.iter().enumerate() {
            if class.is_empty() {
                return wrong(format!("have no name for number {number}"));
            }
            if let Some(before) = numbers.insert(class, number) {
                return wrong(format!("have the name {class} for the numbers {before} and {number}: leave one out"));
            }
        }
        Ok(Self { dataset, classes: classes.to_vec(), labels: Vec::new() })
    }
}

/// Checks that the labels of a dataset without names of classes are numbers of these classes.
fn check_numbers(dataset: &dyn Dataset, classes: &[String]) -> Result<(), ClassesError> {
    // Other datasets may have to read each sample for its label.
    if !matches!(dataset.kind(), "folder" | "list" | "files" | "tar" | "pack" | "table") {
        return Err(ClassesError::Unnamed { kind: dataset.kind() });
    }
    let texts = LabelTexts::new(CLASSES_MAX as u64);
    let is_another = |name: &str, number: usize| texts.is_number(name) && name != number.to_string();
    if let Some((number, name)) = classes.iter().enumerate().find(|(number, name)| is_another(name, *number)) {
        return Err(ClassesError::Numbers { name: name.clone(), number });
    }
    let mut has_labels = false;
    for index in 0..dataset.len() {
        let label = dataset.label(index);
        if label as usize >= classes.len() {
            return Err(ClassesError::Label { sample: dataset.name(index), label: label.into(), given: classes.len() });
        }
        has_labels |= label != 0;
    }
    if has_labels { Ok(()) } else { Err(ClassesError::Unlabelled) }
}

#[warn(clippy::missing_trait_methods)]
impl Dataset for Classed {
    crate::forward! {
        dataset:
        is_empty len parts bundles scan_groups name names location sample_in header pieces read read_within
        header_extent header_in read_many start_reads requests cache_use fetch_depth comes_over_network in_memory
        sample stored announce prefetch fit_memory check check_damage read_again interrupt silences identity kind
        decoders left_out rejected left_out_names export export_blocks bytes_read is_resident
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    /// A label for which the dataset names no class stays as it is.
    fn label(&self, index: u64) -> u32 {
        let label = self.dataset.label(index);
        self.labels.get(label as usize).copied().unwrap_or(label)
    }
}

#[cfg(test)]
mod tests;
