//! The interface of controllers and their queues, common to all drivers.

use crate::error::DriverError;
use ddlp_nvme::{AdminOpcode, Status};
use std::time::{Duration, Instant};

/// A command from the caller's view. Queue, command identifier and data pointer belong to the transport.
///
/// Its other fields are those that Linux passthrough can set (`nvme_passthru_cmd64`); the name is not sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// Operation code.
    pub opcode: u8,
    /// Namespace identifier, 0 if not used.
    pub nsid: u32,
    /// Command dword 2.
    pub cdw2: u32,
    /// Command dword 3.
    pub cdw3: u32,
    /// Command dwords 10 to 15.
    pub cdw10_15: [u32; 6],
    /// Name of an admin command in messages, if the standard has no name for its opcode.
    pub name: Option<&'static str>,
}

impl Command {
    /// Names an admin command in messages.
    pub(crate) fn admin_name(&self) -> String {
        let name = AdminOpcode(self.opcode).name().or(self.name);
        name.map_or_else(|| format!("vendor-specific admin command {:02X}h", self.opcode), str::to_owned)
    }
}

/// Data of an admin command.
#[derive(Debug)]
pub enum AdminData<'a> {
    /// No data.
    None,
    /// Data from host to controller.
    Write(&'a [u8]),
    /// Data from controller to host; the command asks for the whole buffer.
    Read(&'a mut [u8]),
}

impl AdminData<'_> {
    /// Returns the number of bytes to move.
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
    /// Result, dwords 0 and 1 of the entry.
    pub result: u64,
    /// Status field without the phase tag: SC in bits 7:0, SCT in 10:8, DNR in bit 14. 0 is success.
    pub status: u16,
}

impl Completion {
    /// Returns the status with its name.
    pub fn status(&self) -> Status {
        Status(self.status)
    }

    /// Returns the result, or an error unless the command succeeded; `peer` and `what` name the command in the error.
    pub fn success(&self, peer: &str, what: &str) -> Result<u64, DriverError> {
        if self.status().is_success() {
            return Ok(self.result);
        }
        let status = self.status().to_string();
        Err(DriverError::Status { peer: peer.to_owned(), what: what.to_owned(), status, code: self.status })
    }
}

/// Name of a command submitted on a [`Queue`]; never reused during the life of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// Result of an attempt to abort a command. In every case the command's completion still comes by [`Queue::poll`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbortOutcome {
    /// The controller reports that it aborted the command: the completion carries Command Abort Requested.
    Aborted,
    /// The controller could not abort the command, which has finished or still runs.
    NotAborted,
    /// The command has completed already, or this queue never submitted it.
    NotInFlight,
    /// This driver cannot name a command to Abort (kernel passthrough: the kernel owns the identifiers).
    Impossible,
}

/// One association with a controller.
pub trait Controller: Send + Sync {
    /// Returns the name of the peer in messages.
    fn peer(&self) -> &str;
    /// Returns the largest data transfer of one command, in bytes.
    fn transfer_bytes_max(&self) -> usize;
    /// Runs one admin command. A status other than success is returned in the completion, not as an error. Callers on
    /// several threads take turns, and waiting for a turn counts towards `timeout`. If `timeout` passes during that
    /// wait, only this call fails, with [`DriverError::Busy`]: its command was never sent.
    fn admin(&self, command: &Command, data: AdminData<'_>, timeout: Duration) -> Result<Completion, DriverError>;
    /// Opens an I/O queue with up to `depth` commands in flight, beside at least one read: as many reads as the path
    /// needs and the controller allows ([`reads`](crate::reads)). A queue of depth 0 only reads: it shares a controller
    /// of the kernel's with other processes, whereas any other queue fails with [`DriverError::InUse`] if another
    /// process has one.
    fn open_queue(&self, depth: usize) -> Result<Box<dyn Queue>, DriverError>;
    /// Returns false once the association is lost (keep alive unanswered, connection closed). It never comes back:
    /// connect again.
    fn is_alive(&self) -> bool;
    /// Ends the association at once on this side: every thread that waits for the controller gets
    /// [`DriverError::Lost`]. An association of the kernel remains, and commands in flight there continue.
    fn close(&self);
}

/// One read of [`Queue::read_many`].
#[derive(Debug)]
pub struct BlockRead<'b> {
    /// First logical block.
    pub lba: u64,
    /// Memory for whole blocks.
    pub buf: &'b mut [u8],
}

/// One I/O queue pair, used by one thread at a time.
pub trait Queue: Send {
    /// Submits a command, with data from the host unless `data` is empty. Fails with `Invalid` if `depth` commands are
    /// in flight.
    ///
    /// `within` is for a transport with a timer of its own that cannot be stopped: when it runs out, the kernel ends
    /// the association. It has to cover all work of the controller before the completion, and to exceed the caller's
    /// own time-out.
    fn submit(&mut self, command: &Command, data: Vec<u8>, within: Duration) -> Result<Ticket, DriverError>;
    /// Returns the next completion of a submitted command, or `None` at the deadline. A deadline in the past takes only
    /// what has already arrived.
    fn poll(&mut self, deadline: Instant) -> Result<Option<(Ticket, Completion)>, DriverError>;
    /// Reads whole blocks into several buffers, with many transfers in flight. Keeps completions of submitted commands
    /// that arrive meanwhile for [`Queue::poll`].
    ///
    /// The caller has to check the data by its contents: the kernel does not distinguish a read that was cut short from
    /// a whole one. After an error the contents of all buffers are unspecified. After [`DriverError::Status`] the queue
    /// remains usable.
    fn read_many(&mut self, nsid: u32, reads: &mut [BlockRead<'_>], timeout: Duration) -> Result<(), DriverError>;
    /// Reads `buf.len()` bytes (a multiple of the block size), starting at logical block `lba`, into `buf`, as
    /// [`read_many`](Self::read_many) does.
    fn read_blocks(&mut self, nsid: u32, lba: u64, buf: &mut [u8], timeout: Duration) -> Result<(), DriverError> {
        self.read_many(nsid, &mut [BlockRead { lba, buf }], timeout)
    }
    /// Asks the controller to abort a submitted command.
    fn abort(&mut self, ticket: Ticket, timeout: Duration) -> Result<AbortOutcome, DriverError> {
        let _ = (ticket, timeout);
        Ok(AbortOutcome::Impossible)
    }
}
