//! The builder of a loader: its options, and what is not plain data.

use crate::delivery::{BufferNeed, ChosenTarget, DeliveryError, DeliveryTarget};
use crate::drive::DriveSpec;
use crate::max_corrupt::MaxCorrupt;
use crate::options::LoaderOptions;
use crate::order::{Choice, LastBatch};
use crate::per_sample::PerSample;
use crate::plan::Plan;
use crate::schedule::Strategy;
use crate::state::LoaderState;
use ddlp_csd::program::CorruptPolicy;
use ddlp_dataset::{Dataset, FieldTable, Kind};
use ddlp_driver::Host;
use ddlp_pixels::{DType, Field, ImageLayout, Limits, Normalize, Pipeline, Shape};
use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Builder of a [`Loader`](crate::Loader), which collects its options.
#[derive(Clone, Default)]
#[must_use]
pub struct LoaderBuilder {
    pub(crate) options: LoaderOptions,
    pub(crate) dataset: Option<Arc<dyn Dataset>>,
    pub(crate) fields: Vec<(Field, Arc<Vec<u8>>)>,
    pub(crate) table: Option<Arc<FieldTable>>,
    pub(crate) host: Option<Host>,
    pub(crate) target: Option<ChosenTarget>,
    pub(crate) per_sample: Option<PerSample>,
    pub(crate) choice: Choice,
    pub(crate) given_up: Arc<AtomicBool>,
}

impl fmt::Debug for LoaderBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dataset = self.dataset.as_ref().map(|dataset| dataset.kind());
        f.debug_struct("LoaderBuilder")
            .field("options", &self.options)
            .field("dataset", &dataset)
            .finish_non_exhaustive()
    }
}

impl LoaderBuilder {
    /// Sets all options that are plain data.
    pub fn options(mut self, options: LoaderOptions) -> Self {
        self.options = options;
        self
    }

    /// Changes some of the options that are plain data: `.with(|o| o.batch_size = 64)`.
    pub fn with(mut self, change: impl FnOnce(&mut LoaderOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// Uses an opened dataset. [`Self::dataset_path`] is needed as well if a local drive takes part, and names the
    /// drive that holds the dataset if that drive is to take part by itself.
    pub fn dataset(mut self, dataset: Arc<dyn Dataset>) -> Self {
        self.dataset = Some(dataset);
        self
    }

    /// Lets another thread give up [`build`](Self::build): soon after it has set this flag, `build` stops reading the
    /// sizes of images, starts no drive, and fails.
    pub fn given_up_by(mut self, flag: Arc<AtomicBool>) -> Self {
        self.given_up = flag;
        self
    }

    /// Adds a field to every batch. `values` has the field's value for each sample of the dataset, in order and without
    /// gaps, in this machine's byte order. The field is of kind [`FieldKind::Vector`](crate::FieldKind::Vector); one
    /// named `label`, which equals [`Field::label`], takes the place of the dataset's labels. Drives know nothing of
    /// these fields.
    pub fn field(mut self, field: Field, values: Vec<u8>) -> Self {
        self.fields.push((field, Arc::new(values)));
        self
    }

    /// Sets the file from which fields are read: [`LoaderOptions::fields`].
    pub fn fields_path(mut self, file: impl Into<PathBuf>) -> Self {
        self.options.fields = Some(file.into());
        self
    }

    /// Takes fields from a table in memory instead of a file.
    pub fn fields_table(mut self, table: FieldTable) -> Self {
        self.table = Some(Arc::new(table));
        self
    }

    /// Sets the path of the dataset: a pack, an image folder, CIFAR-10's binary files, tar shards, a list
    /// of files, or a mix of these ([`dataset::mix`](crate::dataset::mix)). May also be the
    /// address of a drive that holds a pack ([`open_dataset`](crate::open_dataset)). That drive then also prepares
    /// batches, unless the strategy is [`Strategy::Cpu`] or the options name drives: [`LoaderOptions::drives`].
    pub fn dataset_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.options.dataset = Some(path.into());
        self
    }

    /// Sets the kind of the dataset at that path: [`LoaderOptions::kind`]. Default: as the path and its contents say.
    pub fn kind(mut self, kind: Kind) -> Self {
        self.options.kind = Some(kind);
        self
    }

    /// Sets the pipeline that prepares every sample. Default: ImageNet training at 224 × 224.
    pub fn pipeline(mut self, pipeline: Pipeline) -> Self {
        self.options.pipeline = pipeline;
        self
    }

    /// Sets the pipelines of buckets, in place of [`pipeline`](Self::pipeline): [`LoaderOptions::buckets`]. The field
    /// of images then differs from batch to batch in its shape.
    pub fn buckets(mut self, pipelines: impl IntoIterator<Item = Pipeline>) -> Self {
        self.options.buckets = pipelines.into_iter().collect();
        self
    }

    /// Sets the type of the images' elements. Default [`DType::U8`], the pixels as prepared. The threads of the CPU
    /// prong make floats of each sample while it is in the core's cache; the thread of a drive makes them of that
    /// drive's batches, whatever kind of slots it has. Floats take two or four times as much memory, and a drive
    /// without shared slots needs extra memory for one batch of pixels.
    pub fn dtype(mut self, dtype: DType) -> Self {
        self.options.dtype = dtype;
        self
    }

    /// Sets the order of the images' dimensions. Default [`ImageLayout::Nhwc`]. Images of uint8 always lie in memory as
    /// NHWC; under NCHW they are a view with strides, as floats are under [`ImageLayout::ChannelsLast`].
    pub fn layout(mut self, layout: ImageLayout) -> Self {
        self.options.layout = layout;
        self
    }

    /// Sets the mean and standard deviation by which floats are normalised. Default: none, floats from 0 to 1.
    pub fn normalize(mut self, normalize: Normalize) -> Self {
        self.options.normalize = Some(normalize);
        self
    }

    /// Sets α of MixUp: [`LoaderOptions::mixup`]. Mixed labels are the field `label`, float32, with one number for each
    /// class. Each row is mixed with the row before it in this rank's share of the batch, and the first with the last.
    /// Default 0: none.
    pub fn mixup(mut self, alpha: f64) -> Self {
        self.options.mixup = alpha;
        self
    }

    /// Sets α of CutMix: [`LoaderOptions::cutmix`]. With [`mixup`](Self::mixup) too, each batch gets one of the two,
    /// both equally often. Default 0: none.
    pub fn cutmix(mut self, alpha: f64) -> Self {
        self.options.cutmix = alpha;
        self
    }

    /// Sets the share of the batches to which MixUp or CutMix is done, from 0 to 1. Default 1.
    pub fn mix_probability(mut self, share: f64) -> Self {
        self.options.mix_probability = share;
        self
    }

    /// Sets the number of classes of mixed labels. Default: that of the dataset.
    pub fn classes(mut self, classes: u32) -> Self {
        self.options.classes = Some(classes);
        self
    }

    /// Sets the names of the classes, which number those of the dataset: [`LoaderOptions::class_names`].
    pub fn class_names(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.options.class_names = names.into_iter().collect();
        self
    }

    /// Sets the number of samples of a global batch (of all ranks together). Default 256.
    pub fn batch_size(mut self, samples: usize) -> Self {
        self.options.batch_size = samples;
        self
    }

    /// Sets the number of epochs. Default 1.
    pub fn epochs(mut self, epochs: u32) -> Self {
        self.options.epochs = epochs;
        self
    }

    /// Sets the strategy: the order of delivery, and which prongs take part. Default [`Strategy::Ordered`].
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.options.strategy = strategy;
        self
    }

    /// Adds a drive. Without any, the drive that holds the dataset takes part: [`LoaderOptions::drives`].
    pub fn drive(mut self, drive: DriveSpec) -> Self {
        self.options.drives.get_or_insert_default().push(drive);
        self
    }

    /// Sets this machine's identity for drives at `tcp://` addresses; their lists of allowed hosts name it. Default:
    /// [`LoaderOptions::host_nqn`].
    pub fn host(mut self, host: Host) -> Self {
        self.host = Some(host);
        self
    }

    /// Sets how many batches one drive has in work at a time. Default 2: the drive works on one while the other waits.
    pub fn drive_depth(mut self, batches: usize) -> Self {
        self.options.drive_depth = batches;
        self
    }

    /// Sets how long a drive may take for a batch before it counts as lost. A slow drive may take ten times as long as
    /// its rate predicts for its queued batches, if that is longer. Default 30 s.
    pub fn drive_timeout(mut self, timeout: Duration) -> Self {
        self.options.drive_timeout = timeout;
        self
    }

    /// Lets a run begin without its drives at `tcp://` addresses. The run connects to these drives while the CPU
    /// prepares the first batches. A drive that cannot be reached joins as soon as it can, as a lost drive does. If a
    /// drive answers at the start of the run, but refuses this host or does not fit (it has another dataset, or lacks
    /// an operation), the run still ends with an error. Default: a drive that cannot be reached is an error, since its
    /// address may be wrong.
    pub fn drive_optional(mut self, optional: bool) -> Self {
        self.options.drive_optional = optional;
        self
    }

    /// Sets the number of threads of the CPU prong. Default: one for each of [`cores`](Self::cores), or else one for
    /// each core of the machine; half of the machine's cores are left to local drives, if any take part.
    pub fn threads(mut self, threads: usize) -> Self {
        self.options.threads = Some(threads);
        self
    }

    /// Restricts the loader's threads to these cores. Default: any core.
    pub fn cores(mut self, cores: Vec<usize>) -> Self {
        self.options.cores = cores;
        self
    }

    /// Sets the number of processes of this machine among which its cores are divided. Default 1.
    pub fn local_world_size(mut self, processes: u32) -> Self {
        self.options.local_world_size = processes;
        self
    }

    /// Sets the seed of the order and of all draws. Default 0.
    pub fn seed(mut self, seed: u64) -> Self {
        self.options.seed = seed;
        self
    }

    /// Sets whether each epoch's samples are shuffled. Default `true`; otherwise they come in the order of the dataset.
    pub fn shuffle(mut self, shuffle: bool) -> Self {
        self.options.shuffle = shuffle;
        self
    }

    /// Sets the policy for corrupt samples. Default [`CorruptPolicy::Fail`].
    pub fn policy(mut self, policy: CorruptPolicy) -> Self {
        self.options.policy = policy;
        self
    }

    /// Sets how many distinct samples of an epoch may be skipped or replaced before the run ends with an error.
    /// Default: 16 or 1 % of the epoch, whichever is larger. A dataset that is gone or has changed ends the run at
    /// once, whatever the policy.
    pub fn max_corrupt(mut self, max: MaxCorrupt) -> Self {
        self.options.max_corrupt = max;
        self
    }

    /// Sets limits on what decoding one sample may cost.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.options.limits = limits;
        self
    }

    /// Sets how the last batch of an epoch is treated. Default [`LastBatch::Short`].
    pub fn last(mut self, last: LastBatch) -> Self {
        self.options.last = last;
        self
    }

    /// Serves the run's figures over HTTP at this address, in the format of Prometheus and OpenMetrics; port 0 takes a
    /// free port. Whoever can reach the address can read them. Default: they are not served.
    pub fn metrics(mut self, address: SocketAddr) -> Self {
        self.options.metrics = Some(address);
        self
    }

    /// Sets this rank and the number of ranks. Each rank gets its share of every global batch.
    pub fn rank(mut self, rank: u32, world: u32) -> Self {
        (self.options.rank, self.options.world_size) = (rank, world);
        self
    }

    /// Sets the number of batch buffers on the host, which bounds how far the CPU prepares ahead. At least 2, default
    /// 6. Each batch that the consumer keeps occupies one buffer; a consumer that keeps all of them gets no further
    /// batch. [`Batch::into_owned`](crate::Batch::into_owned) gives a batch's buffer back.
    pub fn buffers(mut self, buffers: usize) -> Self {
        self.options.buffers = buffers;
        self
    }

    /// Sets the look-ahead of the strategy `ordered` in batches. Default: as many as buffers and slots can hold.
    pub fn window(mut self, batches: usize) -> Self {
        self.options.window = Some(batches);
        self
    }

    /// Sets the number of samples of an epoch: the dataset is repeated or cut to this number. Of a mix
    /// ([`dataset::mix`](crate::dataset::mix)), each epoch takes this many samples, from where the one before stopped.
    /// Default: the number of samples in the dataset.
    pub fn epoch_samples(mut self, samples: u64) -> Self {
        self.options.epoch_samples = Some(samples);
        self
    }

    /// Chooses the samples of an epoch. States and plans know the choice by digests.
    pub fn choose(mut self, choice: Choice) -> Self {
        self.choice = choice;
        self
    }

    /// Sets how long the loader waits for a batch before it reports what it is waiting for. Default 10 s.
    pub fn stall_after(mut self, time: Duration) -> Self {
        self.options.stall_after = time;
        self
    }

    /// Replays a plan: delivers its epochs in their recorded order, each batch prepared by the recorded prong where
    /// possible.
    pub fn replay(mut self, plan: Plan) -> Self {
        self.options.replay = Some(plan);
        self
    }

    /// Resumes a run from where it stopped.
    pub fn resume(mut self, state: LoaderState) -> Self {
        self.options.resume = Some(state);
        self
    }

    /// Sets a function that changes the image of each sample, after the pipeline and before floats are made of it. It
    /// gets the image (height × width × channels bytes of the shape), the shape, and a number from 0 to 2⁶³ − 1 that
    /// follows from seed, epoch and sample id. A function that draws its random numbers from that number alone makes
    /// the same images in every run. The threads of the CPU prong call the function, several at a time. Drives cannot
    /// call it, so none may take part. States and plans do not know it: a run that resumes needs the same function.
    /// Default: none.
    pub fn per_sample(
        mut self,
        change: impl Fn(&mut [u8], Shape, u64) -> Result<(), Box<dyn Error + Send + Sync>> + Send + Sync + 'static,
    ) -> Self {
        self.per_sample = Some(PerSample(Arc::new(change)));
        self
    }

    /// Sets the delivery target, whose memory holds the batches: `make` makes the target once the loader knows what it
    /// needs. Default: buffers in this process's memory, and the result slots that local drives share with it.
    pub fn deliver_to(
        mut self,
        make: impl Fn(BufferNeed) -> Result<Arc<dyn DeliveryTarget>, DeliveryError> + Send + Sync + 'static,
    ) -> Self {
        self.target = Some(ChosenTarget { make: Arc::new(make), finishes: false });
        self
    }

    /// Sets a delivery target that finishes batches itself: its buffers hold the images as prepared, whatever
    /// [`dtype`](Self::dtype) and [`layout`](Self::layout) are, and neither threads nor MixUp and CutMix change them.
    /// [`Batch::finishing`](crate::Batch::finishing) says how to make the delivered elements. Otherwise as
    /// [`deliver_to`](Self::deliver_to).
    pub fn deliver_prepared_to(
        mut self,
        make: impl Fn(BufferNeed) -> Result<Arc<dyn DeliveryTarget>, DeliveryError> + Send + Sync + 'static,
    ) -> Self {
        self.target = Some(ChosenTarget { make: Arc::new(make), finishes: true });
        self
    }
}
