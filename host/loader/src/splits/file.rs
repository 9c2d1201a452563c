//! The file of a split: JSON, with the indices of each part in ascending order.

use super::{SplitError, SplitQuery, check_names};
use ddlp_dataset::{Dataset, beginnings};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

const FORMAT: &str = "ddlp split";
const VERSION: u32 = 1;

/// A part of a split.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SplitPart {
    /// Name of the part.
    pub name: String,
    /// Indices of the part's samples.
    pub indices: Vec<u64>,
}

/// A dataset's samples, divided into parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Split {
    format: String,
    version: u32,
    /// Digest of everything that follows, hexadecimal.
    identity: String,
    /// Identity of the dataset, hexadecimal.
    dataset: String,
    /// Samples of the dataset.
    samples: u64,
    /// How the samples were divided; `None` if a program did that in a way of its own.
    query: Option<SplitQuery>,
    parts: Vec<SplitPart>,
}

impl Split {
    /// Makes a split of parts, each with indices of the dataset in ascending order. `query` says how they were made.
    pub(super) fn new(dataset: &dyn Dataset, query: Option<SplitQuery>, parts: Vec<SplitPart>) -> Self {
        let (identity, dataset, samples) = (String::new(), dataset.identity().to_string(), dataset.len());
        let mut split = Self { format: FORMAT.into(), version: VERSION, identity, dataset, samples, query, parts };
        split.identity = split.computed_identity();
        split
    }

    /// Makes a split of parts that a program has made in a way of its own.
    ///
    /// # Errors
    ///
    /// [`SplitError`] names a part or sample that does not fit.
    pub fn of_parts(
        dataset: &dyn Dataset,
        query: Option<SplitQuery>,
        parts: Vec<SplitPart>,
    ) -> Result<Self, SplitError> {
        let split = Self::new(dataset, query, parts);
        split.check().map_err(SplitError)?;
        Ok(split)
    }

    /// Reads the file of a split.
    ///
    /// # Errors
    ///
    /// [`SplitError`] says why the file is no split, or that it was changed.
    pub fn read(path: &Path) -> Result<Self, SplitError> {
        let name = path.display();
        let failed = |what: String| SplitError(format!("{name} {what}"));
        #[derive(Deserialize)]
        struct Head {
            format: String,
            version: u32,
        }
        let bytes = fs::read(path).map_err(|error| failed(format!("cannot be read: {error}")))?;
        let other = "is no file of a split: `ddlp split` writes one";
        let head: Head = serde_json::from_slice(&bytes).map_err(|_| failed(other.into()))?;
        if head.format != FORMAT {
            return Err(failed(other.into()));
        }
        if head.version != VERSION {
            let found = head.version;
            return Err(failed(format!("has version {found}, this program reads version {VERSION}: make it again")));
        }
        let split: Self = serde_json::from_slice(&bytes).map_err(|error| failed(format!("is damaged: {error}")))?;
        if split.identity != split.computed_identity() {
            return Err(failed("was changed since it was written, or is damaged: make it again".into()));
        }
        split.check().map_err(failed)?;
        Ok(split)
    }

    /// Returns the file's content.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec(self).expect("plain data");
        bytes.push(b'\n');
        bytes
    }

    /// Returns the identity of the split, hexadecimal.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Returns the parts.
    pub fn parts(&self) -> &[SplitPart] {
        &self.parts
    }

    /// Returns the indices of the part with this name.
    ///
    /// # Errors
    ///
    /// [`SplitError`] names the parts.
    pub fn part(&self, name: &str) -> Result<&[u64], SplitError> {
        let part = self.parts.iter().find(|part| part.name == name);
        let names = || self.parts.iter().map(|part| part.name.as_str()).collect::<Vec<_>>().join(", ");
        part.map(|part| &part.indices[..])
            .ok_or_else(|| SplitError(format!("the split has no part {name:?}: its parts are {}", names())))
    }

    /// Checks that the split is one of this dataset.
    ///
    /// # Errors
    ///
    /// [`SplitError`] names both datasets.
    pub fn check_is_of(&self, dataset: &dyn Dataset) -> Result<(), SplitError> {
        let identity = dataset.identity().to_string();
        if self.dataset == identity && self.samples == dataset.len() {
            return Ok(());
        }
        let [of_split, actual] = beginnings([&self.dataset, &identity]);
        Err(SplitError(format!(
            "it divides another dataset ({} samples, identity {of_split}…) than this one ({} samples, {actual}…): \
             make a split of this dataset",
            self.samples,
            dataset.len()
        )))
    }

    /// Checks the parts. The error is the end of a sentence.
    fn check(&self) -> Result<(), String> {
        let names: Vec<String> = self.parts.iter().map(|part| part.name.clone()).collect();
        check_names(&names).map_err(|error| format!("has parts that cannot be used: {error}"))?;
        let mut all = Vec::with_capacity(self.parts.iter().map(|part| part.indices.len()).sum());
        for (number, SplitPart { name, indices }) in self.parts.iter().enumerate() {
            if indices.is_empty() {
                return Err(format!("has a part without samples, {name}"));
            }
            if !indices.windows(2).all(|pair| pair[0] < pair[1]) {
                return Err(format!("has a part whose indices do not ascend, {name}"));
            }
            if let Some(index) = indices.last().filter(|index| **index >= self.samples) {
                return Err(format!("has sample {index} in {name}, but the dataset has {} samples", self.samples));
            }
            all.extend(indices.iter().map(|index| (*index, number)));
        }
        all.sort_unstable();
        match all.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(&[(index, one), (_, other)]) => {
                Err(format!("has sample {index} in two parts, {} and {}", names[one], names[other]))
            }
            _ => Ok(()),
        }
    }

    fn computed_identity(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        // Not every reader of JSON gives the last bit of a ratio.
        let ratios = |query: &SplitQuery| query.ratios.iter().map(|ratio| format!("{ratio:.9}")).collect::<Vec<_>>();
        let query = |query: &SplitQuery| (query.filter.clone(), ratios(query), query.balance, query.seed);
        let query = serde_json::to_vec(&self.query.as_ref().map(query)).expect("plain data");
        let head = [&b"ddlp split 1"[..], self.dataset.as_bytes(), &self.samples.to_le_bytes(), &query];
        for piece in head {
            hasher.update(&(piece.len() as u64).to_le_bytes()).update(piece);
        }
        for SplitPart { name, indices } in &self.parts {
            hasher.update(&(name.len() as u64).to_le_bytes()).update(name.as_bytes());
            let bytes: Vec<u8> = indices.iter().flat_map(|index| index.to_le_bytes()).collect();
            hasher.update(&(bytes.len() as u64).to_le_bytes()).update(&bytes);
        }
        hasher.finalize().to_hex()[..32].to_owned()
    }
}
