//! Killing the program that runs guests leaves no guest behind.

use crate::support::in_guests;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longest time from a start until a guest runs, including builds and fetched packages.
const START: Duration = Duration::from_secs(900);
/// Longest time from the runner's end until nothing is left.
const END: Duration = Duration::from_secs(20);
/// Path of the console's log, which is in the command line of the guest's QEMU.
const CONSOLE: &str = "logs/boot-host.log";

/// Returns the number of processes whose command line contains this text.
fn processes(text: &str) -> usize {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let lines = all.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(text)).count()
}

fn wait_until(what: &str, patience: Duration, holds: impl Fn() -> bool) -> Result<()> {
    let until = Instant::now() + patience;
    while !holds() {
        ensure!(Instant::now() < until, "{what}, not within {} s", patience.as_secs());
        sleep(Duration::from_millis(50));
    }
    Ok(())
}

#[test]
fn no_guest_outlives_its_runner() -> Result<()> {
    in_guests("no_guest_outlives_its_runner", || {
        ensure!(processes(CONSOLE) == 0, "another runner has a guest of this name");
        let mut command = Command::new(env!("CARGO_BIN_EXE_ddlp-qemu"));
        command.args(["boot", "host"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut runner = command.spawn().context("cannot run ddlp-qemu")?;
        let started = wait_until("a guest runs", START, || processes(CONSOLE) > 0);
        // SIGKILL, so that the runner cannot clean up.
        runner.kill()?;
        runner.wait()?;
        started?;
        wait_until("its QEMU is gone", END, || processes(CONSOLE) == 0)
    })
}
