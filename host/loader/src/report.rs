//! The report of a run: the figures of the JSON report and the time line that the HTML report draws.
//!
//! All times are seconds since the first batch was asked for. A figure that was not measured is absent (`null`), never
//! estimated.

use ddlp_dataset::CacheUse;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Largest number of spans and of deliveries kept; a longer run keeps every k-th ([`Timeline::kept_every`]).
pub const TIMELINE_ENTRIES_MAX: usize = 20_000;

/// A run, as `ddlp run --json` writes it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Strategy by name.
    pub strategy: String,
    /// Name of the dataset.
    pub dataset: String,
    /// Samples of an epoch.
    pub epoch_samples: u64,
    /// Samples of a full global batch.
    pub batch_size: u64,
    /// Seed of the run.
    pub seed: u64,
    /// Number of threads of the CPU prong.
    pub threads: usize,
    /// Device to which batches were delivered; absent if they stayed in this process's memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Images delivered.
    pub images: u64,
    /// Batches delivered.
    pub batches: u64,
    /// Time before the first request: starting or reaching the drives, allocating result slots, and opening the
    /// dataset, unless the caller has opened it.
    pub setup_s: f64,
    /// Time from the first request to the last delivery, or to the error that ended the run.
    pub seconds: f64,
    /// `images / seconds`.
    pub images_per_s: f64,
    /// Time until the first batch was delivered.
    pub first_batch_s: f64,
    /// CPU time of the host process, user and system.
    pub host_cpu_s: f64,
    /// Most memory that this process had allocated (`RssAnon` in `/proc/self/status`, read every 20 ms), in 10⁶ bytes.
    /// Program files, files in the page cache and mapped result slots are not part of it.
    pub peak_memory_mb: f64,
    /// Result slots that this process and drives share, in 10⁶ bytes; not part of the peak.
    pub slot_memory_mb: f64,
    /// Bytes of samples that the CPU prong read from the dataset, in 10⁶ bytes. A sample that stays in memory counts
    /// once.
    pub read_mb: f64,
    /// The same in the whole blocks of 4 KiB in which these bytes lie, if the dataset is a pack. Counts each sample's
    /// reads by themselves, although a windowed order over a network reads bundles as a whole.
    pub read_blocks_mb: Option<f64>,
    /// All bytes of these samples, in 10⁶ bytes: what reading each as a whole would have taken. A crop may need less.
    pub read_samples_mb: f64,
    /// Requests to the store that holds the dataset, since it was opened; absent if it lies in no store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<RequestReport>,
    /// What the cache of this machine did for the dataset, since it was opened; absent without a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheReport>,
    /// Batch m at which the prongs met in the last epoch: batches 0 to m − 1 came from the head.
    pub meeting_point: Option<u32>,
    /// One entry per prong; the first is the host's CPU.
    pub prongs: Vec<ProngReport>,
    /// Time the consumer waited for batches.
    pub consumer_wait_s: f64,
    /// Share of the time in which the accelerator had work, where the consumer knows it (`ddlp run --step-ms` simulates
    /// one).
    pub accelerator_utilisation: Option<f64>,
    /// Energy of the host's processors in joules, where a meter can be read.
    pub host_energy_j: Option<f64>,
    /// Samples that followed the corrupt-sample policy.
    pub corrupt: Vec<CorruptReport>,
    /// Samples whose decoder warned.
    pub warned: u64,
    /// Faults that the run survived.
    pub faults: Vec<FaultReport>,
    /// Limits that the run met, in words ("the tail was limited by 8 result slots").
    pub notes: Vec<String>,
    /// Order-free digest over (sample id, pixel bytes), when asked for.
    pub digest: Option<String>,
    /// Digest over the samples in the order of delivery, when asked for.
    pub ordered_digest: Option<String>,
    /// Order-free digest of each field other than the images, by its name, if digests were computed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub field_digests: BTreeMap<String, String>,
    /// Per epoch.
    pub epochs: Vec<EpochReport>,
    /// The time line of work and deliveries.
    pub timeline: Timeline,
}

/// Requests to a store.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct RequestReport {
    /// Requests that were answered with their bytes.
    pub answered: u64,
    /// Bytes of these answers, in 10⁶ bytes.
    pub mb: f64,
    /// Time within which half of the answers came, in milliseconds, rounded up to a power of two.
    pub half_within_ms: Option<f64>,
    /// Time within which 99 of 100 answers came, likewise.
    pub most_within_ms: Option<f64>,
    /// Requests that failed and were made again.
    pub retries: u64,
    /// Part of `retries` that the store could not answer in time, or refused since it was busy.
    pub pushed_back: u64,
    /// Samples that were asked for a second time since they took long.
    #[serde(default)]
    pub hedged: u64,
    /// Part of `hedged` for which the second request came first.
    #[serde(default)]
    pub hedges_won: u64,
    /// Requests in flight now.
    pub in_flight: u64,
    /// Samples that may be in flight now, if there is a bound.
    pub depth: Option<usize>,
}

/// The cache of a dataset that comes over a network.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CacheReport {
    /// Bytes that came from the cache, in 10⁶ bytes.
    pub mb: f64,
    /// Bytes that were asked for and kept, in 10⁶ bytes.
    pub kept_mb: f64,
    /// Whether the cache had no room for more.
    pub is_full: bool,
    /// Why the cache took no more bytes, if it could not be written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub off: Option<String>,
}

impl From<CacheUse> for CacheReport {
    fn from(CacheUse { bytes, kept_bytes, is_full, off }: CacheUse) -> Self {
        Self { mb: bytes as f64 / 1e6, kept_mb: kept_bytes as f64 / 1e6, is_full, off }
    }
}

/// One prong's part.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ProngReport {
    /// `cpu`; for a drive, `csd` (with a number if there are several drives), `auto` or its address.
    pub name: String,
    /// Delivered batches that it prepared.
    pub batches: u64,
    /// Delivered images that it prepared.
    pub images: u64,
    /// Images that it prepared, delivered or not.
    pub prepared: u64,
    /// Time in which it had at least one batch in work.
    pub busy_s: f64,
    /// `prepared / busy_s`.
    pub images_per_s: f64,
    /// Batches that it prepared but nobody used: another prong was first, the host refused the result, or an earlier
    /// batch needed the buffer.
    pub wasted_batches: u64,
    /// CPU time that the drive's agent reports, in seconds.
    pub cpu_s: Option<f64>,
    /// Peak resident memory that the drive's agent reports, in 10⁶ bytes, mapped slots included.
    pub peak_memory_mb: Option<f64>,
    /// Energy in joules, where the drive can measure it.
    pub energy_j: Option<f64>,
}

/// One corrupt sample.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CorruptReport {
    /// Name in the dataset.
    pub sample: String,
    /// Sample id.
    pub sample_id: u64,
    /// Epoch.
    pub epoch: u32,
    /// Reason why the sample could not be used.
    pub reason: String,
    /// `skipped`, or `replaced by NAME`.
    pub action: String,
}

/// Kind of a [fault](FaultReport), or of the recovery from one. The JSON report has its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum FaultKind {
    /// A drive, or the path to it, is lost, or the drive that holds the dataset does not answer.
    Lost,
    /// A command to a drive was not answered in time.
    Timeout,
    /// A drive answered a command with an error.
    Status,
    /// This machine refused memory for a drive's result.
    Memory,
    /// A drive's result, or a sample read from a drive, arrived damaged; or the result contradicts the CPU's.
    Damaged,
    /// A batch took far longer than earlier ones.
    Slow,
    /// A local drive's agent does not start.
    Start,
    /// A local drive's agent was started again: a recovery.
    Restart,
    /// A lost drive works again: a recovery.
    Rejoined,
    /// A drive is not used any more.
    Refused,
    /// A defect of the loader cost a drive its batches.
    Defect,
    /// A drive cannot read its dataset.
    Unavailable,
    /// The consumer waited for long.
    Stall,
    /// The consumer keeps all buffers or result slots.
    Kept,
}

impl FaultKind {
    /// Returns the kind's name: one word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Timeout => "timeout",
            Self::Status => "status",
            Self::Memory => "memory",
            Self::Damaged => "damaged",
            Self::Slow => "slow",
            Self::Start => "start",
            Self::Restart => "restart",
            Self::Rejoined => "rejoined",
            Self::Refused => "refused",
            Self::Defect => "defect",
            Self::Unavailable => "unavailable",
            Self::Stall => "stall",
            Self::Kept => "kept",
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One fault that the run survived.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FaultReport {
    /// Time of the fault.
    pub at_s: f64,
    /// Name of the prong.
    pub prong: String,
    /// Epoch and batch, when the fault hit one.
    pub batch: Option<(u32, u32)>,
    /// What kind of fault or recovery this is.
    pub kind: FaultKind,
    /// Description in words.
    pub what: String,
}

impl FaultReport {
    /// Returns whether this entry is the recovery from a fault, not a fault itself.
    pub fn is_recovery(&self) -> bool {
        matches!(self.kind, FaultKind::Restart | FaultKind::Rejoined)
    }
}

/// One epoch.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EpochReport {
    /// Number of the epoch.
    pub epoch: u32,
    /// Batches delivered.
    pub batches: u64,
    /// Images delivered.
    pub images: u64,
    /// Time at which its first batch was asked for.
    pub start_s: f64,
    /// Time at which its last batch was delivered.
    pub end_s: f64,
    /// Time from the request for its first batch to the delivery of that batch.
    pub first_batch_s: f64,
    /// Batch at which the prongs met.
    pub meeting_point: Option<u32>,
    /// Batches by prong, in the order of [`Report::prongs`].
    pub batches_by_prong: Vec<u64>,
}

/// The time line of work and deliveries.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Timeline {
    /// 1 when complete; k when only every k-th entry was kept.
    pub kept_every: usize,
    /// Work of the prongs.
    pub spans: Vec<Span>,
    /// Deliveries to the consumer.
    pub deliveries: Vec<Delivery>,
}

/// A batch in the work of a prong.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Span {
    /// Index in [`Report::prongs`].
    pub prong: usize,
    /// Epoch.
    pub epoch: u32,
    /// Batch.
    pub batch: u32,
    /// Time at which the prong claimed the batch.
    pub start_s: f64,
    /// Time at which the prong finished the batch or gave it up.
    pub end_s: f64,
    /// Whether the result was used.
    pub used: bool,
}

/// A batch handed to the consumer.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Delivery {
    /// Index in [`Report::prongs`].
    pub prong: usize,
    /// Epoch.
    pub epoch: u32,
    /// Batch.
    pub batch: u32,
    /// Images in it.
    pub images: u32,
    /// Time at which the consumer asked for a batch.
    pub asked_s: f64,
    /// Time at which the consumer got this batch.
    pub at_s: f64,
}
