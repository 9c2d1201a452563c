//! A board: an aarch64 guest with Debian 12 and systemd, which gets the agent as a package.

use crate::debian;
use crate::disk;
use crate::guest::{Bus, Guest, Machine, forwards};
use crate::initramfs::Initramfs;
use crate::kernel::GuestKernel;
use crate::packages::{Arch, Packages};
use crate::programs::board_package;
use crate::scratch::ScratchFolder;
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Address for the agent in the guest.
pub const ADDRESS: &str = "10.0.2.15:4420";
/// Name of the package on the second disk.
pub const PACKAGE: &str = "ddlp-device.deb";

const PORT: u16 = 4420;
/// Device of the disk with the system.
const SYSTEM: &str = "/dev/vda";
/// Longest time from a start until the system is up, and from a reboot until it is down.
const PATIENCE: Duration = Duration::from_secs(240);

/// A running board.
pub struct Board {
    guest: Option<Guest>,
    machine: Machine,
    _scratch: ScratchFolder,
}

impl Board {
    /// Starts a board. Its second disk, an ordinary NVMe disk at `/dev/nvme0n1`, is ext4 with the package and these
    /// files.
    pub fn start(name: &str, content: &[(&str, &Path)]) -> Result<Self> {
        let packages = Packages::open()?;
        let scratch = ScratchFolder::new()?;
        let staging = scratch.join("staging");
        let system = scratch.join("system");
        debian::make_disk(&packages, &system, &staging, name, SYSTEM)?;
        let ordinary = scratch.join("ordinary");
        fs::create_dir_all(&staging)?;
        disk::copy(&board_package()?, &staging.join(PACKAGE))?;
        for (name, source) in content {
            disk::copy(source, &staging.join(name))?;
        }
        disk::make(&ordinary, &staging)?;

        let kernel = GuestKernel::debian(&packages, "linux-image-arm64", Arch::Arm64)?;
        let busybox = packages.unpacked("busybox-static", Arch::Arm64)?.join("bin/busybox");
        let modules = kernel.modules(&[
            "virtio_pci",
            "virtio_console",
            "virtio_net",
            "virtio_blk",
            "nvme",
            "nvme-tcp",
            "crc32c_generic",
            "ext4",
        ])?;
        let initramfs = scratch.join("initramfs");
        Initramfs::create_before(SYSTEM, &initramfs, &busybox, &modules)?;
        let machine = Machine {
            name: name.into(),
            arch: Arch::Arm64,
            kernel,
            initramfs,
            memory_mib: 1024,
            cores: 4,
            disks: vec![(system, Bus::Virtio), (ordinary, Bus::Nvme)],
            forwards: forwards(&[PORT])?,
        };
        let _ = fs::remove_file(machine.log());
        Ok(Self { guest: Some(Guest::start(machine.clone())?), machine, _scratch: scratch })
    }

    /// Waits until all services are up after a boot.
    pub fn ready(&self) -> Result<()> {
        let guest = self.guest();
        guest.ready()?;
        // A degraded system is up too; one of its units failed.
        let wait = "until systemctl is-system-running | grep -qE 'running|degraded'; do sleep 0.5; done";
        guest.succeed(wait, PATIENCE).map(drop).context("the system does not come up")
    }

    /// Returns the board's guest.
    ///
    /// # Panics
    ///
    /// Panics after a reboot that failed.
    pub fn guest(&self) -> &Guest {
        self.guest.as_ref().expect("it runs")
    }

    /// Reboots the board, as its administrator would, and waits until it is up again.
    pub fn reboot(&mut self) -> Result<()> {
        // The guest's shell may be gone before it can report how the command ended.
        let said = self.guest().run("systemctl reboot", PATIENCE);
        let guest = self.guest.take().expect("it runs");
        guest.ended(PATIENCE).with_context(|| format!("the system does not go down: {said:?}"))?;
        self.guest = Some(Guest::start(self.machine.clone())?);
        self.ready()
    }

    /// Returns the port of this machine's loopback that leads to [`ADDRESS`].
    pub fn port(&self) -> u16 {
        self.machine.forwards[0].0
    }
}
