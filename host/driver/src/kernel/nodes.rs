//! The device nodes of one controller, locked against other processes of this host.
//!
//! A drive sees all processes that use one kernel controller as the same host: nothing on the drive separates the
//! programs and result slots of these processes. So a process that opens a queue locks the generic nodes of all
//! namespaces (`flock`, advisory) until they are closed; the last command in flight closes them. A queue that only
//! reads needs no lock: it changes nothing on the drive. With native multipath, the controllers of one subsystem share
//! these nodes, and so the lock. The lock reaches neither a container with device nodes of its own nor, without
//! multipath, the other controller. There the drive still refuses a request for a program other than the active one;
//! these runs take the drive from each other.

use super::KernelTarget;
use crate::error::DriverError;
use crate::sysfs::{ControllerState, Sysfs};
use ddlp_cause::Cause;
use nix::errno::Errno;
use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A device node for commands.
pub(super) struct OpenNode {
    path: PathBuf,
    file: File,
    /// Id of the process that opened the node.
    owner: u32,
}

impl OpenNode {
    pub(super) fn open(path: &Path) -> Result<Self, DriverError> {
        let opened = File::options().read(true).write(true).open(path);
        opened.map(|file| Self { path: path.to_owned(), file, owner: std::process::id() }).map_err(|error| {
            match Errno::from_raw(error.raw_os_error().unwrap_or(0)) {
                errno @ (Errno::EACCES | Errno::EPERM) => DriverError::Denied {
                    peer: path.display().to_string(),
                    what: format!(
                        "{errno}: run as root, or give this user the node by a udev rule (see `ddlp devices`)"
                    ),
                },
                _ => DriverError::not_opened(&path.display().to_string(), error),
            }
        })
    }
}

impl AsRawFd for OpenNode {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

impl Drop for OpenNode {
    /// Unlocks the node. A lock belongs to the open file, which forked children share: closing alone would leave it to
    /// them.
    fn drop(&mut self) {
        if self.owner == std::process::id()
            && let Err(error) = self.file.unlock()
        {
            tracing::debug!(%error, "a node stays locked until the last process that has it is gone");
        }
    }
}

/// The generic nodes of a controller's namespaces.
#[derive(Default)]
struct GenericNodes {
    by_nsid: BTreeMap<u32, Arc<OpenNode>>,
    are_locked: bool,
}

pub(super) struct Nodes {
    peer: String,
    sysfs: Sysfs,
    /// Instance name of the controller, `nvme0`.
    name: String,
    controller: Arc<OpenNode>,
    /// Generic nodes by NSID, once a queue has been opened.
    generic: Mutex<GenericNodes>,
}

impl Nodes {
    pub(super) fn open(target: &KernelTarget) -> Result<Self, DriverError> {
        let peer = target.node.display().to_string();
        let known = target.sysfs.controller_at(&target.node).map_err(|error| match error.kind() {
            std::io::ErrorKind::InvalidInput => DriverError::Invalid(error.to_string()),
            _ => DriverError::not_opened(&peer, error),
        })?;
        let controller = Arc::new(OpenNode::open(&known.node)?);
        Ok(Self { peer, sysfs: target.sysfs.clone(), name: known.name, controller, generic: Mutex::default() })
    }

    pub(super) fn peer(&self) -> &str {
        &self.peer
    }

    /// Returns the node for admin commands.
    pub(super) fn controller(&self) -> Arc<OpenNode> {
        self.controller.clone()
    }

    /// Opens the generic nodes of these namespaces, unless that has been done before.
    pub(super) fn open_generic(&self, nsids: &[u32]) -> Result<(), DriverError> {
        self.open_in(&mut self.generic(), nsids)
    }

    /// Opens and locks the generic nodes of these namespaces, in the order of their NSIDs, unless that has been done
    /// before.
    pub(super) fn hold_generic(&self, nsids: &[u32]) -> Result<(), DriverError> {
        let mut generic = self.generic();
        self.open_in(&mut generic, nsids)?;
        if !generic.are_locked {
            generic.by_nsid.values().try_for_each(|node| self.lock(node))?;
            generic.are_locked = true;
        }
        Ok(())
    }

    fn generic(&self) -> MutexGuard<'_, GenericNodes> {
        self.generic.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_in(&self, generic: &mut GenericNodes, nsids: &[u32]) -> Result<(), DriverError> {
        if generic.by_nsid.is_empty() {
            let known = self.sysfs.controller(&self.name).map_err(|error| self.lost(error))?;
            let node = |&nsid: &u32| {
                let path = known.namespace(nsid).and_then(|namespace| namespace.generic.as_deref());
                let missing = || self.lost(format!("there is no generic node (/dev/ng…) of namespace {nsid} yet"));
                Ok((nsid, Arc::new(OpenNode::open(path.ok_or_else(missing)?)?)))
            };
            generic.by_nsid = nsids.iter().map(node).collect::<Result<_, DriverError>>()?;
        }
        Ok(())
    }

    fn lock(&self, node: &OpenNode) -> Result<(), DriverError> {
        match node.file.try_lock() {
            Ok(()) => Ok(()),
            Err(TryLockError::WouldBlock) => {
                Err(DriverError::InUse { peer: self.peer.clone(), node: node.path.display().to_string() })
            }
            Err(TryLockError::Error(error)) => {
                Err(DriverError::Invalid(format!("{} cannot be locked: {error}", node.path.display())))
            }
        }
    }

    /// Returns the generic node of a namespace; the nodes have to be open.
    pub(super) fn of_namespace(&self, nsid: u32) -> Result<Arc<OpenNode>, DriverError> {
        let node = self.generic().by_nsid.get(&nsid).cloned();
        node.ok_or_else(|| DriverError::Invalid(format!("{} has no namespace {nsid}", self.peer)))
    }

    /// Fails while the path to the drive is lost, or if the controller is gone.
    pub(super) fn check_live(&self) -> Result<(), DriverError> {
        match self.sysfs.state(&self.name) {
            Ok(ControllerState::Live) => Ok(()),
            Ok(state) => Err(self.lost(format!("its controller is {}", state.as_str()))),
            Err(error) => Err(self.lost(error)),
        }
    }

    fn lost(&self, cause: impl Into<Cause>) -> DriverError {
        DriverError::Lost { peer: self.peer.clone(), source: cause.into() }
    }
}
