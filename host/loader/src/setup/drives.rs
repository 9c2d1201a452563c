//! Starts and reaches the drives of a run.

use super::RunSetup;
use crate::builder::LoaderBuilder;
use crate::delivery::SlotTable;
use crate::drive::{self, DriveDepth, DriveLink, DriveSpec, Endpoint, LinkError, LocalAgent, LocalDrive};
use crate::error::{DriveError, LoaderError};
use crate::schedule::Strategy;
use crate::threads::ThreadShares;
use ddlp_driver::sysfs::Sysfs;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time for which another run that has just ended may still hold a drive behind the kernel, and the interval between
/// attempts.
const HELD_WITHIN: Duration = Duration::from_secs(3);
const HELD_LOOK: Duration = Duration::from_millis(50);

/// Result slots of a local drive, unless the strategy can use more.
pub(super) const LOCAL_SLOTS: u32 = 16;
/// How much longer the tail may be than the number of threads on both sides suggests.
const TAIL_MARGIN: f64 = 1.25;

/// A drive that fits, or an optional one.
pub(crate) struct OpenDrive {
    pub name: String,
    pub endpoint: Endpoint,
    /// `None` for an optional drive: the drive's thread connects to it during the run.
    pub link: Option<DriveLink>,
    /// Its slots; empty until the drive is first reached.
    pub slots: Arc<SlotTable>,
}

impl OpenDrive {
    /// Returns the number of the drive's result slots; a guess until the drive is first reached.
    pub fn slots_expected(&self) -> u32 {
        if self.link.is_none() { LOCAL_SLOTS } else { self.slots.count() }
    }
}

impl RunSetup {
    pub fn open_drives(&self, builder: &LoaderBuilder) -> Result<Vec<OpenDrive>, LoaderError> {
        builder
            .options
            .drives_by_name()
            .map(|(name, spec)| {
                let (name, opened) = match spec {
                    DriveSpec::Remote(address) => (name, self.open_remote(builder, &address)),
                    DriveSpec::Auto => {
                        let holder = builder
                            .options
                            .dataset_drive()
                            .map_or("", |_| "; leave `drives` out, and the drive that holds the dataset takes part");
                        let refused =
                            |reason| LoaderError::Drive { drive: name, source: format!("{reason}{holder}").into() };
                        let node = drive::find(&Sysfs::system()).map_err(refused)?;
                        let opened = self.open_remote(builder, &node);
                        (node, opened)
                    }
                    DriveSpec::Local(local) => {
                        let opened = self.open_local(builder, &local, &name);
                        (name, opened)
                    }
                };
                opened
                    .map(|drive| OpenDrive { name: name.clone(), ..drive })
                    .map_err(|source| LoaderError::Drive { drive: name, source })
            })
            .collect()
    }

    fn open_remote(&self, builder: &LoaderBuilder, address: &str) -> Result<OpenDrive, DriveError> {
        let mut endpoint = Endpoint::remote(address, &self.host)?;
        endpoint.holds_dataset = builder.options.dataset_drive() == Some(address);
        let is_tcp = address.starts_with("tcp://");
        let link = if builder.options.drive_optional && is_tcp {
            None
        } else {
            let link = self.connect(builder, &endpoint).map_err(|error| {
                let remedy = if error.is_unreachable() && is_tcp {
                    "; an optional drive (`drive_optional`) may join later"
                } else {
                    ""
                };
                endpoint.unusable(error, remedy)
            })?;
            Some(link)
        };
        let slots = link.as_ref().map_or(0, |link| link.identity.slots);
        let slots = Arc::new(SlotTable::remote(slots, self.slot_bytes));
        Ok(OpenDrive { name: address.to_string(), endpoint, link, slots })
    }

    fn open_local(&self, builder: &LoaderBuilder, local: &LocalDrive, name: &str) -> Result<OpenDrive, DriveError> {
        let slots = self.local_slots(builder, local);
        let path = builder.options.dataset.as_ref().expect("checked with the options");
        let threads = ThreadShares::of(&builder.options).of_drive(local);
        let (agent, slots) = LocalAgent::start(local, (path, builder.options.kind), threads, slots, self.slot_bytes)
            .map_err(DriveError::of)?;
        tracing::debug!(drive = name, pid = agent.pid(), "agent started");
        let endpoint = Endpoint::local(agent).map_err(DriveError::of)?;
        let link = self.connect(builder, &endpoint).map_err(|error| endpoint.unusable(error, ""))?;
        Ok(OpenDrive { name: name.to_string(), endpoint, link: Some(link), slots: Arc::new(slots) })
    }

    fn connect(&self, builder: &LoaderBuilder, endpoint: &Endpoint) -> Result<DriveLink, LinkError> {
        let until = Instant::now() + HELD_WITHIN;
        let depth = DriveDepth::of(builder.options.drive_depth).most;
        loop {
            match drive::connect(endpoint, &self.expected, depth, |_| {}) {
                // Another run may still hold the drive, or the kernel has not made the drive's nodes yet.
                Err(LinkError::Driver(error)) if endpoint.is_settling(&error) && Instant::now() < until => {
                    std::thread::sleep(HELD_LOOK);
                }
                connected => return connected,
            }
        }
    }

    /// Returns the number of slots for a local drive: the given one, or as many as the run can use (for `mte` the whole
    /// tail) and memory allows. Slots get their memory when they are used.
    pub(super) fn local_slots(&self, builder: &LoaderBuilder, drive: &LocalDrive) -> u32 {
        if let Some(slots) = drive.slots {
            return slots;
        }
        let fitting = u32::try_from(self.slot_room / self.slot_bytes as u64).unwrap_or(u32::MAX);
        let options = &builder.options;
        let spare = DriveDepth::of(options.drive_depth).least as u32 + 1;
        let useful = match options.strategy {
            Strategy::Mte => {
                let threads = ThreadShares::of(options);
                let own = threads.of_drive(drive) as f64 * drive.throttle;
                let share = own / (own + threads.cpu as f64);
                (f64::from(self.batches) * share * TAIL_MARGIN).ceil() as u32 + spare
            }
            _ => LOCAL_SLOTS,
        };
        let epochs = options.epochs - options.resume.as_ref().map_or(0, |state| state.epoch.min(options.epochs));
        let of_the_run = self.batches.saturating_mul(epochs).max(1);
        useful.min(self.batches).min(fitting).max(spare).min(of_the_run)
    }
}
