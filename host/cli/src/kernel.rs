//! The parts of this machine's kernel that matter for NVMe controllers: modules, rights, nodes.
//!
//! Everything is read below one root folder, [`RunningKernel::at`], so that tests need no real kernel of that kind.

mod locks;
#[cfg(test)]
pub mod planted;

pub use locks::Locks;

use ddlp_driver::sysfs::{KernelController, Sysfs};
use ddlp_driver::{Host, HostIdentity};
use ddlp_host::is_drive;
use nix::unistd::{AccessFlags, eaccess};
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};

/// Bit of CAP_SYS_ADMIN in a set of capabilities.
const SYS_ADMIN: u32 = 21;
/// First version in which anyone who may write to the node may send I/O commands; older kernels require CAP_SYS_ADMIN
/// for all commands.
const OPEN_IO_SINCE: (u32, u32) = (6, 2);
/// First version in which all NVMe commands can go through io_uring; Linux 5.19 allows it only for I/O commands.
const URING_COMMANDS_SINCE: (u32, u32) = (6, 0);

/// The kernel of this machine.
pub struct RunningKernel {
    root: PathBuf,
    /// Its NVMe controllers.
    pub sysfs: Sysfs,
    /// The machine's identity towards drives on a network.
    pub host: Host,
}

/// A module of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Module {
    /// Loaded or built in.
    Loaded,
    /// Not loaded, but can be loaded.
    Available,
    /// Not part of this kernel.
    Missing,
}

/// Availability of io_uring, for many commands in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum IoUring {
    /// This process may use it.
    Available,
    /// Only other users may use it: `kernel.io_uring_disabled` is 1.
    Restricted,
    /// Nobody may use it: `kernel.io_uring_disabled` is 2.
    Disabled,
    /// The kernel is too old for NVMe commands by io_uring.
    Unsupported,
}

/// A device node, and what this process may do with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Node {
    pub path: PathBuf,
    pub present: bool,
    pub readable: bool,
    pub writable: bool,
}

impl RunningKernel {
    /// Returns the running kernel.
    pub fn system() -> Self {
        Self { host: Host::system(), ..Self::at("/") }
    }

    /// Returns the kernel whose `/sys`, `/dev`, `/proc`, `/lib/modules`, `/etc` and `/var/lib` lie below `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        Self { sysfs: Sysfs::at(root.join("sys"), root.join("dev")), host: Host::at(&root, None), root }
    }

    /// Returns a path below the root, such as that of `dev/nvme-fabrics`.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Returns the release, such as `6.1.0-44-amd64`.
    pub fn release(&self) -> String {
        fs::read_to_string(self.path("proc/sys/kernel/osrelease")).unwrap_or_default().trim().to_owned()
    }

    fn is_at_least(&self, version: (u32, u32)) -> bool {
        version_of(&self.release()).is_some_and(|this| this >= version)
    }

    /// Returns whether a writable node is enough for I/O commands, without CAP_SYS_ADMIN.
    pub fn lets_io_through(&self) -> bool {
        self.is_at_least(OPEN_IO_SINCE)
    }

    /// Returns the state of the module `nvme-tcp`.
    pub fn nvme_tcp(&self) -> Module {
        if self.path("sys/module/nvme_tcp").exists() {
            return Module::Loaded;
        }
        let modules = self.path("lib/modules").join(self.release());
        let lists = |list: &str| {
            let text = fs::read_to_string(modules.join(list)).unwrap_or_default();
            text.lines().any(|line| line.split(':').next().is_some_and(|path| path.contains("/nvme-tcp.ko")))
        };
        if lists("modules.builtin") {
            Module::Loaded
        } else if lists("modules.dep") {
            Module::Available
        } else {
            Module::Missing
        }
    }

    /// Returns whether this process has CAP_SYS_ADMIN, as root usually has.
    pub fn has_sys_admin(&self) -> bool {
        let status = fs::read_to_string(self.path("proc/self/status")).unwrap_or_default();
        let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).is_some_and(|set| set >> SYS_ADMIN & 1 == 1)
    }

    /// Returns whether commands can go through io_uring, according to version and sysctl.
    pub fn io_uring(&self) -> IoUring {
        let disabled = fs::read_to_string(self.path("proc/sys/kernel/io_uring_disabled")).unwrap_or_default();
        match disabled.trim() {
            _ if !self.is_at_least(URING_COMMANDS_SINCE) => IoUring::Unsupported,
            "2" => IoUring::Disabled,
            "1" if !self.has_sys_admin() => IoUring::Restricted,
            _ => IoUring::Available,
        }
    }

    /// Returns which processes hold files by `flock` now.
    pub fn locks(&self) -> Locks {
        Locks::read(&self.path("proc/locks"))
    }

    /// Returns this host's identity if nvme-cli does not find it by itself.
    pub fn unknown_to_nvme_cli(&self) -> Option<HostIdentity> {
        let nqn = self.host.known().filter(|_| !self.path("etc/nvme/hostnqn").exists())?;
        HostIdentity::of(&nqn, None, "this machine", "remove it").ok()
    }

    /// Returns the name of a process; empty if the process is gone.
    pub fn process_name(&self, process: u32) -> String {
        fs::read_to_string(self.path(&format!("proc/{process}/comm"))).unwrap_or_default().trim_end().to_owned()
    }

    /// Returns all DDLP drives, and all other controllers.
    pub fn controllers(&self) -> std::io::Result<(Vec<KernelController>, Vec<KernelController>)> {
        Ok(self.sysfs.controllers()?.into_iter().partition(is_drive))
    }
}

impl Node {
    /// Examines a node without opening it.
    pub fn look(path: &Path) -> Self {
        let may = |mode| eaccess(path, mode).is_ok();
        Self {
            path: path.to_owned(),
            present: may(AccessFlags::F_OK),
            readable: may(AccessFlags::R_OK),
            writable: may(AccessFlags::W_OK),
        }
    }
}

/// Parses the version and patch level from a release's name.
fn version_of(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::planted::kernel;
    use super::*;
    use ddlp_test_support::trees;

    #[test]
    fn versions_are_read_from_releases() {
        assert_eq!(version_of("6.1.0-44-amd64"), Some((6, 1)));
        assert_eq!(version_of("6.12.117+deb12-amd64\n"), Some((6, 12)));
        assert_eq!(version_of("6.2"), Some((6, 2)));
        assert_eq!((version_of(""), version_of("next")), (None, None));
    }

    #[test]
    fn rights_depend_on_the_kernel() {
        let (old, new) = (kernel("", "6.1.0-44-amd64"), kernel("", "6.12.117+deb12-amd64"));
        assert!(!old.kernel.lets_io_through() && new.kernel.lets_io_through());
        assert!(old.kernel.has_sys_admin());
        old.write("proc/self/status", "CapEff:\t0000000000000000\n");
        assert!(!old.kernel.has_sys_admin());
    }

    #[test]
    fn modules_are_loaded_available_or_missing() {
        let planted = kernel("", "6.1.0-44-amd64");
        assert_eq!(planted.kernel.nvme_tcp(), Module::Missing);
        let dep = "kernel/drivers/nvme/host/nvme-tcp.ko: kernel/drivers/nvme/host/nvme-fabrics.ko\n";
        planted.write("lib/modules/6.1.0-9-amd64/modules.dep", dep);
        assert_eq!(planted.kernel.nvme_tcp(), Module::Missing);
        // A module that only depends on nvme-tcp does not count.
        planted.write("lib/modules/6.1.0-44-amd64/modules.dep", "kernel/x.ko: kernel/drivers/nvme/host/nvme-tcp.ko\n");
        assert_eq!(planted.kernel.nvme_tcp(), Module::Missing);
        let packed = "kernel/drivers/nvme/host/nvme-tcp.ko.xz: kernel/drivers/nvme/host/nvme-fabrics.ko.xz\n";
        planted.write("lib/modules/6.1.0-44-amd64/modules.dep", packed);
        assert_eq!(planted.kernel.nvme_tcp(), Module::Available);
        planted.write("lib/modules/6.1.0-44-amd64/modules.builtin", "kernel/drivers/nvme/host/nvme-tcp.ko\n");
        assert_eq!(planted.kernel.nvme_tcp(), Module::Loaded);
        assert_eq!(kernel(trees::NO_MULTIPATH, "6.1").kernel.nvme_tcp(), Module::Loaded);
    }

    #[test]
    fn io_uring_is_as_the_sysctl_says() {
        let planted = kernel("", "6.12.1");
        assert_eq!(planted.kernel.io_uring(), IoUring::Available);
        planted.write("proc/sys/kernel/io_uring_disabled", "1\n");
        assert_eq!(planted.kernel.io_uring(), IoUring::Available);
        planted.write("proc/self/status", "CapEff:\t0\n");
        assert_eq!(planted.kernel.io_uring(), IoUring::Restricted);
        planted.write("proc/sys/kernel/io_uring_disabled", "2\n");
        assert_eq!(planted.kernel.io_uring(), IoUring::Disabled);
        assert_eq!(kernel("", "5.10.0").kernel.io_uring(), IoUring::Unsupported);
    }

    #[test]
    fn drives_are_told_apart_by_their_model() {
        let (drives, others) = kernel(trees::DISK_AND_DRIVE, "6.12.1").kernel.controllers().unwrap();
        assert_eq!((drives.len(), others.len()), (1, 1));
        assert_eq!((&*drives[0].name, &*others[0].name), ("nvme1", "nvme0"));
        let discovery = trees::NO_MULTIPATH.replace("cntrltype = io", "cntrltype = discovery");
        assert!(kernel(&discovery, "6.1").kernel.controllers().unwrap().0.is_empty());
    }

    #[test]
    fn nodes_are_looked_at() {
        let planted = kernel(trees::DISK_AND_DRIVE, "6.12.1");
        let node = Node::look(&planted.kernel.path("dev/nvme1"));
        assert!(node.present && node.readable && node.writable);
        assert!(!Node::look(&planted.kernel.path("dev/nvme9")).present);
    }
}
