//! A drive that the kernel is connected to: passthrough commands through `/dev/nvmeX` and `/dev/ngXnY`.
//!
//! - [`KernelTarget`]: names a controller. `nodes`: its device nodes, found by NSID through [`crate::sysfs`], and
//!   locked.
//! - `controller`: admin commands. `queue`: commands in flight, and reads. `association`: the state that both share,
//!   and the meaning of the kernel's answers.
//! - `lane`: carries commands (`request`) to the kernel, by `ring` (io_uring) or by threads in ioctls. `passthrough`:
//!   the kernel's structures.
//!
//! The kernel owns the association. It reconnects by itself, to a drive that may have forgotten the programs of this
//! host. It cuts the whole association if a single command times out, so a command gets the caller's limit plus
//! [`GRACE`], and the caller gives up first. Nobody can name a command to Abort here
//! ([`crate::AbortOutcome::Impossible`]), and dropping a controller ends nothing on the drive: a caller that gives up
//! cancels its batches by the drive's own command.
//!
//! A process cannot end while one of its threads waits in an ioctl; commands in a ring do not hold it up.
//!
//! Passthrough needs CAP_SYS_ADMIN. Generic nodes need Linux 5.13, io_uring for all commands needs 6.0.

mod association;
mod controller;
mod lane;
mod nodes;
mod passthrough;
mod queue;
mod request;
mod ring;

use crate::contract::Controller;
use crate::error::DriverError;
use crate::sysfs::Sysfs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Largest transfer of one command, whatever the controller allows: half of the 256 pages that the kernel maps for a
/// request.
pub const TRANSFER_BYTES_MAX: usize = 512 << 10;
/// Most commands in flight on one queue, reads included.
pub const COMMANDS_MAX: usize = 256;
/// Time by which the kernel's time-out of a command exceeds the caller's. The kernel times out by ending the
/// association.
pub const GRACE: Duration = Duration::from_secs(30);
/// Longest wait for Identify Controller when a controller is opened.
const IDENTIFY_WITHIN: Duration = Duration::from_secs(10);

/// Way in which commands reach the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Passthrough {
    /// io_uring if the kernel supports passthrough with it and lets this process use it, otherwise ioctl.
    #[default]
    Auto,
    /// io_uring (`IORING_OP_URING_CMD`): many commands in flight from one thread.
    IoUring,
    /// ioctl: one thread for each command in flight.
    Ioctl,
}

/// Names a controller that the kernel is connected to.
#[derive(Clone, Debug)]
pub struct KernelTarget {
    /// Node of the controller, `/dev/nvme0`.
    pub node: PathBuf,
    /// Way in which commands reach the kernel.
    pub passthrough: Passthrough,
    /// The kernel's view of the controller.
    pub sysfs: Sysfs,
}

impl KernelTarget {
    /// Names the controller of a node, `/dev/nvme0`.
    pub fn new(node: impl Into<PathBuf>) -> Self {
        Self { node: node.into(), passthrough: Passthrough::Auto, sysfs: Sysfs::system() }
    }

    /// Parses `/dev/nvmeX`. A suffix `?io_uring` or `?ioctl` allows only that way of passthrough.
    ///
    /// ```
    /// use ddlp_driver::kernel::{KernelTarget, Passthrough};
    /// let target = KernelTarget::parse("/dev/nvme0?ioctl").unwrap();
    /// assert_eq!((target.node.to_str(), target.passthrough), (Some("/dev/nvme0"), Passthrough::Ioctl));
    /// ```
    pub fn parse(address: &str) -> Result<Self, DriverError> {
        let (node, way) = address.split_once('?').map_or((address, None), |(node, way)| (node, Some(way)));
        let passthrough = match way {
            None => Passthrough::Auto,
            Some("io_uring") => Passthrough::IoUring,
            Some("ioctl") => Passthrough::Ioctl,
            Some(other) => {
                return Err(DriverError::Invalid(format!("{address}: `?{other}` is neither ?io_uring nor ?ioctl")));
            }
        };
        if !node.starts_with("/dev/") {
            return Err(DriverError::Invalid(format!("{address:?} is not /dev/nvmeX")));
        }
        Ok(Self { passthrough, ..Self::new(node) })
    }
}

/// Opens a controller that the kernel is connected to. The kernel stays connected after the last reference is dropped.
///
/// # Errors
///
/// `Lost` if there is no such controller or its path is lost; `Denied` or `Invalid` if this process may not send
/// commands; `Invalid` if the node is not a controller's.
pub fn open(target: &KernelTarget) -> Result<Arc<dyn Controller>, DriverError> {
    Ok(Arc::new(controller::PassthroughController::open(target)?))
}
