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
