//! Check whether KVM works. `/dev/kvm` may exist and not work, or fail while a kernel boots, so the check boots a
//! kernel.

use crate::initramfs::GUEST_IS_UP;
use crate::scratch::ScratchFolder;
use crate::tools::find;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longest boot of the kernel; 1 s is usual.
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns whether x86-64 guests run under KVM, by booting this kernel with this root file system. Checks once per
/// process.
pub fn kvm_works(kernel: &Path, initramfs: &Path) -> bool {
    static WORKS: OnceLock<bool> = OnceLock::new();
    *WORKS.get_or_init(|| cfg!(target_arch = "x86_64") && boots(kernel, initramfs).unwrap_or(false))
}

fn boots(kernel: &Path, initramfs: &Path) -> Option<bool> {
    fs::metadata("/dev/kvm").ok()?;
    let scratch = ScratchFolder::new().ok()?;
    let (console, errors) = (scratch.join("console"), scratch.join("errors"));
    let mut qemu = Command::new(find("setpriv")?)
        .args(["--pdeathsig", "KILL", "qemu-system-x86_64", "-accel", "kvm", "-M", "q35", "-cpu", "host", "-m", "768"])
        .args(["-nodefaults", "-no-reboot", "-display", "none", "-append", "console=ttyS0 panic=-1 rdinit=/sbin/init"])
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(initramfs)
        .args(["-serial", &format!("file:{}", console.display())])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs::File::create(&errors).ok()?)
        .spawn()
        .ok()?;
    let until = Instant::now() + PATIENCE;
    let holds = |path: &Path, text: &str| fs::read(path).is_ok_and(|is| String::from_utf8_lossy(&is).contains(text));
    // After such an error, QEMU stops the guest but does not end.
    let over = || holds(&console, GUEST_IS_UP) || holds(&errors, "KVM internal error");
    while !over() && Instant::now() < until && matches!(qemu.try_wait(), Ok(None)) {
        sleep(Duration::from_millis(20));
    }
    let _ = qemu.kill();
    let _ = qemu.wait();
    Some(holds(&console, GUEST_IS_UP))
}
