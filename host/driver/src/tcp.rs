//! User-space NVMe/TCP initiator: blocking sockets, one connection per queue, no threads but the keep alive's.
//!
//! - [`target`]: where to connect and how. [`connect`] brings an association up.
//! - `link`: whether the association lives; when one part fails, all sockets are shut and every waiting thread wakes.
//! - `connection`: one socket with its digests: PDU headers through a small buffer, data straight to where it belongs.
//! - `engine`: the commands in flight on one connection, and every rule about what the peer may say of them.
//! - `bringup`: from a fresh connection to a ready controller. `admin`, `association`, `queue`: the admin queue with keep
//!   alive, what queues share, I/O queues.
//!
//! What a peer sends is checked against the command that it names; a violation ends the association with
//! [`crate::DriverError::Protocol`] and a TermReq. Every wait has a deadline. Memory is bounded by the queue depths: only the
//! caller's buffers receive data.
//!
//! A thread that sends does not receive meanwhile. A peer that takes no data until its own is taken could hold it up to
//! [`TcpTarget::io_timeout`]; controllers that read and write independently never do.

mod admin;
mod association;
mod bringup;
mod connection;
mod engine;
mod link;
mod queue;
pub mod target;

pub use target::TcpTarget;

use crate::contract::Controller;
use crate::error::DriverError;
use std::sync::Arc;

/// Largest transfer of one command when the controller names no limit (MDTS 0), and the bound on any limit it names.
pub const TRANSFER_BYTES_MAX: usize = 4 << 20;
/// Commands in flight on one I/O queue at most, reads included: command identifiers have 12 bits of slot.
pub const QUEUE_COMMANDS_MAX: usize = 4096;

/// Connects, brings the controller up and keeps it alive until the last reference is dropped, which shuts it down in order.
///
/// # Errors
/// `Invalid` for options or controllers that cannot be used, `Lost` or `TimedOut` when there is nobody, `Status` when the
/// controller refuses (unknown NQN, host not allowed), `Protocol` when it misbehaves. All within
/// [`TcpTarget::connect_timeout`], name resolution apart.
pub fn connect(target: &TcpTarget) -> Result<Arc<dyn Controller>, DriverError> {
    Ok(Arc::new(association::TcpController::connect(target)?))
}
