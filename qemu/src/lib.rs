//! Guests under QEMU, for tests that need a kernel or another architecture: an ARM drive, x86-64 hosts with Debian's
//! kernels, and an ARM board.
//!
//! - [`packages`]: kernels, busybox and nvme-cli, fetched by apt into a folder of their own; nothing is installed.
//! - [`kernel`]: a kernel's image, and its modules in the order in which they load.
//! - [`programs`]: `ddlp` and `ddlp-device` for this machine and for aarch64, and the libraries that a program needs.
//! - [`initramfs`]: the guest's root file system in memory; init opens shells on virtio-serial ports.
//! - [`guest`]: a running QEMU: [`shell`]s, [`qmp`], the serial log. Killed when dropped, and when this process ends.
//! - [`drive`]: a guest with the agent. [`host`]: a guest with nvme-tcp, nvme-cli and `ddlp`.
//! - [`board`]: a guest with a whole [`debian`] system, for the agent's package.
//! - [`disk`]: disk images of guests.
//! - `tools`: programs of this machine that the others run. [`scratch`]: temporary files of guests, removed at the end.
//!
//! QEMU emulates the CPU unless KVM works (`accel`). Every wait has a limit. A guest belongs to the thread that started
//! it: QEMU is killed when that thread ends.

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
mod tools;

use std::path::PathBuf;

/// Host NQN of the tests' hosts.
pub const HOST_NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:6b1d3f0e-5a44-4c1b-9a57-2f6f0f4b7c11";
/// Host identifier of the tests' hosts.
pub const HOST_ID: &str = "6b1d3f0e-5a44-4c1b-9a57-2f6f0f4b7c11";

/// Returns cargo's target folder. Kernels and logs lie in its folder `qemu`.
///
/// # Panics
///
/// Panics if this program does not lie where cargo has put it.
pub fn target_dir() -> PathBuf {
    profile_folder().parent().expect("it lies in the target folder").to_path_buf()
}

/// Returns the folder of the profile in which this program was built: `debug` or `release`.
fn profile_folder() -> PathBuf {
    let exe = std::env::current_exe().expect("the program has a path");
    let folder = exe.ancestors().find(|folder| folder.ends_with("debug") || folder.ends_with("release"));
    folder.expect("run it by cargo, below whose target folder it works").to_path_buf()
}
