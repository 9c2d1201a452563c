//! User-space NVMe/TCP initiator: blocking sockets, one connection per queue, no thread except the keep alive's and,
//! while a name is looked up, the resolver's.
//!
//! - [`target`]: address and options. [`connect`] brings an association up.
//! - `link`: the life of the association; when one part fails, all sockets are shut and every waiting thread wakes.
//!   `deadline`: until when a caller waits.
//! - `connection`: one socket with its digests: PDU headers through a small buffer, data straight to its destination.
//! - `exchange`: the commands in flight on one connection, and every rule about the peer's messages for them.
//! - `bringup`: from a fresh connection to a ready controller. `admin`: the admin queue with keep alive. `queue`: I/O
//!   queues. `pool`: those without a user. `association`: the owner of all queues.
//!
//! Every PDU of a peer is checked against the command that it names; a violation ends the association with
//! [`crate::DriverError::Protocol`] and a TermReq. Every wait has a deadline. The queue depths bound the memory: only
//! the caller's buffers receive data.
//!
//! A thread does not receive while it sends. A peer that takes no data before its own data is taken could hold the
//! thread up for [`TcpTarget::io_timeout`]; controllers that read and write independently never do.

mod admin;
mod association;
mod bringup;
mod connection;
mod deadline;
mod exchange;
mod link;
mod pool;
mod queue;
pub mod target;

pub use target::TcpTarget;

use crate::contract::Controller;
use crate::error::DriverError;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Largest transfer of one command if the controller names no limit (MDTS 0), and upper bound of the limit that it
/// names.
pub const TRANSFER_BYTES_MAX: usize = 4 << 20;
/// Most commands in flight on one I/O queue, reads included: a command identifier has 12 bits for the slot.
pub const QUEUE_COMMANDS_MAX: usize = 4096;

/// Connects, brings the controller up, and keeps it alive until the last reference is dropped, which shuts it down in
/// order.
///
/// # Errors
///
/// `Invalid` for options or controllers that cannot be used, `Lost` or `TimedOut` if nobody answers, `Status` if the
/// controller refuses (unknown NQN, host not allowed), `Protocol` if it misbehaves. All come within
/// [`TcpTarget::connect_timeout`].
pub fn connect(target: &TcpTarget) -> Result<Arc<dyn Controller>, DriverError> {
    connect_watched(target, Duration::MAX, |_| ())
}

/// Connects as [`connect`] does, but gives up after the time `within` if that is shorter. First passes `watch` the
/// means to end the attempt.
pub fn connect_watched(
    target: &TcpTarget,
    within: Duration,
    watch: impl FnOnce(Closer),
) -> Result<Arc<dyn Controller>, DriverError> {
    Ok(Arc::new(association::TcpController::connect(target, within, watch)?))
}

/// Ends an attempt to connect, or the association that the attempt has made, at once. Waiting callers get
/// [`DriverError::Lost`].
#[derive(Clone, Debug)]
pub struct Closer(Weak<link::TcpLink>);

impl Closer {
    /// Ends the attempt or the association, if there still is one.
    pub fn close(&self) {
        if let Some(link) = self.0.upgrade() {
            link.fail(association::CLOSED);
        }
    }
}
