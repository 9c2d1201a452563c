//! Puts a pack into a store or a key-value server.

use super::{ranges, shown, values};
use ddlp_dataset::pack::{Broken, Pack};
use ddlp_dataset::{Identity, ReadError};
use std::ops::ControlFlow;

/// How a pack is pushed.
#[derive(Clone, Debug, Default)]
pub struct PushOptions {
    /// Threads that read and send, or requests at the same time; 0 for a choice of this program.
    pub threads: usize,
    /// Replace a dataset of the same name that is another pack.
    pub force: bool,
    /// Read everything back and compare it.
    pub verify: bool,
}

/// Progress of a push.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PushProgress {
    /// Number of samples done.
    pub samples: u64,
    /// Number of all samples.
    pub samples_total: u64,
    /// Bytes of these samples.
    pub bytes: u64,
    /// Number of samples that were sent, since they were not there yet.
    pub sent: u64,
}

/// Result of a push.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PushSummary {
    /// Number of samples.
    pub samples: u64,
    /// Number of samples that were sent. The others were there.
    pub sent: u64,
    /// Bytes that the dataset takes, the index included.
    pub bytes: u64,
    /// Bytes that were sent.
    pub sent_bytes: u64,
    /// Identity of the pack.
    pub identity: Identity,
    /// The server's rule for evicting values, if it evicts some when its memory is full.
    pub evicts: Option<String>,
}

/// Why a pack was not pushed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PushError {
    /// Packs cannot be pushed to this URL.
    #[error("{url} is no place for a pack: {reason}")]
    Place {
        /// The URL.
        url: String,
        /// Why.
        reason: String,
    },
    /// Another dataset has that name.
    #[error("{url} exists: {what}")]
    Exists {
        /// The URL.
        url: String,
        /// What is there.
        what: String,
    },
    /// A sample of the pack cannot be read.
    #[error("the pack cannot be read")]
    Source(#[from] ReadError),
    /// The pack is damaged.
    #[error("the pack is damaged: {0}; `ddlp verify` lists all damage")]
    Damaged(Box<Broken>),
    /// The store or server fails. The reason says what to do.
    #[error("{url} was not pushed: {reason}")]
    Store {
        /// The URL.
        url: String,
        /// Why.
        reason: String,
    },
    /// What was sent reads back differently.
    #[error("{url} was sent, but {what} reads back differently: is the server's memory failing?")]
    Differs {
        /// The URL.
        url: String,
        /// The part concerned.
        what: String,
    },
    /// The caller cancelled the push.
    #[error("pushing was cancelled")]
    Cancelled,
}

/// Pushes a pack to a URL. At `redis://HOST:PORT/DB/NAME`, `rediss://…`, `cql://HOST/KEYSPACE/NAME` or `cqls://…` it
/// becomes one value for each sample, at `s3://`, `gs://` or `az://` one object. Calls `progress` on this thread
/// at least every 100 ms while samples are sent; a `Break` ends the work with [`PushError::Cancelled`].
///
/// A dataset can be opened there only when everything is sent. A push to a server that was stopped goes on where it
/// was; one to an object store begins anew.
///
/// # Errors
///
/// [`PushError`] says what to do.
pub fn push(
    pack: &Pack,
    url: &str,
    options: &PushOptions,
    progress: &mut dyn FnMut(PushProgress) -> ControlFlow<()>,
) -> Result<PushSummary, PushError> {
    if values::is_url(url) {
        return values::push::push(pack, url, options, progress);
    }
    if ranges::is_url(url) {
        return ranges::push::push(pack, url, options, progress);
    }
    let reason = "a pack is pushed to redis://, rediss://, cql://, cqls://, s3://, gs:// or az://".to_owned();
    Err(PushError::Place { url: shown(url), reason })
}
