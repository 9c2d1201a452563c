//! Reaching a controller: the same commands by user-space NVMe/TCP and, later, by kernel passthrough.
//!
//! A [`Controller`] is one association: its admin queue, its identity and its keep alive. A [`Queue`] is one I/O queue pair
//! and belongs to one thread: that thread submits, and receives completions and data straight into its own buffers.
#![warn(missing_docs)]

use std::time::{Duration, Instant};

/// A command as the caller knows it; queue, command identifier and data pointer belong to the transport.
///
/// Only the fields that Linux passthrough can set exist here (nvme_passthru_cmd64).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// Opcode.
    pub opcode: u8,
    /// Namespace, 0 when unused.
    pub nsid: u32,
    /// Command dword 2.
    pub cdw2: u32,
    /// Command dword 3.
    pub cdw3: u32,
    /// Command dwords 10 to 15.
    pub cdw10_15: [u32; 6],
}

/// Data of an admin command.
#[derive(Debug)]
pub enum AdminData<'a> {
    /// No data.
    None,
    /// Host to controller.
    Write(&'a [u8]),
    /// Controller to host; the whole buffer is asked for.
    Read(&'a mut [u8]),
}

/// A completed command: its status and its 64-bit result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// DW0–1.
    pub result: u64,
    /// Status field without the phase tag: SC in bits 7:0, SCT in 10:8, DNR in bit 14. 0 is success.
    pub status: u16,
}

/// Names a command submitted on a [`Queue`]; never reused within the life of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// Why a command got no completion.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The connection is gone; whatever was in flight may or may not have run.
    #[error("connection to {peer} lost: {reason}")]
    Lost {
        /// Address or node.
        peer: String,
        /// What happened.
        reason: String,
    },
    /// No answer within the time-out. The association is unusable afterwards, as under the kernel driver.
    #[error("no answer from {peer} to {what} within {after:?}")]
    TimedOut {
        /// Address or node.
        peer: String,
        /// The command.
        what: String,
        /// The time-out.
        after: Duration,
    },
    /// The peer broke the protocol.
    #[error("{peer} broke the protocol: {what}")]
    Protocol {
        /// Address or node.
        peer: String,
        /// How.
        what: String,
    },
    /// A command that had to succeed did not.
    #[error("{peer} answered {what} with {status}")]
    Status {
        /// Address or node.
        peer: String,
        /// The command.
        what: String,
        /// Status with its name, "invalid field (sct 0 sc 02h)".
        status: String,
        /// Raw status field as in [`Completion::status`].
        code: u16,
    },
    /// The address or the options make no sense.
    #[error("{0}")]
    Invalid(String),
}

/// One association with a controller.
pub trait Controller: Send + Sync {
    /// What the peer is called in messages.
    fn peer(&self) -> &str;
    /// Largest data transfer of one command in bytes.
    fn transfer_bytes_max(&self) -> usize;
    /// Runs one admin command. A status other than success is returned in the completion, not as an error.
    fn admin(&self, command: &Command, data: AdminData<'_>, timeout: Duration) -> Result<Completion, DriverError>;
    /// Opens an I/O queue with up to `depth` commands in flight.
    fn open_queue(&self, depth: usize) -> Result<Box<dyn Queue>, DriverError>;
    /// False once the association is lost (keep alive unanswered, connection closed). It never comes back: connect anew.
    fn is_alive(&self) -> bool;
}

/// One I/O queue pair, used by one thread at a time.
pub trait Queue: Send {
    /// Submits a command with host-to-controller data (empty: none). Fails with `Invalid` when `depth` are in flight.
    fn submit(&mut self, command: &Command, data: Vec<u8>) -> Result<Ticket, DriverError>;
    /// Next completion of a submitted command, or `None` at the deadline.
    fn poll(&mut self, deadline: Instant) -> Result<Option<(Ticket, Completion)>, DriverError>;
    /// Reads `buf.len()` bytes (a multiple of the block size) from logical block `lba` on, straight into `buf`, split into several
    /// transfers in flight. Completions of submitted commands that arrive meanwhile are kept for [`Queue::poll`].
    fn read_blocks(&mut self, nsid: u32, lba: u64, buf: &mut [u8], timeout: Duration) -> Result<(), DriverError>;
}
