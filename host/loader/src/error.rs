//! What can go wrong for the user of a loader.

use crate::plan::PlanError;
use crate::state::StateError;

/// Why a loader cannot be built, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum LoaderError {
    /// Options that make no sense, or not together.
    #[error("{0}")]
    Options(String),
    /// The dataset cannot be opened.
    #[error("dataset cannot be opened")]
    Dataset(#[source] ddlp_dataset::OpenError),
    /// The pipeline cannot run.
    #[error("pipeline cannot run")]
    Pipeline(#[source] ddlp_pixels::PipelineError),
    /// The program for the drives cannot be made.
    #[error("preprocessing program cannot be made")]
    Program(#[source] ddlp_csd::program::ProgramError),
    /// A plan that cannot be replayed.
    #[error("plan cannot be replayed")]
    Plan(#[source] PlanError),
    /// A state that this run cannot go on from.
    #[error("run cannot be resumed")]
    State(#[source] StateError),
    /// A drive that cannot be used. It names the drive and says what to do.
    #[error("drive {drive} cannot be used: {reason}")]
    Drive {
        /// Its address.
        drive: String,
        /// Why.
        reason: String,
    },
    /// A sample that cannot be read or decoded, under the policy `fail`.
    #[error("sample {sample} (id {sample_id}, {location}) of epoch {epoch} cannot be used: {reason}")]
    CorruptSample {
        /// Name in the dataset.
        sample: String,
        /// Sample id.
        sample_id: u64,
        /// File, offset and length.
        location: String,
        /// Epoch.
        epoch: u32,
        /// Why.
        reason: String,
    },
    /// A corrupt sample that no other one can stand in for, under the policy `replace`.
    #[error(
        "sample {sample} (id {sample_id}, {location}) of epoch {epoch} cannot be used: {reason}; and none of the {tried} samples behind it \
         can stand in for it, which is as far as the policy `replace` looks. If so many are damaged, pack the dataset anew (`ddlp pack` says \
         what is wrong with each), or leave them out: --policy skip with a higher --max-corrupt"
    )]
    NoReplacement {
        /// Name in the dataset.
        sample: String,
        /// Sample id.
        sample_id: u64,
        /// File, offset and length.
        location: String,
        /// Epoch.
        epoch: u32,
        /// Why.
        reason: String,
        /// Neighbours that were tried.
        tried: u64,
    },
    /// More samples of an epoch were skipped or replaced than [`MaxCorrupt`](crate::MaxCorrupt) allows.
    #[error(
        "{corrupt} of {samples} samples of this epoch were corrupt until here, and {limit} are allowed; the first are {first}. Check the \
         dataset (`ddlp verify` checks a pack), or allow more: --max-corrupt N or PERCENT%, `max_corrupt` in the library"
    )]
    TooManyCorrupt {
        /// Distinct corrupt samples.
        corrupt: u64,
        /// Samples of the batches that were delivered in this epoch, with those of the batch that was not.
        samples: u64,
        /// The limit.
        limit: u64,
        /// Names of the first ones.
        first: String,
    },
    /// The dataset cannot be read any more, or is another one than when it was opened. No policy applies to that.
    #[error("the dataset is not available")]
    Unavailable(#[source] ddlp_dataset::Unavailable),
    /// The operating system refused memory or a thread.
    #[error("{what} refused by the operating system")]
    System {
        /// What was asked for.
        what: &'static str,
        /// Its answer.
        #[source]
        source: std::io::Error,
    },
}
