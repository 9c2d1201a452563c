//! State that the queues and admin commands of one controller share, and the meaning of the kernel's answers.

use super::nodes::Nodes;
use super::request::{Data, KernelAnswer, Request, Toward};
use crate::contract::{Command, Completion};
use crate::error::DriverError;
use ddlp_cause::Cause;
use ddlp_nvme::status::sct;
use nix::errno::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// System call by which commands reach the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SystemCall {
    IoUring,
    Ioctl,
}

/// A controller that the kernel is connected to, until this side loses or closes it.
pub(super) struct KernelAssociation {
    nodes: Arc<Nodes>,
    call: SystemCall,
    lost: AtomicBool,
}

impl KernelAssociation {
    pub(super) fn new(nodes: Arc<Nodes>, call: SystemCall) -> Self {
        Self { nodes, call, lost: AtomicBool::new(false) }
    }

    pub(super) fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    pub(super) fn call(&self) -> SystemCall {
        self.call
    }

    pub(super) fn peer(&self) -> &str {
        self.nodes.peer()
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Ends the association on this side.
    pub(super) fn close(&self) {
        self.lost.store(true, Ordering::Release);
    }

    /// Ends the association on this side, and returns the error with this cause.
    pub(super) fn lose(&self, cause: impl Into<Cause>) -> DriverError {
        self.close();
        DriverError::Lost { peer: self.peer().to_owned(), source: cause.into() }
    }

    pub(super) fn check(&self) -> Result<(), DriverError> {
        if self.is_lost() {
            return Err(self.lose("the association was lost before, or closed by this host"));
        }
        Ok(())
    }

    /// Makes a command to a namespace, through the namespace's generic node.
    pub(super) fn request(&self, command: &Command, data: Data, within: Duration) -> Result<Request, DriverError> {
        let node = self.nodes.of_namespace(command.nsid)?;
        Request::new(Toward::Io, node, command, data, within)
    }

    /// Translates the kernel's answer to a command into the contract's terms. Path-related statuses end the
    /// association, and so do errors that mean that the command was cancelled and may have run.
    pub(super) fn judge(&self, outcome: KernelAnswer, request: &Request) -> Result<Completion, DriverError> {
        let errno = match outcome {
            Ok(completion) if completion.status().sct() != sct::PATH => return Ok(completion),
            Ok(completion) => {
                let (what, status) = (request.what(), completion.status());
                return Err(self.lose(format!("{what} did not arrive or may have run: {status}")));
            }
            Err(errno) => errno,
        };
        let (what, peer) = (request.what(), self.peer());
        let refused = |why: &str| Err(DriverError::Invalid(format!("{peer}: {what}: {why}")));
        match errno {
            Errno::EINTR => Err(self.lose(format!("the kernel cancelled {what}, which may have run"))),
            Errno::EACCES | Errno::EPERM => {
                refused(&format!("{errno}: passthrough commands need root or CAP_SYS_ADMIN"))
            }
            Errno::EOPNOTSUPP | Errno::ENOTTY => refused(&format!("the kernel has no passthrough for it: {errno}")),
            // Without a path to the drive, the shared node of a namespace gives this answer, too.
            Errno::EINVAL | Errno::EAGAIN => match self.nodes.check_live() {
                Err(error) => {
                    self.close();
                    Err(error)
                }
                Ok(()) if errno == Errno::EAGAIN => Err(self.lose(format!("no path for {what}"))),
                Ok(()) => refused(&format!("the kernel refuses it: {errno}")),
            },
            _ => Err(self.lose(format!("{what} failed: {errno}"))),
        }
    }
}

#[cfg(test)]
mod tests;
