//! The table of the loader's options. From the table follow the struct and its defaults, the checks and their messages,
//! the flags of `ddlp run`, and the arguments of Python's `ddlp.Loader`.
//!
//! # To add an option
//!
//! 1. Add its row; the macro's documentation in `definition` explains the syntax. A value of a new type needs a line in
//!    `figures!` there.
//! 2. If states or plans record it (`recorded`), add its field in `state.rs` or `plan.rs`, and its line in
//!    `recorded.rs`.
//! 3. Run `DDLP_UPDATE=1 cargo test -p ddlp-host python`, which writes what Python has. Use the option in the module
//!    concerned.
//!
//! The tests of `json`, `python` and `recorded`, and `host/cli/src/run/options/tests.rs`, check that the table and its
//! users agree.

use super::definition::{Values, options};
use super::json::{lower_case, seconds};
use crate::drive::DriveSpec;
use crate::fetch::FetchOrder;
use crate::fidelity::Fidelities;
use crate::max_corrupt::MaxCorrupt;
use crate::order::LastBatch;
use crate::plan::Plan;
use crate::schedule::Strategy;
use crate::splits::part_of;
use crate::state::LoaderState;
use ddlp_csd::program::CorruptPolicy;
use ddlp_dataset::Kind;
use ddlp_driver::Host;
use ddlp_pixels::{DType, ImageLayout, Limits, Normalize, Pipeline};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Most threads of the CPU prong, and of a drive that the loader starts.
pub(crate) const THREADS_MAX: u64 = 1024;
/// Most batch buffers.
pub const BUFFERS_MAX: u16 = 4096;
/// Most bundles of a shuffle window.
const WINDOW_MAX: u64 = 4096;
/// Most batches that one drive has in work.
const DEPTH_MAX: u64 = 32;
/// Most classes of mixed labels. Each label has a number for each class.
const CLASSES_MAX: u64 = 1 << 20;
/// Most copies of a sample.
const COPIES_MAX: u64 = 256;
/// Most samples in flight.
const FETCH_DEPTH_MAX: u64 = 16_384;
/// Least and most bytes of samples that are fetched ahead.
const FETCH_MEMORY: (u64, u64) = (1 << 20, 1 << 40);
/// Least and most bytes of a cache.
const CACHE_LIMIT: (u64, u64) = (16 << 20, 1 << 50);
const U32_MAX: u64 = u32::MAX as u64;

/// Refuses an empty name.
fn named(name: &str) -> Result<(), String> {
    if name.is_empty() { Err("it is empty".to_owned()) } else { Ok(()) }
}

/// Returns whether a number is a time above 0.
fn is_time(seconds: f64) -> bool {
    Duration::try_from_secs_f64(seconds).is_ok_and(|time| !time.is_zero())
}

/// Returns whether a number can be α of a Beta distribution, or 0.
fn is_alpha(alpha: f64) -> bool {
    alpha >= 0.0 && alpha.is_finite()
}

const SECONDS: Values = Values::Number("a number of seconds above 0", is_time);
const ALPHA: Values = Values::Number("a finite number of 0 or more", is_alpha);

options! {
    /// The options of a loader, as a command, a TOML file or another language fills them. Each has a default, except
    /// the dataset.
    ///
    /// Names are written in lower case: `strategy = "ordered"`, `policy = "skip"`, `last = "drop"`, `dtype =
    /// "float32"`; a layout is written in capitals: `layout = "NCHW"`. Documentation of an option names the others as
    /// they are written there.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct LoaderOptions

    Job {
        /// Path of a pack, an image folder, CIFAR-10's binary files, tar shards, a list of files (.csv), or a mix of
        /// these (.toml); the URL of a dataset (s3, gs, az, https, http, redis, rediss, redis+sentinel,
        /// rediss+sentinel, cql or cqls); or the address of a drive that holds a pack. That drive then also prepares
        /// batches, unless the strategy is "cpu" or `drives` names others.
        dataset: Option<PathBuf> = None, "none, it must be given"
            => values(Path("a path, the URL of a pack, or the address of a drive"))
            .python("\
                str | os.PathLike[str] | _samples.Samples | _arrow.ArrowTable | _mix.Mix | _dataset.Dataset | \
                Sequence[tuple[Any, Any]]")
            .python_doc("\
                Path of a pack, an image folder, CIFAR-10's binary files, tar shards or a list of files (.csv); the \
                URL of a dataset (s3, gs, az, https, http, redis, rediss, redis+sentinel, rediss+sentinel, cql or \
                cqls); the address of a drive that holds a pack; an object whose items are pairs of an image and a \
                label, such as a dataset of torchvision; a list of pairs of path and label; or a table in Arrow memory \
                (ArrowTable, a table of pyarrow or polars, a dataset of Hugging Face). The CPU alone prepares objects, \
                lists and tables. A ddlp.Mix, or a file (.toml) that describes one, has several of these. A \
                ddlp.Dataset is what it was made of.")
            .python_default("").taken(ByLoader);
        /// Kind of the dataset, for a folder that could be datasets of two kinds, such as one of tar shards and images.
        kind: Option<Kind> = None, "as the path and its contents say" => names(&[
            ("folder", ""), ("list", ""), ("tar", ""), ("cifar", ""), ("pack", ""), ("mix", ""),
        ]).flag("KIND").python("str | None");
        /// Column of the images in a table of Cassandra or ScyllaDB that others made, and whose URL is the dataset
        /// (cql://HOST/KEYSPACE/TABLE). The CPU alone prepares such a table.
        data_column: Option<String> = None, "none, the dataset is no such table" =>
            values(Text("the name of a column", named)).flag("COLUMN");
        /// Column of the labels in the table whose images are in `data_column`: whole numbers, or names of classes.
        label_column: Option<String> = None, "none, if the table has no further columns" =>
            values(Text("the name of a column", named)).flag("COLUMN");
        /// Table of the labels, in the same keyspace and with the same key, if they are not in the table of the images.
        metadata_table: Option<String> = None, "the table of the images" =>
            values(Text("the name of a table", named)).flag("TABLE");
        /// File of fields beside the dataset: a table of comma-separated values, whose first column names each sample,
        /// with or without its extension, and whose other columns are fields of every batch; a text (.txt) with the
        /// label of each sample in a line; or tar shards with numbers in .json members. Labels in it take the place of
        /// those of the dataset. [`SampleFields::read`](ddlp_dataset::SampleFields::read) has the rules.
        fields: Option<PathBuf> = None, "none" => values(Path("the path of a file of fields"))
            .flag("FILE").flag_doc("\
                File of labels or other fields beside the dataset. A text (.txt) has the label of each sample, one a \
                line, in the order of the dataset: numbers or names of classes, or \
                ILSVRC2012_validation_ground_truth.txt beside the development kit's meta.mat. Tar shards, such as the \
                dataset itself, have numbers in .json members beside the images. Any other file is a table of \
                comma-separated values: its first line names the columns, its first column the sample (as ddlp \
                inspect does, with or without the extension); each other column is a field of every batch. The labels \
                are in the column label, or PredictionString of Kaggle's ImageNet; the column labels has any number \
                of them, such as \"cat dog\".")
            .python("Mapping[str, Any] | _fields.ArrowStream | str | os.PathLike[str] | None")
            .python_doc("\
                More fields of each sample: a mapping of names to arrays, whose item `i` belongs to sample `i` of the \
                dataset (of int64, float32, float16 or uint8, of any shape); a table of pyarrow, polars or pandas, \
                whose first column names the sample and whose other columns are fields; or the path of a file: such a \
                table as comma-separated values or Parquet (.parquet), a text (.txt) with the label of each sample in \
                a line, or tar shards with numbers in .json members. Batches are then dicts. A field named \"label\" \
                takes the place of the dataset's labels.")
            .python_default("").taken(By("_fields.path_of"));
        /// Names of the classes: a label is an index into them. They number the classes of the dataset and of labels in
        /// `fields`, so that a class has the same number in every dataset, also in one that lacks some of the classes.
        /// A class that is not among them is an error.
        class_names: Vec<String> = Vec::new(), "each dataset numbers its own" =>
            values(Other("a list of the names of all classes"))
            .in_states().not_in_python()
            .flag("FILE").flag_name("classes").flag_doc("\
                File with the names of all classes, one a line, that number the labels of DATASET and `fields`: so a \
                class has the same label in every dataset, also in one that lacks some of the classes. A class that \
                is not in FILE is an error.");
        /// Number of classes of mixed labels.
        classes: Option<u32> = None, "that of the dataset" => whole(1, CLASSES_MAX)
            .python("int | Sequence[str] | None")
            .python_doc("\
                Names of all classes; a label is an index into them. They number the classes of the dataset and of \
                labels in `fields`, so that a class has the same label in every dataset, also in one that lacks some \
                of the classes, such as a list of files for validation. A class that is not among them is an error. \
                Or the number of classes of mixed labels.")
            .python_default("each dataset numbers its own").taken(ByLoader);
        /// Pipeline that prepares every sample.
        pipeline: Pipeline = Pipeline::imagenet_train(), "ImageNet training at 224 × 224" => values(Structure)
            .recorded()
            .flag("NAME|FILE").repeats().flag_default("imagenet-train").flag_doc("\
                Pipeline for each sample: imagenet-train, imagenet-val, cifar-train, or a TOML file. If repeated, each \
                batch has samples of one bucket: those that go through one of the pipelines, whose images have the \
                nearest aspect ratio and size.")
            .python("_phases.Pipelines | Mapping[int, _phases.Pipelines] | None")
            .python_value("None").python_doc("\
                What is done to every sample: a Pipeline, a transform of torchvision or timm, the name of a \
                built-in pipeline, or a TOML file. A list has a pipeline for each bucket: each makes images of another \
                size, and a batch has images of one size. A sample belongs to the pipeline whose images have the \
                nearest aspect ratio; among several of these, to the one with the largest images that have no more \
                pixels than the sample. A dict maps an epoch to what applies from that epoch on, such as \
                ``{0: ddlp.imagenet_train(128), 30: ddlp.imagenet_train(224)}``.")
            .python_default("the transform of a dataset of torchvision, if it has one, else ddlp.imagenet_train(224)")
            .taken(ByLoader);
        /// Pipelines of buckets, in place of `pipeline`, at most 32. Each makes images of another size. A batch has
        /// samples of one bucket. A sample belongs to the bucket whose images have the nearest aspect ratio; among
        /// several of these, to the one with the largest images that have no more pixels than the sample. The loader
        /// reads the sizes of all images when it starts, unless the dataset is a pack, which knows them.
        buckets: Vec<Pipeline> = Vec::new(), "none, one pipeline for all samples" => values(Structure)
            .recorded().not_in_python();
        /// How exactly images are read of a pack of pieces (`ddlp pack --format pcr`): the number of the last scan
        /// group that is read, from 1 to 10. 10 reads everything. Numbers by epoch, such as "0:2,30:10", hold from that
        /// epoch on.
        fidelity: Fidelities = Fidelities::default(), "10, everything" =>
            values(Text(r#"a number from 1 to 10, or numbers by epoch such as "0:2,30:10""#, |text| {
                text.parse::<Fidelities>().map(drop)
            }))
            .recorded().flag("N|EPOCH:N,…")
            .python("int | Mapping[int, int] | Callable[[int], int]").python_value("10").python_doc("\
                How exactly images are read of a pack of pieces (``ddlp pack --format pcr``): the number of the last \
                scan group that is read. 10 reads everything. A dict maps an epoch to the number that holds from that \
                epoch on, such as ``{0: 2, 30: 10}``. Or a function that returns the number of an epoch, \
                ``fidelity(epoch)``: the loader calls it once for each epoch, when the first batch of the epoch before \
                is asked for.")
            .taken(By("_fidelity.text_of"));
        /// Samples of a global batch, of all ranks together.
        batch_size: usize = 256 => whole(1, ddlp_csd::BATCH_SAMPLES_MAX as u64)
            .recorded().flag("N").flag_alias("batch");
        /// Number of epochs.
        epochs: u32 = 1 => whole(1, U32_MAX).recorded()
            .flag("N").flag_doc("Number of epochs, including those before --resume; they are numbered from 0.")
            .python("int | None").python_value("None").python_default("no limit").taken(ByLoader);
        /// Order of delivery, and the prongs that take part.
        #[serde(with = "lower_case")]
        strategy: Strategy = Strategy::default(), "ordered" => names(&[
            ("ordered", "Batches 0, 1, 2, …, whichever prong prepares them"),
            ("mte", "Batches from the head of the epoch by the CPU, then from its tail by drives"),
            ("wrr", "From any prong that is ready, weighted by rate"),
            ("cpu", "From the CPU alone"),
            ("csd", "From drives alone"),
        ]).recorded().flag("NAME");
        /// Seed of the order and of all draws.
        seed: u64 = 0 => whole(0, u64::MAX).recorded().flag("S");
        /// Whether each epoch is a new permutation of the samples. Otherwise they come in the order of the dataset, as
        /// for validation.
        shuffle: bool = true => values(Switch).recorded().flag("").flag_name("no-shuffle").flag_doc("\
            Deliver the samples of each epoch in the order of the dataset instead of a shuffled one.");
        /// Number of bundles from which the samples of a shuffled epoch come at a time, so that a pack is read almost
        /// in sequence, as slow disks need it. A bundle is that of a pack of pieces, else 1024 samples that lie side by
        /// side. Use it for packs whose neighbours are of different classes: batches have samples of a few bundles. At
        /// most `batch_size`, and best a multiple of `world_size`.
        shuffle_window: Option<usize> = None, "all samples are shuffled together" => whole(1, WINDOW_MAX)
            .recorded().flag("N");
        /// Treatment of corrupt samples, which do not give an image or which the disk fails to read. A sample whose
        /// file is missing, has changed or is out of reach is not corrupt: it always ends the run.
        #[serde(with = "lower_case")]
        policy: CorruptPolicy = CorruptPolicy::Fail, "fail" => names(&[
            ("fail", "End the run with an error that names the sample"),
            ("skip", "Leave the sample out and count it"),
            ("replace", "Replace the sample with the next one that is not corrupt"),
        ]).recorded().flag("POLICY");
        /// Limit on the distinct samples of an epoch that `policy="skip"` or `policy="replace"` passes over: a number
        /// of samples, of all ranks together, or a share of each rank's samples, such as 1%. When more are corrupt, the
        /// run ends with an error. A dataset that has disappeared or changed always ends it.
        max_corrupt: MaxCorrupt = MaxCorrupt::Default, "16 or 1 %, whichever is larger" =>
            values(Text(r#"a number of samples, or a share of the epoch such as "1%""#, |text| {
                text.parse::<MaxCorrupt>().map(drop)
            }))
            .flag("N|PERCENT%").python("int | str | None").python_value("None").taken(By("_options.limit_of"));
        /// Limits on what decoding one sample may cost.
        limits: Limits = Limits::default() => values(Structure).not_in_python();
        /// Treatment of an epoch's last batch if the samples do not fill it. A short batch has a sample for each rank:
        /// if fewer are left, the first ones of the epoch are added.
        #[serde(with = "lower_case")]
        last: LastBatch = LastBatch::Short, "short" => names(&[
            ("short", "Deliver it with the samples that are left"),
            ("drop", "Leave it out"),
            ("pad", "Fill it with samples from the beginning of the epoch"),
        ]).recorded().flag("LAST");
        /// Samples of an epoch: the dataset is repeated or cut to this number. Of a mix, each epoch takes this many
        /// samples, from where the epoch before stopped.
        epoch_samples: Option<u64> = None, "as many as the dataset has" => whole(1, U32_MAX)
            .recorded().flag("N").flag_alias("samples");
        /// File with the indices of an epoch's samples: whole numbers, one a line, or an array of NumPy (.npy) of int64
        /// or int32. Samples are numbered from 0, in the order of the dataset. An index that occurs several times has
        /// draws of its own each time.
        indices: Option<PathBuf> = None, "all samples" => values(Path("the path of a file of indices"))
            .flag("FILE")
            .python("Sequence[int] | Callable[[int], Any] | str | os.PathLike[str] | Any | None")
            .python_doc("\
                The samples of an epoch: a list or array of whole numbers, such as a part of `ddlp.split`, or the path \
                of a file of them (.npy, or a text with a number in each line). An index that occurs several times has \
                random choices of its own each time. Or a function that returns those of an epoch, as many for each: \
                ``indices(epoch)``. It must return the same for the same epoch, and may be called three epochs ahead. \
                With ``shuffle=False``, samples come in this order. A state knows the indices, and a function by those \
                of epoch 0.")
            .taken(By("_choice.file_of"));
        /// Part of a split whose samples an epoch has: the file that `ddlp split` wrote, a colon, and the part's name.
        /// States and plans record the split's identity. A split of another dataset is refused.
        split: Option<String> = None, "all samples" =>
            values(Text("a file and the name of a part, such as \"splits.json:train\"", |text| {
                part_of(text).map(drop)
            }))
            .flag("FILE:PART").python("str | None").taken(By("_choice.part_of"));
        /// How many times in succession each sample of an epoch occurs, with draws of its own each time; several ranks
        /// take turns at them, as by torchvision's RASampler. An epoch is as long as without `repeats`, and so has
        /// fewer different samples.
        repeats: u32 = 1 => whole(1, COPIES_MAX).recorded().flag("N");
        /// Draws of each sample in its batch, for contrastive learning. A rank's rows are the first draws of all
        /// samples, then the second ones, and so on. `batch_size` and `epoch_samples` count each sample once.
        views: u32 = 1 => whole(1, COPIES_MAX).recorded().flag("N")
            .python_doc("\
                Random versions of each image in its batch. With ``views=2``, the images of a batch are a list of two \
                arrays, one of the first versions and one of the second ones; labels, other fields and ids come once. \
                `batch_size` and `epoch_samples` count each sample once.");
    }

    Batches {
        /// Type of the images' elements: uint8 has the pixels as prepared. The threads of the CPU prong make floats of
        /// each sample while it is in the core's cache; the thread of a drive makes them of that drive's batches.
        dtype: DType = DType::U8, "uint8" => names(&[("uint8", ""), ("float16", ""), ("bfloat16", ""), ("float32", "")])
            .python_value("\"float32\"").python_doc("Type of the images' elements.");
        /// Order of the images' dimensions. uint8 always lies in memory as NHWC; under NCHW it is a view with strides,
        /// as floats are under channels_last.
        layout: ImageLayout = ImageLayout::Nhwc, "NHWC" =>
            names(&[("NCHW", ""), ("NHWC", ""), ("channels_last", "")]).python_value("\"NCHW\"");
        /// Mean and standard deviation of the three channels by which floats are normalised: (v / 255 - mean) / std.
        normalize: Option<Normalize> = None, "none, floats from 0 to 1" =>
            values(Other("mean and standard deviation of the three channels, such as ddlp.IMAGENET"))
            .python("_phases.Normalize | None").taken(ByLoader).python_default("floats from 0 to 1").python_doc("\
                Mean and standard deviation of the three channels, such as ddlp.IMAGENET: values are \
                ``(v / 255 - mean) / std``.");
        /// MixUp: alpha of the distribution Beta(alpha, alpha) of the weights by which images and labels are mixed in
        /// pairs, as by torchvision's MixUp: each row with the row before it in this rank's share of the batch. Labels
        /// are then float32, one number for each class. With `cutmix` too, each batch gets one of the two, with equal
        /// probability. 0 turns MixUp off.
        mixup: f64 = 0.0 => values(ALPHA);
        /// CutMix: alpha of the distribution of the share that an image keeps when a rectangle of another one covers
        /// it, as by torchvision's CutMix. 0 turns CutMix off.
        cutmix: f64 = 0.0 => values(ALPHA);
        /// Probability with which a batch is mixed, by MixUp or CutMix.
        mix_probability: f64 = 1.0 =>
            values(Number("a number from 0 to 1", |share| (0.0..=1.0).contains(&share)));
    }

    Drives {
        /// Drives. An empty list is a run without drives.
        drives: Option<Vec<DriveSpec>> = None,
            "the drive that holds the dataset, if `dataset` is the address of one; otherwise none" =>
            values(Other("a list of drives"))
            .flag("DRIVE").flag_name("drive").repeats().flag_doc("\
                A drive: local (started here), tcp://HOST:PORT/NQN, /dev/nvmeX (a drive that the kernel is connected \
                to: see ddlp devices), auto (the only drive that the kernel is connected to), or none; repeatable.")
            .flag_default("the drive that DATASET names, else local; none with --strategy cpu")
            .python("_drives.Drive | Sequence[_drives.Drive] | None").taken(By("_drives.described")).python_doc("\
                \"local\" (a drive that the loader starts on this machine), \"auto\" (the drive that the kernel is \
                connected to), an address, or a list of drives; an empty list is a run without drives.");
        /// Batches that one drive has in work at a time.
        drive_depth: Option<usize> = None, "2, and up to 16 over a long path" => whole(1, DEPTH_MAX);
        /// Seconds that a drive may take for a batch before it counts as lost; the run then tries to reconnect. A slow
        /// drive may take ten times as long as its rate predicts for its queued batches, if that is longer.
        #[serde(rename = "drive_timeout_s", with = "seconds")]
        drive_timeout: Duration = Duration::from_secs(30), "30 s" => values(SECONDS)
            .named("drive_timeout_s").flag("S").flag_name("drive-timeout").flag_default("30");
        /// Whether a run may begin without its drives at tcp:// addresses. A drive that cannot be reached joins as soon
        /// as it can; a drive that refuses this host or does not fit still ends the run.
        drive_optional: bool = false => values(Switch).flag("").flag_default("the run ends").flag_doc("\
            Begin even if a drive's tcp:// address cannot be reached; the drive joins as soon as it can be reached. A \
            drive that refuses this host or does not fit still ends the run.");
        /// NQN by which this machine is known to drives at tcp:// addresses, as in their lists of allowed hosts.
        host_nqn: Option<String> = None,
            "that of /etc/nvme/hostnqn, else one that DDLP makes once and keeps (`ddlp devices` prints it)" =>
            values(Text("an NQN", |nqn| Host::named(nqn).map(drop).map_err(|error| error.to_string()))).flag("NQN");
    }

    Host {
        /// Threads of the CPU prong.
        threads: Option<usize> = None,
            "the usable cores (`cores`), divided among the processes of this machine; half of them with a local drive"
            =>
            whole(1, THREADS_MAX).flag("N");
        /// Cores that the loader's threads may use.
        cores: Vec<usize> = Vec::new(), "any core" => values(Cores)
            .flag("LIST").flag_doc("Cores to which the CPU prong is pinned, such as 0-1.")
            .python("Sequence[int]").taken(By("_drives.cores_of"));
        /// Processes of this machine that run a loader, among which the cores are divided unless `threads` or `cores`
        /// say otherwise.
        local_world_size: u32 = 1 => whole(1, U32_MAX).not_in_python();
        /// Batch buffers on the host: they bound how far the CPU prepares ahead, and how many batches the consumer can
        /// keep.
        buffers: usize = 6 => whole(2, BUFFERS_MAX as u64).flag("N");
        /// Which batch gets a sample that comes from a store. Out of order, a late sample delays no batch but the last
        /// one of an epoch; which samples a batch has then depends on when they come, so a run cannot be repeated. Only
        /// for runs without drives, plans to replay and `views`.
        fetch: FetchOrder = FetchOrder::InOrder, "in-order" => names(&[
            ("in-order", "The batch that asked for it, so that batches have the same samples each time"),
            ("out-of-order", "The oldest batch that waits for a sample"),
        ]).flag("ORDER");
        /// Samples of a dataset in a store that are asked for at the same time.
        fetch_depth: Option<usize> = None, "as many as its latency and rate need" => whole(1, FETCH_DEPTH_MAX)
            .flag("N");
        /// Memory in bytes for samples of a dataset in a store that are asked for or wait to be prepared. The batch
        /// that is due next, and one that has begun, may each take as much again.
        fetch_memory: u64 = 128 << 20, "134217728" => whole(FETCH_MEMORY.0, FETCH_MEMORY.1).flag("BYTES");
        /// Slow start over a store: the samples of one batch are asked for at first, and those of one more for each
        /// `ramp_up` batches that are delivered.
        ramp_up: u32 = 0, "0, no slow start" => whole(0, U32_MAX).flag("S");
        /// Asks a store a second time for a sample that takes longer than this share of all answers, in percent, and
        /// takes what comes first. At most the rest of the samples in flight are asked for twice.
        fetch_hedge: Option<u32> = None, "each sample is asked for once" => whole(50, 99).flag("PERCENT");
        /// Folder on a disk of this machine in which bytes of the dataset are cached, if the dataset comes over a
        /// network: what was read once is not asked for again, in later epochs, by later runs and by other processes.
        /// Several datasets and processes may share the folder. A dataset in files has no use for it.
        cache: Option<PathBuf> = None, "no cache" => values(Path("the path of a folder"))
            .flag("FOLDER").python("str | os.PathLike[str] | None").taken(By("_options.folder_of"));
        /// Most bytes that the folder of `cache` may take. When it is full, datasets that no process has open make
        /// room; bytes for which there is no room are not cached.
        cache_limit: Option<u64> = None, "all but a twentieth of the disk" => whole(CACHE_LIMIT.0, CACHE_LIMIT.1)
            .flag("BYTES");
        /// Look-ahead of the strategy "ordered" in batches.
        window: Option<usize> = None, "as many as buffers and slots can hold" => whole(1, U32_MAX).flag("N");
    }

    Ranks {
        /// Number of this process, from 0. Each rank gets its share of every global batch.
        rank: u32 = 0 => whole(0, U32_MAX).in_plans().flag("R").python("int | None").python_value("None")
            .python_default("that of torch.distributed if it is initialised, else RANK, else 0").taken(ByLoader);
        /// Number of processes that train together, each one a rank.
        world_size: u32 = 1 => whole(1, U32_MAX).in_plans().flag("W").python("int | None").python_value("None")
            .python_default("as for `rank`, from WORLD_SIZE, else 1").taken(ByLoader);
        /// State of an earlier run, from which this run resumes.
        resume: Option<LoaderState> = None, "none" => values(Structure).not_in_python();
        /// Plan of an earlier run, which this run replays.
        replay: Option<Plan> = None, "none" => values(Structure).not_in_python();
    }

    Output {
        /// Seconds without a batch after which the report says what the loader waits for.
        #[serde(rename = "stall_after_s", with = "seconds")]
        stall_after: Duration = Duration::from_secs(10), "10 s" =>
            values(SECONDS).named("stall_after_s");
        /// Address, such as 127.0.0.1:9464, at which the run's figures can be read over HTTP, as Prometheus reads them;
        /// port 0 takes a free port. Whoever can reach the address can read them.
        metrics: Option<SocketAddr> = None, "none" =>
            values(Text("an address, such as \"127.0.0.1:9464\"", |text| {
                text.parse::<SocketAddr>().map(drop).map_err(|error| error.to_string())
            }))
            .flag("ADDR:PORT");
    }
}
