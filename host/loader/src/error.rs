//! Errors that the user of a loader can meet.

use crate::plan::PlanError;
use crate::state::StateError;

/// Why a loader cannot be built, or cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum LoaderError {
    /// An option is invalid, or options contradict each other.
    #[error("{0}")]
    Options(String),
    /// The dataset cannot be opened.
    #[error("the dataset cannot be opened")]
    Dataset(#[source] ddlp_dataset::OpenError),
    /// The pipeline cannot run.
    #[error("the pipeline cannot run")]
    Pipeline(#[source] ddlp_pixels::PipelineError),
    /// The program for the drives cannot be made.
    #[error("the program for the drives cannot be made")]
    Program(#[source] ddlp_csd::program::ProgramError),
    /// The plan cannot be replayed.
    #[error("the plan cannot be replayed")]
    Plan(#[source] PlanError),
    /// This run cannot be resumed from the state.
    #[error("the run cannot be resumed")]
    State(#[source] StateError),
    /// A drive cannot be used. The message names the drive and says what to do.
    #[error("drive {drive} cannot be used: {reason}")]
    Drive {
        /// Its address.
        drive: String,
        /// Why.
        reason: String,
    },
    /// A sample is corrupt, and the policy is `fail`.
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
    /// No neighbour can replace a corrupt sample, and the policy is `replace`.
    #[error(
        "sample {sample} (id {sample_id}, {location}) of epoch {epoch} cannot be used: {reason}; none of the {tried} \
         samples after it can replace it, and the policy `replace` tries no more. If this many are damaged, pack the \
         dataset anew (`ddlp pack` says what is wrong with each), or leave them out: --policy skip with a higher \
         --max-corrupt"
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
        /// Number of neighbours that were tried.
        tried: u64,
    },
    /// More samples of an epoch were skipped or replaced than [`MaxCorrupt`](crate::MaxCorrupt) allows.
    #[error(
        "{corrupt} of {samples} samples of this epoch were corrupt so far, and {limit} are allowed; the first are \
         {first}. Check the dataset (`ddlp verify` checks a pack), or allow more: --max-corrupt N or PERCENT%, \
         `max_corrupt` in the library"
    )]
    TooManyCorrupt {
        /// Distinct corrupt samples.
        corrupt: u64,
        /// Samples of the batches delivered in this epoch, and of the batch that exceeded the limit.
        samples: u64,
        /// The limit.
        limit: u64,
        /// Names of the first corrupt samples.
        first: String,
    },
    /// The dataset cannot be read any more, or is no longer the one that was opened. No corrupt-sample policy applies.
    #[error("the dataset is not available")]
    Unavailable(#[source] ddlp_dataset::Unavailable),
    /// The operating system refused memory or a thread.
    #[error("the operating system refused {what}")]
    System {
        /// What the loader requested.
        what: &'static str,
        /// The operating system's answer.
        #[source]
        source: std::io::Error,
    },
}

impl LoaderError {
    /// Returns the error for an epoch's order for which the system refuses memory.
    pub(crate) fn of_order(source: std::io::Error) -> Self {
        Self::System { what: "memory for an epoch's order", source }
    }
}
