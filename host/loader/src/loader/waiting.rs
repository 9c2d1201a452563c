//! A consumer's wait for a batch.

use crate::batch::Batch;
use crate::error::LoaderError;
use std::time::Duration;

/// A consumer's wait for a batch, as [`Loader::next_while`](crate::Loader::next_while) reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiting {
    /// Time since this call began to wait.
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

/// A consumer's earlier waits for the batch that is due next, which it gave up. What the loader says about a long wait,
/// and the report, count all waits for a batch together.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// Time of all these waits.
    pub waited: Duration,
    /// How much of that time had passed when a stall was last named.
    pub warned_at: Duration,
}

#[cfg(test)]
mod tests {
    use crate::loader::Loader;
    use ddlp_pixels::Pipeline;

    #[test]
    fn a_consumer_that_gave_up_waits_no_more() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("data_batch_1.bin"), [3u8; 70 * 3073]).unwrap();
        let builder =
            Loader::builder().with(|o| (o.dataset, o.pipeline) = (Some(folder.path().into()), Pipeline::cifar_train()));
        let mut loader = builder.with(|o| (o.batch_size, o.threads, o.buffers) = (4, Some(1), 2)).build().unwrap();
        let kept: Vec<_> = loader.by_ref().take(2).collect();
        let mut was_waiting = false;
        let engine = loader.engine.clone();
        let given_up = loader.next_while(|_| {
            was_waiting = engine.lock().consumer_waits;
            false
        });
        assert!(given_up.is_none() && was_waiting && !loader.engine.lock().consumer_waits);
        drop(kept);
    }
}
