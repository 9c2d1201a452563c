//! The fetch stage: for a dataset whose reads have latency, threads of its own fetch samples before the threads of the
//! CPU prong prepare them.
//!
//! A batch is claimed when its first sample is fetched, and begins at its first row: only then does it take a buffer,
//! and only from then on does its time count. The samples of a few batches are fetched ahead, up to a number of bytes.
//! A batch that has begun, and the awaited batch, may each take as many bytes again. Datasets without latency have no
//! such stage: there the threads that prepare samples read them.
//!
//! `ahead` has the decisions, without threads, clock or I/O. `Engine` carries them out (`engine/fetching.rs`); the
//! threads that fetch are `cpu/fetching.rs`.

mod ahead;

pub(crate) use ahead::{AheadBounds, BOUNDS_MAX, FetchAhead, FetchTicket, Samples};

use crate::order::ShuffleWindow;
use ddlp_dataset::{Ahead, Dataset, FetchedSample};

/// Bytes of samples that are fetched ahead: some hundred photographs.
const AHEAD_BYTES: u64 = 32 << 20;
/// Batches that are claimed ahead: while the samples of one wait, those of the next are fetched. Small batches may need
/// a larger number, so that all reads can be in flight.
const AHEAD_BATCHES: usize = 2;

/// The fetch stage's decisions about fetched samples.
pub(crate) type Fetching = FetchAhead<FetchedSample>;

impl AheadBounds {
    /// Returns the bounds for a dataset with batches of `rows` samples.
    pub fn of(dataset: &dyn Dataset, rows: usize) -> Self {
        let batches = (2 * dataset.fetch_depth().in_flight()).div_ceil(rows.max(1));
        Self { bytes: AHEAD_BYTES, batches: batches.max(AHEAD_BATCHES) }
    }
}

/// Returns the bytes of memory that the stage may take for a dataset, and the dataset itself for the bundles of a
/// window; 0 if the dataset needs no fetch stage.
pub(crate) fn bytes_ahead(dataset: &dyn Dataset, window: Option<&ShuffleWindow>) -> u64 {
    if dataset.fetch_depth().threads == 0 {
        return 0;
    }
    let of_window = window.map_or(0, |window| Ahead::memory(window.lanes.count, window.bundle_bytes));
    BOUNDS_MAX * AHEAD_BYTES + of_window.min(Ahead::BYTES_MAX)
}
