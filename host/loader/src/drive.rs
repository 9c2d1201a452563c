//! A drive as a prong: the ways to reach it, and the thread that keeps it at work.
//!
//! - `spec`: the drives of a run, as its options name them.
//! - `machine`: the decisions, as a state machine without I/O and clock. `flight`: one Execute command. `slot_use`: the
//!   slots that the drive accepts. `depth`: how many batches it has in work. `trust`: judges a drive by its results.
//!   `fault`: the messages when something goes wrong.
//! - `prong`: the thread, which performs the actions of the state machine. `handle`: the engine as the thread uses it.
//!   `usage`: resources that the agent uses.
//! - `results`: finished batches, until they are ready for delivery. `checks`: checks them. `reading`: gets them out of
//!   their slots.
//! - `link`: one association, from the connection to the activated program. `endpoint`: how to reach the drive.
//!   `kernel`: drives that the kernel is connected to.
//! - `local`: the agent as a child process, with shared result memory.

mod checks;
mod depth;
mod endpoint;
mod fault;
mod flight;
mod handle;
mod kernel;
mod link;
mod local;
mod machine;
mod prong;
mod reading;
mod results;
#[cfg(test)]
mod simulation;
mod slot_use;
mod spec;
mod trust;
mod usage;

pub(crate) use depth::{DriveDepth, round_trip};
pub(crate) use endpoint::{Endpoint, connect};
pub(crate) use kernel::find;
pub use kernel::is_drive;
pub(crate) use link::{DriveLink, Expected, LinkError};
pub(crate) use local::LocalAgent;
pub(crate) use prong::{DriveProng, DriveSetup};
pub use spec::{DriveSpec, LocalDrive, LocalResults};
