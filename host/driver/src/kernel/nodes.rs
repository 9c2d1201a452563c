//! The device nodes of one controller, held against other processes of this host.
//!
//! To a drive, all processes that use one kernel controller are the same host: nothing there would keep the programs and result
//! slots of one from the other. So whoever opens a queue locks the generic nodes of all namespaces (`flock`, advisory) until they
//! are closed, which the last command in flight does. With native multipath, controllers of one subsystem share these nodes, and so
//! the lock. It does not reach a container with device nodes of its own, nor the other controller where multipath is off. There
//! the drive still refuses a request for another program than the active one; such runs take the drive from each other.

use super::KernelTarget;
use super::controller::open_node;
use crate::error::DriverError;
use crate::sysfs::{ControllerState, KernelController as Known, Sysfs};
use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

pub(super) struct Nodes {
    peer: String,
    sysfs: Sysfs,
    /// Instance name, `nvme0`.
    name: String,
    controller: Arc<File>,
    /// Generic nodes by NSID, once they are held.
    held: Mutex<BTreeMap<u32, Arc<File>>>,
}

impl Nodes {
    pub(super) fn open(target: &KernelTarget) -> Result<Self, DriverError> {
        let peer = target.node.display().to_string();
        let known: Known = target.sysfs.controller_at(&target.node).map_err(|error| match error.kind() {
            std::io::ErrorKind::InvalidInput => DriverError::Invalid(error.to_string()),
            _ => DriverError::Lost { peer: peer.clone(), reason: error.to_string() },
        })?;
        let controller = Arc::new(open_node(&known.node)?);
        Ok(Self { peer, sysfs: target.sysfs.clone(), name: known.name, controller, held: Mutex::default() })
    }

    pub(super) fn peer(&self) -> &str {
        &self.peer
    }

    /// The node for admin commands.
    pub(super) fn controller(&self) -> Arc<File> {
        self.controller.clone()
    }

    /// Opens and locks the generic nodes of these namespaces, in the order of their NSIDs, unless that has been done.
    pub(super) fn hold(&self, nsids: &[u32]) -> Result<(), DriverError> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_empty() {
            let lost = |reason: String| DriverError::Lost { peer: self.peer.clone(), reason };
            let known = self.sysfs.controller(&self.name).map_err(|error| lost(error.to_string()))?;
            let node = |&nsid: &u32| {
                let path = known.namespace(nsid).and_then(|namespace| namespace.generic.as_deref());
                let path =
                    path.ok_or_else(|| lost(format!("there is no generic node (/dev/ng…) of namespace {nsid} yet")));
                Ok((nsid, self.lock(path?)?))
            };
            *held = nsids.iter().map(node).collect::<Result<_, DriverError>>()?;
        }
        Ok(())
    }

    fn lock(&self, path: &Path) -> Result<Arc<File>, DriverError> {
        let node = open_node(path)?;
        match node.try_lock() {
            Ok(()) => Ok(Arc::new(node)),
            Err(TryLockError::WouldBlock) => {
                Err(DriverError::InUse { peer: self.peer.clone(), node: path.display().to_string() })
            }
            Err(TryLockError::Error(error)) => {
                Err(DriverError::Invalid(format!("{} cannot be locked: {error}", path.display())))
            }
        }
    }

    /// The generic node of a namespace, once they are held.
    pub(super) fn namespace(&self, nsid: u32) -> Result<Arc<File>, DriverError> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.get(&nsid).cloned().ok_or_else(|| DriverError::Invalid(format!("{} has no namespace {nsid}", self.peer)))
    }

    /// An error while the path to the drive is not there, or the controller is gone.
    pub(super) fn check_live(&self) -> Result<(), DriverError> {
        let lost = |reason: String| Err(DriverError::Lost { peer: self.peer.clone(), reason });
        match self.sysfs.state(&self.name) {
            Ok(ControllerState::Live) => Ok(()),
            Ok(state) => lost(format!("its controller is {}", state.as_str())),
            Err(error) => lost(error.to_string()),
        }
    }
}
