//! A guest's root file system: a newc archive that the kernel unpacks into memory.
//!
//! busybox is init. It mounts the usual file systems, loads the modules, sets up the network for QEMU's user network
//! (10.0.2.15; the machine outside is 10.0.2.2), and keeps a shell on each virtio-serial port. In front of a system on
//! a disk, it only loads the modules and leaves the rest to that system's init.

use crate::kernel::KernelModule;
use crate::shell::SHELLS;
use anyhow::{Context, Result, ensure};
use cpio::newc::{Builder, ModeFileType, trailer};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

/// Line on the console that says that the guest is up.
pub(crate) const GUEST_IS_UP: &str = "guest is up";

const BOOT: &str = "#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mkdir -p /dev/shm /dev/pts /run /mnt
mount -t tmpfs shm /dev/shm
/bin/busybox --install -s /bin
while read -r module; do insmod /modules/$module.ko || echo \"cannot load $module\"; done < /modules/order
ip link set lo up
ip addr add 10.0.2.15/24 dev eth0
ip link set eth0 up
ip route add default via 10.0.2.2
hostname $(cat /etc/hostname)
echo 'guest is up'
";

const SHELL: &str = "#!/bin/sh
# A port is known by the name that QEMU gave it. It is there when its driver is.
while [ -z \"$port\" ]; do
    for folder in /sys/class/virtio-ports/*; do
        if [ \"$(cat $folder/name)\" = $1 ]; then port=/dev/${folder##*/}; fi
    done 2> /dev/null
    [ -n \"$port\" ] || sleep 0.1
done
cd /root
export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/root
# A port can be opened once.
exec sh <> $port >&0 2>&1
";

/// Script that starts a system's own init. The disk was made without root, so its files belong to the user who made it.
const HANDOVER: &str = "#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
/bin/busybox --install -s /bin
while read -r module; do insmod /modules/$module.ko || echo \"cannot load $module\"; done < /modules/order
device=$(cat /etc/device)
until [ -b $device ]; do sleep 0.1; done
mkdir /system
mount -t ext4 $device /system
[ \"$(stat -c %u /system/etc)\" = 0 ] || chown -hR 0:0 /system
umount /dev /sys /proc
exec switch_root /system /sbin/init
";

/// An archive that is being written.
pub struct Initramfs {
    out: BufWriter<File>,
    folders: BTreeSet<String>,
    inode: u32,
}

impl Initramfs {
    /// Begins an archive with busybox, init and the modules.
    pub fn create(path: &Path, hostname: &str, busybox: &Path, modules: &[KernelModule]) -> Result<Self> {
        let mut root = Self::begin(path, busybox, modules)?;
        root.link("init", "bin/busybox")?;
        root.link("sbin/init", "../bin/busybox")?;
        root.program("etc/boot", BOOT)?;
        root.program("etc/shell", SHELL)?;
        root.text("etc/hostname", hostname)?;
        root.text("etc/inittab", &inittab())?;
        Ok(root)
    }

    /// Makes the archive for a system with an init of its own, on an ext4 disk.
    pub fn create_before(device: &str, path: &Path, busybox: &Path, modules: &[KernelModule]) -> Result<()> {
        let mut root = Self::begin(path, busybox, modules)?;
        // switch_root needs a regular file of this name before it empties the old root.
        root.program("init", HANDOVER)?;
        root.link("sbin/init", "../init")?;
        root.text("etc/device", device)?;
        root.finish()
    }

    fn begin(path: &Path, busybox: &Path, modules: &[KernelModule]) -> Result<Self> {
        let file = File::create(path).with_context(|| format!("cannot make {}", path.display()))?;
        let mut root = Self { out: BufWriter::new(file), folders: BTreeSet::new(), inode: 0 };
        for folder in ["proc", "sys", "dev", "tmp", "root", "bin", "sbin", "etc", "modules"] {
            root.folder(folder)?;
        }
        root.add_file("bin/busybox", busybox)?;
        root.link("bin/sh", "busybox")?;
        for tool in ["mount", "mkdir", "insmod", "ip", "hostname", "cat", "sleep"] {
            root.link(&format!("bin/{tool}"), "busybox")?;
        }
        let order: Vec<&str> = modules.iter().map(|module| module.name.as_str()).collect();
        root.text("modules/order", &format!("{}\n", order.join("\n")))?;
        for module in modules {
            root.add(&format!("modules/{}.ko", module.name), 0o644, &module.bytes)?;
        }
        Ok(root)
    }

    /// Adds a text file.
    pub fn text(&mut self, path: &str, text: &str) -> Result<()> {
        self.add(path, 0o644, text.as_bytes())
    }

    fn program(&mut self, path: &str, text: &str) -> Result<()> {
        self.add(path, 0o755, text.as_bytes())
    }

    /// Adds a copy of a file, as an executable.
    pub fn add_file(&mut self, path: &str, source: &Path) -> Result<()> {
        let bytes = fs::read(source).with_context(|| format!("cannot read {}", source.display()))?;
        self.add(path, 0o755, &bytes)
    }

    /// Adds a program of this machine's architecture with its libraries, which it looks for in `folders` first.
    pub fn add_program(&mut self, path: &str, source: &Path, folders: &[std::path::PathBuf]) -> Result<()> {
        self.add_file(path, source)?;
        for library in crate::programs::libraries(source, folders)? {
            let name = library.file_name().and_then(|name| name.to_str()).context("a library's name")?;
            // Each program names the path of the loader, which finds the other libraries in /lib.
            let place = if name.starts_with("ld-linux") { format!("lib64/{name}") } else { format!("lib/{name}") };
            if self.folders.insert(place.clone()) {
                self.add_file(&place, &library)?;
            }
        }
        Ok(())
    }

    /// Ends the archive.
    pub fn finish(mut self) -> Result<()> {
        trailer(&mut self.out).context("cannot write the archive")?;
        self.out.flush().context("cannot write the archive")
    }

    fn folder(&mut self, path: &str) -> Result<()> {
        if !path.is_empty() && self.folders.insert(path.to_string()) {
            self.parents(path)?;
            self.entry(path, ModeFileType::Directory, 0o755, b"")?;
        }
        Ok(())
    }

    fn parents(&mut self, path: &str) -> Result<()> {
        self.folder(path.rsplit_once('/').map_or("", |(parent, _)| parent))
    }

    fn link(&mut self, path: &str, target: &str) -> Result<()> {
        self.parents(path)?;
        self.entry(path, ModeFileType::Symlink, 0o777, target.as_bytes())
    }

    fn add(&mut self, path: &str, mode: u32, bytes: &[u8]) -> Result<()> {
        self.parents(path)?;
        self.entry(path, ModeFileType::Regular, mode, bytes)
    }

    fn entry(&mut self, path: &str, kind: ModeFileType, mode: u32, bytes: &[u8]) -> Result<()> {
        ensure!(!path.starts_with('/'), "{path} is not below the root");
        self.inode += 1;
        let length = u32::try_from(bytes.len()).with_context(|| format!("{path} is too large for an archive"))?;
        let header = Builder::new(path).ino(self.inode).mode(mode).set_mode_file_type(kind).nlink(1);
        let mut writer = header.write(&mut self.out, length);
        let written = writer.write_all(bytes).and_then(|()| writer.finish());
        written.map(drop).with_context(|| format!("cannot write {path} into the archive"))
    }
}

fn inittab() -> String {
    let shells = (0..SHELLS).map(|number| format!("::respawn:/etc/shell shell{number}\n"));
    std::iter::once("::sysinit:/etc/boot\n".to_string()).chain(shells).collect()
}
