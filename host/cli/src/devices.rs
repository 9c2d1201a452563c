//! `ddlp devices`: the drives that this machine's kernel knows, and whether a run could use them.
//!
//! - [`facts`]: what the kernel shows. [`advice`]: what is missing, and what to do. [`survey`]: both together, as
//!   `--json` prints them. [`show`]: text for people.

pub mod advice;
mod facts;
mod show;
mod survey;
#[cfg(test)]
mod tests;

use crate::kernel::RunningKernel;
use crate::{Ending, output};
use anyhow::Context;
use clap::Args;
use nix::unistd::geteuid;
use survey::DeviceSurvey;

/// List the DDLP drives that this machine's kernel knows, and say what each of them lacks for a run.
///
/// The command sends nothing to a drive. Run by root, it also makes and keeps this machine's host NQN, if there is none
/// yet; a drive's list of allowed hosts must contain this NQN. A local drive of `ddlp run`, and a drive that is reached
/// by `--drive tcp://HOST:PORT/NQN`, need no kernel device and are not listed.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ddlp devices
  sudo ddlp devices                        what root can do with each drive; prints this host's NQN
  ddlp devices --json | jq '.drives[] | select(.usable) | .node.path'

`nvme connect` connects the kernel to a drive on the network; if the kernel knows no drive, `ddlp devices` prints that
command. The kernel finds a drive in a PCIe slot by itself.")]
pub struct DevicesArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Describe other NVMe controllers as fully as DDLP drives
    #[arg(long)]
    all: bool,
}

/// Runs the command.
pub fn devices(args: &DevicesArgs) -> anyhow::Result<Ending> {
    let kernel = RunningKernel::system();
    // A drive has to allow the NQN before the first connection. If root makes it, all users share it.
    if geteuid().is_root() {
        // If the NQN cannot be kept, none is shown.
        let _ = kernel.host.kernel_identity();
    }
    let survey = DeviceSurvey::of(&kernel).context("cannot read the kernel's list of NVMe devices (sysfs)")?;
    let shown = if args.json { serde_json::to_string_pretty(&survey)? + "\n" } else { survey.to_text(args.all) };
    output::print(&shown)?;
    Ok(Ending::Done)
}
