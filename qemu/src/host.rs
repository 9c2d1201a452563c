//! The host: an x86-64 guest with nvme-tcp, nvme-cli, `ddlp` and datasets, under one of two kernels.

use crate::guest::{Bus, Guest, Machine};
use crate::initramfs::Initramfs;
use crate::kernel::GuestKernel;
use crate::packages::{Arch, Packages};
use crate::programs::native;
use crate::scratch::ScratchFolder;
use crate::tools::said;
use crate::{HOST_ID, HOST_NQN};
use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A kernel of Debian 12.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostKernel {
    /// The kernel of the release.
    Linux6_1,
    /// The newer kernel in Debian's security suite.
    Linux6_12,
}

impl HostKernel {
    /// Returns the kernel's version.
    pub fn version(self) -> &'static str {
        match self {
            Self::Linux6_1 => "6.1",
            Self::Linux6_12 => "6.12",
        }
    }

    fn package(self) -> &'static str {
        match self {
            Self::Linux6_1 => "linux-image-amd64",
            Self::Linux6_12 => "linux-image-6.12-amd64",
        }
    }
}

/// Packages of nvme-cli, and of its libraries that not every system has.
const NVME_CLI: [&str; 8] =
    ["nvme-cli", "libnvme1", "libjson-c5", "libssl3", "libdbus-1-3", "libsystemd0", "libuuid1", "zlib1g"];
/// Size of the ordinary disk in bytes.
const ORDINARY_BYTES: u64 = 64 << 20;

/// A running host.
pub struct HostGuest {
    guest: Guest,
    _scratch: ScratchFolder,
}

impl HostGuest {
    /// Starts a guest with these datasets in `/data`, and an NVMe disk of QEMU's as well if `ordinary`.
    pub fn start(name: &str, kernel: HostKernel, ordinary: bool, content: &[(&str, &Path)]) -> Result<Self> {
        ensure!(cfg!(target_arch = "x86_64"), "the host guest runs this machine's programs, which are not for x86-64");
        let packages = Packages::open()?;
        let scratch = ScratchFolder::new()?;
        let kernel = GuestKernel::debian(&packages, kernel.package(), Arch::Amd64)?;
        let busybox = packages.unpacked("busybox-static", Arch::Amd64)?.join("bin/busybox");
        let modules =
            kernel.modules(&["virtio_pci", "virtio_console", "virtio_net", "crc32c_generic", "nvme", "nvme-tcp"])?;
        let initramfs = scratch.join("initramfs");
        let mut root = Initramfs::create(&initramfs, name, &busybox, &modules)?;
        for program in ["ddlp", "ddlp-device", "ddlp-contract"] {
            // Stripped, since debug information would take most of the guest's memory.
            let stripped = scratch.join(program);
            said(Command::new("strip").arg("-o").arg(&stripped).arg(native(program)?))?;
            root.add_program(&format!("bin/{program}"), &stripped, &[])?;
        }
        let folders =
            NVME_CLI.iter().map(|package| packages.unpacked(package, Arch::Amd64)).collect::<Result<Vec<_>>>()?;
        root.add_program("sbin/nvme", &folders[0].join("usr/sbin/nvme"), &library_folders(&folders))?;
        root.text("etc/nvme/hostnqn", &format!("{HOST_NQN}\n"))?;
        root.text("etc/nvme/hostid", &format!("{HOST_ID}\n"))?;
        for (name, source) in content {
            root.add_file(&format!("data/{name}"), source).with_context(|| format!("cannot take {name}"))?;
        }
        root.finish()?;
        let mut disks = Vec::new();
        if ordinary {
            let disk = scratch.join("ordinary");
            File::create(&disk).and_then(|file| file.set_len(ORDINARY_BYTES)).context("cannot make a disk")?;
            disks.push((disk, Bus::Nvme));
        }
        let machine = Machine {
            name: name.into(),
            arch: Arch::Amd64,
            kernel,
            initramfs,
            memory_mib: 768,
            cores: 2,
            disks,
            forwards: Vec::new(),
        };
        let _ = fs::remove_file(machine.log());
        Ok(Self { guest: Guest::start(machine)?, _scratch: scratch })
    }

    /// Returns the running guest.
    pub fn guest(&self) -> &Guest {
        &self.guest
    }
}

fn library_folders(roots: &[PathBuf]) -> Vec<PathBuf> {
    let folders = roots.iter().flat_map(|root| ["usr/lib", "lib"].map(|lib| root.join(lib).join("x86_64-linux-gnu")));
    folders.filter(|folder| folder.is_dir()).collect()
}
