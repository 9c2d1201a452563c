//! The options of a loader as plain data.
//!
//! - `table`: the options. `definition`: what the table says about an option. `python`: the arguments of Python's
//!   loader, which follow from the table.
//! - `json`: reads options. `pipelines`: the pipelines, and the checks of several. `recorded`: options of earlier runs.

pub(crate) mod definition;
mod json;
mod pipelines;
#[cfg(test)]
mod python;
mod recorded;
mod table;

use crate::drive::DriveSpec;
use crate::error::LoaderError;
use crate::fetch::FetchOrder;
use crate::max_corrupt::MaxCorrupt;
use crate::opening::drive_address;
use crate::schedule::Strategy;
use ddlp_dataset::{OpenOptions, TableOptions};
use ddlp_driver::{Host, Target};
use ddlp_pixels::DType;
use ddlp_stores::CacheOptions;
pub use definition::{Flag, Group, OptionDef, Python, Recorded, Taken, Values};
pub(crate) use table::THREADS_MAX;
pub use table::{BUFFERS_MAX, LoaderOptions};

/// Most drives.
const DRIVES_MAX: usize = 64;

impl LoaderOptions {
    /// Returns how the dataset is to be opened.
    pub fn opening(&self) -> OpenOptions {
        let table = TableOptions {
            data_column: self.data_column.clone(),
            label_column: self.label_column.clone(),
            metadata_table: self.metadata_table.clone(),
        };
        OpenOptions { kind: self.kind, classes: self.class_names.clone(), table, ..OpenOptions::default() }
    }

    /// Returns where bytes of a dataset that comes over a network are to be cached.
    pub fn cache(&self) -> Option<CacheOptions> {
        self.cache.clone().map(|folder| CacheOptions { folder, limit: self.cache_limit })
    }

    /// Checks the options that can be checked without the dataset and the drives.
    ///
    /// # Errors
    ///
    /// [`LoaderError::Options`] names the option and the values that it may have; [`LoaderError::Pipeline`] says what
    /// is wrong in a pipeline.
    pub fn check(&self) -> Result<(), LoaderError> {
        self.check_figures()?;
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
        if self.opening().table.is_given() && !self.drives_taking_part().is_empty() {
            let what = "a drive cannot read a table that others made: use strategy \"cpu\", or make a dataset of it by \
                        `ddlp push`";
            return Err(LoaderError::Options(what.into()));
        }
        if self.cache.is_none() && self.cache_limit.is_some() {
            return Err(LoaderError::Options("`cache_limit` needs `cache`, the folder that it limits".into()));
        }
        self.check_fetch()?;
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
                local.check_figures()?;
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

    /// Checks what goes with samples out of order.
    fn check_fetch(&self) -> Result<(), LoaderError> {
        if self.fetch == FetchOrder::InOrder {
            return Ok(());
        }
        let refused = |what: &str| {
            let message = format!("`fetch` is \"out-of-order\", which does not go with {what}");
            Err(LoaderError::Options(message))
        };
        if !self.drives_taking_part().is_empty() {
            return refused("drives: leave `drives` empty, or set `strategy` to \"cpu\"");
        }
        if self.views > 1 {
            return refused("several `views` of a sample: set `views` to 1");
        }
        if self.replay.is_some() {
            return refused("`replay`: a plan names batches, but not their samples");
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::{LocalDrive, LocalResults};
    use crate::order::LastBatch;
    use crate::plan::Plan;
    use ddlp_csd::program::CorruptPolicy;
    use ddlp_pixels::{ImageLayout, Normalize};
    use std::time::Duration;

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
