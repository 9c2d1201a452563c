//! Whether KVM works here. `/dev/kvm` may be there and not work, so a firmware is run with it.

use crate::programs::find;
use crate::scratch::Scratch;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long the firmware may take to say its name.
const PATIENCE: Duration = Duration::from_secs(5);

/// True when a guest of this machine's architecture, x86-64, runs under KVM.
pub fn kvm_works() -> bool {
    static WORKS: OnceLock<bool> = OnceLock::new();
    *WORKS.get_or_init(|| cfg!(target_arch = "x86_64") && firmware_speaks().unwrap_or(false))
}

fn firmware_speaks() -> Option<bool> {
    fs::metadata("/dev/kvm").ok()?;
    let scratch = Scratch::new().ok()?;
    let said = scratch.join("firmware");
    let mut qemu = Command::new(find("setpriv")?)
        .args(["--pdeathsig", "KILL", "qemu-system-x86_64", "-accel", "kvm", "-nodefaults", "-display", "none"])
        .args(["-m", "32", "-debugcon", &format!("file:{}", said.display()), "-global", "isa-debugcon.iobase=0x402"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let until = Instant::now() + PATIENCE;
    let speaks = || fs::read_to_string(&said).is_ok_and(|text| text.contains("SeaBIOS"));
    while !speaks() && Instant::now() < until && matches!(qemu.try_wait(), Ok(None)) {
        sleep(Duration::from_millis(20));
    }
    let _ = qemu.kill();
    let _ = qemu.wait();
    Some(speaks())
}
