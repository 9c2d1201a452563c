//! A controller that the kernel is connected to.

use super::association::{KernelAssociation, SystemCall};
use super::lane::Lane;
use super::nodes::Nodes;
use super::passthrough::namespace_id;
use super::queue::KernelQueue;
use super::request::{Data, Pages, Request, Toward};
use super::{COMMANDS_MAX, GRACE, KernelTarget, Passthrough, TRANSFER_BYTES_MAX};
use crate::checks;
use crate::contract::{AdminData, Command, Completion, Controller, Queue};
use crate::error::DriverError;
use crate::namespace::{Geometries, identify};
use crate::reads::READS_IN_FLIGHT;
use ddlp_nvme::Cns;
use ddlp_nvme::admin::Identify;
use ddlp_nvme::identify::IdentifyController;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// CAP.MPSMIN of every NVMe over Fabrics controller in Linux: pages of 4 KiB.
const PAGE_MIN: u8 = 0;

/// A reference to an association that implements `Controller`.
#[derive(Clone)]
pub(super) struct PassthroughController {
    association: Arc<KernelAssociation>,
    transfer_bytes_max: usize,
    geometries: Arc<Geometries>,
}

impl PassthroughController {
    pub(super) fn open(target: &KernelTarget) -> Result<Self, DriverError> {
        let nodes = Arc::new(Nodes::open(target)?);
        nodes.check_live()?;
        let by = |call| Self::open_by(call, nodes.clone());
        match target.passthrough {
            Passthrough::IoUring => by(SystemCall::IoUring),
            Passthrough::Ioctl => by(SystemCall::Ioctl),
            Passthrough::Auto => match by(SystemCall::IoUring) {
                // Linux 5.19 has io_uring for I/O commands only, and a process may not be allowed to use it.
                Err(error) if !error.ends_association() => {
                    tracing::info!(%error, "no io_uring for passthrough, commands go by ioctl");
                    by(SystemCall::Ioctl)
                }
                opened => opened,
            },
        }
    }

    fn open_by(call: SystemCall, nodes: Arc<Nodes>) -> Result<Self, DriverError> {
        let association = Arc::new(KernelAssociation::new(nodes, call));
        let asking = Self { association, transfer_bytes_max: TRANSFER_BYTES_MAX, geometries: Arc::default() };
        let transfer_bytes_max = asking.mdts_bytes()?.min(TRANSFER_BYTES_MAX);
        Ok(Self { transfer_bytes_max, ..asking })
    }

    /// Returns the largest transfer according to Identify Controller.
    fn mdts_bytes(&self) -> Result<usize, DriverError> {
        let request = Identify { cns: Cns::CONTROLLER, ..Identify::default() };
        let page = identify(self, 0, request, super::IDENTIFY_WITHIN)?;
        let identify = IdentifyController::parse(&page[..])
            .map_err(|error| DriverError::Protocol { peer: self.peer().to_owned(), source: error.into() })?;
        let limit = identify.transfer_bytes_max(PAGE_MIN);
        Ok(limit.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(usize::MAX))
    }

    /// Returns the namespaces according to the controller. The kernel's view of them may lag behind.
    fn active_namespaces(&self) -> Result<Vec<u32>, DriverError> {
        let request = Identify { cns: Cns::ACTIVE_NAMESPACES, ..Identify::default() };
        let page = identify(self, 0, request, super::IDENTIFY_WITHIN)?;
        let entries = page.chunks_exact(4).map(|nsid| u32::from_le_bytes([nsid[0], nsid[1], nsid[2], nsid[3]]));
        Ok(entries.take_while(|&nsid| nsid != 0).collect())
    }

    /// Opens the nodes of these namespaces, and locks them if `is_alone`. While the kernel recreates the devices of a
    /// drive, a name may belong to another namespace for a moment, so this checks each node's NSID.
    fn open_nodes(&self, nsids: &[u32], is_alone: bool) -> Result<(), DriverError> {
        let nodes = self.association.nodes();
        if is_alone {
            nodes.hold_generic(nsids)?;
        } else {
            nodes.open_generic(nsids)?;
        }
        for &nsid in nsids {
            match namespace_id(&*nodes.of_namespace(nsid)?) {
                Ok(found) if found == nsid => {}
                Ok(found) => {
                    let what = format!("the node found for namespace {nsid} belongs to namespace {found}");
                    return Err(self.association.lose(what));
                }
                Err(errno) => {
                    return Err(self.association.lose(format!("a node does not tell its namespace: {errno}")));
                }
            }
        }
        Ok(())
    }
}

impl Controller for PassthroughController {
    fn peer(&self) -> &str {
        self.association.peer()
    }

    fn transfer_bytes_max(&self) -> usize {
        self.transfer_bytes_max
    }

    fn admin(&self, command: &Command, data: AdminData<'_>, timeout: Duration) -> Result<Completion, DriverError> {
        checks::transfer(data.len(), self.transfer_bytes_max)?;
        let owned = match &data {
            AdminData::None => Data::None,
            AdminData::Write(bytes) => Data::Write(bytes.to_vec()),
            AdminData::Read(bytes) => Data::Read(Pages::new(bytes.len()), bytes.len()),
        };
        let node = self.association.nodes().controller();
        let request = Request::new(Toward::Admin, node, command, owned, timeout + GRACE)?;
        let what = request.what();
        // A lane for each command: a command continues in its lane after the caller has given up.
        let mut lane = Lane::open(self.association.clone(), 1)?;
        lane.start(request)?;
        let Some(finished) = lane.next(Instant::now() + timeout)? else {
            return Err(DriverError::TimedOut { peer: self.peer().to_owned(), what, after: timeout });
        };
        let completion = finished.completion?;
        if let (AdminData::Read(into), Data::Read(pages, length)) = (data, &finished.data) {
            into.copy_from_slice(&pages.bytes()[..*length]);
        }
        Ok(completion)
    }

    fn open_queue(&self, depth: usize) -> Result<Box<dyn Queue>, DriverError> {
        self.association.check()?;
        checks::depth(depth, COMMANDS_MAX - READS_IN_FLIGHT, self.peer())?;
        self.open_nodes(&self.active_namespaces()?, depth > 0)?;
        let lane = Lane::open(self.association.clone(), depth + READS_IN_FLIGHT)?;
        let (association, geometries) = (Arc::clone(&self.association), Arc::clone(&self.geometries));
        Ok(Box::new(KernelQueue::new(Box::new(self.clone()), association, geometries, lane, depth)))
    }

    fn is_alive(&self) -> bool {
        !self.association.is_lost() && self.association.nodes().check_live().is_ok()
    }

    fn close(&self) {
        self.association.close();
    }
}
