//! The kernel's passthrough structures, and the ioctls. Linux, `include/uapi/linux/nvme_ioctl.h`.

#![allow(unsafe_code)]

use crate::contract::{Command, Completion};
use ddlp_nvme::code::Direction;
use nix::errno::Errno;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::Duration;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Memory that commands read into: whole pages, so that the kernel maps them and copies nothing.
#[derive(Clone, FromZeros, IntoBytes, Immutable)]
#[repr(C, align(4096))]
struct Page([u8; 4096]);

/// A page-aligned buffer.
pub(super) struct Pages(Vec<Page>);

impl Pages {
    /// A buffer of at least `bytes` bytes.
    pub(super) fn new(bytes: usize) -> Self {
        Self(vec![Page::new_zeroed(); bytes.div_ceil(size_of::<Page>())])
    }

    /// Its bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// Data of a command; it belongs to the command while that is in flight.
pub(super) enum Data {
    None,
    /// Host to controller.
    Write(Vec<u8>),
    /// Controller to host: the first bytes of the buffer.
    Read(Pages, usize),
}

impl Data {
    fn address(&mut self) -> u64 {
        match self {
            Self::None => 0,
            Self::Write(data) => data.as_ptr() as u64,
            Self::Read(pages, _) => pages.0.as_mut_ptr() as u64,
        }
    }

    fn length(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Write(data) => data.len(),
            Self::Read(_, length) => *length,
        }
    }

    /// True when a command of this opcode moves data this way.
    pub(super) fn suits(&self, opcode: u8) -> bool {
        match self {
            Self::None => true,
            Self::Write(_) => Direction::of(opcode) == Direction::Write,
            Self::Read(pages, length) => Direction::of(opcode) == Direction::Read && *length <= pages.bytes().len(),
        }
    }
}

/// `struct nvme_uring_cmd`; the first 72 bytes of `struct nvme_passthru_cmd64` are the same.
#[derive(Clone, Copy, Debug, Default, IntoBytes, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct UringCommand {
    opcode: u8,
    flags: u8,
    reserved_2: u16,
    nsid: u32,
    cdw2: u32,
    cdw3: u32,
    metadata: u64,
    address: u64,
    metadata_length: u32,
    data_length: u32,
    cdw10_15: [u32; 6],
    timeout_ms: u32,
    reserved_68: u32,
}
const _: () = assert!(size_of::<UringCommand>() == 72);

/// `struct nvme_passthru_cmd64`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct PassthroughCommand {
    command: UringCommand,
    result: u64,
}
const _: () = assert!(size_of::<PassthroughCommand>() == 80);

impl UringCommand {
    /// The command as the kernel takes it. `within` is when the kernel gives up, and with this command on the whole association.
    pub(super) fn new(command: &Command, data: &mut Data, within: Duration) -> Self {
        Self {
            opcode: command.opcode,
            nsid: command.nsid,
            cdw2: command.cdw2,
            cdw3: command.cdw3,
            address: data.address(),
            data_length: u32::try_from(data.length()).unwrap_or(u32::MAX),
            cdw10_15: command.cdw10_15,
            // 0 would stand for the kernel's default.
            timeout_ms: u32::try_from(within.as_millis()).unwrap_or(u32::MAX).max(1),
            ..Self::default()
        }
    }
}

/// Which queue a command goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Through the controller's node.
    Admin,
    /// Through a namespace's generic node.
    Io,
}

impl Kind {
    /// `NVME_URING_CMD_ADMIN` and `NVME_URING_CMD_IO`.
    pub(super) const fn uring_operation(self) -> u32 {
        let number = match self {
            Self::Admin => 0x82,
            Self::Io => 0x80,
        };
        nix::request_code_readwrite!(b'N', number, size_of::<UringCommand>()) as u32
    }
}

mod raw {
    nix::ioctl_readwrite!(admin64, b'N', 0x47, super::PassthroughCommand);
    nix::ioctl_readwrite!(io64, b'N', 0x48, super::PassthroughCommand);
}

/// What the kernel says of a command: a status by the controller, or an error of its own.
pub(super) type Outcome = Result<Completion, Errno>;

/// A status as passthrough returns it (a positive number) as a completion.
pub(super) fn completion(status: i32, result: u64) -> Completion {
    Completion { result, status: status as u16 }
}

/// Runs a command and waits for its end, which no signal shortens.
pub(super) fn run(kind: Kind, node: &File, command: &Command, data: &mut Data, within: Duration) -> Outcome {
    if !data.suits(command.opcode) {
        return Err(Errno::EINVAL);
    }
    let mut request = PassthroughCommand { command: UringCommand::new(command, data, within), result: 0 };
    // SAFETY: the structure is the one that the request code stands for. Its address and length are those of `data`, which is
    // borrowed for the call and, as the opcode's direction says, only read, or writable memory of that length; the ioctl
    // returns when the command is over.
    let status = unsafe {
        match kind {
            Kind::Admin => raw::admin64(node.as_raw_fd(), &mut request),
            Kind::Io => raw::io64(node.as_raw_fd(), &mut request),
        }
    }?;
    Ok(completion(status, request.result))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_codes_are_those_of_the_kernel() {
        // Computed by a C program from linux/nvme_ioctl.h.
        assert_eq!(Kind::Io.uring_operation(), 0xC048_4E80);
        assert_eq!(Kind::Admin.uring_operation(), 0xC048_4E82);
        assert_eq!(nix::request_code_readwrite!(b'N', 0x47, size_of::<PassthroughCommand>()) as u32, 0xC050_4E47);
        assert_eq!(nix::request_code_readwrite!(b'N', 0x48, size_of::<PassthroughCommand>()) as u32, 0xC050_4E48);
    }

    #[test]
    fn fields_lie_where_the_kernel_looks() {
        let command = Command { opcode: 2, nsid: 3, cdw2: 4, cdw3: 5, cdw10_15: [10, 11, 12, 13, 14, 15] };
        let mut data = Data::Read(Pages::new(5000), 4096);
        let raw = UringCommand::new(&command, &mut data, Duration::from_secs(2));
        let words: Vec<u32> =
            raw.as_bytes().chunks(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect();
        assert_eq!((words[0], &words[1..4]), (2, &[3, 4, 5][..]));
        assert_eq!(words[9], 4096);
        assert_eq!(words[10..17], [10, 11, 12, 13, 14, 15, 2000]);
        let address = u64::from_ne_bytes(raw.as_bytes()[24..32].try_into().unwrap());
        assert_eq!(address, data.address());
        assert!(address.is_multiple_of(4096));
    }

    #[test]
    fn data_goes_the_way_that_the_opcode_says() {
        assert!(Data::Write(vec![1]).suits(0x01) && !Data::Write(vec![1]).suits(0x02));
        assert!(Data::Read(Pages::new(1), 1).suits(0x02) && !Data::Read(Pages::new(1), 1).suits(0x01));
        assert!(!Data::Read(Pages::new(1), 4097).suits(0x02), "longer than its buffer");
        assert!(Data::None.suits(0x01) && Data::None.suits(0x02));
    }
}
