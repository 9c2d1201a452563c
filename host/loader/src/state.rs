//! The position of a run: enough to resume at the next batch, in another process, with another number of threads or
//! ranks.
//!
//! Epochs and batches count from 0. A state of an earlier build lacks pipeline and policy; their digest decides then.

use crate::fidelity::{Fidelities, RunFidelity};
use crate::moved::MovedSamples;
use crate::order::{ChoiceRecord, LastBatch, Portion, described};
use crate::schedule::Strategy;
use ddlp_csd::program::CorruptPolicy;
use ddlp_dataset::beginnings;
use ddlp_pixels::Pipeline;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The position of a loader between two batches (its `state_dict`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoaderState {
    /// Version of this description.
    pub version: u32,
    /// Seed of the run.
    pub seed: u64,
    /// Whether the run shuffles its epochs.
    #[serde(default = "shuffled")]
    pub shuffle: bool,
    /// Bundles from which samples come at a time; `None` if all samples are shuffled together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shuffle_window: Option<u32>,
    /// Identity of the dataset, hexadecimal.
    pub dataset: String,
    /// Digest of pipeline, limits and corrupt-sample policy, hexadecimal.
    pub program: String,
    /// Pipeline of the run; `None` if it has buckets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<Pipeline>,
    /// Pipelines of the run's buckets; empty if it has one pipeline.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buckets: Vec<Pipeline>,
    /// Names of the classes that the options give; empty if each dataset numbers its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<String>,
    /// What happens to a corrupt sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<CorruptPolicy>,
    /// How exactly images are read, by the epoch from which on it holds.
    #[serde(default, skip_serializing_if = "Fidelities::is_default")]
    pub fidelity: Fidelities,
    /// Samples of an epoch.
    pub epoch_samples: u64,
    /// What an epoch takes of each part of a mix; empty for any other dataset.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub portions: Vec<Portion>,
    /// Which samples of the dataset an epoch has.
    #[serde(default, skip_serializing_if = "ChoiceRecord::is_default")]
    pub choice: ChoiceRecord,
    /// Samples of a global batch.
    pub batch_size: u64,
    /// Treatment of the last batch.
    pub last: LastBatch,
    /// Strategy of the run.
    pub strategy: Strategy,
    /// Number of ranks of the run.
    pub world: u32,
    /// Epochs of the run. Another run may have more.
    pub epochs: u32,
    /// The epoch that is being delivered; the number of epochs when the run is over.
    pub epoch: u32,
    /// Batches of that epoch that were delivered, in ascending order.
    pub delivered: Vec<u32>,
    /// Samples that moved between the batches of that epoch; `None` if they come in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved: Option<MovedSamples>,
}

/// Returns `true`: states of earlier builds do not record `shuffle`, and all of them shuffle.
fn shuffled() -> bool {
    true
}

/// Version of a [`LoaderState`] that earlier builds can read.
pub const STATE_VERSION: u32 = 2;
/// Version of a [`LoaderState`] with a fidelity, which earlier builds would pass over.
pub const LATER_STATE_VERSION: u32 = 3;
/// Version of a [`LoaderState`] with a shuffle window, which earlier builds order otherwise, or in the middle of an
/// epoch whose samples come out of order.
pub const LATEST_STATE_VERSION: u32 = 4;

/// Why a run cannot resume from a state.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// Another version of the format.
    #[error("the state has version {0}, and this program reads the versions {STATE_VERSION} to {LATEST_STATE_VERSION}")]
    Version(u32),
    /// A state with a shuffle window from a build that orders windows otherwise.
    #[error("the state was saved by an earlier build, whose shuffle window has another order: begin the run again")]
    EarlierWindow,
    /// Taken from another run.
    #[error("the state was saved with {}: a run resumes only with the options that it began with", listed(.0))]
    OtherRun(Vec<Difference>),
    /// Taken from a run over another dataset.
    #[error("{}", other_dataset(saved, actual))]
    OtherDataset {
        /// In the state.
        saved: String,
        /// In this run.
        actual: String,
    },
    /// Taken from a run that prepares samples in another way.
    #[error(
        "the state was saved with another pipeline or corrupt-sample policy, or with images of other sizes in its \
         buckets: a run resumes only with those that it began with"
    )]
    OtherProgram,
    /// A batch number is out of range, repeated, or out of order.
    #[error("the state names impossible batches of epoch {epoch}")]
    Batches {
        /// The epoch.
        epoch: u32,
    },
    /// Samples came out of order, and each rank has moved other ones.
    #[error(
        "the samples of the run came out of order, so rank {rank} of {world} cannot resume in the middle of an epoch \
         from the state of rank {saved} of {saved_world}: resume each rank from its own state, or all at the end of an \
         epoch"
    )]
    Moved {
        /// Rank of the state.
        saved: u32,
        /// Number of ranks then.
        saved_world: u32,
        /// Rank now.
        rank: u32,
        /// Number of ranks now.
        world: u32,
    },
    /// Ranks were at different places, so another number of ranks cannot resume.
    #[error(
        "the run had {saved} ranks and delivered out of order ({strategy}), so {actual} ranks cannot resume in the \
         middle of an epoch: resume on {saved}, or use the strategy ordered"
    )]
    Ranks {
        /// Ranks of the run.
        saved: u32,
        /// Ranks now.
        actual: u32,
        /// Strategy of the run.
        strategy: Strategy,
    },
}

/// A difference between a state and a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// What differs.
    pub field: &'static str,
    /// In the state.
    pub saved: String,
    /// In the run.
    pub actual: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}, this run has {}", self.field, self.saved, self.actual)
    }
}

fn other_dataset(saved: &str, actual: &str) -> String {
    let [saved, actual] = beginnings([&saved, &actual]);
    format!(
        "the state was saved with another dataset (its identity begins with {saved}, that of this run's dataset with \
         {actual}): a run resumes only with the dataset that it began with, or with a pack of the same source in the \
         same form; `ddlp inspect` prints a file's identity"
    )
}

fn listed(differences: &[Difference]) -> String {
    differences.iter().map(Difference::to_string).collect::<Vec<_>>().join("; ")
}

impl LoaderState {
    /// Returns the state with these fidelities, in the version that they need.
    pub(crate) fn with_fidelity(self, fidelity: Fidelities) -> Self {
        let version = match (self.shuffle_window, fidelity.is_default()) {
            (Some(_), _) => LATEST_STATE_VERSION,
            (None, false) => LATER_STATE_VERSION,
            (None, true) => STATE_VERSION,
        };
        Self { version, fidelity, ..self }
    }

    /// Returns the state with the samples that moved, in the version that they need.
    pub(crate) fn with_moved(self, moved: Option<MovedSamples>) -> Self {
        let version = if moved.is_some() { LATEST_STATE_VERSION } else { self.version };
        Self { version, moved, ..self }
    }

    /// Checks that this rank of a run that would save `fresh` at its start can go on from this state.
    pub(crate) fn check_rank(&self, fresh: &Self, rank: u32) -> Result<(), StateError> {
        match &self.moved {
            Some(moved) if moved.rank != rank || self.world != fresh.world => {
                let (saved, saved_world, world) = (moved.rank, self.world, fresh.world);
                Err(StateError::Moved { saved, saved_world, rank, world })
            }
            _ => Ok(()),
        }
    }

    /// Returns the position without the batch that was delivered last, batch `batch` of `epoch`, which has `batches`
    /// batches.
    pub fn without(mut self, epoch: u32, batch: u32, batches: u32) -> Self {
        if self.epoch != epoch {
            // It was the last batch of its epoch.
            (self.epoch, self.delivered) = (epoch, (0..batches).collect());
        }
        self.delivered.retain(|&delivered| delivered != batch);
        self
    }

    /// Checks that a run that would save `fresh` at its start, and that reads with these fidelities, can resume from
    /// this state. Another fidelity may begin with an epoch.
    pub(crate) fn check_fits(&self, fresh: &Self, batches: u32, fidelity: &RunFidelity) -> Result<(), StateError> {
        if !(STATE_VERSION..=LATEST_STATE_VERSION).contains(&self.version) {
            return Err(StateError::Version(self.version));
        }
        if self.shuffle_window.is_some() && self.version < LATEST_STATE_VERSION {
            return Err(StateError::EarlierWindow);
        }
        if self.dataset != fresh.dataset {
            return Err(StateError::OtherDataset { saved: self.dataset.clone(), actual: fresh.dataset.clone() });
        }
        let differences = self.differences(fresh);
        if !differences.is_empty() {
            return Err(StateError::OtherRun(differences));
        }
        if self.program != fresh.program {
            return Err(StateError::OtherProgram);
        }
        let saved = self.fidelity.at(self.epoch);
        if !self.delivered.is_empty()
            && let Some(actual) = fidelity.known(self.epoch).filter(|actual| *actual != saved)
        {
            let [saved, actual] = [saved, actual].map(|fidelity| fidelity.to_string());
            return Err(StateError::OtherRun(vec![Difference { field: "fidelity", saved, actual }]));
        }
        let ascending = self.delivered.windows(2).all(|pair| pair[0] < pair[1]);
        if !ascending || self.delivered.last().is_some_and(|&last| last >= batches) {
            return Err(StateError::Batches { epoch: self.epoch });
        }
        let is_prefix = self.delivered.last().is_none_or(|&last| last as usize + 1 == self.delivered.len());
        // Each rank may have delivered other batches, unless all deliver in order.
        let is_common = self.world == 1 || matches!(self.strategy, Strategy::Ordered | Strategy::Cpu);
        if self.world != fresh.world && !self.delivered.is_empty() && !(is_prefix && is_common) {
            return Err(StateError::Ranks { saved: self.world, actual: fresh.world, strategy: self.strategy });
        }
        Ok(())
    }

    /// Returns the pipelines of the run's buckets: one pipeline, unless it has several buckets. `None` in a state of an
    /// earlier build that records no pipeline.
    pub fn pipelines(&self) -> Option<Vec<Pipeline>> {
        match (&self.pipeline, &self.buckets[..]) {
            (None, []) => None,
            (Some(pipeline), _) => Some(vec![pipeline.clone()]),
            (None, buckets) => Some(buckets.to_vec()),
        }
    }

    /// Returns the differences to a run that would save `fresh` at its start.
    fn differences(&self, fresh: &Self) -> Vec<Difference> {
        let number = |number: u64| Some(number.to_string());
        let window = |window: Option<u32>| Some(window.map_or("of all samples".into(), |count| count.to_string()));
        let last = |last: LastBatch| Some(format!("{last:?}").to_lowercase());
        let pipeline = |state: &Self| {
            // As a pipeline's file spells operations, but in one line.
            let described = |pipeline: &Pipeline| serde_json::to_string(&pipeline.operations).expect("plain data");
            Some(state.pipelines()?.iter().map(described).collect::<Vec<_>>().join(" and "))
        };
        let policy = |policy: Option<CorruptPolicy>| policy.map(|policy| format!("{policy:?}").to_lowercase());
        // The first class that differs from another state's.
        let classes = |state: &Self, other: &Self| {
            let at = state.classes.iter().zip(&other.classes).take_while(|(class, other)| class == other).count();
            Some(match state.classes.get(at) {
                Some(class) => format!("{class} = {at}"),
                None if at == 0 => "the dataset's own".to_owned(),
                None => format!("no {at}"),
            })
        };
        let is_as_long = self.epoch_samples == fresh.epoch_samples;
        let portions = |state: &Self| is_as_long.then(|| described(&state.portions));
        let fields = [
            ("seed", number(self.seed), number(fresh.seed)),
            ("shuffle", Some(self.shuffle.to_string()), Some(fresh.shuffle.to_string())),
            ("shuffle window", window(self.shuffle_window), window(fresh.shuffle_window)),
            ("samples per epoch", number(self.epoch_samples), number(fresh.epoch_samples)),
            ("epochs of", portions(self), portions(fresh)),
            ("batch size", number(self.batch_size), number(fresh.batch_size)),
            ("last batch", last(self.last), last(fresh.last)),
            ("pipeline", pipeline(self), pipeline(fresh)),
            ("classes", classes(self, fresh), classes(fresh, self)),
            ("corrupt-sample policy", policy(self.policy), policy(fresh.policy)),
        ];
        let differing = fields.into_iter().filter_map(|(field, saved, actual)| Some((field, saved?, actual?)));
        let differing = self.choice.compared(&fresh.choice).into_iter().chain(differing);
        differing
            .filter(|(_, saved, actual)| saved != actual)
            .map(|(field, saved, actual)| Difference { field, saved, actual })
            .collect()
    }
}

#[cfg(test)]
mod tests;
