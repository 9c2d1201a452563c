//! The options of a loader as plain data, and their defaults. `allowed`: the values that they may have, in words.
//! `pipelines`: the pipelines, and the checks of several.

mod allowed;
mod pipelines;

use crate::drive::DriveSpec;
use crate::error::LoaderError;
use crate::max_corrupt::MaxCorrupt;
use crate::opening::drive_address;
use crate::order::LastBatch;
use crate::plan::Plan;
use crate::schedule::Strategy;
use crate::state::LoaderState;
pub use allowed::BUFFERS_MAX;
use allowed::{check_range, refused};
use ddlp_csd::program::CorruptPolicy;
use ddlp_driver::{Host, Target};
use ddlp_pixels::{DType, ImageLayout, Limits, Normalize, Pipeline};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Most drives.
const DRIVES_MAX: usize = 64;

/// The options of a loader, as a command, a TOML file or another language fills them. Each has a default, except the
/// dataset.
///
/// Names are written in lower case: `strategy = "ordered"`, `policy = "skip"`, `last = "drop"`, `dtype = "float32"`; a
/// layout is written in capitals: `layout = "NCHW"`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct LoaderOptions {
    /// Path of the dataset: a pack, an image folder, CIFAR-10's binary files, tar shards, a list of files, or a mix
    /// of these; or the address of a drive that holds a pack.
    pub dataset: Option<PathBuf>,
    /// File of fields beside the dataset: a table of comma-separated values, whose first column names each sample, with
    /// or without its extension, and whose other columns are fields of every batch; a text (`.txt`) with the label of
    /// each sample in a line; or tar shards with numbers in `.json` members. Labels in it take the place of those of
    /// the dataset.
    /// [`SampleFields::read`](ddlp_dataset::SampleFields::read) has the rules. Default: none.
    pub fields: Option<PathBuf>,
    /// Pipeline that prepares every sample. Default: ImageNet training at 224 × 224.
    pub pipeline: Pipeline,
    /// Pipelines of buckets, in place of [`pipeline`](Self::pipeline), at most 32. Each makes images of another size.
    /// A batch has samples of one bucket. A sample belongs to the bucket whose images have the nearest aspect ratio;
    /// among several of these, to the one with the largest images that have no more pixels than the sample. The loader
    /// reads the sizes of all images when it starts, unless the dataset is a pack, which knows them. Default: none, one
    /// pipeline for all samples.
    pub buckets: Vec<Pipeline>,
    /// Type of the images' elements: uint8, float16, bfloat16 or float32. Default uint8, the pixels as prepared.
    pub dtype: DType,
    /// Order of the images' dimensions. Default NHWC. Images of uint8 always lie in memory as NHWC; under NCHW they are
    /// a view with strides, as floats are under channels_last.
    pub layout: ImageLayout,
    /// Mean and standard deviation by which floats are normalised. Default: none, floats from 0 to 1.
    pub normalize: Option<Normalize>,
    /// MixUp: α of the distribution Beta(α, α) of the weights by which two images and their labels are mixed. With
    /// [`cutmix`](Self::cutmix) too, each batch gets one of the two. Labels are then float32, one number for each
    /// class. Default 0: none.
    pub mixup: f64,
    /// CutMix: α of the distribution of the share that an image keeps when a rectangle of another one covers it.
    /// Default 0: none.
    pub cutmix: f64,
    /// Share of the batches to which MixUp or CutMix is done, from 0 to 1. Default 1.
    pub mix_probability: f64,
    /// Number of classes of mixed labels. Default: that of the dataset.
    pub classes: Option<u32>,
    /// Names of the classes: a label is an index into them. They number the classes of the dataset and of labels from a
    /// file, so that a class has the same number in every dataset, also in one that lacks some of the classes. A class
    /// that is not among them is an error. Default: none, each dataset numbers its own.
    pub class_names: Vec<String>,
    /// Samples of a global batch (of all ranks together). Default 256.
    pub batch_size: usize,
    /// Number of epochs. Default 1.
    pub epochs: u32,
    /// Order of delivery, and the prongs that take part. Default [`Strategy::Ordered`].
    #[serde(with = "lower_case")]
    pub strategy: Strategy,
    /// Drives. An empty list is a run without drives. Default: the drive that holds the dataset, if
    /// [`dataset`](Self::dataset) is the address of one; otherwise none.
    pub drives: Option<Vec<DriveSpec>>,
    /// Batches that one drive has in work at a time. Default 2.
    pub drive_depth: usize,
    /// Time that a drive may take for a batch, in seconds where options are written. Default 30 s.
    #[serde(rename = "drive_timeout_s", with = "seconds")]
    pub drive_timeout: Duration,
    /// Whether a run begins without its drives at `tcp://` addresses if they cannot be reached. Default `false`.
    pub drive_optional: bool,
    /// NQN by which this machine is known to drives at `tcp://` addresses. Default: that of [`Host::system`].
    pub host_nqn: Option<String>,
    /// Threads of the CPU prong. Default: see [`LoaderBuilder::threads`](crate::LoaderBuilder::threads).
    pub threads: Option<usize>,
    /// Cores that the loader's threads may use. Default: any core.
    pub cores: Vec<usize>,
    /// Processes of this machine that run a loader, among which the cores are divided unless [`threads`](Self::threads)
    /// or [`cores`](Self::cores) say otherwise. Default 1.
    pub local_world_size: u32,
    /// Seed of the order and of all draws. Default 0.
    pub seed: u64,
    /// Whether each epoch's samples are shuffled. Default `true`; otherwise they come in the order of the dataset.
    pub shuffle: bool,
    /// Treatment of corrupt samples. Default [`CorruptPolicy::Fail`].
    #[serde(with = "lower_case")]
    pub policy: CorruptPolicy,
    /// Limit on the corrupt samples of an epoch.
    pub max_corrupt: MaxCorrupt,
    /// Limits on what decoding one sample may cost.
    pub limits: Limits,
    /// Treatment of the last batch of an epoch. Default [`LastBatch::Short`].
    #[serde(with = "lower_case")]
    pub last: LastBatch,
    /// This rank. Default 0.
    pub rank: u32,
    /// Number of ranks. Default 1.
    pub world_size: u32,
    /// Batch buffers. Default 6.
    pub buffers: usize,
    /// Look-ahead of the strategy `ordered` in batches. Default: as many as buffers and slots can hold.
    pub window: Option<usize>,
    /// Samples of an epoch: the dataset is repeated or cut to this number. Of a mix, each epoch takes this many
    /// samples, from where the one before stopped. Default: the number of samples in the dataset.
    pub epoch_samples: Option<u64>,
    /// Time after which the loader reports what it is waiting for, in seconds where options are written. Default 10 s.
    #[serde(rename = "stall_after_s", with = "seconds")]
    pub stall_after: Duration,
    /// Address at which the run's figures can be read over HTTP, as Prometheus reads them. Default: none.
    pub metrics: Option<SocketAddr>,
    /// State of an earlier run, from which this run resumes. Default: none.
    pub resume: Option<LoaderState>,
    /// Plan of an earlier run, which this run replays. Default: none.
    pub replay: Option<Plan>,
}

impl Default for LoaderOptions {
    fn default() -> Self {
        Self {
            dataset: None,
            fields: None,
            pipeline: Pipeline::imagenet_train(),
            buckets: Vec::new(),
            dtype: DType::default(),
            layout: ImageLayout::default(),
            normalize: None,
            mixup: 0.0,
            cutmix: 0.0,
            mix_probability: 1.0,
            classes: None,
            class_names: Vec::new(),
            batch_size: 256,
            epochs: 1,
            strategy: Strategy::default(),
            drives: None,
            drive_depth: 2,
            drive_timeout: Duration::from_secs(30),
            drive_optional: false,
            host_nqn: None,
            threads: None,
            cores: Vec::new(),
            local_world_size: 1,
            seed: 0,
            shuffle: true,
            policy: CorruptPolicy::Fail,
            max_corrupt: MaxCorrupt::default(),
            limits: Limits::default(),
            last: LastBatch::Short,
            rank: 0,
            world_size: 1,
            buffers: 6,
            window: None,
            epoch_samples: None,
            stall_after: Duration::from_secs(10),
            metrics: None,
            resume: None,
            replay: None,
        }
    }
}

impl LoaderOptions {
    /// Checks the options that can be checked without the dataset and the drives.
    ///
    /// # Errors
    ///
    /// [`LoaderError::Options`] names the option and the values that it may have; [`LoaderError::Pipeline`] says what
    /// is wrong in a pipeline.
    pub fn check(&self) -> Result<(), LoaderError> {
        check_range("batch_size", self.batch_size as u64)?;
        check_range("threads", self.threads.unwrap_or(1) as u64)?;
        check_range("buffers", self.buffers as u64)?;
        check_range("drive_depth", self.drive_depth as u64)?;
        check_range("epochs", self.epochs.into())?;
        check_range("epoch_samples", self.epoch_samples.unwrap_or(1))?;
        check_range("local_world_size", self.local_world_size.into())?;
        check_range("world_size", self.world_size.into())?;
        check_range("window", self.window.unwrap_or(1) as u64)?;
        check_range("classes", self.classes.unwrap_or(1).into())?;
        for (name, time) in [("drive_timeout_s", self.drive_timeout), ("stall_after_s", self.stall_after)] {
            if time.is_zero() {
                return Err(refused(name, &0));
            }
        }
        for (name, alpha) in [("mixup", self.mixup), ("cutmix", self.cutmix)] {
            if !(alpha >= 0.0 && alpha.is_finite()) {
                return Err(refused(name, &alpha));
            }
        }
        if !(0.0..=1.0).contains(&self.mix_probability) {
            return Err(refused("mix_probability", &self.mix_probability));
        }
        let named = self.drives.as_deref().unwrap_or_default();
        if named.len() > DRIVES_MAX {
            let drives = named.len();
            return Err(LoaderError::Options(format!("{drives} drives are given, but {DRIVES_MAX} are possible")));
        }
        if let MaxCorrupt::Percent(percent) = self.max_corrupt
            && !(0.0..=100.0).contains(&percent)
        {
            return Err(LoaderError::Options(format!("`max_corrupt` is {percent} %, but must be 0 to 100")));
        }
        if self.rank >= self.world_size {
            let (rank, world) = (self.rank, self.world_size);
            return Err(LoaderError::Options(format!(
                "`rank` is {rank}, but must be less than {world}, the `world_size`"
            )));
        }
        if self.batch_size < self.world_size as usize {
            let (batch, world) = (self.batch_size, self.world_size);
            return Err(LoaderError::Options(format!(
                "a batch of {batch} samples leaves some of {world} ranks without a sample: use a `batch_size` of at \
                 least {world}"
            )));
        }
        self.check_images()?;
        self.shapes()?;
        for (at, drive) in named.iter().enumerate() {
            if let DriveSpec::Remote(address) = drive
                && named[..at].contains(drive)
            {
                return Err(LoaderError::Options(format!("drive {address} is named twice")));
            }
            if let DriveSpec::Remote(address) = drive
                && let Err(error) = Target::parse(address)
            {
                return Err(LoaderError::Options(format!(
                    "`drives`: {error}; a drive is \"local\", \"auto\", /dev/nvmeX or tcp://HOST:PORT/NQN, and an \
                     empty list stands for no drive"
                )));
            }
        }
        let needs_drive = matches!(self.strategy, Strategy::Csd);
        if needs_drive && self.drives_taking_part().is_empty() {
            return Err(LoaderError::Options("`strategy=\"csd\"` needs a drive".into()));
        }
        for drive in named {
            if let DriveSpec::Local(local) = drive {
                check_range("threads", local.threads.unwrap_or(1) as u64)?;
                if !(local.throttle > 0.0 && local.throttle <= 1.0) {
                    return Err(refused("throttle", &local.throttle));
                }
                if self.dataset.is_none() {
                    let message = "a local drive opens the dataset itself: give the loader its path (`dataset`)";
                    return Err(LoaderError::Options(message.into()));
                }
                if let Some(address) = self.dataset_drive() {
                    return Err(LoaderError::Options(format!(
                        "a local drive reads the dataset's files on this machine, but the dataset lies on {address} \
                         alone: leave `drives` out, and that drive takes part"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Checks the options about the elements of images.
    fn check_images(&self) -> Result<(), LoaderError> {
        let Some(normalize) = &self.normalize else {
            return match self.dtype {
                DType::U8 | DType::F16 | DType::Bf16 | DType::F32 => Ok(()),
                dtype => Err(LoaderError::Options(format!(
                    "`dtype` is \"{dtype}\", but images are uint8, float16, bfloat16 or float32"
                ))),
            };
        };
        normalize.check().map_err(|error| LoaderError::Options(format!("`normalize`: {error}")))?;
        if self.dtype.is_float() {
            return Ok(());
        }
        Err(LoaderError::Options(format!(
            "`normalize` makes floats, but `dtype` is \"{}\": set `dtype` to float32, float16 or bfloat16, or leave \
             `normalize` out",
            self.dtype
        )))
    }

    /// Returns this machine as drives know it.
    ///
    /// # Errors
    ///
    /// [`LoaderError::Options`] if [`host_nqn`](Self::host_nqn) is not an NQN.
    pub fn host(&self) -> Result<Host, LoaderError> {
        let Some(nqn) = &self.host_nqn else { return Ok(Host::system()) };
        Host::named(nqn).map_err(|error| LoaderError::Options(format!("`host_nqn`: {error}")))
    }

    /// Returns the drives that take part: none under [`Strategy::Cpu`], otherwise those that [`drives`](Self::drives)
    /// names or, by default, the drive that holds the dataset.
    pub fn drives_taking_part(&self) -> Vec<DriveSpec> {
        match (&self.drives, self.strategy) {
            (_, Strategy::Cpu) => Vec::new(),
            (Some(named), _) => named.clone(),
            (None, _) => {
                self.dataset_drive().map(|address| DriveSpec::Remote(address.to_owned())).into_iter().collect()
            }
        }
    }

    /// Returns the address of the drive that holds the dataset, if the dataset does not lie in files.
    pub(crate) fn dataset_drive(&self) -> Option<&str> {
        self.dataset.as_deref().and_then(drive_address)
    }

    /// Returns the drives that take part, each with its name in messages.
    pub(crate) fn drives_by_name(&self) -> impl Iterator<Item = (String, DriveSpec)> {
        let taking_part = self.drives_taking_part();
        let many = taking_part.len() > 1;
        (1..).zip(taking_part).map(move |(number, spec)| {
            let name = match &spec {
                DriveSpec::Remote(address) => address.clone(),
                DriveSpec::Auto => "auto".to_string(),
                DriveSpec::Local(_) if many => format!("csd {number}"),
                DriveSpec::Local(_) => "csd".to_string(),
            };
            (name, spec)
        })
    }
}

/// Serde of names that are written in lower case.
mod lower_case {
    use serde::de::value::{Error, StrDeserializer};
    use serde::de::{DeserializeOwned, Error as _, IntoDeserializer};
    use serde::{Deserialize, Deserializer, Serializer};
    use std::fmt::Debug;

    pub fn serialize<T: Debug, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{value:?}").to_lowercase())
    }

    pub fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
        let mut name = String::deserialize(deserializer)?;
        if let Some(first) = name.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        let variant: StrDeserializer<'_, Error> = name.as_str().into_deserializer();
        T::deserialize(variant).map_err(|error| D::Error::custom(error.to_string().to_lowercase()))
    }
}

/// Serde of times in seconds.
mod seconds {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};
    use std::time::Duration;

    pub fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(time.as_secs_f64())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::{LocalDrive, LocalResults};

    #[test]
    fn options_are_what_they_were_after_a_round_trip() {
        let local = LocalDrive { results: LocalResults::File("slots".into()), ..LocalDrive::default() };
        let options = LoaderOptions {
            dataset: Some("photos.ddlp".into()),
            strategy: Strategy::Mte,
            policy: CorruptPolicy::Replace,
            last: LastBatch::Pad,
            max_corrupt: MaxCorrupt::Percent(2.5),
            drives: Some(vec![DriveSpec::Auto, DriveSpec::Remote("tcp://a:1/nqn.x".into()), DriveSpec::Local(local)]),
            drive_timeout: Duration::from_millis(1500),
            dtype: DType::Bf16,
            layout: ImageLayout::Nchw,
            normalize: Some(Normalize::IMAGENET),
            host_nqn: Some("nqn.2024-01.org.example:host".into()),
            replay: Some(Plan { batches: 3, ..Plan::default() }),
            ..LoaderOptions::default()
        };
        for options in [options, LoaderOptions::default()] {
            let text = serde_json::to_string(&options).unwrap();
            assert_eq!(serde_json::from_str::<LoaderOptions>(&text).unwrap(), options, "{text}");
        }
    }

    #[test]
    fn options_are_written_as_people_write_them() {
        let text = r#"{"dataset": "photos.ddlp", "strategy": "ordered", "policy": "skip", "last": "drop",
            "dtype": "float16", "layout": "NCHW", "normalize": {"mean": [0.5, 0.5, 0.5], "std": [1, 1, 0.25]},
            "max_corrupt": "17", "drive_timeout_s": 2.5, "drives": ["auto", {"remote": "/dev/nvme0"},
            {"local": {"threads": 2, "results": "read"}}]}"#;
        let options: LoaderOptions = serde_json::from_str(text).unwrap();
        let local = LocalDrive { threads: Some(2), results: LocalResults::Read, ..LocalDrive::default() };
        let expected = LoaderOptions {
            dataset: Some("photos.ddlp".into()),
            strategy: Strategy::Ordered,
            policy: CorruptPolicy::Skip,
            last: LastBatch::Drop,
            dtype: DType::F16,
            layout: ImageLayout::Nchw,
            normalize: Some(Normalize { mean: [0.5; 3], std: [1.0, 1.0, 0.25] }),
            max_corrupt: MaxCorrupt::Samples(17),
            drive_timeout: Duration::from_millis(2500),
            drives: Some(vec![DriveSpec::Auto, DriveSpec::Remote("/dev/nvme0".into()), DriveSpec::Local(local)]),
            ..LoaderOptions::default()
        };
        assert_eq!(options, expected);
    }

    #[test]
    fn misspelt_options_are_refused_by_name() {
        for (text, part) in [
            (r#"{"batchsize": 1}"#, "batchsize"),
            (r#"{"strategy": "fast"}"#, "fast"),
            (r#"{"dtype": "float64"}"#, "float64"),
            (r#"{"layout": "CHW"}"#, "NCHW"),
            (r#"{"normalize": {"mean": [0, 0, 0]}}"#, "std"),
            (r#"{"policy": ""}"#, "replace"),
            (r#"{"stall_after_s": -1}"#, "negative"),
            (r#"{"max_corrupt": "101%"}"#, "0% to 100%"),
            (r#"{"drives": [{"local": {"thread": 1}}]}"#, "thread"),
        ] {
            let error = serde_json::from_str::<LoaderOptions>(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn the_drive_that_holds_the_dataset_takes_part_unless_the_options_say_otherwise() {
        let auto = || vec![DriveSpec::Auto];
        for address in ["tcp://h:1/nqn.x", "/dev/nvme3"] {
            let holder = || vec![DriveSpec::Remote(address.into())];
            for (dataset, strategy, drives, expected) in [
                (address, Strategy::Ordered, None, holder()),
                (address, Strategy::Csd, None, holder()),
                (address, Strategy::Cpu, None, vec![]),
                (address, Strategy::Mte, Some(vec![]), vec![]),
                (address, Strategy::Mte, Some(auto()), auto()),
                (address, Strategy::Cpu, Some(auto()), vec![]),
                ("photos.ddlp", Strategy::Ordered, None, vec![]),
                ("photos.ddlp", Strategy::Ordered, Some(auto()), auto()),
            ] {
                let dataset = Some(dataset.into());
                let options = LoaderOptions { dataset, strategy, drives, ..LoaderOptions::default() };
                assert_eq!(options.drives_taking_part(), expected, "{options:?}");
                options.check().unwrap();
            }
            let local = Some(vec![DriveSpec::Local(LocalDrive::default())]);
            let options = LoaderOptions { dataset: Some(address.into()), drives: local, ..LoaderOptions::default() };
            let said = options.check().unwrap_err().to_string();
            assert!(said.contains(address) && said.contains("leave `drives` out"), "{said}");
        }
    }

    #[test]
    fn a_drive_that_is_no_address_is_a_wrong_option() {
        for drive in ["none", "usual", "tcp://h", "tcp://h:0/nqn.x", "/etc/nvme0"] {
            let options = LoaderOptions {
                dataset: Some("photos.ddlp".into()),
                drives: Some(vec![DriveSpec::Remote(drive.into())]),
                ..LoaderOptions::default()
            };
            let said = options.check().unwrap_err().to_string();
            assert!(said.contains("`drives`") && said.contains("\"auto\"") && said.contains("empty list"), "{said}");
        }
    }

    #[test]
    fn images_have_elements_that_their_options_can_give() {
        let with = |dtype, normalize| LoaderOptions { dtype, normalize, ..LoaderOptions::default() }.check();
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            with(dtype, None).unwrap();
            with(dtype, Some(Normalize::IMAGENET)).unwrap();
        }
        with(DType::U8, None).unwrap();
        let none = Normalize { std: [0.0; 3], ..Normalize::IMAGENET };
        for (dtype, normalize, part) in [
            (DType::U8, Some(Normalize::IMAGENET), "leave `normalize` out"),
            (DType::I64, None, "images are uint8"),
            (DType::F32, Some(none), "standard deviation"),
        ] {
            let error = with(dtype, normalize).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
