//! Several datasets as one, each with a weight.
//!
//! - The samples of the first dataset come first, then the samples of the second, and so on. Their names begin with the
//!   name of their dataset: `photos:cat/1.jpg`.
//! - Each dataset is a part ([`Dataset::parts`]): every epoch takes of each part as many samples as its weight says.
//!   Without weights, each dataset weighs as much as it has samples, so that an epoch of all samples has each once.
//! - If all datasets have the same classes, labels stay as they are. Otherwise classes of the same name are one class:
//!   the classes of the first dataset come first, then those that the second adds, and so on.
//! - The identity is a digest of the datasets' identities. Weights and names are not part of it.
//!
//! `file` reads a mix from a TOML file.

mod file;

pub(crate) use file::paths_in;

use crate::pack::Blocks;
use crate::sample::IdentityHasher;
use crate::{
    Ahead, Bundles, BytesRead, CLASSES_MAX, CacheUse, Dataset, Decoders, ExtentRead, FetchDepth, Half, Header,
    Identity, Location, MixPart, OpenError, PackFile, Piece, ReadError, Reading, Requests, Silences, Stored,
    Unavailable,
};
use ddlp_pixels::{Fidelity, ScanGroups, Source};
use std::collections::{HashMap, HashSet};
use std::fs::Metadata;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// Most datasets of a mix.
const DATASETS_MAX: usize = 1024;
/// Most names of files that are not samples, as [`Dataset::left_out_names`] says.
const LISTED_MAX: usize = crate::pack::LISTED_MAX;

/// Reason why datasets cannot be mixed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MixError {
    /// The file cannot be read.
    #[error("cannot read the mix {}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The file is not a description of a mix.
    #[error(
        "{} is not a mix of datasets: {message}; a mix has a table [[dataset]] for each dataset, with its `path` and \
         maybe its `weight` and `kind`",
        .path.display()
    )]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        message: String,
    },
    /// A dataset of the file cannot be opened.
    #[error("cannot open a dataset of the mix {}", .path.display())]
    Dataset {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: Box<OpenError>,
    },
    /// There are no datasets, or too many.
    #[error("a mix has 1 to {DATASETS_MAX} datasets, not {0}")]
    Count(usize),
    /// There are more or fewer weights than datasets.
    #[error("{weights} weights are given for {datasets} datasets: give every dataset a weight, or none")]
    Weights {
        /// Number of weights.
        weights: usize,
        /// Number of datasets.
        datasets: usize,
    },
    /// A weight is no positive number.
    #[error("the weight of {name} is {weight}, but must be a finite number above 0: leave out what is not wanted")]
    Weight {
        /// The dataset.
        name: String,
        /// Its weight.
        weight: f64,
    },
    /// A dataset has no samples.
    #[error("{0} has no samples: leave it out")]
    Empty(String),
    /// A dataset is a mix itself.
    #[error("{0} is a mix itself: name its datasets instead")]
    Nested(String),
    /// Some datasets have names of classes, and others have none.
    #[error(
        "{named} has names of classes and {unnamed} has none, so nobody knows which classes are the same: name the \
         classes of {unnamed} too, as by a list of files (.csv) whose labels are names"
    )]
    Classes {
        /// A dataset with names.
        named: String,
        /// A dataset without names.
        unnamed: String,
    },
    /// A dataset has two classes of the same name.
    #[error(
        "{dataset} has two classes named {class:?}, so nobody knows which classes of the datasets are the same: give \
         each class a name of its own"
    )]
    SameName {
        /// The dataset.
        dataset: String,
        /// Name of the classes.
        class: String,
    },
    /// There are too many classes together.
    #[error("the datasets have {0} different classes, and at most {CLASSES_MAX} are possible")]
    TooManyClasses(usize),
}

/// Several datasets as one.
pub struct Mix {
    members: Vec<MixedDataset>,
    classes: Vec<String>,
    left_out_names: Vec<String>,
    identity: Identity,
}

/// A dataset of a mix.
struct MixedDataset {
    name: String,
    dataset: Arc<dyn Dataset>,
    weight: f64,
    /// Index in the mix of the first sample.
    first: u64,
    /// The label in the mix of each class; `None` if labels stay as they are.
    labels: Option<Vec<u32>>,
}

impl Mix {
    /// Mixes these datasets, each with its name for messages. `weights` has a weight for each dataset; without weights,
    /// each dataset weighs as much as it has samples.
    ///
    /// # Errors
    ///
    /// [`MixError`] says which dataset, weight or class does not fit.
    pub fn new(datasets: Vec<(String, Arc<dyn Dataset>)>, weights: Option<&[f64]>) -> Result<Self, MixError> {
        let count = datasets.len();
        if !(1..=DATASETS_MAX).contains(&count) {
            return Err(MixError::Count(count));
        }
        if let Some(weights) = weights
            && weights.len() != count
        {
            return Err(MixError::Weights { weights: weights.len(), datasets: count });
        }
        let (classes, mut labels) = joined_classes(&datasets)?;
        let (mut first, mut members) = (0, Vec::with_capacity(count));
        for (at, (name, dataset)) in datasets.into_iter().enumerate() {
            if dataset.is_empty() {
                return Err(MixError::Empty(name));
            }
            if dataset.kind() == KIND {
                return Err(MixError::Nested(name));
            }
            let weight = weights.map_or(dataset.len() as f64, |weights| weights[at]);
            if !(weight > 0.0 && weight.is_finite()) {
                return Err(MixError::Weight { name, weight });
            }
            let samples = dataset.len();
            members.push(MixedDataset { name, dataset, weight, first, labels: labels[at].take() });
            first += samples;
        }
        let mut hasher = IdentityHasher::new("ddlp mix 1");
        members.iter().for_each(|member| hasher.field(member.dataset.identity().as_bytes()));
        let left_out = members
            .iter()
            .flat_map(|member| member.dataset.left_out_names().iter().map(|name| format!("{}:{name}", member.name)));
        let left_out_names = left_out.take(LISTED_MAX).collect();
        Ok(Self { classes, left_out_names, identity: hasher.finish(), members })
    }

    /// Returns the dataset that has a sample, and the sample's index there.
    fn member(&self, index: u64) -> (&MixedDataset, u64) {
        let member = &self.members[self.number(index)];
        (member, index - member.first)
    }

    /// Returns the number of the dataset that has a sample.
    fn number(&self, index: u64) -> usize {
        assert!(index < self.len(), "sample {index} of {}", self.len());
        self.members.partition_point(|member| member.first <= index) - 1
    }

    fn datasets(&self) -> impl Iterator<Item = &dyn Dataset> {
        self.members.iter().map(|member| &*member.dataset)
    }
}

const KIND: &str = "mix";

/// For each dataset, the label in the mix of each of its classes; `None` if labels stay as they are.
type LabelMaps = Vec<Option<Vec<u32>>>;

/// Returns the classes of the mix, and the labels of each dataset.
fn joined_classes(datasets: &[(String, Arc<dyn Dataset>)]) -> Result<(Vec<String>, LabelMaps), MixError> {
    let classes_of_first = datasets[0].1.classes();
    if datasets.iter().all(|(_, dataset)| dataset.classes() == classes_of_first) {
        return Ok((classes_of_first.to_vec(), vec![None; datasets.len()]));
    }
    let has_names = |(_, dataset): &&(String, Arc<dyn Dataset>)| !dataset.classes().is_empty();
    let (named, unnamed): (Vec<_>, Vec<_>) = datasets.iter().partition(has_names);
    if let ([(named, _), ..], [(unnamed, _), ..]) = (&named[..], &unnamed[..]) {
        return Err(MixError::Classes { named: named.clone(), unnamed: unnamed.clone() });
    }
    for (name, dataset) in datasets {
        let mut names = HashSet::new();
        if let Some(class) = dataset.classes().iter().find(|class| !names.insert(class.as_str())) {
            return Err(MixError::SameName { dataset: name.clone(), class: class.clone() });
        }
    }
    let (mut classes, mut numbers) = (Vec::new(), HashMap::new());
    let labels = datasets.iter().map(|(_, dataset)| {
        let label = |name: &String| {
            *numbers.entry(name.clone()).or_insert_with(|| {
                classes.push(name.clone());
                classes.len() as u32 - 1
            })
        };
        Some(dataset.classes().iter().map(label).collect())
    });
    let labels = labels.collect();
    if classes.len() > CLASSES_MAX {
        return Err(MixError::TooManyClasses(classes.len()));
    }
    Ok((classes, labels))
}

#[warn(clippy::missing_trait_methods)]
impl Dataset for Mix {
    fn len(&self) -> u64 {
        self.members.last().map_or(0, |last| last.first + last.dataset.len())
    }

    fn is_empty(&self) -> bool {
        false
    }

    fn parts(&self) -> Vec<MixPart> {
        let part = |MixedDataset { name, dataset, weight, .. }: &MixedDataset| MixPart {
            name: name.clone(),
            samples: dataset.len(),
            weight: *weight,
        };
        self.members.iter().map(part).collect()
    }

    /// The parts of a mix are walked apart.
    fn bundles(&self) -> io::Result<Option<Bundles>> {
        Ok(None)
    }

    /// Datasets with different groups have only whole images as a common fidelity.
    fn scan_groups(&self) -> Option<&ScanGroups> {
        let first = self.members.first()?.dataset.scan_groups();
        first.filter(|_| self.datasets().all(|dataset| dataset.scan_groups() == first))
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    /// A label for which its dataset names no class stays as it is.
    fn label(&self, index: u64) -> u32 {
        let (member, index) = self.member(index);
        let label = member.dataset.label(index);
        let labels = member.labels.as_ref();
        labels.and_then(|labels| labels.get(label as usize).copied()).unwrap_or(label)
    }

    fn name(&self, index: u64) -> String {
        let (member, index) = self.member(index);
        format!("{}:{}", member.name, member.dataset.name(index))
    }

    fn names(&self, samples: Range<u64>) -> Result<Vec<String>, ReadError> {
        let mut names = Vec::new();
        for MixedDataset { first, name, dataset, .. } in &self.members {
            let own = samples.start.max(*first)..samples.end.min(first + dataset.len());
            if !own.is_empty() {
                let found = dataset.names(own.start - first..own.end - first)?;
                names.extend(found.into_iter().map(|found| format!("{name}:{found}")));
            }
        }
        Ok(names)
    }

    fn location(&self, index: u64) -> Location {
        let (member, index) = self.member(index);
        member.dataset.location(index)
    }

    fn sample_in(&self, found: &Metadata) -> Option<u64> {
        self.members.iter().find_map(|member| Some(member.first + member.dataset.sample_in(found)?))
    }

    fn header(&self, index: u64) -> Result<Header, ReadError> {
        let (member, index) = self.member(index);
        member.dataset.header(index)
    }

    fn pieces(
        &self,
        index: u64,
        header: &Header,
        fidelity: Option<Fidelity>,
        pieces: &mut Vec<Piece>,
    ) -> Result<u64, ReadError> {
        let (member, index) = self.member(index);
        member.dataset.pieces(index, header, fidelity, pieces)
    }

    fn read(&self, index: u64, header: &Header, offset: u64, out: &mut [u8]) -> Result<(), ReadError> {
        let (member, index) = self.member(index);
        member.dataset.read(index, header, offset, out)
    }

    fn read_within(
        &self,
        index: u64,
        header: &Header,
        offset: u64,
        memory: &mut [u8],
        place: Range<usize>,
    ) -> Result<(), ReadError> {
        let (member, index) = self.member(index);
        member.dataset.read_within(index, header, offset, memory, place)
    }

    fn header_extent(&self, index: u64) -> Range<u64> {
        let (member, index) = self.member(index);
        member.dataset.header_extent(index)
    }

    fn header_in(&self, index: u64, bytes: &[u8]) -> Option<Header> {
        let (member, index) = self.member(index);
        member.dataset.header_in(index, bytes)
    }

    /// The reads of one dataset are made at the same time; the datasets take turns.
    fn read_many(&self, reads: &mut [ExtentRead<'_>]) -> Result<(), ReadError> {
        let mut of_members: Vec<Vec<ExtentRead<'_>>> = self.members.iter().map(|_| Vec::new()).collect();
        for ExtentRead { index, header, offset, memory, place } in reads {
            let number = self.number(*index);
            let index = *index - self.members[number].first;
            of_members[number].push(ExtentRead { index, header, offset: *offset, memory, place: place.clone() });
        }
        let mut asked = self.members.iter().zip(of_members).filter(|(_, reads)| !reads.is_empty());
        asked.try_for_each(|(member, mut reads)| member.dataset.read_many(&mut reads))
    }

    fn start_reads<'r>(&'r self, mut reads: Vec<ExtentRead<'r>>) -> Reading<'r, ReadError> {
        let Some(number) = reads.first().map(|read| self.number(read.index)) else {
            return Box::pin(async { Ok(()) });
        };
        let MixedDataset { first, dataset, .. } = &self.members[number];
        let is_of_one = reads.iter().all(|read| self.number(read.index) == number);
        if !is_of_one {
            return Box::pin(async move { self.read_many(&mut reads) });
        }
        reads.iter_mut().for_each(|read| read.index -= first);
        dataset.start_reads(reads)
    }

    /// The requests to the stores of all datasets together.
    fn requests(&self) -> Option<Requests> {
        self.datasets().filter_map(Dataset::requests).reduce(Requests::and)
    }

    /// The use of the caches of all datasets together.
    fn cache_use(&self) -> Option<CacheUse> {
        self.datasets().filter_map(Dataset::cache_use).reduce(CacheUse::and)
    }

    /// The depth that the slowest dataset needs. No read serves two samples, which may lie in different datasets.
    fn fetch_depth(&self) -> FetchDepth {
        let depths = || self.datasets().map(Dataset::fetch_depth);
        FetchDepth {
            threads: depths().map(|depth| depth.threads).max().unwrap_or_default(),
            samples: depths().map(|depth| depth.samples).max().unwrap_or_default(),
            join_gap: None,
            at_once: depths().map(|depth| depth.at_once).min().flatten(),
        }
    }

    fn comes_over_network(&self) -> bool {
        self.datasets().any(Dataset::comes_over_network)
    }

    fn in_memory(&self, index: u64) -> Option<Source<'_>> {
        let (member, index) = self.member(index);
        member.dataset.in_memory(index)
    }

    fn sample<'a>(&'a self, index: u64, buf: &'a mut Vec<u8>) -> Result<Source<'a>, ReadError> {
        let (member, index) = self.member(index);
        member.dataset.sample(index, buf)
    }

    fn stored<'a>(&'a self, index: u64, buf: &'a mut Vec<u8>) -> Result<Stored<'a>, ReadError> {
        let (member, index) = self.member(index);
        member.dataset.stored(index, buf)
    }

    fn announce(&self, indices: &[u64], ahead: Ahead) {
        for member in &self.members {
            let samples = member.first..member.first + member.dataset.len();
            let own: Vec<u64> =
                indices.iter().filter(|index| samples.contains(index)).map(|index| index - member.first).collect();
            if !own.is_empty() {
                member.dataset.announce(&own, ahead);
            }
        }
    }

    fn prefetch(&self, index: u64, half: Half) {
        let (member, index) = self.member(index);
        member.dataset.prefetch(index, half);
    }

    /// Each dataset gets memory in proportion to its samples.
    fn fit_memory(&self, available_bytes: u64) -> io::Result<bool> {
        let share = |dataset: &dyn Dataset| u128::from(available_bytes) * u128::from(dataset.len());
        let fits = self.datasets().map(|dataset| dataset.fit_memory((share(dataset) / u128::from(self.len())) as u64));
        fits.collect::<io::Result<Vec<bool>>>().map(|reads_past| reads_past.contains(&true))
    }

    fn check(&self) -> Result<(), Unavailable> {
        self.datasets().try_for_each(Dataset::check)
    }

    fn check_damage(&self) -> Result<(), Unavailable> {
        self.datasets().try_for_each(Dataset::check_damage)
    }

    fn read_again(&self, index: u64) {
        let (member, index) = self.member(index);
        member.dataset.read_again(index);
    }

    fn interrupt(&self) {
        self.datasets().for_each(Dataset::interrupt);
    }

    /// Silences at the same time count once, as far as the longest tells.
    fn silences(&self) -> Silences {
        let all: Vec<Silences> = self.datasets().map(Dataset::silences).collect();
        let total = all.iter().map(|silences| silences.total).max().unwrap_or_default();
        Silences { total, now: all.into_iter().find_map(|silences| silences.now) }
    }

    fn identity(&self) -> Identity {
        self.identity
    }

    fn kind(&self) -> &'static str {
        KIND
    }

    fn decoders(&self) -> Decoders {
        self.datasets().flat_map(|dataset| dataset.decoders().iter()).collect()
    }

    fn left_out(&self) -> u64 {
        self.datasets().map(Dataset::left_out).sum()
    }

    fn rejected(&self) -> u64 {
        self.datasets().map(Dataset::rejected).sum()
    }

    fn left_out_names(&self) -> &[String] {
        &self.left_out_names
    }

    fn export(&self) -> Option<&PackFile> {
        None
    }

    fn export_blocks(&self) -> Option<&dyn Blocks> {
        None
    }

    fn bytes_read(&self) -> BytesRead {
        self.datasets().map(Dataset::bytes_read).fold(BytesRead::default(), |sum, read| BytesRead {
            bytes: sum.bytes + read.bytes,
            block_bytes: sum.block_bytes + read.block_bytes,
            sample_bytes: sum.sample_bytes + read.sample_bytes,
        })
    }

    fn is_resident(&self) -> bool {
        self.datasets().all(Dataset::is_resident)
    }
}

#[cfg(test)]
mod tests;
