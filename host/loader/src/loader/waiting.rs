//! A consumer's wait for a batch.

use crate::batch::Batch;
use crate::error::LoaderError;
use std::time::Duration;

/// A consumer's wait for a batch, as [`Loader::next_while`](crate::Loader::next_while) reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiting {
    /// Time since the consumer asked for the batch.
    pub time: Duration,
    /// Whether the consumer keeps batches in all buffers or in all result slots: no batch comes until it drops one.
    pub keeps_all: bool,
}

/// Result of a wait for a batch.
pub(super) enum Waited {
    Batch(Batch),
    /// The consumer no longer wants to wait.
    GaveUp,
    /// The run is over, or failed.
    Ended(Option<LoaderError>),
}
