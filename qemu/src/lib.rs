//! Guests under QEMU: an ARM drive and x86-64 hosts with Debian's kernels, for what needs a kernel or another architecture.
//!
//! - [`packages`]: kernels, busybox and nvme-cli, fetched by apt into a folder of their own; nothing is installed.
//! - [`kernel`]: a kernel's image, and its modules in the order in which they load.
//! - [`programs`]: `ddlp` and `ddlp-device` for this machine and for aarch64, and the libraries that a program needs.
//! - [`initramfs`]: the guest's root file system in memory; init opens shells on virtio-serial ports.
//! - [`guest`]: a running QEMU: [`shell`]s, [`qmp`], the serial log. Killed when dropped, and when this process ends.
//! - [`drive`], [`host`]: a guest that is little more than the agent, and one that is little more than a kernel with nvme-tcp.
//! - [`board`]: one with all of a [`debian`] system, for the agent's package.
//! - [`disk`]: their disk images.
//! - [`scratch`]: their files, removed in the end.
//!
//! Everything is emulated unless KVM is seen to work (`accel`). Every wait has a limit. A guest belongs to the thread that
//! started it: QEMU is killed when that thread ends.

#![forbid(unsafe_code)]

mod accel;
pub mod board;
pub mod debian;
pub mod disk;
pub mod drive;
pub mod guest;
pub mod host;
pub mod initramfs;
pub mod kernel;
pub mod packages;
pub mod programs;
pub mod qmp;
pub mod scratch;
pub mod shell;

use std::path::PathBuf;

/// Host NQN of the hosts that a drive guest serves.
pub const HOST_NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:6b1d3f0e-5a44-4c1b-9a57-2f6f0f4b7c11";
/// Its host identifier.
pub const HOST_ID: &str = "6b1d3f0e-5a44-4c1b-9a57-2f6f0f4b7c11";

/// Where cargo puts what it builds; kernels and logs lie in `qemu` below it.
///
/// # Panics
///
/// When this program does not lie where cargo has put it.
pub fn target_dir() -> PathBuf {
    profile_folder().parent().expect("it lies in the target folder").to_path_buf()
}

/// The folder of the profile that this program was built in: `debug` or `release`.
fn profile_folder() -> PathBuf {
    let exe = std::env::current_exe().expect("the program has a path");
    let folder = exe.ancestors().find(|folder| folder.ends_with("debug") || folder.ends_with("release"));
    folder.expect("run it by cargo, below whose target folder it works").to_path_buf()
}
