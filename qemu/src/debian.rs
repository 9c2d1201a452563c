//! Debian 12 for arm64 with systemd, on a disk.
//!
//! The packages are unpacked but not configured: configuring would run their programs here, or take minutes in a guest.
//! dpkg finds them listed as installed. This module writes the files that configuring would have made and that the
//! system needs; systemd makes others, such as users, at the first boot. There is no D-Bus and no PAM configuration, so
//! nobody can log in with a password. `/lib/modules` is empty: the initramfs loads the kernel's modules.
//!
//! A unit of this module gives the tests a shell on each of QEMU's virtio-serial ports.

use crate::disk;
use crate::packages::{Arch, Packages};
use crate::shell::SHELLS;
use crate::tools::{said, said_to};
use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

/// All packages that Debian calls essential, and those that a system needs to boot and see its devices.
const PACKAGES: [&str; 29] = [
    "base-files",
    "base-passwd",
    "bash",
    "bsdutils",
    "coreutils",
    "dash",
    "debianutils",
    "diffutils",
    "dpkg",
    "findutils",
    "grep",
    "gzip",
    "hostname",
    "init-system-helpers",
    "libc-bin",
    "login",
    "ncurses-base",
    "perl-base",
    "sed",
    "sysvinit-utils",
    "tar",
    "util-linux",
    "usr-is-merged",
    "systemd-sysv",
    "udev",
    "mount",
    "kmod",
    "procps",
    "passwd",
];

const SHELL_UNIT: &str = "[Unit]
Description=Shell for the machine outside at the port %i
StartLimitIntervalSec=0

[Service]
Environment=HOME=/root
WorkingDirectory=/root
ExecStart=/bin/sh -c 'until [ -e /dev/virtio-ports/%i ]; do sleep 0.1; done; exec sh <> /dev/virtio-ports/%i >&0 2>&1'
Restart=always
IgnoreSIGPIPE=no
TimeoutStopSec=5
";

/// Network configuration for QEMU's user network.
const NETWORK: &str = "[Match]
Type=ether

[Network]
Address=10.0.2.15/24
Gateway=10.0.2.2
LinkLocalAddressing=no
IPv6AcceptRA=no
";

/// Units that Debian's installer, or the configuration of a package, would have enabled.
const ENABLED: [&str; 3] = [
    "multi-user.target.wants/systemd-networkd.service",
    "sockets.target.wants/systemd-networkd.socket",
    "network-online.target.wants/systemd-networkd-wait-online.service",
];

/// Makes a disk image with this system, which the guest sees as `device`. Builds it in the folder `staging`.
pub fn make_disk(packages: &Packages, disk: &Path, staging: &Path, hostname: &str, device: &str) -> Result<()> {
    for folder in ["bin", "lib", "sbin"] {
        fs::create_dir_all(staging.join("usr").join(folder))?;
        symlink(format!("usr/{folder}"), staging.join(folder))?;
    }
    let info = staging.join("var/lib/dpkg/info");
    let mut status = String::new();
    for deb in packages.closure(&PACKAGES, Arch::Arm64).context("Debian's packages for a system")? {
        let name = file_name(&deb)?.split('_').next().unwrap_or_default().to_string();
        let files = unpack(&deb, staging).with_context(|| format!("cannot unpack {}", deb.display()))?;
        fs::create_dir_all(&info)?;
        fs::write(info.join(format!("{name}.list")), files)?;
        status += &installed(&control(&deb)?)?;
    }
    fs::write(staging.join("var/lib/dpkg/status"), status)?;
    configure(staging, hostname, device).context("cannot write the system's configuration")?;
    disk::make(disk, staging)?;
    fs::remove_dir_all(staging).context("cannot remove the disk's content")
}

fn configure(root: &Path, hostname: &str, device: &str) -> Result<()> {
    // The only folder needed of those that the configuration of base-files makes.
    fs::create_dir(root.join("mnt"))?;
    let etc = root.join("etc");
    let units = etc.join("systemd/system");
    for (path, text) in [
        ("hostname", format!("{hostname}\n")),
        ("hosts", format!("127.0.0.1 localhost {hostname}\n")),
        ("fstab", format!("{device} / ext4 defaults 0 0\n")),
        // Empty, so that the first boot makes one without asking anybody.
        ("machine-id", String::new()),
        ("systemd/network/10-nic.network", NETWORK.into()),
        ("systemd/system/outside@.service", SHELL_UNIT.into()),
    ] {
        fs::write(etc.join(path), text).with_context(|| path.to_string())?;
    }
    for unit in ENABLED {
        let place = units.join(unit);
        fs::create_dir_all(place.parent().expect("a folder"))?;
        symlink(Path::new("/lib/systemd/system").join(file_name(&place)?), &place)?;
    }
    for shell in 0..SHELLS {
        symlink("../outside@.service", units.join(format!("multi-user.target.wants/outside@shell{shell}.service")))?;
    }
    Ok(())
}

fn file_name(path: &Path) -> Result<&str> {
    path.file_name().and_then(|name| name.to_str()).with_context(|| format!("{} has no name", path.display()))
}

/// Unpacks a package. Returns its files as dpkg lists them.
fn unpack(deb: &Path, root: &Path) -> Result<String> {
    let mut content = Command::new("dpkg-deb").arg("--fsys-tarfile").arg(deb).stdout(Stdio::piped()).spawn()?;
    let archive = content.stdout.take().expect("piped");
    // Folders that Debian has merged into /usr are links, which have to stay.
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--verbose", "--quoting-style=literal", "--keep-directory-symlink", "--directory"]);
    let listed = said_to(tar.arg(root), archive.into());
    let status = content.wait()?;
    let listed = String::from_utf8(listed?.stdout).context("a file's name")?;
    ensure!(status.success(), "dpkg-deb: {status}");
    Ok(dpkg_list(&listed))
}

/// Converts tar's names to dpkg's: `./usr/bin/` to `/usr/bin`, and the root to `/.`.
fn dpkg_list(tar: &str) -> String {
    tar.lines().fold(String::new(), |mut list, line| {
        let path = line.trim_start_matches('.').trim_end_matches('/');
        let _ = writeln!(list, "{}", if path.is_empty() { "/." } else { path });
        list
    })
}

fn control(deb: &Path) -> Result<String> {
    let output = said(Command::new("dpkg-deb").arg("--field").arg(deb))?;
    String::from_utf8(output.stdout).context("a package's description")
}

/// Returns dpkg's status entry of an installed package.
fn installed(control: &str) -> Result<String> {
    let (first, rest) = control.split_once('\n').context("a description of several lines")?;
    ensure!(first.starts_with("Package: "), "a description begins with {first:?}");
    Ok(format!("{first}\nStatus: install ok installed\n{}\n\n", rest.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_listed_as_dpkg_lists_them() {
        assert_eq!(dpkg_list("./\n./usr/\n./usr/bin/a b\n"), "/.\n/usr\n/usr/bin/a b\n");
    }

    #[test]
    fn an_unpacked_package_counts_as_installed() {
        let control = "Package: mount\nVersion: 1\nDescription: x\n y\n";
        let status = "Package: mount\nStatus: install ok installed\nVersion: 1\nDescription: x\n y\n\n";
        assert_eq!(installed(control).unwrap(), status);
        assert!(installed("Version: 1\nPackage: mount\n").is_err());
    }
}
