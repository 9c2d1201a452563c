//! `ddlp connect`: the kernel gets to know a drive on the network.
//!
//! - [`peer`]: which drive, at which address. [`ask`]: which drives there are at an address.
//! - [`fabrics`]: the kernel's interface. [`refusal`]: why it did not work, for a person.
//! - [`settle`]: until the drive can be used.

mod ask;
mod fabrics;
mod peer;
mod refusal;
mod settle;
#[cfg(test)]
mod tests;

use crate::devices::advice::FAST_IO_FAIL_S;
use crate::kernel::Kernel;
use crate::{Ending, output, text};
use anyhow::{Context, anyhow, bail};
use clap::Args;
use ddlp_driver::host::HostError;
use ddlp_driver::sysfs::KernelController;
use ddlp_driver::{DriverError, HostIdentity};
use ddlp_host::is_drive;
use fabrics::{Association, Timing};
use peer::Wanted;
use std::fmt::Write;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::time::Duration;

/// Until the kernel has found the drive's namespaces.
const SETTLE_WITHIN: Duration = Duration::from_secs(30);

/// Make this machine's kernel know a drive on the network, so that it has /dev/nvme nodes.
///
/// The time-outs fit a drive that prepares batches: when it goes away, commands fail after a few seconds and the CPU goes on
/// alone, while the kernel keeps trying to get it back. Needs root and the module nvme-tcp.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sudo ddlp connect 10.0.0.7                               the only drive there is
  ddlp connect --list 10.0.0.7
  sudo ddlp connect tcp://10.0.0.7:4420/nqn.2024-01.example:drive
  sudo ddlp connect 10.0.0.7 --nqn nqn.2024-01.example:drive
  sudo ddlp connect '[fd00::7]:4420' --nqn nqn.2024-01.example:drive --fast-io-fail 2

Then:
  ddlp devices
  sudo ddlp run DATASET --drive /dev/nvme0
  sudo ddlp disconnect /dev/nvme0

Without an NQN, the drive's machine is asked (NVMe discovery, at port 8009, then 4420). The agent prints its NQN when it starts
as well (`ddlp-device serve`). A run needs no kernel device to reach a drive:
`ddlp run DATASET --drive tcp://HOST:PORT/NQN` works without root.")]
pub struct ConnectArgs {
    /// The drive: tcp://HOST:PORT/NQN, or HOST:PORT with --nqn; the port is 4420 unless given. Or HOST, or HOST:PORT, alone,
    /// which is asked for its only drive
    #[arg(value_name = "ADDR")]
    address: String,
    /// NQN of the drive
    #[arg(long)]
    nqn: Option<String>,
    /// Print the drives that there are at HOST or HOST:PORT, and connect none; needs neither root nor the module
    #[arg(long, conflicts_with = "nqn")]
    list: bool,
    /// NQN of this machine, as the drive's list of allowed hosts names it [default: that of /etc/nvme/hostnqn, else one that is
    /// made once and kept in /var/lib/ddlp/hostnqn]
    #[arg(long, value_name = "NQN")]
    host_nqn: Option<String>,
    /// Identifier of this machine that belongs to --host-nqn [default: the UUID that --host-nqn ends in]
    #[arg(long, value_name = "UUID", requires = "host_nqn")]
    host_id: Option<String>,
    /// Seconds of silence after which the drive counts as gone
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3600))]
    keep_alive: u32,
    /// Seconds between two attempts to get it back
    #[arg(long, value_name = "S", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=3600))]
    reconnect_delay: u32,
    /// Seconds after which the kernel gives it up; -1: never
    #[arg(long, value_name = "S", default_value_t = 600, value_parser = clap::value_parser!(i32).range(-1..=604_800))]
    ctrl_loss: i32,
    /// Seconds after a loss until commands fail instead of waiting for it
    #[arg(long, value_name = "S", default_value_t = FAST_IO_FAIL_S, value_parser = clap::value_parser!(u32).range(0..=3600))]
    fast_io_fail: u32,
}

/// Runs the command.
pub fn connect(args: &ConnectArgs) -> anyhow::Result<Ending> {
    let kernel = Kernel::system();
    let (ending, said) = if args.list {
        (Ending::Done, list(args, &kernel)?)
    } else {
        connect_with(args, &kernel, refusal::ask, SETTLE_WITHIN)?
    };
    output::print(&said)?;
    Ok(ending)
}

/// A line for each drive.
fn list(args: &ConnectArgs, kernel: &Kernel) -> anyhow::Result<String> {
    let Wanted::At(place) = Wanted::parse(&args.address, None)? else {
        bail!("--list asks which drives there are: leave the NQN out")
    };
    let drives = ask::drives(&place, &args.host(kernel)?)?;
    Ok(drives.iter().map(|drive| text::printable(&drive.url()) + "\n").collect())
}

/// `ask` connects as the kernel will.
fn connect_with(
    args: &ConnectArgs,
    kernel: &Kernel,
    ask: impl FnOnce(&Association) -> Result<(), DriverError>,
    patience: Duration,
) -> anyhow::Result<(Ending, String)> {
    let timing = args.timing()?;
    let wanted = Wanted::parse(&args.address, args.nqn.as_deref())?;
    fabrics::check(kernel)?;
    let host = args.host(kernel)?;
    let peer = match wanted {
        Wanted::Drive(peer) => peer,
        Wanted::At(place) => ask::the_one(&place, ask::drives(&place, &host)?)?,
    };
    let place = peer.reach()?;
    let association = Association { place, nqn: peer.nqn().to_owned(), host, timing };
    // The kernel waits a minute for an answer, and nothing can stop a process that waits for the kernel.
    ask(&association).map_err(|answer| refusal::refused(&association, answer))?;
    let made = fabrics::create(kernel, &association).map_err(|error| refusal::explain(kernel, &association, error))?;
    let controller = settle::wait(kernel, &made, patience)?;
    ensure_fast_io_fail(kernel, &controller, timing.fast_io_fail_s)?;
    let ending = if settle::is_settled(&controller) { Ending::Done } else { Ending::Wrong };
    Ok((ending, describe(&association, &controller)))
}

impl ConnectArgs {
    /// Who this machine is to the drive.
    fn host(&self, kernel: &Kernel) -> anyhow::Result<HostIdentity> {
        match &self.host_nqn {
            Some(nqn) => Ok(HostIdentity::of(nqn, self.host_id.as_deref(), "--host-nqn", "give it by --host-id")?),
            None => kernel.host.kernel_identity().map_err(|error| match error {
                HostError::Keep(..) => anyhow!("{error}; --host-nqn gives one by hand"),
                error => error.into(),
            }),
        }
    }

    fn timing(&self) -> anyhow::Result<Timing> {
        if self.ctrl_loss >= 0 && i64::from(self.ctrl_loss) < i64::from(self.fast_io_fail) {
            bail!(
                "--ctrl-loss {} is shorter than --fast-io-fail {}: the drive would be given up before its commands fail",
                self.ctrl_loss,
                self.fast_io_fail
            );
        }
        Ok(Timing {
            keep_alive_s: self.keep_alive,
            reconnect_delay_s: self.reconnect_delay,
            ctrl_loss_s: self.ctrl_loss,
            fast_io_fail_s: self.fast_io_fail,
        })
    }
}

/// A kernel that took the option and does not show it gets it as an attribute.
fn ensure_fast_io_fail(kernel: &Kernel, controller: &KernelController, seconds: u32) -> anyhow::Result<()> {
    if controller.fast_io_fail_tmo == Some(seconds) {
        return Ok(());
    }
    let path = controller.folder.join("fast_io_fail_tmo");
    let failed = || {
        let node = controller.node.display();
        format!("{node} is connected, but {} cannot be set: ddlp disconnect {node} takes it back", path.display())
    };
    let mut attribute = OpenOptions::new().write(true).open(&path).with_context(failed)?;
    attribute.write_all(seconds.to_string().as_bytes()).with_context(failed)?;
    match kernel.sysfs.controller(&controller.name)?.fast_io_fail_tmo {
        Some(set) if set == seconds => Ok(()),
        _ => bail!("{}", failed()),
    }
}

/// What there is now, and what to do next.
fn describe(association: &Association, controller: &KernelController) -> String {
    let node = controller.node.display();
    let mut out = String::new();
    let mut row = |name: &str, value: &str| {
        let _ = writeln!(out, "  {name:<12}{value}");
    };
    let timing = &association.timing;
    let end = if timing.ctrl_loss_s < 0 { "for ever".to_string() } else { format!("for {} s", timing.ctrl_loss_s) };
    row("reached by", &format!("tcp at {}, port {}", association.place.address, association.place.port));
    row("this host", &association.host.nqn);
    row(
        "on a loss",
        &format!(
            "commands fail after {} s, reconnects every {} s {end}",
            timing.fast_io_fail_s, timing.reconnect_delay_s
        ),
    );
    let next = if !is_drive(controller) {
        format!("This is no DDLP drive and cannot prepare batches: ddlp disconnect {node} takes it back.\n")
    } else if settle::is_settled(controller) {
        format!("Next:\n  sudo ddlp run DATASET --drive {node}\n")
    } else {
        "Its namespaces are not all there yet, and it cannot be used: ddlp devices says what is missing.\n".to_string()
    };
    format!("{node} is {}, {}\n{out}{next}", text::printable(&controller.model), text::printable(&association.nqn))
}
