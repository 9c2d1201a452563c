//! What a controller and its queues are, whichever way they are reached.

use crate::error::DriverError;
use ddlp_nvme::Status;
use std::time::{Duration, Instant};

/// A command as the caller knows it; queue, command identifier and data pointer belong to the transport.
///
/// Only the fields that Linux passthrough can set exist here (`nvme_passthru_cmd64`).
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

impl AdminData<'_> {
    /// Bytes to move.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Write(data) => data.len(),
            Self::Read(data) => data.len(),
        }
    }
}

/// A completed command: its status and its 64-bit result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// DW0–1.
    pub result: u64,
    /// Status field without the phase tag: SC in bits 7:0, SCT in 10:8, DNR in bit 14. 0 is success.
    pub status: u16,
}

impl Completion {
    /// The status with its name.
    pub fn status(&self) -> Status {
        Status(self.status)
    }

    /// The result of a command that had to succeed; `peer` and `what` name it in the error.
    pub fn success(&self, peer: &str, what: &str) -> Result<u64, DriverError> {
        if self.status().is_success() {
            return Ok(self.result);
        }
        let status = self.status().to_string();
        Err(DriverError::Status { peer: peer.to_owned(), what: what.to_owned(), status, code: self.status })
    }
}

/// Names a command submitted on a [`Queue`]; never reused within the life of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// What became of an attempt to abort a command. Its completion still comes by [`Queue::poll`] in every case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbortOutcome {
    /// The controller says that it aborted the command: the completion carries Command Abort Requested.
    Aborted,
    /// The controller could not: the command has run, or runs on.
    NotAborted,
    /// The command has completed already, or this queue never submitted it.
    NotInFlight,
    /// There is no way to name a command to Abort here (kernel passthrough: the driver owns the identifiers).
    Impossible,
}

/// One association with a controller.
pub trait Controller: Send + Sync {
    /// What the peer is called in messages.
    fn peer(&self) -> &str;
    /// Largest data transfer of one command in bytes.
    fn transfer_bytes_max(&self) -> usize;
    /// Runs one admin command. A status other than success is returned in the completion, not as an error. Callers of several
    /// threads take turns; waiting for a turn counts towards `timeout`, and running out of it there fails that call alone,
    /// with [`DriverError::Busy`]: its command was never sent.
    fn admin(&self, command: &Command, data: AdminData<'_>, timeout: Duration) -> Result<Completion, DriverError>;
    /// Opens an I/O queue with up to `depth` commands in flight.
    fn open_queue(&self, depth: usize) -> Result<Box<dyn Queue>, DriverError>;
    /// False once the association is lost (keep alive unanswered, connection closed). It never comes back: connect anew.
    fn is_alive(&self) -> bool;
    /// Ends the association at once as far as this side goes: every thread that waits for the controller gets
    /// [`DriverError::Lost`]. The kernel's association goes on, and so do commands in flight there.
    fn close(&self);
}

/// One I/O queue pair, used by one thread at a time.
pub trait Queue: Send {
    /// Submits a command with host-to-controller data (empty: none). Fails with `Invalid` when `depth` are in flight.
    ///
    /// `within` is for a transport with a clock of its own that cannot be stopped: the kernel ends the association when it has
    /// passed. It has to cover everything that the controller does before; the caller's own patience should end sooner.
    fn submit(&mut self, command: &Command, data: Vec<u8>, within: Duration) -> Result<Ticket, DriverError>;
    /// Next completion of a submitted command, or `None` at the deadline. A deadline in the past takes what has arrived.
    fn poll(&mut self, deadline: Instant) -> Result<Option<(Ticket, Completion)>, DriverError>;
    /// Reads `buf.len()` bytes (a multiple of the block size) from logical block `lba` on into `buf`, split into several transfers in
    /// flight. Completions of submitted commands that arrive meanwhile are kept for [`Queue::poll`].
    ///
    /// What arrives has to be checked by what it contains: the kernel does not tell a read that was cut short from a whole one. On an
    /// error the content of `buf` is unspecified. [`DriverError::Status`] leaves the queue usable.
    fn read_blocks(&mut self, nsid: u32, lba: u64, buf: &mut [u8], timeout: Duration) -> Result<(), DriverError>;
    /// Asks the controller to abort a submitted command.
    fn abort(&mut self, ticket: Ticket, timeout: Duration) -> Result<AbortOutcome, DriverError> {
        let _ = (ticket, timeout);
        Ok(AbortOutcome::Impossible)
    }
}
