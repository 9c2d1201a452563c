//! What queues and admin commands of one controller have in common, and what the kernel's answers mean to it.

use super::nodes::Nodes;
use super::request::{Outcome, Request};
use crate::contract::Completion;
use crate::error::DriverError;
use ddlp_nvme::status::sct;
use nix::errno::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How its commands travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    IoUring,
    Ioctl,
}

/// A controller that the kernel is connected to, until this side has lost or closed it.
pub(super) struct Association {
    nodes: Arc<Nodes>,
    way: Way,
    lost: AtomicBool,
}

impl Association {
    pub(super) fn new(nodes: Arc<Nodes>, way: Way) -> Self {
        Self { nodes, way, lost: AtomicBool::new(false) }
    }

    pub(super) fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    pub(super) fn way(&self) -> Way {
        self.way
    }

    pub(super) fn peer(&self) -> &str {
        self.nodes.peer()
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Ends it as far as this side goes.
    pub(super) fn close(&self) {
        self.lost.store(true, Ordering::Release);
    }

    /// The association is of no use any more: why.
    pub(super) fn lose(&self, reason: &str) -> DriverError {
        self.close();
        DriverError::Lost { peer: self.peer().to_owned(), reason: reason.to_owned() }
    }

    pub(super) fn check(&self) -> Result<(), DriverError> {
        if self.is_lost() {
            return Err(self.lose("it was lost before, or closed by this host"));
        }
        Ok(())
    }

    /// What the kernel says of a command as the contract has it: path-related statuses and errors that mean that the command was
    /// cancelled, and may have run, are the association's end.
    pub(super) fn judge(&self, outcome: Outcome, request: &Request) -> Result<Completion, DriverError> {
        let errno = match outcome {
            Ok(completion) if completion.status().sct() != sct::PATH => return Ok(completion),
            Ok(completion) => {
                let (what, status) = (request.what(), completion.status());
                return Err(self.lose(&format!("{what} did not arrive or may have run: {status}")));
            }
            Err(errno) => errno,
        };
        let (what, peer) = (request.what(), self.peer());
        let refused = |why: &str| Err(DriverError::Invalid(format!("{peer}: {what}: {why}")));
        match errno {
            Errno::EINTR => Err(self.lose(&format!("the kernel cancelled {what}, which may have run"))),
            Errno::EACCES | Errno::EPERM => {
                refused(&format!("{errno}: passthrough commands need root or CAP_SYS_ADMIN"))
            }
            Errno::EOPNOTSUPP | Errno::ENOTTY => refused(&format!("the kernel has no passthrough for it: {errno}")),
            // With no path to the drive, the shared node of a namespace answers so, too.
            Errno::EINVAL | Errno::EAGAIN => match self.nodes.check_live() {
                Err(error) => {
                    self.close();
                    Err(error)
                }
                Ok(()) if errno == Errno::EAGAIN => Err(self.lose(&format!("no path for {what}"))),
                Ok(()) => refused(&format!("the kernel refuses it: {errno}")),
            },
            _ => Err(self.lose(&format!("{what} failed: {errno}"))),
        }
    }
}

#[cfg(test)]
mod tests;
