//! The position of a run: enough to resume at the next batch, in another process, with another number of threads or
//! ranks.
//!
//! Epochs and batches count from 0. A state of an earlier build lacks pipeline and policy; their digest decides then.

use crate::order::LastBatch;
use crate::schedule::Strategy;
use ddlp_csd::program::CorruptPolicy;
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
    /// Identity of the dataset, hexadecimal.
    pub dataset: String,
    /// Digest of pipeline, limits and corrupt-sample policy, hexadecimal.
    pub program: String,
    /// Pipeline of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<Pipeline>,
    /// What happens to a corrupt sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<CorruptPolicy>,
    /// Samples of an epoch.
    pub epoch_samples: u64,
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
}

/// Version of [`LoaderState`].
pub const STATE_VERSION: u32 = 2;

/// Why a run cannot resume from a state.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// Another version of the format.
    #[error("the state has version {0}, and this program reads version {STATE_VERSION}")]
    Version(u32),
    /// Taken from another run.
    #[error("the state was saved with {}: a run resumes only with the options that it began with", listed(.0))]
    OtherRun(Vec<Difference>),
    /// Taken from a run over another dataset.
    #[error(
        "the state was saved with another dataset ({} there, {} here): a run resumes only with the dataset that it \
         began with, or with a pack of the same source in the same form",
        beginning(saved),
        beginning(actual)
    )]
    OtherDataset {
        /// In the state.
        saved: String,
        /// In this run.
        actual: String,
    },
    /// Taken from a run that prepares samples in another way.
    #[error(
        "the state was saved with another pipeline or corrupt-sample policy: a run resumes only with those that it \
         began with"
    )]
    OtherProgram,
    /// Batches that the epoch does not have, twice the same, or not ascending.
    #[error("the state names impossible batches of epoch {epoch}")]
    Batches {
        /// The epoch.
        epoch: u32,
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

/// Returns the first characters of a dataset's identity, which suffice to tell two apart.
fn beginning(identity: &str) -> &str {
    identity.get(..8).unwrap_or(identity)
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

fn listed(differences: &[Difference]) -> String {
    differences.iter().map(Difference::to_string).collect::<Vec<_>>().join("; ")
}

impl LoaderState {
    /// Checks that a run that would save `fresh` at its start can resume from this state.
    pub(crate) fn check_fits(&self, fresh: &Self, batches: u32) -> Result<(), StateError> {
        if self.version != STATE_VERSION {
            return Err(StateError::Version(self.version));
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
        let ascending = self.delivered.windows(2).all(|pair| pair[0] < pair[1]);
        if !ascending || self.delivered.last().is_some_and(|&last| last >= batches) {
            return Err(StateError::Batches { epoch: self.epoch });
        }
        let is_prefix = self.delivered.last().is_none_or(|&last| last as usize + 1 == self.delivered.len());
        if self.world != fresh.world && !is_prefix {
            return Err(StateError::Ranks { saved: self.world, actual: fresh.world, strategy: self.strategy });
        }
        Ok(())
    }

    /// Returns the differences to a run that would save `fresh` at its start.
    fn differences(&self, fresh: &Self) -> Vec<Difference> {
        let number = |number: u64| Some(number.to_string());
        let last = |last: LastBatch| Some(format!("{last:?}"));
        let pipeline =
            |pipeline: &Option<Pipeline>| pipeline.as_ref().map(|pipeline| format!("{:?}", pipeline.operations));
        let policy = |policy: Option<CorruptPolicy>| policy.map(|policy| format!("{policy:?}"));
        let fields = [
            ("seed", number(self.seed), number(fresh.seed)),
            ("samples per epoch", number(self.epoch_samples), number(fresh.epoch_samples)),
            ("batch size", number(self.batch_size), number(fresh.batch_size)),
            ("last batch", last(self.last), last(fresh.last)),
            ("pipeline", pipeline(&self.pipeline), pipeline(&fresh.pipeline)),
            ("corrupt-sample policy", policy(self.policy), policy(fresh.policy)),
        ];
        let differing = fields.into_iter().filter_map(|(field, saved, actual)| Some((field, saved?, actual?)));
        differing
            .filter(|(_, saved, actual)| saved != actual)
            .map(|(field, saved, actual)| Difference { field, saved, actual })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> LoaderState {
        LoaderState {
            version: STATE_VERSION,
            seed: 1,
            dataset: "ab".into(),
            program: "12".into(),
            pipeline: Some(Pipeline::imagenet_train()),
            policy: Some(CorruptPolicy::Skip),
            epochs: 3,
            epoch_samples: 100,
            batch_size: 10,
            last: LastBatch::Short,
            strategy: Strategy::Ordered,
            world: 2,
            epoch: 1,
            delivered: vec![0, 1, 2],
        }
    }

    #[test]
    fn another_number_of_ranks_may_go_on_from_a_prefix_only() {
        let fresh = LoaderState { world: 1, delivered: vec![], ..state() };
        assert_eq!(state().check_fits(&fresh, 10), Ok(()));
        let scattered = LoaderState { delivered: vec![0, 9], strategy: Strategy::Mte, ..state() };
        assert!(matches!(scattered.check_fits(&fresh, 10), Err(StateError::Ranks { saved: 2, actual: 1, .. })));
        assert_eq!(scattered.check_fits(&LoaderState { world: 2, ..fresh }, 10), Ok(()));
    }

    #[test]
    fn other_runs_and_impossible_batches_are_refused() {
        let fresh = state();
        let others = [
            LoaderState { version: 9, ..state() },
            LoaderState { seed: 2, ..state() },
            LoaderState { dataset: "cd".into(), ..state() },
            LoaderState { program: "34".into(), ..state() },
            LoaderState { pipeline: Some(Pipeline::imagenet_val()), ..state() },
            LoaderState { policy: Some(CorruptPolicy::Fail), ..state() },
            LoaderState { epoch_samples: 99, ..state() },
            LoaderState { batch_size: 9, ..state() },
            LoaderState { last: LastBatch::Drop, ..state() },
            LoaderState { delivered: vec![10], ..state() },
            LoaderState { delivered: vec![1, 1], ..state() },
        ];
        for other in others {
            assert!(other.check_fits(&fresh, 10).is_err(), "{other:?}");
        }
    }

    #[test]
    fn every_difference_is_named() {
        let other = LoaderState { batch_size: 9, policy: Some(CorruptPolicy::Fail), ..state() };
        let message = other.check_fits(&state(), 10).unwrap_err().to_string();
        let expected =
            "with batch size 9, this run has 10; corrupt-sample policy Fail, this run has Skip: a run resumes only";
        assert!(message.contains(expected), "{message}");
    }

    /// As revision 77a8d6c wrote it.
    #[test]
    fn a_state_without_pipeline_and_policy_is_understood() {
        let text = r#"{"version":2,"seed":1,"dataset":"ab","program":"12","epoch_samples":100,"batch_size":10,
            "last":"Short","strategy":"Ordered","world":2,"epochs":3,"epoch":1,"delivered":[0,1,2]}"#;
        let old: LoaderState = serde_json::from_str(text).unwrap();
        assert_eq!(old, LoaderState { pipeline: None, policy: None, ..state() });
        assert_eq!(old.check_fits(&state(), 10), Ok(()));
        let other = LoaderState { program: "34".into(), ..state() };
        assert_eq!(old.check_fits(&other, 10), Err(StateError::OtherProgram));
    }
}
