//! A controller that the kernel is connected to.

use super::lane::{Finished, Lane, Request, Threads};
use super::nodes::Nodes;
use super::passthrough::{Data, Kind, Outcome, Pages};
use super::queue::KernelQueue;
use super::ring::Ring;
use super::{COMMANDS_MAX, GRACE, KernelTarget, Passthrough, TRANSFER_BYTES_MAX};
use crate::contract::{AdminData, Command, Completion, Controller, Queue};
use crate::error::DriverError;
use crate::namespace::{Geometry, geometry, identify};
use crate::reads::READS_IN_FLIGHT;
use ddlp_nvme::admin::Identify;
use ddlp_nvme::identify::IdentifyController;
use ddlp_nvme::status::sct;
use ddlp_nvme::{AdminOpcode, Cns};
use nix::errno::Errno;
use std::collections::HashMap;
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often a thread that waits for a command looks whether the association was closed.
const CLOSED_LOOK: Duration = Duration::from_millis(50);
/// CAP.MPSMIN of every controller that Linux takes for NVMe over Fabrics: pages of 4 KiB.
const PAGE_MIN: u8 = 0;

/// What a controller shares with its queues.
pub(super) struct Association {
    pub(super) nodes: Nodes,
    transfer_bytes_max: usize,
    lost: AtomicBool,
    geometries: Mutex<HashMap<u32, Geometry>>,
    passthrough: Passthrough,
}

/// A reference to an association that is itself a controller.
#[derive(Clone)]
pub(super) struct KernelController(Arc<Association>);

impl KernelController {
    pub(super) fn open(target: &KernelTarget) -> Result<Self, DriverError> {
        let nodes = Nodes::open(target)?;
        let association = Association {
            nodes,
            transfer_bytes_max: TRANSFER_BYTES_MAX,
            lost: AtomicBool::new(false),
            geometries: Mutex::default(),
            passthrough: target.passthrough,
        };
        association.nodes.check_live()?;
        let mut controller = Self(Arc::new(association));
        let most = match controller.mdts_bytes() {
            // Linux 5.19 has io_uring for I/O commands alone, and a process may not be allowed to use it.
            Err(error) if target.passthrough == Passthrough::Auto && !error.ends_association() => {
                tracing::info!(%error, "no io_uring for passthrough, commands go by ioctl");
                controller.get_mut().passthrough = Passthrough::Ioctl;
                controller.mdts_bytes()?
            }
            most => most?,
        };
        controller.get_mut().transfer_bytes_max = most.min(TRANSFER_BYTES_MAX);
        Ok(controller)
    }

    /// While nobody else has it.
    fn get_mut(&mut self) -> &mut Association {
        Arc::get_mut(&mut self.0).expect("used while the controller is being opened")
    }

    /// Largest transfer by Identify Controller.
    fn mdts_bytes(&self) -> Result<usize, DriverError> {
        let request = Identify { cns: Cns::CONTROLLER, ..Identify::default() };
        let page = identify(self, 0, request, super::IDENTIFY_WITHIN)?;
        let identify = IdentifyController::parse(&page[..])
            .map_err(|error| DriverError::Protocol { peer: self.peer().to_owned(), what: error.to_string() })?;
        let limit = identify.transfer_bytes_max(PAGE_MIN);
        Ok(limit.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(usize::MAX))
    }

    /// The namespaces that the controller has: the kernel's view of them may be on its way still.
    fn active_namespaces(&self) -> Result<Vec<u32>, DriverError> {
        let request = Identify { cns: Cns::ACTIVE_NAMESPACES, ..Identify::default() };
        let page = identify(self, 0, request, super::IDENTIFY_WITHIN)?;
        let entries = page.chunks_exact(4).map(|nsid| u32::from_le_bytes([nsid[0], nsid[1], nsid[2], nsid[3]]));
        Ok(entries.take_while(|&nsid| nsid != 0).collect())
    }

    pub(super) fn association(&self) -> &Association {
        &self.0
    }

    /// Geometry of a namespace, asked for once.
    pub(super) fn geometry(&self, nsid: u32, timeout: Duration) -> Result<Geometry, DriverError> {
        let known = |association: &Association| {
            association.geometries.lock().unwrap_or_else(PoisonError::into_inner).get(&nsid).copied()
        };
        if let Some(known) = known(&self.0) {
            return Ok(known);
        }
        let found = geometry(self, nsid, timeout)?;
        self.0.geometries.lock().unwrap_or_else(PoisonError::into_inner).insert(nsid, found);
        Ok(found)
    }
}

impl Association {
    fn peer(&self) -> &str {
        self.nodes.peer()
    }

    fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// The association is of no use any more: why.
    pub(super) fn lose(&self, reason: &str) -> DriverError {
        self.lost.store(true, Ordering::Release);
        DriverError::Lost { peer: self.peer().to_owned(), reason: reason.to_owned() }
    }

    pub(super) fn check(&self) -> Result<(), DriverError> {
        if self.is_lost() {
            return Err(self.lose("it was lost before, or closed by this host"));
        }
        Ok(())
    }

    /// The caller's patience is over. The association itself goes on, so that what runs there can be cancelled.
    pub(super) fn timed_out(&self, what: &str, after: Duration) -> DriverError {
        DriverError::TimedOut { peer: self.peer().to_owned(), what: what.to_owned(), after }
    }

    fn lane(&self, kind: Kind, commands: usize) -> Result<Lane, DriverError> {
        if self.passthrough == Passthrough::Ioctl {
            return Ok(Lane::Threads(Threads::new(kind)));
        }
        match Ring::new(kind, commands) {
            Ok(ring) => Ok(Lane::Ring(Box::new(ring))),
            Err(error) if self.passthrough == Passthrough::Auto => {
                tracing::debug!(%error, "no io_uring for passthrough, a command goes by ioctl");
                Ok(Lane::Threads(Threads::new(kind)))
            }
            Err(error) => Err(DriverError::Invalid(format!("{}: no io_uring for passthrough: {error}", self.peer()))),
        }
    }

    /// The next command of a lane that is over, or nothing by `until`. Ends early when the association is closed.
    pub(super) fn next(&self, lane: &mut Lane, until: Instant) -> Result<Option<Finished>, DriverError> {
        loop {
            self.check()?;
            let slice = until.min(Instant::now() + CLOSED_LOOK);
            let finished = lane.next(slice).map_err(|error| self.lose(&format!("waiting failed: {error}")))?;
            if finished.is_some() || slice == until {
                return Ok(finished);
            }
        }
    }

    pub(super) fn start(&self, lane: &mut Lane, request: Request) -> Result<(), DriverError> {
        lane.start(request).map_err(|error| self.lose(&format!("a command could not be sent: {error}")))
    }

    /// What the kernel says of a command as the contract has it: path-related statuses and errors that mean that the command was
    /// cancelled, and may have run, are the association's end.
    pub(super) fn judge(&self, outcome: Outcome, what: &str) -> Result<Completion, DriverError> {
        match outcome {
            Ok(completion) if completion.status().sct() == sct::PATH => {
                Err(self.lose(&format!("{what} did not arrive or may have run: {}", completion.status())))
            }
            Ok(completion) => Ok(completion),
            Err(Errno::EINTR) => Err(self.lose(&format!("the kernel cancelled {what}, which may have run"))),
            Err(errno @ (Errno::EACCES | Errno::EPERM)) => {
                Err(DriverError::Invalid(format!("{}: {what}: {}", self.peer(), no_right(errno))))
            }
            Err(errno @ (Errno::EOPNOTSUPP | Errno::ENOTTY)) => {
                Err(DriverError::Invalid(format!("{}: the kernel has no passthrough for {what}: {errno}", self.peer())))
            }
            // With no path to the drive, the shared node of a namespace answers so, too.
            Err(errno @ (Errno::EINVAL | Errno::EAGAIN)) => match self.nodes.check_live() {
                Err(error) => {
                    self.lose("not live");
                    Err(error)
                }
                Ok(()) if errno == Errno::EAGAIN => Err(self.lose(&format!("no path for {what}"))),
                Ok(()) => Err(DriverError::Invalid(format!("{}: the kernel refuses {what}: {errno}", self.peer()))),
            },
            Err(errno) => Err(self.lose(&format!("{what} failed: {errno}"))),
        }
    }
}

/// Why a command is not let through, and what to do.
fn no_right(errno: Errno) -> String {
    format!("{errno}: passthrough commands need root or CAP_SYS_ADMIN")
}

impl Controller for KernelController {
    fn peer(&self) -> &str {
        self.0.peer()
    }

    fn transfer_bytes_max(&self) -> usize {
        self.0.transfer_bytes_max
    }

    fn admin(&self, command: &Command, data: AdminData<'_>, timeout: Duration) -> Result<Completion, DriverError> {
        let association = &self.0;
        association.check()?;
        let what = AdminOpcode(command.opcode).to_string();
        let (owned, length) = match &data {
            AdminData::None => (Data::None, 0),
            AdminData::Write(bytes) => (Data::Write(bytes.to_vec()), bytes.len()),
            AdminData::Read(bytes) => (Data::Read(Pages::new(bytes.len()), bytes.len()), bytes.len()),
        };
        if length > self.transfer_bytes_max() {
            let most = self.transfer_bytes_max();
            return Err(DriverError::Invalid(format!("transfer of {length} bytes, at most {most} allowed")));
        }
        let node = association.nodes.controller();
        let request = Request { tag: 0, node, command: *command, data: owned, within: timeout + GRACE };
        // One of its own for each: a command whose caller has given up goes on in it.
        let mut lane = association.lane(Kind::Admin, 1)?;
        association.start(&mut lane, request)?;
        let Some(finished) = association.next(&mut lane, Instant::now() + timeout)? else {
            return Err(association.timed_out(&what, timeout));
        };
        let completion = association.judge(finished.outcome, &what)?;
        if let (AdminData::Read(into), Data::Read(pages, length)) = (data, &finished.data) {
            into.copy_from_slice(&pages.bytes()[..*length]);
        }
        Ok(completion)
    }

    fn open_queue(&self, depth: usize) -> Result<Box<dyn Queue>, DriverError> {
        self.0.check()?;
        let most = COMMANDS_MAX - READS_IN_FLIGHT;
        if !(1..=most).contains(&depth) {
            return Err(DriverError::Invalid(format!("queue depth {depth}, 1 to {most} possible at {}", self.peer())));
        }
        self.0.nodes.hold(&self.active_namespaces()?)?;
        let lane = self.0.lane(Kind::Io, depth + READS_IN_FLIGHT)?;
        Ok(Box::new(KernelQueue::new(self.clone(), lane, depth)))
    }

    fn is_alive(&self) -> bool {
        !self.0.is_lost() && self.0.nodes.check_live().is_ok()
    }

    fn close(&self) {
        self.0.lost.store(true, Ordering::Release);
    }
}

/// Opens a node for commands.
pub(super) fn open_node(path: &std::path::Path) -> Result<File, DriverError> {
    File::options().read(true).write(true).open(path).map_err(|error| match Errno::from_raw(error.raw_os_error().unwrap_or(0)) {
        errno @ (Errno::EACCES | Errno::EPERM) => DriverError::Invalid(format!(
            "{}: {errno}: run as root, or give this user the node by a udev rule (passthrough also needs CAP_SYS_ADMIN)",
            path.display()
        )),
        _ => DriverError::Lost { peer: path.display().to_string(), reason: format!("cannot be opened: {error}") },
    })
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
