//! The plan of a run: the order in which batches were delivered, and the prong that prepared each. A later run can
//! replay it.
//!
//! A plan file consists of a magic, a version, the body's length and CRC32C, and the bincode body. Trailing bytes are
//! refused, and so are files of another version. Epochs and batches count from 0.
//!
//! - `record`: the epochs that a loader has delivered.

mod record;

pub(crate) use record::PlanRecord;

use crate::fidelity::Fidelities;
use crate::order::{ChoiceRecord, EpochCut, LastBatch, Portion, described};
use crate::schedule::{PlanEpoch, Strategy};
use ddlp_csd::program::{CorruptPolicy, Program};
use ddlp_dataset::{Identity, beginnings};
use ddlp_pixels::Pipeline;
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::fmt::Debug;

/// Largest plan file in bytes.
pub const PLAN_BYTES_MAX: usize = 256 << 20;

const MAGIC: [u8; 4] = *b"DDPL";
const VERSION: u32 = 9;
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
    /// Order of delivery.
    pub strategy: Strategy,
    /// Treatment of the last batch of an epoch.
    pub last: LastBatch,
    /// Rank of the run.
    pub rank: u32,
    /// Number of ranks.
    pub world: u32,
    /// Pipeline of each bucket: one, unless the run has several buckets.
    pub pipelines: Vec<Pipeline>,
    /// Treatment of corrupt samples.
    pub policy: CorruptPolicy,
    /// Whether the run shuffles its epochs.
    pub shuffle: bool,
    /// What an epoch takes of each part of a mix; empty for any other dataset.
    pub portions: Vec<Portion>,
    /// Which samples of the dataset an epoch has.
    pub choice: ChoiceRecord,
    /// How exactly images are read, by the epoch from which on it holds.
    pub fidelity: Fidelities,
    /// Bundles from which samples come at a time.
    pub shuffle_window: Option<u32>,
}

/// Why a plan is invalid, or not for this run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The file is not a plan, or is damaged.
    #[error("not a valid plan file: {0}")]
    Format(&'static str),
    /// A plan of another build, in another version of the format.
    #[error("the plan has version {0}, and this program reads version {VERSION}: record it again")]
    OtherVersion(u32),
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
        if frame[..4] != MAGIC {
            return Err(PlanError::Format("it begins otherwise"));
        }
        if word(4) != VERSION {
            return Err(PlanError::OtherVersion(word(4)));
        }
        if word(8) as usize != body.len() {
            return Err(PlanError::Format("wrong length"));
        }
        if word(12) != crc32c::crc32c(body) {
            return Err(PlanError::Format("wrong checksum"));
        }
        let (plan, used): (Self, usize) =
            bincode::serde::decode_from_slice(body, codec()).map_err(|error| PlanError::Body(error.into()))?;
        if used != body.len() {
            return Err(PlanError::Format("bytes after the body"));
        }
        for epoch in &plan.epochs {
            if !epoch.names_each_once(plan.batches) {
                return Err(PlanError::NotAPermutation { epoch: epoch.epoch, batches: plan.batches });
            }
        }
        Ok(plan)
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
            ("shuffle", self.shuffle.to_string(), run.shuffle.to_string()),
            ("samples per epoch", self.epoch_samples.to_string(), run.epoch_samples.to_string()),
            ("batch size", self.batch_size.to_string(), run.batch_size.to_string()),
            ("batches per epoch", self.batches.to_string(), run.batches.to_string()),
        ];
        for (field, recorded, actual) in fields {
            if recorded != actual {
                return Err(PlanError::OtherRun { field, recorded, actual });
            }
        }
        for (field, recorded, actual) in self.choice.compared(&run.choice) {
            if recorded != actual {
                return Err(PlanError::OtherRun { field, recorded, actual });
            }
        }
        let windows = [self.shuffle_window, run.shuffle_window];
        if windows[0] != windows[1] {
            let words = |window: Option<u32>| window.map_or("of all samples".into(), |count| count.to_string());
            let [recorded, actual] = windows.map(words);
            return Err(PlanError::OtherRun { field: "shuffle window", recorded, actual });
        }
        let differs = |planned: &PlanEpoch| self.fidelity.at(planned.epoch) != run.fidelity.at(planned.epoch);
        if self.epochs.iter().any(differs) {
            let [recorded, actual] = [&self.fidelity, &run.fidelity].map(Fidelities::to_string);
            return Err(PlanError::OtherRun { field: "fidelity", recorded, actual });
        }
        let debug = |recorded: &dyn Debug, actual: &dyn Debug| (format!("{recorded:?}"), format!("{actual:?}"));
        let (field, (recorded, actual)) = if self.portions != run.portions {
            ("epochs of", (described(&self.portions), described(&run.portions)))
        } else if self.last != run.last {
            ("last batch", debug(&self.last, &run.last))
        } else if self.policy != run.policy {
            ("policy", debug(&self.policy, &run.policy))
        } else if self.pipelines != run.pipelines {
            ("pipelines", debug(&self.pipelines, &run.pipelines))
        } else {
            return Ok(());
        };
        Err(PlanError::OtherRun { field, recorded, actual })
    }
}

#[cfg(test)]
mod tests;
