//! The choice of samples: which samples of the dataset an epoch has, and how often.
//!
//! Sample ids stay the dataset's: a choice names indices, and a drive prepares these samples like any others. A sample
//! that occurs several times in an epoch has an id, and thus draws, for each occurrence ([`Copies`]).
//!
//! - `file`: a file of indices. `weighted`: draws by weights.

mod file;
mod weighted;

pub(crate) use file::read_indices;
pub(crate) use weighted::WeightedDraw;

use super::walks::room;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::sync::Arc;

/// Returns the indices of an epoch, or says in words why there are none.
pub type IndicesOfEpoch = dyn Fn(u32) -> Result<Vec<u64>, String> + Send + Sync;

/// Indices of the samples that an epoch has. An index may occur several times: each occurrence has draws of its own.
#[derive(Clone)]
pub enum Indices {
    /// The same indices in every epoch.
    Fixed(Arc<[u64]>),
    /// Indices that follow from the epoch. Each epoch has the same number of them. Called by the consumer's thread, up
    /// to three epochs ahead.
    ByEpoch(Arc<IndicesOfEpoch>),
}

impl fmt::Debug for Indices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(indices) => write!(f, "Fixed({} indices)", indices.len()),
            Self::ByEpoch(_) => f.write_str("ByEpoch"),
        }
    }
}

/// Weights by which an epoch draws its samples, with replacement.
#[derive(Clone, Debug)]
pub enum Weights {
    /// A weight for each sample of the dataset, or one for each class, which each of its samples has.
    Given(Arc<[f64]>),
    /// Each class has the same chance; its samples share it.
    Balanced,
}

/// Which samples of the dataset the epochs of a run have. Default: each sample.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Samples of an epoch. Default: those in the file that [`LoaderOptions::indices`](crate::LoaderOptions::indices)
    /// names, or all.
    pub indices: Option<Indices>,
    /// Weights by which the samples of an epoch are drawn, with replacement, from those that `indices` name. Default:
    /// none, each occurs once.
    pub weights: Option<Weights>,
}

/// What states and plans record of a choice of samples.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChoiceRecord {
    /// Digest of the indices, those of epoch 0 if they follow from the epoch, or name of a part and identity of its
    /// split; `None` for all samples.
    pub indices: Option<String>,
    /// Digest of the weights of all samples; `None` if there are none.
    pub weights: Option<String>,
    /// See [`LoaderOptions::repeats`](crate::LoaderOptions::repeats).
    pub repeats: u32,
    /// See [`LoaderOptions::views`](crate::LoaderOptions::views).
    pub views: u32,
}

impl Default for ChoiceRecord {
    fn default() -> Self {
        Self { indices: None, weights: None, repeats: 1, views: 1 }
    }
}

impl ChoiceRecord {
    /// Returns whether an epoch has each sample of the dataset once.
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the names of the options, and what this record and another one say of them, in words.
    pub(crate) fn compared(&self, other: &Self) -> [(&'static str, String, String); 4] {
        let digest = |digest: &Option<String>, without: &str| match digest {
            Some(part) if part.starts_with("part ") => part.clone(),
            Some(digest) => format!("{digest} (a digest)"),
            None => without.to_owned(),
        };
        [
            ("indices", digest(&self.indices, "all samples"), digest(&other.indices, "all samples")),
            ("weights", digest(&self.weights, "none"), digest(&other.weights, "none")),
            ("repeats", self.repeats.to_string(), other.repeats.to_string()),
            ("views", self.views.to_string(), other.views.to_string()),
        ]
    }
}

/// Ids of the samples of a choice, one for each occurrence.
#[derive(Debug)]
pub(crate) struct Listed {
    pub ids: Vec<u64>,
    /// Most occurrences of a sample.
    pub occurrences: u64,
}

impl Listed {
    /// Gives the occurrences of each index ids of their own: those of the dataset, of `dataset` samples, and above.
    ///
    /// # Errors
    ///
    /// Names the first index that is not one of the dataset, or says that the system refuses memory.
    fn new(name: &str, indices: &[u64], dataset: u64) -> io::Result<Self> {
        if indices.is_empty() {
            return Err(wrong(format!("{name} has no index: leave `indices` out to take all samples")));
        }
        if indices.len() as u64 > u64::from(u32::MAX) {
            return Err(wrong(format!("{name} has {} indices, but at most {} are possible", indices.len(), u32::MAX)));
        }
        let (mut ids, mut counts) = (room(indices.len() as u64)?, room(dataset)?);
        counts.resize(dataset as usize, 0u32);
        let mut occurrences = 0;
        for (at, &index) in indices.iter().enumerate() {
            let Some(count) = counts.get_mut(index as usize) else {
                return Err(wrong(format!(
                    "{name}[{at}] is {index}, but the dataset has {dataset} samples, numbered from 0"
                )));
            };
            ids.push(index + u64::from(*count) * dataset);
            *count += 1;
            occurrences = occurrences.max(*count);
        }
        Ok(Self { ids, occurrences: occurrences.into() })
    }
}

/// The samples from which epochs are made.
pub(crate) enum Picks {
    /// All samples of the dataset.
    All,
    /// The same samples in every epoch.
    Fixed(Listed),
    /// Samples that follow from the epoch, this many in each.
    ByEpoch(Arc<IndicesOfEpoch>, u64),
    /// Samples that are drawn in each epoch.
    Weighted(WeightedDraw),
}

impl fmt::Debug for Picks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::All => "All",
            Self::Fixed(_) => "Fixed",
            Self::ByEpoch(..) => "ByEpoch",
            Self::Weighted(_) => "Weighted",
        })
    }
}

/// Ids of the copies of a sample that `repeats` and `views` ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copies {
    /// Samples of the dataset.
    pub dataset: u64,
    /// Copies of a sample in an epoch, one after the other.
    pub repeats: u64,
    /// Copies of each of these in its batch.
    pub views: u64,
}

impl Copies {
    /// Returns how many copies one occurrence of a sample has.
    pub fn count(self) -> u64 {
        self.repeats * self.views
    }

    /// Returns the id of a copy of a sample. The sample's index is the remainder of the id.
    pub fn id(self, id: u64, repeat: u64) -> u64 {
        id % self.dataset + (id / self.dataset * self.count() + repeat * self.views) * self.dataset
    }
}

/// A choice that fits the dataset.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub picks: Picks,
    pub copies: Copies,
    /// Samples that an epoch has by default.
    pub count: u64,
    pub record: ChoiceRecord,
}

impl Chosen {
    /// Checks a choice for a dataset of `copies.dataset` samples, and makes everything ready for the epochs. `label`
    /// returns a sample's label; labels below `classes` have names.
    ///
    /// # Errors
    ///
    /// Names the option, the place and the value that does not fit, or says that the system refuses memory.
    pub fn new(choice: &Choice, copies: Copies, classes: usize, label: impl Fn(u64) -> i64) -> io::Result<Self> {
        let Copies { dataset, repeats, views } = copies;
        // Both are options of 32 bits.
        let mut record = ChoiceRecord { repeats: repeats as u32, views: views as u32, ..ChoiceRecord::default() };
        let fixed = match &choice.indices {
            None => None,
            Some(Indices::Fixed(indices)) => {
                record.indices = Some(digest("ddlp indices 1", indices.iter().map(|index| index.to_le_bytes())));
                Some((Listed::new("`indices`", indices, dataset)?, indices))
            }
            Some(Indices::ByEpoch(_)) if choice.weights.is_some() => {
                return Err(wrong(
                    "`weights` and `indices` as a function of the epoch exclude each other: draw in the \
                     function"
                        .into(),
                ));
            }
            Some(Indices::ByEpoch(indices)) => {
                let first = of_epoch(&**indices, 0, dataset)?;
                let count = first.ids.len() as u64;
                let digest = digest("ddlp indices by epoch 1", first.ids.iter().map(|id| id.to_le_bytes()));
                record.indices = Some(digest);
                let picks = Picks::ByEpoch(indices.clone(), count);
                return Ok(Self { picks, copies, count, record });
            }
        };
        let count = fixed.as_ref().map_or(dataset, |(listed, _)| listed.ids.len() as u64);
        let picks = match (&choice.weights, fixed) {
            (None, None) => Picks::All,
            (None, Some((listed, _))) => Picks::Fixed(listed),
            (Some(weights), fixed) => {
                let indices = fixed.as_ref().map(|(_, indices)| &***indices);
                let weights = weighted::of_samples(weights, indices, dataset, classes, label)?;
                record.weights = Some(digest("ddlp weights 1", weights.iter().map(|weight| weight.to_le_bytes())));
                Picks::Weighted(WeightedDraw::new(&weights, fixed.map(|(_, indices)| indices.clone()))?)
            }
        };
        Ok(Self { picks, copies, count, record })
    }

    /// Returns whether the samples of an epoch differ from epoch to epoch.
    pub fn is_of_epoch(&self) -> bool {
        matches!(self.picks, Picks::ByEpoch(..) | Picks::Weighted(_)) || self.copies.repeats > 1
    }

    /// Returns the indices of the first samples of an epoch that is the same each time, in the order of the choice.
    pub fn first(&self, samples: u64) -> impl Iterator<Item = u64> {
        (0..samples).map(|at| match &self.picks {
            Picks::Fixed(listed) => listed.ids[(at % self.count) as usize] % self.copies.dataset,
            _ => at % self.copies.dataset,
        })
    }
}

/// Returns the samples of an epoch that a function names.
pub(crate) fn of_epoch(indices: &IndicesOfEpoch, epoch: u32, dataset: u64) -> io::Result<Listed> {
    let of_epoch = indices(epoch).map_err(|error| wrong(format!("`indices`({epoch}): {error}")))?;
    Listed::new(&format!("`indices`({epoch})"), &of_epoch, dataset)
}

/// Returns the error for a choice that does not fit.
pub(crate) fn wrong(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

fn digest(name: &str, numbers: impl Iterator<Item = [u8; 8]>) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(name.as_bytes());
    let mut piece = Vec::with_capacity(1 << 16);
    for number in numbers {
        piece.extend_from_slice(&number);
        if piece.len() == 1 << 16 {
            hasher.update(&piece);
            piece.clear();
        }
    }
    hasher.update(&piece).finalize().to_hex()[..32].to_string()
}

#[cfg(test)]
mod tests;
