//! The drives of a run, with their options. The loader decides what the options leave open.

use super::args::{DriveChoice, RunArgs};
use anyhow::bail;
use ddlp_host::{DriveSpec, LocalDrive, LocalResults, Strategy, drive_address};
use std::path::Path;

/// Returns the drives of a run in the order of the command line, and refuses options that would have no effect on them.
pub fn drives(args: &RunArgs, strategy: Strategy) -> anyhow::Result<Vec<DriveSpec>> {
    let drives = chosen(args, strategy)?;
    if !drives.contains(&DriveChoice::Local) {
        refuse_local_options(args, &drives)?;
    }
    let is_tcp = |drive: &DriveChoice| matches!(drive, DriveChoice::At(address) if address.starts_with("tcp://"));
    let dataset_drive = drive_address(&args.dataset);
    if dataset_drive.is_some() && drives.contains(&DriveChoice::Local) {
        bail!(
            "a local drive reads the dataset's files on this machine, but the dataset lies on {} alone: leave \
             --drive out, and that drive takes part",
            args.dataset.display()
        );
    }
    let is_read_by_tcp = dataset_drive.is_some_and(|address| address.starts_with("tcp://"));
    if args.host_nqn.is_some() && !is_read_by_tcp && !drives.iter().any(is_tcp) {
        bail!(
            "--host-nqn applies only to a drive at a tcp:// address: the kernel has a host NQN of its own (nvme \
             connect), and a local drive needs none"
        );
    }
    if args.drive_optional && !drives.iter().any(is_tcp) {
        bail!(
            "--drive-optional applies only to a drive at a tcp:// address: the kernel must be connected to its \
             drives, and the run itself starts a local drive"
        );
    }
    let local = || LocalDrive {
        agent: args.agent.clone(),
        threads: args.drive_threads.map(usize::from),
        cores: args.drive_cores.clone().unwrap_or_default().0,
        throttle: args.throttle.unwrap_or(1.0),
        slots: args.slots,
        results: args.results.as_deref().map_or(LocalResults::Shared, results),
    };
    let spec = |drive: &DriveChoice| match drive {
        DriveChoice::Local => Some(DriveSpec::Local(local())),
        DriveChoice::Auto => Some(DriveSpec::Auto),
        DriveChoice::At(address) => Some(DriveSpec::Remote(address.clone())),
        DriveChoice::None => None,
    };
    Ok(drives.iter().filter_map(spec).collect())
}

/// Refuses options of a local drive that would have no effect on another drive.
fn refuse_local_options(args: &RunArgs, drives: &[DriveChoice]) -> anyhow::Result<()> {
    let given = [
        ("--drive-threads", args.drive_threads.is_some()),
        ("--drive-cores", args.drive_cores.is_some()),
        ("--slots", args.slots.is_some()),
        ("--results", args.results.is_some()),
        ("--throttle", args.throttle.is_some()),
        ("--agent", args.agent.is_some()),
    ];
    let named: Vec<&str> = given.iter().filter(|(_, given)| *given).map(|(name, _)| *name).collect();
    if named.is_empty() {
        return Ok(());
    }
    let (options, apply) = (named.join(", "), if named.len() == 1 { "applies" } else { "apply" });
    if drives.is_empty() {
        bail!("{options} {apply} only to a local drive, and this run has no drive");
    }
    bail!("{options} {apply} only to a local drive; the options of `ddlp-device serve` set up any other drive")
}

/// Returns the drives that the command line and the strategy choose.
fn chosen(args: &RunArgs, strategy: Strategy) -> anyhow::Result<Vec<DriveChoice>> {
    let named = !args.drive.is_empty();
    let none = args.drive.contains(&DriveChoice::None);
    if none && args.drive.len() > 1 {
        bail!("--drive none excludes any other --drive");
    }
    match strategy {
        Strategy::Cpu if named && !none => {
            bail!("strategy cpu uses no drive: leave --drive out, or choose another strategy")
        }
        Strategy::Cpu => Ok(Vec::new()),
        strategy if none && strategy == Strategy::Csd => {
            bail!("strategy csd needs a drive: leave --drive none out, or choose strategy cpu")
        }
        _ if none && matches!(args.strategy, Some(Strategy::Mte | Strategy::Wrr)) => {
            bail!(
                "--strategy {strategy} shares the work with a drive, but this run has no drive: leave --drive none \
                 out, or choose strategy cpu or ordered"
            )
        }
        _ if none => Ok(Vec::new()),
        _ if named => Ok(args.drive.clone()),
        _ => {
            Ok(vec![drive_address(&args.dataset).map_or(DriveChoice::Local, |drive| DriveChoice::At(drive.to_owned()))])
        }
    }
}

/// Returns the place of the local drive's results.
pub fn results(place: &Path) -> LocalResults {
    match place.to_str() {
        Some("shared") => LocalResults::Shared,
        Some("read") => LocalResults::Read,
        _ => LocalResults::File(place.to_owned()),
    }
}

#[cfg(test)]
mod tests;
