//! The plan of a run: the order in which batches were delivered, and the prong that prepared each. A later run can
//! replay it.
//!
//! A plan file consists of a magic, a version, the body's length and CRC32C, and the bincode body. Trailing bytes are
//! refused. Files of version 1, which lack [`PlannedRun`], of version 2, which do not say whether the run shuffles its
//! epochs, of version 3, which lack the portions of a mix, of version 4, which have one pipeline, of version 5, which
//! lack the choice of samples, and of version 6, which lack fidelity and shuffle window, can still be read: runs of the
//! first two shuffle, no run of the first three has a mix, none of the first four has buckets, none of the first five
//! chooses samples, and all six read whole images. So can files of version 7, unless the run had a shuffle window,
//! whose order was another one. Epochs and batches count from 0.
//!
//! - `record`: the epochs that a loader has delivered.

mod record;

pub(crate) use record::PlanRecord;

use crate::fidelity::Fidelities;
use crate::order::{ChoiceRecord, EpochCut, LastBatch, Portion, described};
use crate::schedule::{PlanEpoch, Strategy};
use bincode::error::DecodeError;
use ddlp_csd::program::{CorruptPolicy, Program};
use ddlp_dataset::{Identity, beginnings};
use ddlp_pixels::Pipeline;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::fmt::Debug;

/// Largest plan file in bytes.
pub const PLAN_BYTES_MAX: usize = 256 << 20;

const MAGIC: [u8; 4] = *b"DDPL";
const VERSION: u32 = 8;
const FRAME_BYTES: usize = 16;

/// The deliveries of a run, and the options that identify the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Seed of the run.
    pub seed: u64,
    /// Identity of the dataset.
    pub dataset: [u8; 32],
    /// Samples of an epoch.
    pub epoch_samples: u64,
    /// Samples of a global batch.
    pub batch_size: u64,
    /// Batches of an epoch.
    pub batches: u32,
    /// Epochs that were delivered completely.
    pub epochs: Vec<PlanEpoch>,
    /// Further options of the run; absent in a plan of version 1.
    pub run: Option<PlannedRun>,
}

/// Further options of a run, recorded since version 2.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedRun {
    /// Order of delivery.
    pub strategy: Strategy,
    /// Treatment of the last batch of an epoch.
    pub last: LastBatch,
    /// Rank of the run.
    pub rank: u32,
    /// Number of ranks.
    pub world: u32,
    /// Pipeline of each bucket: one, unless the run has several buckets. Before version 5, there was always one.
    pub pipelines: Vec<Pipeline>,
    /// Treatment of corrupt samples.
    pub policy: CorruptPolicy,
    /// Whether the run shuffles its epochs; recorded since version 3.
    pub shuffle: bool,
    /// What an epoch takes of each part of a mix; empty for any other dataset, and before version 4.
    pub portions: Vec<Portion>,
    /// Which samples of the dataset an epoch has; recorded since version 6.
    #[serde(default)]
    pub choice: ChoiceRecord,
    /// How exactly images are read, by the epoch from which on it holds; recorded since version 7.
    #[serde(default)]
    pub fidelity: Fidelities,
    /// Bundles from which samples come at a time; recorded since version 7.
    #[serde(default)]
    pub shuffle_window: Option<u32>,
}

/// What all versions have: the fields of [`Plan`] but the last.
type FirstBody = (u64, [u8; 32], u64, u64, u32, Vec<PlanEpoch>);
/// The fields of [`PlannedRun`] in version 2. Version 3 adds whether the run shuffles its epochs.
type SecondRun = (Strategy, LastBatch, u32, u32, Pipeline, CorruptPolicy);
/// The fields of [`PlannedRun`] in version 5.
type FifthRun = (Strategy, LastBatch, u32, u32, Vec<Pipeline>, CorruptPolicy, bool, Vec<Portion>);
/// The fields of [`PlannedRun`] in version 6.
type SixthRun = (Strategy, LastBatch, u32, u32, Vec<Pipeline>, CorruptPolicy, bool, Vec<Portion>, ChoiceRecord);
/// The fields of [`PlannedRun`] in version 4.
type FourthRun = (SecondRun, bool, Vec<Portion>);

/// Why a plan is invalid, or not for this run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The file is not a plan, or is damaged.
    #[error("not a valid plan file: {0}")]
    Format(&'static str),
    /// A plan with a shuffle window from a build that orders windows otherwise.
    #[error("the plan was recorded by an earlier build, whose shuffle window has another order: record it again")]
    EarlierWindow,
    /// The body does not decode.
    #[error("plan body does not decode")]
    Body(#[source] Box<dyn Error + Send + Sync>),
    /// The plan does not encode.
    #[error("plan does not encode")]
    Encode(#[source] Box<dyn Error + Send + Sync>),
    /// An epoch of the plan does not name each batch exactly once.
    #[error("plan of epoch {epoch} does not name each of the {batches} batches once")]
    NotAPermutation {
        /// The epoch.
        epoch: u32,
        /// Batches of an epoch.
        batches: u32,
    },
    /// The plan was recorded with another dataset.
    #[error(
        "plan was recorded with another dataset (its identity begins with {recorded}, that of this run's dataset with \
         {actual}): take the dataset of the recorded run; a pack of the same source in another form is another \
         dataset, and `ddlp inspect` prints a file's identity"
    )]
    OtherDataset {
        /// Beginning of the identity in the plan.
        recorded: String,
        /// Beginning of the identity in this run.
        actual: String,
    },
    /// The plan was recorded with another option.
    #[error("plan was recorded with {field} {recorded}, this run has {actual}")]
    OtherRun {
        /// What differs.
        field: &'static str,
        /// In the plan.
        recorded: String,
        /// In this run.
        actual: String,
    },
}

fn codec() -> impl bincode::config::Config {
    bincode::config::standard().with_limit::<PLAN_BYTES_MAX>()
}

/// Returns a value from the beginning of a body, and the number of its bytes.
fn decoded<T: DeserializeOwned>(body: &[u8]) -> Result<(T, usize), DecodeError> {
    bincode::serde::decode_from_slice(body, codec())
}

impl Plan {
    /// Encodes a plan file.
    pub fn to_bytes(&self) -> Result<Vec<u8>, PlanError> {
        let body = bincode::serde::encode_to_vec(self, codec()).map_err(|error| PlanError::Encode(error.into()))?;
        let mut bytes = Vec::with_capacity(FRAME_BYTES + body.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        let length = u32::try_from(body.len()).map_err(|_| PlanError::Format("body too long"))?;
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&crc32c::crc32c(&body).to_le_bytes());
        bytes.extend_from_slice(&body);
        Ok(bytes)
    }

    /// Parses a plan file, and checks that every epoch in it names each batch exactly once.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, PlanError> {
        let (frame, body) = bytes.split_at_checked(FRAME_BYTES).ok_or(PlanError::Format("too short"))?;
        let word = |at: usize| u32::from_le_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]);
        let version = word(4);
        if frame[..4] != MAGIC || !(1..=VERSION).contains(&version) {
            return Err(PlanError::Format("unknown magic or version"));
        }
        if word(8) as usize != body.len() {
            return Err(PlanError::Format("wrong length"));
        }
        if word(12) != crc32c::crc32c(body) {
            return Err(PlanError::Format("wrong checksum"));
        }
        let (plan, used) = Self::from_body(body, version).map_err(|error| PlanError::Body(error.into()))?;
        if used != body.len() {
            return Err(PlanError::Format("bytes after the body"));
        }
        if version < VERSION && plan.run.as_ref().is_some_and(|run| run.shuffle_window.is_some()) {
            return Err(PlanError::EarlierWindow);
        }
        for epoch in &plan.epochs {
            if !epoch.names_each_once(plan.batches) {
                return Err(PlanError::NotAPermutation { epoch: epoch.epoch, batches: plan.batches });
            }
        }
        Ok(plan)
    }

    fn from_body(body: &[u8], version: u32) -> Result<(Self, usize), DecodeError> {
        let of_sixth = |(strategy, last, rank, world, pipelines, policy, shuffle, portions, choice): SixthRun| {
            let (fidelity, shuffle_window) = (Fidelities::default(), None);
            PlannedRun {
                strategy,
                last,
                rank,
                world,
                pipelines,
                policy,
                shuffle,
                portions,
                choice,
                fidelity,
                shuffle_window,
            }
        };
        let of_fifth = |(strategy, last, rank, world, pipelines, policy, shuffle, portions): FifthRun| {
            let choice = ChoiceRecord::default();
            of_sixth((strategy, last, rank, world, pipelines, policy, shuffle, portions, choice))
        };
        let earlier = |(strategy, last, rank, world, pipeline, policy): SecondRun, shuffle, portions| {
            of_fifth((strategy, last, rank, world, vec![pipeline], policy, shuffle, portions))
        };
        let (first, run, used): (FirstBody, Option<PlannedRun>, usize) = match version {
            1 => {
                let (first, used) = decoded(body)?;
                (first, None, used)
            }
            2 => {
                let ((first, run), used): ((_, Option<SecondRun>), _) = decoded(body)?;
                (first, run.map(|run| earlier(run, true, Vec::new())), used)
            }
            3 => {
                let ((first, run), used): ((_, Option<(SecondRun, bool)>), _) = decoded(body)?;
                (first, run.map(|(run, shuffle)| earlier(run, shuffle, Vec::new())), used)
            }
            4 => {
                let ((first, run), used): ((_, Option<FourthRun>), _) = decoded(body)?;
                (first, run.map(|(run, shuffle, portions)| earlier(run, shuffle, portions)), used)
            }
            5 => {
                let ((first, run), used): ((_, Option<FifthRun>), _) = decoded(body)?;
                (first, run.map(of_fifth), used)
            }
            6 => {
                let ((first, run), used): ((_, Option<SixthRun>), _) = decoded(body)?;
                (first, run.map(of_sixth), used)
            }
            _ => return decoded(body),
        };
        let (seed, dataset, epoch_samples, batch_size, batches, epochs) = first;
        Ok((Self { seed, dataset, epoch_samples, batch_size, batches, epochs, run }, used))
    }

    /// Returns whether the recorded run shuffles its epochs.
    pub fn shuffles(&self) -> bool {
        self.run.as_ref().is_none_or(|run| run.shuffle)
    }

    /// Returns the plan of a run that has delivered nothing.
    pub(crate) fn empty<'p>(
        (seed, shuffle, strategy): (u64, bool, Strategy),
        programs: impl Iterator<Item = &'p Program>,
        dataset: &Identity,
        cut: &EpochCut,
        (portions, choice, fidelity, shuffle_window): (&[Portion], &ChoiceRecord, Fidelities, Option<u32>),
        batches: u32,
    ) -> Self {
        // Both fit: they come from the builder's options, which are u32.
        let (rank, world) = (cut.rank as u32, cut.world as u32);
        let programs: Vec<&Program> = programs.collect();
        Self {
            seed,
            dataset: *dataset.as_bytes(),
            epoch_samples: cut.samples,
            batch_size: cut.batch,
            batches,
            epochs: Vec::new(),
            run: Some(PlannedRun {
                strategy,
                last: cut.last,
                rank,
                world,
                policy: programs[0].policy,
                pipelines: programs.iter().map(|program| program.pipeline.clone()).collect(),
                shuffle,
                portions: portions.to_vec(),
                choice: choice.clone(),
                fidelity,
                shuffle_window,
            }),
        }
    }

    /// Checks that the plan was recorded with the same batches as `run` has; the epochs of `run` are ignored.
    pub fn check_is_for(&self, run: &Self) -> Result<(), PlanError> {
        if self.dataset != run.dataset {
            let [recorded, actual] = [self.dataset, run.dataset].map(Identity::from_bytes);
            let [recorded, actual] = beginnings([&recorded, &actual]);
            return Err(PlanError::OtherDataset { recorded, actual });
        }
        let fields = [
            ("seed", self.seed.to_string(), run.seed.to_string()),
            ("shuffle", self.shuffles().to_string(), run.shuffles().to_string()),
            ("samples per epoch", self.epoch_samples.to_string(), run.epoch_samples.to_string()),
            ("batch size", self.batch_size.to_string(), run.batch_size.to_string()),
            ("batches per epoch", self.batches.to_string(), run.batches.to_string()),
        ];
        for (field, recorded, actual) in fields {
            if recorded != actual {
                return Err(PlanError::OtherRun { field, recorded, actual });
            }
        }
        let all = ChoiceRecord::default();
        let choices = [self, run].map(|plan| plan.run.as_ref().map_or(&all, |run| &run.choice));
        for (field, recorded, actual) in choices[0].compared(choices[1]) {
            if recorded != actual {
                return Err(PlanError::OtherRun { field, recorded, actual });
            }
        }
        let windows = [self, run].map(|plan| plan.run.as_ref().and_then(|run| run.shuffle_window));
        if windows[0] != windows[1] {
            let words = |window: Option<u32>| window.map_or("of all samples".into(), |count| count.to_string());
            let [recorded, actual] = windows.map(words);
            return Err(PlanError::OtherRun { field: "shuffle window", recorded, actual });
        }
        let whole = Fidelities::default();
        let fidelities = [self, run].map(|plan| plan.run.as_ref().map_or(&whole, |run| &run.fidelity));
        let differs = |planned: &&PlanEpoch| fidelities[0].at(planned.epoch) != fidelities[1].at(planned.epoch);
        if self.epochs.iter().find(differs).is_some() {
            let [recorded, actual] = fidelities.map(Fidelities::to_string);
            return Err(PlanError::OtherRun { field: "fidelity", recorded, actual });
        }
        let (Some(recorded), Some(actual)) = (&self.run, &run.run) else { return Ok(()) };
        let debug = |recorded: &dyn Debug, actual: &dyn Debug| (format!("{recorded:?}"), format!("{actual:?}"));
        let (field, (recorded, actual)) = if recorded.portions != actual.portions {
            ("epochs of", (described(&recorded.portions), described(&actual.portions)))
        } else if recorded.last != actual.last {
            ("last batch", debug(&recorded.last, &actual.last))
        } else if recorded.policy != actual.policy {
            ("policy", debug(&recorded.policy, &actual.policy))
        } else if recorded.pipelines != actual.pipelines {
            ("pipelines", debug(&recorded.pipelines, &actual.pipelines))
        } else {
            return Ok(());
        };
        Err(PlanError::OtherRun { field, recorded, actual })
    }
}

#[cfg(test)]
mod tests;
