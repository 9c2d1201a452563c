//! From options to a run: opens the dataset, starts or reaches the drives, and checks that everything fits.

use crate::config::LoaderBuilder;
use crate::drive::{self, DriveSpec, Endpoint, Expected, Link, LinkError, LocalAgent, LocalDrive, SlotTable};
use crate::error::LoaderError;
use crate::order::Cut;
use crate::plan::Plan;
use crate::recorder::Recorder;
use crate::report::Report;
use crate::schedule::Strategy;
use crate::state::{LoaderState, STATE_VERSION};
use crate::value::Output;
use ddlp_csd::memory;
use ddlp_csd::program::Program;
use ddlp_csd::slot::SlotLayout;
use ddlp_dataset::{Dataset, RESIDENT_BYTES_MAX, Resident};
use ddlp_driver::DriverError;
use ddlp_driver::sysfs::Sysfs;
use ddlp_nvme::Status;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a drive of the kernel's may be held by what a run that has just ended left in flight, and how often it is tried.
const HELD_WITHIN: Duration = Duration::from_secs(3);
const HELD_LOOK: Duration = Duration::from_millis(50);

/// Result slots of a local drive, unless the strategy can use more.
const LOCAL_SLOTS: u32 = 16;
/// Share of the available memory that a local drive's slots may take by default.
const LOCAL_SLOTS_SHARE: u64 = 8;

/// How much longer the tail may be than the number of threads on both sides suggests.
const TAIL_MARGIN: f64 = 1.25;

/// What the options come to.
pub(crate) struct Setup {
    pub dataset: Arc<dyn Dataset>,
    pub program: Program,
    pub cut: Cut,
    pub batches: u32,
    pub layout: SlotLayout,
    pub expected: Expected,
    pub fresh: LoaderState,
    pub first_epoch: u32,
}

/// A drive that was reached and fits.
pub(crate) struct OpenDrive {
    pub name: String,
    pub endpoint: Endpoint,
    pub link: Link,
    pub slots: SlotTable,
}

impl Setup {
    pub fn new(options: &LoaderBuilder, output: &Output) -> Result<Self, LoaderError> {
        let shape = options.pipeline.validate().map_err(LoaderError::Pipeline)?;
        let dataset: Arc<dyn Dataset> = match (&options.dataset, &options.dataset_path) {
            (Some(dataset), _) => dataset.clone(),
            (None, Some(path)) => ddlp_dataset::open(path).map_err(LoaderError::Dataset)?.into(),
            (None, None) => return Err(LoaderError::Options("no dataset is given".into())),
        };
        let samples = options.epoch_samples.unwrap_or(dataset.len());
        if samples == 0 || dataset.is_empty() {
            return Err(LoaderError::Options("the epoch has no samples".into()));
        }
        if samples > u64::from(u32::MAX) {
            return Err(LoaderError::Options(format!("an epoch of {samples} samples, {} are possible", u32::MAX)));
        }
        let cut = Cut {
            samples,
            batch: options.batch_size as u64,
            last: options.last,
            rank: u64::from(options.rank),
            world: u64::from(options.world),
        };
        let batches = u32::try_from(cut.batches()).expect("not more batches than samples");
        if batches == 0 {
            return Err(LoaderError::Options(format!(
                "an epoch of {samples} samples has no whole batch of {}, and the last one is dropped",
                cut.batch
            )));
        }
        let rows = cut.rows();
        let layout = SlotLayout::new(rows, shape)
            .ok_or_else(|| LoaderError::Options(format!("a batch of {rows} samples of {shape:?} is too large")))?;
        let buffers = (options.buffers * rows * output.row_bytes(shape)) as u64;
        memory::check_room(buffers).map_err(|error| {
            LoaderError::Options(format!("no room for {} buffers of {rows} samples: {error}", options.buffers))
        })?;
        if let Err(error) = memory::fit(&*dataset) {
            tracing::warn!(%error, "no reading past the page cache, although the dataset is much larger than memory");
        }
        let dataset = if options.epochs > 1 { resident_beside(buffers, dataset, memory::check_room) } else { dataset };
        let program = Program { pipeline: options.pipeline.clone(), limits: options.limits, policy: options.policy };
        let fresh = LoaderState {
            version: STATE_VERSION,
            seed: options.seed,
            dataset: dataset.identity().to_string(),
            program: blake3::hash(&program.to_bytes().map_err(LoaderError::Program)?).to_hex()[..32].to_string(),
            epochs: options.epochs,
            epoch_samples: samples,
            batch_size: cut.batch,
            last: cut.last,
            strategy: options.strategy,
            world: options.world,
            epoch: 0,
            delivered: Vec::new(),
        };
        let expected = Expected {
            dataset: *dataset.identity().as_bytes(),
            fingerprint: *ddlp_pixels::fingerprint().as_bytes(),
            slot_bytes: layout.total_bytes,
        };
        let setup = Self { dataset, program, cut, batches, layout, expected, fresh, first_epoch: 0 };
        setup.with_history(options)
    }

    /// Checks what an earlier run left: a state to resume from, a plan to replay.
    fn with_history(mut self, options: &LoaderBuilder) -> Result<Self, LoaderError> {
        if let Some(state) = &options.resume {
            state.check_fits(&self.fresh, self.batches).map_err(LoaderError::State)?;
            self.first_epoch = state.epoch;
        }
        if let Some(plan) = &options.replay {
            let task = Plan {
                seed: options.seed,
                dataset: self.expected.dataset,
                epoch_samples: self.cut.samples,
                batch_size: self.cut.batch,
                batches: self.batches,
                epochs: Vec::new(),
            };
            plan.check_is_for(&task).map_err(LoaderError::Plan)?;
        }
        Ok(self)
    }

    pub fn recorder(&self, options: &LoaderBuilder, drives: &[OpenDrive], setup_s: f64) -> Recorder {
        let report = Report {
            setup_s,
            slot_memory_mb: drives.iter().map(|drive| drive.slots.shared_bytes()).sum::<usize>() as f64 / 1e6,
            strategy: options.strategy.to_string(),
            dataset: options
                .dataset_path
                .as_ref()
                .map_or(self.dataset.kind().into(), |path| path.display().to_string()),
            epoch_samples: self.cut.samples,
            batch_size: self.cut.batch,
            seed: options.seed,
            threads: options.threads,
            ..Report::default()
        };
        let names = std::iter::once("cpu".to_string()).chain(drives.iter().map(|drive| drive.name.clone())).collect();
        let mut recorder = Recorder::new(report, names);
        match self.dataset.left_out() {
            0 => {}
            files => recorder.note(format!(
                "{files} files of the folder were left out: they lie in no class directory or are not named as images are"
            )),
        }
        recorder
    }

    pub fn open_drives(&self, options: &LoaderBuilder) -> Result<Vec<OpenDrive>, LoaderError> {
        if options.strategy == Strategy::Cpu {
            return Ok(Vec::new());
        }
        let many = options.drives.len() > 1;
        (1..)
            .zip(&options.drives)
            .map(|(number, spec)| {
                let refused = |drive: &str, reason| LoaderError::Drive { drive: drive.to_string(), reason };
                let (name, opened) = match spec {
                    DriveSpec::Remote(address) => (address.clone(), self.open_remote(options, address)),
                    DriveSpec::Auto => {
                        let node = drive::find(&Sysfs::system()).map_err(|reason| refused("auto", reason))?;
                        let opened = self.open_remote(options, &node);
                        (node, opened)
                    }
                    DriveSpec::Local(local) => {
                        let name = if many { format!("csd {number}") } else { "csd".to_string() };
                        let opened = self.open_local(options, local, &name);
                        (name, opened)
                    }
                };
                let (endpoint, link, slots) = opened.map_err(|reason| refused(&name, reason))?;
                Ok(OpenDrive { name, endpoint, link, slots })
            })
            .collect()
    }

    fn open_remote(&self, options: &LoaderBuilder, address: &str) -> Result<(Endpoint, Link, SlotTable), String> {
        let endpoint = Endpoint::remote(address, &options.host)?;
        let link = self.connect(options, &endpoint)?;
        let slots = SlotTable::remote(link.identity.slots, link.identity.slot_bytes as usize);
        Ok((endpoint, link, slots))
    }

    fn open_local(
        &self,
        options: &LoaderBuilder,
        local: &LocalDrive,
        name: &str,
    ) -> Result<(Endpoint, Link, SlotTable), String> {
        let slots = local.slots.unwrap_or_else(|| self.local_slots(options, local));
        let path = options.dataset_path.as_ref().expect("checked with the options");
        let (agent, slots) =
            LocalAgent::start(local, path, slots, self.layout.total_bytes).map_err(|error| error.to_string())?;
        tracing::debug!(drive = name, pid = agent.pid(), "agent started");
        let endpoint = Endpoint::local(agent).map_err(|error| error.to_string())?;
        let link = self.connect(options, &endpoint)?;
        Ok((endpoint, link, slots))
    }

    fn connect(&self, options: &LoaderBuilder, endpoint: &Endpoint) -> Result<Link, String> {
        let until = Instant::now() + HELD_WITHIN;
        loop {
            match drive::connect(endpoint, &self.expected, &self.program, options.drive_depth, |_| {}) {
                // Or the kernel has not made the drive's nodes yet.
                Err(LinkError::Driver(error)) if endpoint.is_settling(&error) && Instant::now() < until => {
                    std::thread::sleep(HELD_LOOK);
                }
                connected => return connected.map_err(|error| unusable(&error, endpoint)),
            }
        }
    }

    /// Slots for a local drive: for `mte` the whole tail, as far as memory allows.
    fn local_slots(&self, options: &LoaderBuilder, drive: &LocalDrive) -> u32 {
        let drives = options.drives.len() as u64;
        let memory = memory::available_bytes().unwrap_or(1 << 30) / LOCAL_SLOTS_SHARE / drives;
        let fitting = u32::try_from(memory / self.layout.total_bytes as u64).unwrap_or(u32::MAX);
        let spare = options.drive_depth as u32 + 1;
        let useful = match options.strategy {
            Strategy::Mte => {
                let own = drive.threads as f64 * drive.throttle;
                let share = own / (own + options.threads as f64);
                (f64::from(self.batches) * share * TAIL_MARGIN).ceil() as u32 + spare
            }
            _ => LOCAL_SLOTS,
        };
        useful.min(self.batches).min(fitting).max(spare)
    }
}

/// The dataset in memory, where it is a small one and memory has room for that and for the buffers.
fn resident_beside(
    buffers: u64,
    dataset: Arc<dyn Dataset>,
    check_room: impl Fn(u64) -> io::Result<()>,
) -> Arc<dyn Dataset> {
    match check_room(buffers.saturating_add(RESIDENT_BYTES_MAX)) {
        Ok(()) => Resident::of(dataset),
        Err(_) => dataset,
    }
}

/// Why a drive cannot be used, and what to do.
fn unusable(error: &LinkError, endpoint: &Endpoint) -> String {
    let hint = match error {
        LinkError::Refused(_)
        | LinkError::Driver(DriverError::Busy { .. } | DriverError::Denied { .. } | DriverError::Invalid(_)) => "",
        LinkError::Driver(DriverError::InUse { .. }) => "; one run at a time can use a drive of the kernel's",
        LinkError::Driver(error) if error.is_status(Status::CONNECT_PARAMETERS) => {
            "; no drive of that name is there: ddlp-device prints its address and its NQN when it starts"
        }
        LinkError::Driver(error) if error.is_status(Status::CONNECT_INVALID_HOST) => {
            return format!("{error}; {}", endpoint.allow());
        }
        LinkError::Driver(DriverError::Status { .. }) => "",
        LinkError::Driver(DriverError::Protocol { .. }) => "; is it a drive (NVMe/TCP) that listens there?",
        LinkError::Driver(DriverError::Lost { .. } | DriverError::TimedOut { .. }) => "; is the agent running there?",
    };
    format!("{error}{hint}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddlp_pixels::Pipeline;
    use std::cell::Cell;

    /// Seventy small planar images.
    fn small() -> (tempfile::TempDir, Arc<dyn Dataset>) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("data_batch_1.bin"), [3u8; 70 * 3073]).unwrap();
        let dataset = ddlp_dataset::open(folder.path()).unwrap().into();
        (folder, dataset)
    }

    #[test]
    fn a_small_dataset_stays_in_memory_if_there_is_room_for_it_beside_the_buffers() {
        let (_folder, dataset) = small();
        let available = 1000 + RESIDENT_BYTES_MAX;
        let asked = Cell::new(0);
        let check_room = |bytes: u64| -> io::Result<()> {
            asked.set(bytes);
            if bytes <= available { Ok(()) } else { Err(io::ErrorKind::OutOfMemory.into()) }
        };
        assert!(resident_beside(1000, dataset.clone(), check_room).is_resident());
        assert_eq!(asked.get(), available);
        for buffers in [1001, u64::MAX] {
            let refused = resident_beside(buffers, dataset.clone(), check_room);
            assert!(!refused.is_resident() && Arc::ptr_eq(&refused, &dataset), "{buffers} bytes of buffers");
        }
    }

    #[test]
    fn a_dataset_stays_in_memory_in_runs_of_several_epochs() {
        let (_folder, dataset) = small();
        let of = |epochs| LoaderBuilder::default().dataset(dataset.clone()).batch_size(4).epochs(epochs);
        for (epochs, stays) in [(1, false), (2, true)] {
            let setup = Setup::new(&of(epochs).pipeline(Pipeline::cifar_train()), &Output::Pixels)
                .unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(setup.dataset.is_resident(), stays, "{epochs} epochs");
        }
    }

    #[test]
    fn buffers_that_memory_has_no_room_for_are_refused() {
        let (_folder, dataset) = small();
        let options = LoaderBuilder::default().dataset(dataset).pipeline(Pipeline::imagenet_train());
        let options = options.batch_size(4096).buffers(4096);
        let floats = Output::F32(Box::new(ddlp_pixels::Normalize::imagenet()));
        for (output, needed) in [(Output::Pixels, 4096 * 4096 * 150_528), (floats, 4096 * 4096 * 4 * 150_528)] {
            let Err(error) = Setup::new(&options, &output) else { panic!("{needed} bytes are there") };
            let message = error.to_string();
            assert!(message.contains("no room for 4096 buffers of 4096 samples"), "{message}");
            assert!(message.contains(&format!("{} MB are needed", u64::div_ceil(needed, 1_000_000))), "{message}");
        }
    }
}
