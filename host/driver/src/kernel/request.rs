//! A command to the kernel, with its node and the memory that the kernel reads or writes for it.

use super::nodes::OpenNode;
use crate::contract::{Command, Completion};
use crate::error::DriverError;
use ddlp_nvme::code::Direction;
use nix::errno::Errno;
use std::sync::Arc;
use std::time::Duration;
use zerocopy::{FromZeros, Immutable, IntoBytes};

/// A page of the memory that commands read into: with whole pages the kernel maps them and copies nothing.
#[derive(Clone, FromZeros, IntoBytes, Immutable)]
#[repr(C, align(4096))]
struct Page([u8; 4096]);

/// A page-aligned buffer.
pub(super) struct Pages(Vec<Page>);

impl Pages {
    /// Allocates a buffer of at least `bytes` bytes.
    pub(super) fn new(bytes: usize) -> Self {
        Self(vec![Page::new_zeroed(); bytes.div_ceil(size_of::<Page>())])
    }

    /// Returns the buffer's bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// Data of a command, which owns them while it is in flight.
pub(super) enum Data {
    None,
    /// Data from host to controller.
    Write(Vec<u8>),
    /// Data from controller to host: the first bytes of the buffer.
    Read(Pages, usize),
}

impl Data {
    pub(super) fn address(&mut self) -> u64 {
        match self {
            Self::None => 0,
            Self::Write(data) => data.as_ptr() as u64,
            Self::Read(pages, _) => pages.0.as_mut_ptr() as u64,
        }
    }

    pub(super) fn length(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Write(data) => data.len(),
            Self::Read(_, length) => *length,
        }
    }

    /// Returns whether a command with this opcode moves data in this direction.
    fn suits(&self, opcode: u8) -> bool {
        match self {
            Self::None => true,
            Self::Write(_) => Direction::of(opcode) == Direction::Write,
            Self::Read(pages, length) => Direction::of(opcode) == Direction::Read && *length <= pages.bytes().len(),
        }
    }
}

/// Queue that a command goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Toward {
    /// Admin queue, through the controller's node.
    Admin,
    /// I/O queue, through a namespace's generic node.
    Io,
}

/// A command to the kernel. Its data match the direction of its opcode, which the kernel relies on.
pub(super) struct Request {
    pub(super) tag: u64,
    toward: Toward,
    node: Arc<OpenNode>,
    command: Command,
    data: Data,
    within: Duration,
}

/// Answer of the kernel to a command: the controller's status, or an error of its own.
pub(super) type KernelAnswer = Result<Completion, Errno>;

/// A command that is over, and the kernel's answer.
pub(super) type Answered = (Request, KernelAnswer);

impl Request {
    /// Makes a request that the kernel gives up after `within`. Returns an error if the opcode does not move data in
    /// this direction.
    pub(super) fn new(
        toward: Toward,
        node: Arc<OpenNode>,
        command: &Command,
        data: Data,
        within: Duration,
    ) -> Result<Self, DriverError> {
        let request = Self { tag: 0, toward, node, command: *command, data, within };
        if !request.data.suits(command.opcode) {
            return Err(DriverError::Invalid(format!("{} does not move data in that direction", request.what())));
        }
        Ok(request)
    }

    pub(super) fn toward(&self) -> Toward {
        self.toward
    }

    pub(super) fn node(&self) -> &OpenNode {
        &self.node
    }

    pub(super) fn command(&self) -> &Command {
        &self.command
    }

    pub(super) fn within(&self) -> Duration {
        self.within
    }

    /// Returns the memory for the kernel. It stays in place when the request moves.
    pub(super) fn data(&mut self) -> &mut Data {
        &mut self.data
    }

    /// Returns the data, once the command is over.
    pub(super) fn into_data(self) -> Data {
        self.data
    }

    /// Returns the command's name in messages.
    pub(super) fn what(&self) -> String {
        let Command { opcode, nsid, .. } = self.command;
        match self.toward {
            Toward::Admin => self.command.admin_name(),
            Toward::Io => format!("command {opcode:02X}h of namespace {nsid}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddlp_nvme::AdminOpcode;

    #[test]
    fn data_goes_the_way_that_the_opcode_says() {
        assert!(Data::Write(vec![1]).suits(0x01) && !Data::Write(vec![1]).suits(0x02));
        assert!(Data::Read(Pages::new(1), 1).suits(0x02) && !Data::Read(Pages::new(1), 1).suits(0x01));
        assert!(!Data::Read(Pages::new(1), 4097).suits(0x02), "longer than its buffer");
        assert!(Data::None.suits(0x01) && Data::None.suits(0x02));
        let node = Arc::new(OpenNode::open(std::path::Path::new("/dev/null")).unwrap());
        let log_page = Command { opcode: AdminOpcode::GET_LOG_PAGE.0, ..Command::default() };
        let refused = Request::new(Toward::Admin, node, &log_page, Data::Write(vec![1]), Duration::ZERO).err().unwrap();
        assert!(matches!(refused, DriverError::Invalid(_)), "{refused}");
    }
}
