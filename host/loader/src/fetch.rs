//! The fetch stage: for a dataset whose reads have latency, threads of its own fetch samples before the threads of the
//! CPU prong prepare them. If reads go on without a thread that waits for them, one thread has all samples in flight,
//! each by itself.
//!
//! A batch is claimed when its first sample is fetched, and begins at its first row: only then does it take a buffer,
//! and only from then on does its time count. The samples of a few batches are fetched ahead, up to a number of bytes.
//! A batch that has begun, and the awaited batch, may each take as many bytes again. Datasets without latency have no
//! such stage: there the threads that prepare samples read them.
//!
//! Out of order, a sample that comes goes to the oldest batch that waits for a sample. In exchange, that batch leaves
//! one of its own samples to the batch that asked. So a late sample delays only the last batch of an epoch.
//!
//! `ahead` has the decisions, without threads, clock or I/O, [`Depth`] how many samples are in flight, and `hedge`
//! which are asked for twice. `Engine` carries them out (`engine/fetching.rs`); the threads that fetch are
//! `cpu/fetching.rs`.

mod ahead;
mod hedge;
mod samples;

pub(crate) use ahead::{AheadBounds, BOUNDS_MAX, FetchAhead, FetchTicket};
pub(crate) use hedge::{Hedge, HedgeCounts};
pub(crate) use samples::Samples;

use crate::options::LoaderOptions;
use crate::order::ShuffleWindow;
use ddlp_csd::depth::Depth;
use ddlp_dataset::{Ahead, Dataset, FetchedSample};
use ddlp_pixels::SMALL_BYTES;
use serde::{Deserialize, Serialize};

/// Bytes of samples that are fetched ahead from a near drive: some hundred photographs.
const AHEAD_BYTES: u64 = 32 << 20;
/// Bytes for each sample in flight, if there are many.
const BYTES_A_SAMPLE: u64 = 256 << 10;
/// Batches that are claimed ahead: while the samples of one batch wait, the samples of the next are fetched. Small
/// batches may need a larger number, so that all reads can be in flight.
const AHEAD_BATCHES: usize = 2;

/// The fetch stage's decisions about fetched samples.
pub(crate) type Fetching = FetchAhead<FetchedSample>;

/// Memory of samples that is kept for others.
const SPARE_MAX: usize = 256;

/// Which batch gets a sample that comes from a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FetchOrder {
    /// The batch that asked for it.
    #[default]
    InOrder,
    /// The oldest batch that waits for a sample.
    OutOfOrder,
}

/// What the options say about fetching from a store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FetchOptions {
    order: FetchOrder,
    /// Samples in flight; `None` if the stage finds out how many the path holds.
    depth: Option<usize>,
    /// Bytes of samples that are in flight or wait.
    memory: u64,
    ramp_up: u32,
    /// Share of the answers, in percent, within whose time a sample is asked for once only.
    hedge: Option<u32>,
}

impl FetchOptions {
    /// Returns whether samples move between batches.
    pub fn is_out_of_order(&self) -> bool {
        self.order == FetchOrder::OutOfOrder
    }

    /// Returns what these options say.
    pub fn of(options: &LoaderOptions) -> Self {
        Self {
            order: options.fetch,
            depth: options.fetch_depth,
            memory: options.fetch_memory,
            ramp_up: options.ramp_up,
            hedge: options.fetch_hedge,
        }
    }
}

/// How a run fetches the samples of its dataset.
#[derive(Clone, Debug)]
pub(crate) struct FetchPlan {
    /// Threads of the stage; 0 if the dataset needs none.
    pub threads: usize,
    /// Most samples that are asked for together.
    pub group: usize,
    /// Whether the stage's only thread waits for no read, so that samples come one by one.
    pub is_at_once: bool,
    /// Samples whose memory is kept for others.
    pub spare_max: usize,
    /// When samples are asked for a second time, if they are.
    pub hedge: Option<Hedge>,
    bounds: AheadBounds,
    depth: Depth,
    /// Bytes that the first samples are expected to have, if many are asked for before one has come.
    first_bytes: Option<u64>,
    ramp_up: u32,
    /// Bytes that the dataset itself keeps of the bundles of a window.
    window_bytes: u64,
}

impl FetchPlan {
    /// Plans for a dataset with batches of `rows` samples, in a windowed order if `window` is one. There one read may
    /// bring several samples, so that latency and rate of samples do not say how many should be in flight.
    pub fn new(dataset: &dyn Dataset, options: FetchOptions, rows: usize, window: Option<&ShuffleWindow>) -> Self {
        let of_threads = dataset.fetch_depth();
        let batches_of = |samples: usize| (2 * samples).div_ceil(rows.max(1)).max(AHEAD_BATCHES);
        let bytes_of =
            |window: &ShuffleWindow| Ahead::memory(window.lanes.count, window.bundle_bytes).min(Ahead::BYTES_MAX);
        let window_bytes = window.map_or(0, bytes_of);
        let Some(most) = of_threads.at_once.filter(|_| of_threads.threads > 0) else {
            let in_flight = of_threads.in_flight();
            return Self {
                threads: of_threads.threads,
                group: of_threads.samples,
                is_at_once: false,
                spare_max: in_flight,
                hedge: None,
                bounds: AheadBounds {
                    bytes: AHEAD_BYTES.max(options.memory.min(in_flight as u64 * BYTES_A_SAMPLE)),
                    batches: batches_of(in_flight),
                },
                depth: Depth::fixed(usize::MAX),
                first_bytes: (in_flight as u64 * BYTES_A_SAMPLE > AHEAD_BYTES).then_some(SMALL_BYTES),
                ramp_up: 0,
                window_bytes,
            };
        };
        let in_bundles = window.filter(|window| is_in_bundles(window));
        let most = options.depth.unwrap_or_else(|| in_bundles.map_or(most, |window| most_of(window, most)));
        let automatic = if in_bundles.is_some() { Depth::most } else { Depth::auto };
        Self {
            threads: 1,
            // Only neighbours in storage are asked for together.
            group: if of_threads.join_gap.is_some() { of_threads.samples } else { 1 },
            is_at_once: true,
            spare_max: most.min(SPARE_MAX),
            // A bundle's extent is asked for once, whichever samples wait for it.
            hedge: options.hedge.filter(|_| in_bundles.is_none()).map(Hedge::new),
            bounds: AheadBounds { bytes: options.memory, batches: batches_of(most) },
            depth: options.depth.map_or_else(|| automatic(most), Depth::fixed),
            first_bytes: None,
            ramp_up: options.ramp_up,
            window_bytes,
        }
    }

    /// Returns the decisions of a stage that has fetched nothing; `None` if the dataset needs no stage.
    pub fn stage(&self) -> Option<Fetching> {
        let stage = || {
            let stage = FetchAhead::new(self.bounds).with_depth(self.depth.clone()).with_ramp(self.ramp_up);
            self.first_bytes.into_iter().fold(stage, FetchAhead::expecting)
        };
        (self.threads > 0).then(stage)
    }

    /// Returns the batches that are claimed before they begin.
    pub fn batches_ahead(&self) -> usize {
        if self.is_at_once { self.bounds.batches } else { 0 }
    }

    /// Returns the bytes of memory that the stage may take.
    pub fn bytes_max(&self) -> u64 {
        if self.threads > 0 { self.bounds.bytes.saturating_mul(BOUNDS_MAX) + self.window_bytes } else { 0 }
    }
}

/// Returns how many samples of a windowed order may be in flight, of `most`: so few that the memory for bundles has
/// room for those that begin meanwhile ([`Ahead::memory`]).
fn most_of(window: &ShuffleWindow, most: usize) -> usize {
    let held = window.lanes.count.div_ceil(8).saturating_mul(window.bundle_samples);
    most.min(usize::try_from(held).unwrap_or(usize::MAX))
}

/// Returns whether the dataset reads bundles as a whole in a windowed order.
fn is_in_bundles(window: &ShuffleWindow) -> bool {
    window.bundle_bytes > 0 && Ahead::memory(window.lanes.count, window.bundle_bytes) <= Ahead::BYTES_MAX
}

#[cfg(test)]
mod simulation;
