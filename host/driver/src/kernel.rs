//! A drive that the kernel is connected to: passthrough commands through `/dev/nvmeX` and `/dev/ngXnY`.
//!
//! - [`KernelTarget`]: which controller. `nodes`: its device nodes, found by NSID through [`crate::sysfs`], locked against others.
//! - `controller`: admin commands. `queue`: commands in flight and reads. `association`: what both share, and what the kernel's answers
//!   mean.
//! - `lane`: how commands (`request`) travel: `ring` (io_uring) or threads in ioctls. `passthrough`: the kernel's structures.
//!
//! The kernel owns the association. It reconnects by itself, to a drive that may have forgotten the programs of this host, and a
//! time-out of a single command makes it cut the whole association: a command gets the caller's limit plus
//! [`GRACE`], so that the caller gives up first. Nobody can name a command to Abort here ([`crate::AbortOutcome::Impossible`]), and
//! dropping a controller ends nothing on the drive: who gives up cancels what runs there by a command of the drive's own.
//!
//! A process cannot end while one of its threads waits in an ioctl; commands in a ring do not hold it up.
//!
//! Passthrough needs CAP_SYS_ADMIN. Linux 5.13 is the oldest with generic nodes, 6.0 the oldest with io_uring for all commands.

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

/// Largest transfer of one command, whatever the controller allows: half of the 256 pages that the kernel maps of a request at most.
pub const TRANSFER_BYTES_MAX: usize = 512 << 10;
/// Commands in flight of one queue at most, reads included.
pub const COMMANDS_MAX: usize = 256;
/// How much later than the caller the kernel gives a command up. The kernel's way to do so is to end the association.
pub const GRACE: Duration = Duration::from_secs(30);
/// Longest wait for Identify Controller at the start.
const IDENTIFY_WITHIN: Duration = Duration::from_secs(10);

/// How commands get to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Passthrough {
    /// By io_uring where the kernel has it for passthrough and lets this process use it, otherwise by ioctl.
    #[default]
    Auto,
    /// By io_uring (`IORING_OP_URING_CMD`): many commands in flight from one thread.
    IoUring,
    /// By ioctl: a thread for each command in flight.
    Ioctl,
}

/// A controller of the kernel's.
#[derive(Clone, Debug)]
pub struct KernelTarget {
    /// Its node, `/dev/nvme0`.
    pub node: PathBuf,
    /// How commands get there.
    pub passthrough: Passthrough,
    /// Where the kernel's view of it is.
    pub sysfs: Sysfs,
}

impl KernelTarget {
    /// The controller of a node, `/dev/nvme0`.
    pub fn new(node: impl Into<PathBuf>) -> Self {
        Self { node: node.into(), passthrough: Passthrough::Auto, sysfs: Sysfs::system() }
    }

    /// Reads `/dev/nvmeX`, with `?io_uring` or `?ioctl` behind it for one way of passthrough alone.
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

/// Opens a controller that the kernel is connected to. It stays connected when the last reference is dropped.
///
/// # Errors
/// `Lost` when there is no such controller or its path is away, `Denied` or `Invalid` without the right to send commands, `Invalid` for what is no
/// controller's node.
pub fn open(target: &KernelTarget) -> Result<Arc<dyn Controller>, DriverError> {
    Ok(Arc::new(controller::PassthroughController::open(target)?))
}
