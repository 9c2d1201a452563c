//! A dataset whose classes the program numbers, not the dataset.
//!
//! A folder or a list with names numbers the classes that it has. So a validation list that lacks a class numbers later
//! classes differently from the training list. Inside [`Classed`] with the same names, a class has the same number in
//! both lists. [`read_class_list`](crate::read_class_list) reads the names from a file.
//!
//! The identity stays the dataset's: a drive serves the same samples, and the host alone knows their labels.

use crate::label_text::LabelTexts;
use crate::pack::Blocks;
use crate::{
    Ahead, Bundles, BytesRead, CLASSES_MAX, CacheUse, Dataset, Decoders, ExtentRead, FetchDepth, Half, Header,
    Identity, Location, MixPart, PackFile, Piece, ReadError, Reading, Requests, Silences, Stored, Unavailable,
};
use ddlp_pixels::{Fidelity, ScanGroups, Source};
use std::collections::HashMap;
use std::fs::Metadata;
use std::io;
use std::ops::Range;
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
    fn classes(&self) -> &[String] {
        &self.classes
    }

    /// A label for which the dataset names no class stays as it is.
    fn label(&self, index: u64) -> u32 {
        let label = self.dataset.label(index);
        self.labels.get(label as usize).copied().unwrap_or(label)
    }

    fn is_empty(&self) -> bool {
        self.dataset.is_empty()
    }

    fn len(&self) -> u64 {
        self.dataset.len()
    }

    fn parts(&self) -> Vec<MixPart> {
        self.dataset.parts()
    }

    fn bundles(&self) -> io::Result<Option<Bundles>> {
        self.dataset.bundles()
    }

    fn scan_groups(&self) -> Option<&ScanGroups> {
        self.dataset.scan_groups()
    }

    fn name(&self, index: u64) -> String {
        self.dataset.name(index)
    }

    fn names(&self, samples: Range<u64>) -> Result<Vec<String>, ReadError> {
        self.dataset.names(samples)
    }

    fn location(&self, index: u64) -> Location {
        self.dataset.location(index)
    }

    fn sample_in(&self, found: &Metadata) -> Option<u64> {
        self.dataset.sample_in(found)
    }

    fn header(&self, index: u64) -> Result<Header, ReadError> {
        self.dataset.header(index)
    }

    fn pieces(
        &self,
        index: u64,
        header: &Header,
        fidelity: Option<Fidelity>,
        pieces: &mut Vec<Piece>,
    ) -> Result<u64, ReadError> {
        self.dataset.pieces(index, header, fidelity, pieces)
    }

    fn read(&self, index: u64, header: &Header, offset: u64, out: &mut [u8]) -> Result<(), ReadError> {
        self.dataset.read(index, header, offset, out)
    }

    fn read_within(
        &self,
        index: u64,
        header: &Header,
        offset: u64,
        memory: &mut [u8],
        place: Range<usize>,
    ) -> Result<(), ReadError> {
        self.dataset.read_within(index, header, offset, memory, place)
    }

    fn header_extent(&self, index: u64) -> Range<u64> {
        self.dataset.header_extent(index)
    }

    fn header_in(&self, index: u64, bytes: &[u8]) -> Option<Header> {
        self.dataset.header_in(index, bytes)
    }

    fn read_many(&self, reads: &mut [ExtentRead<'_>]) -> Result<(), ReadError> {
        self.dataset.read_many(reads)
    }

    fn start_reads<'r>(&'r self, reads: Vec<ExtentRead<'r>>) -> Reading<'r, ReadError> {
        self.dataset.start_reads(reads)
    }

    fn requests(&self) -> Option<Requests> {
        self.dataset.requests()
    }

    fn cache_use(&self) -> Option<CacheUse> {
        self.dataset.cache_use()
    }

    fn fetch_depth(&self) -> FetchDepth {
        self.dataset.fetch_depth()
    }

    fn comes_over_network(&self) -> bool {
        self.dataset.comes_over_network()
    }

    fn in_memory(&self, index: u64) -> Option<Source<'_>> {
        self.dataset.in_memory(index)
    }

    fn sample<'a>(&'a self, index: u64, buf: &'a mut Vec<u8>) -> Result<Source<'a>, ReadError> {
        self.dataset.sample(index, buf)
    }

    fn stored<'a>(&'a self, index: u64, buf: &'a mut Vec<u8>) -> Result<Stored<'a>, ReadError> {
        self.dataset.stored(index, buf)
    }

    fn announce(&self, indices: &[u64], ahead: Ahead) {
        self.dataset.announce(indices, ahead);
    }

    fn prefetch(&self, index: u64, half: Half) {
        self.dataset.prefetch(index, half);
    }

    fn fit_memory(&self, available_bytes: u64) -> io::Result<bool> {
        self.dataset.fit_memory(available_bytes)
    }

    fn check(&self) -> Result<(), Unavailable> {
        self.dataset.check()
    }

    fn check_damage(&self) -> Result<(), Unavailable> {
        self.dataset.check_damage()
    }

    fn read_again(&self, index: u64) {
        self.dataset.read_again(index);
    }

    fn interrupt(&self) {
        self.dataset.interrupt();
    }

    fn silences(&self) -> Silences {
        self.dataset.silences()
    }

    fn identity(&self) -> Identity {
        self.dataset.identity()
    }

    fn kind(&self) -> &'static str {
        self.dataset.kind()
    }

    fn decoders(&self) -> Decoders {
        self.dataset.decoders()
    }

    fn left_out(&self) -> u64 {
        self.dataset.left_out()
    }

    fn rejected(&self) -> u64 {
        self.dataset.rejected()
    }

    fn left_out_names(&self) -> &[String] {
        self.dataset.left_out_names()
    }

    fn export(&self) -> Option<&PackFile> {
        self.dataset.export()
    }

    fn export_blocks(&self) -> Option<&dyn Blocks> {
        self.dataset.export_blocks()
    }

    fn bytes_read(&self) -> BytesRead {
        self.dataset.bytes_read()
    }

    fn is_resident(&self) -> bool {
        self.dataset.is_resident()
    }
}

#[cfg(test)]
mod tests;
