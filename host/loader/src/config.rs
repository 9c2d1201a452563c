//! The options of a loader, and their defaults.

use crate::corrupt::MaxCorrupt;
use crate::drive::DriveSpec;
use crate::error::LoaderError;
use crate::loader::Loader;
use crate::order::LastBatch;
use crate::plan::Plan;
use crate::schedule::Strategy;
use crate::state::LoaderState;
use crate::value::Output;
use ddlp_csd::program::CorruptPolicy;
use ddlp_dataset::Dataset;
use ddlp_driver::Host;
use ddlp_pixels::{Limits, Normalize, Pipeline};
use half::f16;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Most threads of the CPU prong, and of a drive that the loader starts.
const THREADS_MAX: usize = 1024;
/// Most batch buffers.
const BUFFERS_MAX: usize = 4096;
/// Most drives.
const DRIVES_MAX: usize = 64;
/// Most batches that one drive has in work.
const DEPTH_MAX: usize = 32;

/// Builder of a [`Loader`], which collects its options.
#[derive(Clone)]
#[must_use]
pub struct LoaderBuilder {
    pub(crate) dataset: Option<Arc<dyn Dataset>>,
    pub(crate) dataset_path: Option<PathBuf>,
    pub(crate) pipeline: Pipeline,
    pub(crate) batch_size: usize,
    pub(crate) epochs: u32,
    pub(crate) strategy: Strategy,
    pub(crate) drives: Vec<DriveSpec>,
    pub(crate) host: Host,
    pub(crate) drive_depth: usize,
    pub(crate) drive_timeout: Duration,
    pub(crate) drive_optional: bool,
    pub(crate) threads: Option<usize>,
    pub(crate) cores: Vec<usize>,
    pub(crate) seed: u64,
    pub(crate) policy: CorruptPolicy,
    pub(crate) max_corrupt: MaxCorrupt,
    pub(crate) limits: Limits,
    pub(crate) last: LastBatch,
    pub(crate) rank: u32,
    pub(crate) world: u32,
    pub(crate) buffers: usize,
    pub(crate) window: Option<usize>,
    pub(crate) epoch_samples: Option<u64>,
    pub(crate) stall_after: Duration,
    pub(crate) replay: Option<Plan>,
    pub(crate) resume: Option<LoaderState>,
}

impl Default for LoaderBuilder {
    fn default() -> Self {
        Self {
            dataset: None,
            dataset_path: None,
            pipeline: Pipeline::imagenet_train(),
            batch_size: 256,
            epochs: 1,
            strategy: Strategy::default(),
            drives: Vec::new(),
            host: Host::system(),
            drive_depth: 2,
            drive_timeout: Duration::from_secs(30),
            drive_optional: false,
            threads: None,
            cores: Vec::new(),
            seed: 0,
            policy: CorruptPolicy::Fail,
            max_corrupt: MaxCorrupt::default(),
            limits: Limits::default(),
            last: LastBatch::Short,
            rank: 0,
            world: 1,
            buffers: 6,
            window: None,
            epoch_samples: None,
            stall_after: Duration::from_secs(10),
            replay: None,
            resume: None,
        }
    }
}

impl LoaderBuilder {
    /// Uses an opened dataset. A local drive needs [`Self::dataset_path`] as well.
    pub fn dataset(mut self, dataset: Arc<dyn Dataset>) -> Self {
        self.dataset = Some(dataset);
        self
    }

    /// Sets the path of the dataset: a pack, an image folder, CIFAR-10's binary files or tar shards. May also be the
    /// address of a drive that holds a pack ([`open_dataset`](crate::open_dataset)); add the drive by
    /// [`drive`](Self::drive) if it shall also prepare batches.
    pub fn dataset_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.dataset_path = Some(path.into());
        self
    }

    /// Sets the pipeline that prepares every sample. Default: ImageNet training at 224 × 224.
    pub fn pipeline(mut self, pipeline: Pipeline) -> Self {
        self.pipeline = pipeline;
        self
    }

    /// Sets the number of samples of a global batch (of all ranks together). Default 256.
    pub fn batch_size(mut self, samples: usize) -> Self {
        self.batch_size = samples;
        self
    }

    /// Sets the number of epochs. Default 1.
    pub fn epochs(mut self, epochs: u32) -> Self {
        self.epochs = epochs;
        self
    }

    /// Sets the strategy: the order of delivery, and which prongs take part. Default [`Strategy::Ordered`].
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// Adds a drive.
    pub fn drive(mut self, drive: DriveSpec) -> Self {
        self.drives.push(drive);
        self
    }

    /// Sets this machine's identity for drives at `tcp://` addresses; their lists of allowed hosts name it. Default
    /// [`Host::system`].
    pub fn host(mut self, host: Host) -> Self {
        self.host = host;
        self
    }

    /// Sets how many batches one drive has in work at a time. Default 2: the drive works on one while the other waits.
    pub fn drive_depth(mut self, batches: usize) -> Self {
        self.drive_depth = batches;
        self
    }

    /// Sets how long a drive may take for a batch before it counts as lost. A slow drive may take ten times as long as
    /// its rate predicts for its queued batches, if that is longer. Default 30 s.
    pub fn drive_timeout(mut self, timeout: Duration) -> Self {
        self.drive_timeout = timeout;
        self
    }

    /// Lets a run begin without its drives at `tcp://` addresses. The run connects to these drives while the CPU
    /// prepares the first batches. A drive that cannot be reached joins as soon as it can, as a lost drive does. If a
    /// drive answers at the start of the run, but refuses this host or does not fit (another dataset, another
    /// fingerprint), the run still ends with an error. Default: a drive that cannot be reached is an error, since its
    /// address may be wrong.
    pub fn drive_optional(mut self, optional: bool) -> Self {
        self.drive_optional = optional;
        self
    }

    /// Sets the number of threads of the CPU prong. Default: one for each of [`cores`](Self::cores), or else one for
    /// each core of the machine; half of the machine's cores are left to local drives, if any take part.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Restricts the loader's threads to these cores. Default: any core.
    pub fn cores(mut self, cores: Vec<usize>) -> Self {
        self.cores = cores;
        self
    }

    /// Sets the seed of the order and of all draws. Default 0.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the policy for corrupt samples. Default [`CorruptPolicy::Fail`].
    pub fn policy(mut self, policy: CorruptPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets how many distinct samples of an epoch may be skipped or replaced before the run ends with an error.
    /// Default: 16 or 1 % of the epoch, whichever is larger. A dataset that is gone or has changed ends the run at
    /// once, whatever the policy.
    pub fn max_corrupt(mut self, max: MaxCorrupt) -> Self {
        self.max_corrupt = max;
        self
    }

    /// Sets limits on what decoding one sample may cost.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets how the last batch of an epoch is treated. Default [`LastBatch::Short`].
    pub fn last(mut self, last: LastBatch) -> Self {
        self.last = last;
        self
    }

    /// Sets this rank and the number of ranks. Each rank gets its share of every global batch.
    pub fn rank(mut self, rank: u32, world: u32) -> Self {
        (self.rank, self.world) = (rank, world);
        self
    }

    /// Sets the number of batch buffers on the host, which bounds how far the CPU prepares ahead. At least 2, default
    /// 6. Each batch that the consumer keeps occupies one buffer; a consumer that keeps all of them gets no further
    /// batch. [`Batch::into_owned`](crate::Batch::into_owned) gives a batch's buffer back.
    pub fn buffers(mut self, buffers: usize) -> Self {
        self.buffers = buffers;
        self
    }

    /// Sets the look-ahead of the strategy `ordered` in batches. Default: as many as buffers and slots can hold.
    pub fn window(mut self, batches: usize) -> Self {
        self.window = Some(batches);
        self
    }

    /// Sets the number of samples of an epoch. A smaller dataset is repeated. Default: the number of samples in the
    /// dataset.
    pub fn epoch_samples(mut self, samples: u64) -> Self {
        self.epoch_samples = Some(samples);
        self
    }

    /// Sets how long the loader waits for a batch before it reports what it is waiting for. Default 10 s.
    pub fn stall_after(mut self, time: Duration) -> Self {
        self.stall_after = time;
        self
    }

    /// Replays a plan: delivers its epochs in their recorded order, each batch prepared by the recorded prong where
    /// possible.
    pub fn replay(mut self, plan: Plan) -> Self {
        self.replay = Some(plan);
        self
    }

    /// Resumes a run from where it stopped.
    pub fn resume(mut self, state: LoaderState) -> Self {
        self.resume = Some(state);
        self
    }

    /// Opens the dataset, starts or reaches the drives, and checks that they fit. Preparation begins when the first
    /// batch is requested.
    ///
    /// # Errors
    ///
    /// [`LoaderError`] names the option, dataset or drive that does not fit.
    pub fn build(self) -> Result<Loader, LoaderError> {
        self.start(Output::Pixels)
    }

    /// Like [`build`](Self::build), but batches have normalised floats ([`Batch::values`](crate::Batch::values)). The
    /// threads of the CPU prong convert each sample while it is in the core's cache; the thread of a drive converts
    /// that drive's batches, whatever kind of slots it has. Batch buffers are four times as large, and a drive without
    /// shared slots needs extra memory for one batch of pixels.
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build).
    pub fn build_f32(self, normalize: Normalize) -> Result<Loader<f32>, LoaderError> {
        self.start(Output::F32(Box::new(normalize)))
    }

    /// Like [`build_f32`](Self::build_f32), with floats of half the size.
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build).
    pub fn build_f16(self, normalize: Normalize) -> Result<Loader<f16>, LoaderError> {
        self.start(Output::F16(Box::new(normalize)))
    }

    fn start<V>(self, output: Output) -> Result<Loader<V>, LoaderError> {
        self.check()?;
        Loader::start(self, output)
    }

    fn check(&self) -> Result<(), LoaderError> {
        let within = |name: &str, value: usize, least: usize, most: usize| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(LoaderError::Options(format!("{name} is {value}, but must be {least} to {most}")))
        };
        within("batch size", self.batch_size, 1, ddlp_csd::BATCH_SAMPLES_MAX)?;
        within("number of threads", self.threads.unwrap_or(1), 1, THREADS_MAX)?;
        within("number of batch buffers", self.buffers, 2, BUFFERS_MAX)?;
        within("number of drives", self.drives.len(), 0, DRIVES_MAX)?;
        within("drive depth", self.drive_depth, 1, DEPTH_MAX)?;
        within("window", self.window.unwrap_or(1), 1, u32::MAX as usize)?;
        if let MaxCorrupt::Percent(percent) = self.max_corrupt
            && !(0.0..=100.0).contains(&percent)
        {
            return Err(LoaderError::Options(format!("max_corrupt is {percent} %, but must be 0 to 100")));
        }
        if self.rank >= self.world {
            let (rank, world) = (self.rank, self.world);
            return Err(LoaderError::Options(format!("rank is {rank}, but must be less than {world}, the world size")));
        }
        if self.batch_size < self.world as usize {
            let (batch, world) = (self.batch_size, self.world);
            return Err(LoaderError::Options(format!(
                "a batch of {batch} samples leaves some of {world} ranks without a sample"
            )));
        }
        for (at, drive) in self.drives.iter().enumerate() {
            if let DriveSpec::Remote(address) = drive
                && self.drives[..at].contains(drive)
            {
                return Err(LoaderError::Options(format!("drive {address} is named twice")));
            }
        }
        let needs_drive = matches!(self.strategy, Strategy::Csd);
        if needs_drive && self.drives.is_empty() {
            return Err(LoaderError::Options("strategy csd needs a drive".into()));
        }
        for drive in &self.drives {
            if let DriveSpec::Local(local) = drive {
                within("number of the drive's threads", local.threads.unwrap_or(1), 1, THREADS_MAX)?;
                if !(local.throttle > 0.0 && local.throttle <= 1.0) {
                    return Err(LoaderError::Options(format!(
                        "throttle is {}, but must be above 0 and at most 1",
                        local.throttle
                    )));
                }
                if self.dataset_path.is_none() {
                    return Err(LoaderError::Options("a local drive needs the path of the dataset".into()));
                }
            }
        }
        Ok(())
    }
}
