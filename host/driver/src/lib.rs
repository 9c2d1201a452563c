//! Drivers for NVMe controllers: the same commands, by the user-space initiator or through the kernel.
//!
//! A [`Controller`] is one association: its admin queue, its identity and its keep alive. A [`Queue`] is one I/O queue
//! pair and belongs to one thread: that thread submits, and receives completions and data straight into its own
//! buffers.
//!
//! - [`contract`]: the traits and their types; [`error`]: the errors of commands.
//! - [`target`]: the address of a controller. [`host`]: the identity of this machine.
//! - [`tcp`]: the user-space NVMe/TCP initiator. [`kernel`]: passthrough through the kernel's driver.
//!   [`reads`]: reads as commands. `checks`: checks that both drivers make before they send.
//! - [`namespace`], [`logpage`], [`program`]: commands that a loader sends to any controller, on top of the traits.
//! - [`sysfs`]: the kernel's NVMe controllers and their nodes.
//!
//! Nothing here retries a command: whether a lost command ran is not known, and the loader guarantees exactly-once.
//!
//! ```no_run
//! use ddlp_driver::{Target, namespace};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), ddlp_driver::DriverError> {
//! let target = Target::parse("tcp://127.0.0.1:4420/nqn.2024-01.org.example:drive")?;
//! let controller = target.connect()?;
//! let timeout = Duration::from_secs(5);
//! let geometry = namespace::geometry(controller.as_ref(), 2, timeout)?;
//! let mut queue = controller.open_queue(4)?;
//! let mut blocks = vec![0; 16 * geometry.block_bytes as usize];
//! queue.read_blocks(2, 0, &mut blocks, timeout)?;
//! # Ok(())
//! # }
//! ```
#![deny(unsafe_code)]

mod checks;
pub mod contract;
pub mod error;
pub mod host;
pub mod kernel;
pub mod logpage;
pub mod namespace;
pub mod program;
pub mod reads;
pub mod sysfs;
pub mod target;
pub mod tcp;

pub use contract::{AbortOutcome, AdminData, BlockRead, Command, Completion, Controller, Queue, Ticket};
pub use error::DriverError;
pub use host::{Host, HostIdentity};
pub use target::Target;
