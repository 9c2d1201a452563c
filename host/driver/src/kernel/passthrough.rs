//! The kernel's passthrough structures and ioctls. Linux, `include/uapi/linux/nvme_ioctl.h`.

#![allow(unsafe_code)]

use super::nodes::OpenNode;
use super::request::{KernelAnswer, Request, Toward};
use crate::contract::Completion;
use nix::errno::Errno;
use std::os::fd::AsRawFd;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

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
    /// Encodes the command for the kernel.
    pub(super) fn new(request: &mut Request) -> Self {
        let (command, within) = (*request.command(), request.within());
        let data = request.data();
        Self {
            opcode: command.opcode,
            nsid: command.nsid,
            cdw2: command.cdw2,
            cdw3: command.cdw3,
            address: data.address(),
            data_length: u32::try_from(data.length()).unwrap_or(u32::MAX),
            cdw10_15: command.cdw10_15,
            // 0 would mean the kernel's default.
            timeout_ms: u32::try_from(within.as_millis()).unwrap_or(u32::MAX).max(1),
            ..Self::default()
        }
    }
}

impl Toward {
    /// Returns `NVME_URING_CMD_ADMIN` or `NVME_URING_CMD_IO`.
    pub(super) const fn uring_operation(self) -> u32 {
        let number = match self {
            Self::Admin => 0x82,
            Self::Io => 0x80,
        };
        nix::request_code_readwrite!(b'N', number, size_of::<UringCommand>()) as u32
    }
}

mod raw {
    nix::ioctl_none!(namespace_id, b'N', 0x40);
    nix::ioctl_readwrite!(admin64, b'N', 0x47, super::PassthroughCommand);
    nix::ioctl_readwrite!(io64, b'N', 0x48, super::PassthroughCommand);
}

/// Returns the namespace of a node.
pub(super) fn namespace_id(node: &OpenNode) -> Result<u32, Errno> {
    // SAFETY: it takes no argument, and returns a number.
    let nsid = unsafe { raw::namespace_id(node.as_raw_fd()) }?;
    Ok(nsid as u32)
}

/// Converts the status that passthrough returns (a positive number) to a completion.
pub(super) fn completion(status: i32, result: u64) -> Completion {
    Completion { result, status: status as u16 }
}

/// Runs a command and waits for its end; no signal shortens the wait.
pub(super) fn run(request: &mut Request) -> KernelAnswer {
    let mut command = PassthroughCommand { command: UringCommand::new(request), result: 0 };
    let node = request.node().as_raw_fd();
    // SAFETY: the structure is the one that the request code names. Its address and length describe the request's data,
    // which are borrowed for the call. As the opcode's direction says, the kernel only reads them, or they are writable
    // memory of that length. The ioctl returns when the command is over.
    let status = unsafe {
        match request.toward() {
            Toward::Admin => raw::admin64(node, &mut command),
            Toward::Io => raw::io64(node, &mut command),
        }
    }?;
    Ok(completion(status, command.result))
}

#[cfg(test)]
mod tests {
    use super::super::request::{Data, Pages};
    use super::*;
    use crate::contract::Command;
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn request_codes_are_those_of_the_kernel() {
        // Computed by a C program from linux/nvme_ioctl.h.
        assert_eq!(Toward::Io.uring_operation(), 0xC048_4E80);
        assert_eq!(Toward::Admin.uring_operation(), 0xC048_4E82);
        assert_eq!(nix::request_code_readwrite!(b'N', 0x47, size_of::<PassthroughCommand>()) as u32, 0xC050_4E47);
        assert_eq!(nix::request_code_readwrite!(b'N', 0x48, size_of::<PassthroughCommand>()) as u32, 0xC050_4E48);
    }

    #[test]
    fn fields_lie_where_the_kernel_looks() {
        let command = Command { opcode: 2, nsid: 3, cdw2: 4, cdw3: 5, cdw10_15: [10, 11, 12, 13, 14, 15], name: None };
        let data = Data::Read(Pages::new(5000), 4096);
        let node = Arc::new(OpenNode::open(Path::new("/dev/null")).unwrap());
        let mut request = Request::new(Toward::Io, node, &command, data, Duration::from_secs(2)).unwrap();
        let raw = UringCommand::new(&mut request);
        let words: Vec<u32> =
            raw.as_bytes().chunks(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect();
        assert_eq!((words[0], &words[1..4]), (2, &[3, 4, 5][..]));
        assert_eq!(words[9], 4096);
        assert_eq!(words[10..17], [10, 11, 12, 13, 14, 15, 2000]);
        let address = u64::from_ne_bytes(raw.as_bytes()[24..32].try_into().unwrap());
        assert_eq!(address, request.data().address());
        assert!(address.is_multiple_of(4096));
    }
}
