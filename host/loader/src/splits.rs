//! Splits: the samples of a dataset, divided into named parts, in a file.
//!
//! Labels, classes, names and fields say which samples a split divides, and how. No image is read. The file names the
//! dataset, says how the samples were divided, and has the indices of each part. Equal arguments give equal bytes, on
//! every machine. The identity of a split follows from all of that; states and plans record it.
//!
//! - `columns`: what can be asked of samples. `filter`: the questions. `file`: the file.

mod columns;
mod file;
mod filter;

use crate::order::{split, split_evenly};
use columns::{NAME, SampleColumns};
use ddlp_cause::with_causes;
use ddlp_dataset::{Dataset, SampleFields};
pub use file::{Split, SplitPart};
use filter::Filter;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::str::FromStr;

/// Most parts of a split.
const PARTS_MAX: usize = 1 << 16;

/// Samples whose names are in memory.
const SAMPLES_AT_ONCE: u64 = 1 << 14;

/// What a split does about the samples of the classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Balance {
    /// Nothing: any samples come into a part.
    #[default]
    None,
    /// Each part has the same share of each class, to within a sample.
    Original,
    /// Each part has equally many samples of each class. Of a class that has more samples than the rarest one, the
    /// others are left out.
    Class,
}

impl Balance {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::None, Self::Original, Self::Class];

    /// Returns the word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Original => "original",
            Self::Class => "class",
        }
    }
}

impl FromStr for Balance {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|balance| balance.name() == word);
        known.ok_or_else(|| {
            format!("the balance is {word}, but must be one of {}", Self::ALL.map(Self::name).join(", "))
        })
    }
}

/// How a split divides the samples of a dataset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SplitQuery {
    /// Which samples are divided: a question about them, such as `label in (1, 2)`. `None` for all.
    #[serde(rename = "where")]
    pub filter: Option<String>,
    /// Share of each part; all together are 1.
    pub ratios: Vec<f64>,
    /// What is done about classes.
    pub balance: Balance,
    /// Seed of the random choices.
    pub seed: u64,
}

/// Why a dataset cannot be divided. The text says what to do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SplitError(pub(crate) String);

impl From<io::Error> for SplitError {
    fn from(error: io::Error) -> Self {
        Self(with_causes(&error))
    }
}

impl SplitQuery {
    /// Divides the samples of a dataset with these fields beside it. The parts have these names.
    ///
    /// # Errors
    ///
    /// [`SplitError`] names the argument that does not fit.
    pub fn divide(self, dataset: &dyn Dataset, beside: &SampleFields, names: &[String]) -> Result<Split, SplitError> {
        check_names(names)?;
        if names.len() != self.ratios.len() {
            let (names, ratios) = (names.len(), self.ratios.len());
            return Err(SplitError(format!("{names} names are given for {ratios} ratios: give a name for each")));
        }
        if !dataset.parts().is_empty() {
            return Err(SplitError("a mix has weights of its own: divide each of its datasets".into()));
        }
        let columns = SampleColumns::new(dataset, beside);
        let chosen = match &self.filter {
            Some(text) => matching(text, &columns)?,
            None => (0..dataset.len()).collect(),
        };
        let label = |index: &u64| columns.label(*index);
        let parts = match self.balance {
            Balance::None => split(&vec![0; chosen.len()], &sizes(&self.ratios, chosen.len() as u64)?, self.seed)?,
            Balance::Original => {
                let labels: Vec<i64> = chosen.iter().map(label).collect();
                split(&labels, &sizes(&self.ratios, chosen.len() as u64)?, self.seed)?
            }
            Balance::Class => {
                let labels: Vec<i64> = chosen.iter().map(label).collect();
                let mut counts: BTreeMap<i64, u64> = BTreeMap::new();
                labels.iter().for_each(|label| *counts.entry(*label).or_default() += 1);
                let least = counts.values().copied().min().unwrap_or_default();
                let sizes = sizes(&self.ratios, least).map_err(|SplitError(problem)| {
                    SplitError(format!("the rarest class has {least} samples, and each class gets as many: {problem}"))
                })?;
                split_evenly(&labels, &sizes, self.seed)?
            }
        };
        let parts = names.iter().zip(parts).map(|(name, positions)| SplitPart {
            name: name.clone(),
            indices: positions.into_iter().map(|at| chosen[at as usize]).collect(),
        });
        Ok(Split::new(dataset, Some(self), parts.collect()))
    }
}

/// Returns the indices of the samples for which the answer to a question is yes.
///
/// # Errors
///
/// [`SplitError`] names the place in the question that is wrong.
pub fn samples_where(filter: &str, dataset: &dyn Dataset, beside: &SampleFields) -> Result<Vec<u64>, SplitError> {
    matching(filter, &SampleColumns::new(dataset, beside))
}

fn matching(text: &str, columns: &SampleColumns<'_>) -> Result<Vec<u64>, SplitError> {
    let filter = Filter::parse(text, columns).map_err(|error| SplitError(format!("`where`: {error}")))?;
    let mut found = Vec::new();
    for first in (0..columns.samples()).step_by(SAMPLES_AT_ONCE as usize) {
        let samples = first..columns.samples().min(first + SAMPLES_AT_ONCE);
        if filter.asks(NAME) {
            columns.read_names(samples.clone()).map_err(|error| SplitError(with_causes(&error)))?;
        }
        found.extend(samples.filter(|&sample| filter.matches(columns, sample)));
    }
    if found.is_empty() {
        return Err(SplitError(format!("`where`: no sample of the dataset fits `{text}`")));
    }
    Ok(found)
}

/// Returns the sizes of parts that are these shares of `count` samples.
///
/// # Errors
///
/// [`SplitError`] names the share that is not above 0 or gives an empty part, or says that all together are not 1.
pub fn sizes(ratios: &[f64], count: u64) -> Result<Vec<u64>, SplitError> {
    let shown = || ratios.iter().map(f64::to_string).collect::<Vec<_>>().join(", ");
    if ratios.is_empty() || ratios.len() > PARTS_MAX {
        return Err(SplitError(format!("{} ratios are given, but 1 to {PARTS_MAX} are possible", ratios.len())));
    }
    if ratios.iter().any(|ratio| !(*ratio > 0.0 && ratio.is_finite())) {
        return Err(SplitError(format!("the ratios are {}, but each must be above 0", shown())));
    }
    let (mut sum, mut lost, mut ends) = (0.0f64, 0.0f64, Vec::with_capacity(ratios.len()));
    for &ratio in ratios {
        // Neumaier's sum: the parts must not depend on how a processor rounds a long one.
        let next = sum + ratio;
        lost += if sum >= ratio { (sum - next) + ratio } else { (ratio - next) + sum };
        sum = next;
        ends.push(sum + lost);
    }
    let total = sum + lost;
    if (total - 1.0).abs() > 1e-9 {
        return Err(SplitError(format!(
            "the ratios are {}, which add up to {total}, but must add up to 1: add a part for the rest",
            shown()
        )));
    }
    let (mut sizes, mut begin) = (Vec::with_capacity(ratios.len()), 0);
    ends.pop();
    for end in ends.into_iter().map(|end| ((end * count as f64 + 0.5).floor() as u64).min(count)).chain([count]) {
        sizes.push(end - begin);
        begin = end;
    }
    match sizes.iter().position(|size| *size == 0) {
        Some(part) => Err(SplitError(format!(
            "part {part} of {} would have none of the {count} samples: give it a larger share",
            shown()
        ))),
        None => Ok(sizes),
    }
}

/// Returns the file and the name of the part in `FILE:PART`.
///
/// # Errors
///
/// Says what is missing.
pub fn part_of(text: &str) -> Result<(&Path, &str), String> {
    match text.rsplit_once(':') {
        Some((file, part)) if !file.is_empty() && !part.is_empty() => Ok((Path::new(file), part)),
        _ => Err("write the file of a split, a colon and the name of a part, such as splits.json:train".into()),
    }
}

/// Returns the names of parts that have none: `train` and `val`, `train`, `val` and `test`, else numbers.
pub fn default_names(parts: usize) -> Vec<String> {
    match parts {
        2 | 3 => ["train", "val", "test"][..parts].iter().map(|name| (*name).to_owned()).collect(),
        _ => (0..parts).map(|part| part.to_string()).collect(),
    }
}

/// Checks the names of parts.
pub(crate) fn check_names(names: &[String]) -> Result<(), SplitError> {
    for (at, name) in names.iter().enumerate() {
        if name.is_empty() || name.contains([':', '\n']) {
            return Err(SplitError(format!("{name:?} is no name of a part: it must not be empty or have a colon")));
        }
        if names[..at].contains(name) {
            return Err(SplitError(format!("two parts have the name {name}: name each once")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
