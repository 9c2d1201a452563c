//! The drives of a run, with their options. The loader decides what the options leave open.

use super::args::{DriveChoice, RunArgs};
use crate::wrong::wrong;
use ddlp_host::{DriveSpec, LoaderOptions, LocalDrive, LocalResults, Strategy, drive_address};
use std::path::Path;

/// Adds the drives of a run to the loader's options, in the order of the command line, and refuses options that would
/// have no effect on these drives. If the command line names no drive, a run over files gets a local drive.
pub fn add_drives(args: &RunArgs, options: &mut LoaderOptions) -> anyhow::Result<()> {
    let chosen = chosen(args, options.strategy)?;
    options.drives = chosen.map(|drives| drives.iter().filter_map(|drive| spec(args, drive)).collect());
    if options.drives.is_none() && options.drives_taking_part().is_empty() {
        options.drives = Some(vec![DriveSpec::Local(local(args))]);
    }
    let drives = options.drives_taking_part();
    if !drives.iter().any(|drive| matches!(drive, DriveSpec::Local(_))) {
        refuse_local_options(args, &drives)?;
    }
    let is_tcp = |drive: &DriveSpec| matches!(drive, DriveSpec::Remote(address) if address.starts_with("tcp://"));
    let is_read_by_tcp = drive_address(&args.dataset).is_some_and(|address| address.starts_with("tcp://"));
    if args.host_nqn.is_some() && !is_read_by_tcp && !drives.iter().any(is_tcp) {
        wrong!(
            "--host-nqn applies only to a drive at a tcp:// address: the kernel has a host NQN of its own (nvme \
             connect), and a local drive needs none"
        );
    }
    if args.drive_optional && !drives.iter().any(is_tcp) {
        wrong!(
            "--drive-optional applies only to a drive at a tcp:// address: the kernel must be connected to its \
             drives, and the run itself starts a local drive"
        );
    }
    Ok(())
}

/// Returns a drive as the loader's options name it.
fn spec(args: &RunArgs, drive: &DriveChoice) -> Option<DriveSpec> {
    match drive {
        DriveChoice::Local => Some(DriveSpec::Local(local(args))),
        DriveChoice::Auto => Some(DriveSpec::Auto),
        DriveChoice::At(address) => Some(DriveSpec::Remote(address.clone())),
        DriveChoice::None => None,
    }
}

/// Returns the local drive that the options describe.
fn local(args: &RunArgs) -> LocalDrive {
    LocalDrive {
        agent: args.agent.clone(),
        threads: args.drive_threads.map(usize::from),
        cores: args.drive_cores.clone().unwrap_or_default().0,
        throttle: args.throttle.unwrap_or(1.0),
        slots: args.slots,
        results: args.results.as_deref().map_or(LocalResults::Shared, results),
    }
}

/// Refuses options of a local drive that would have no effect on another drive.
fn refuse_local_options(args: &RunArgs, drives: &[DriveSpec]) -> anyhow::Result<()> {
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
        wrong!("{options} {apply} only to a local drive, and this run has no drive");
    }
    wrong!("{options} {apply} only to a local drive; the options of `ddlp-device serve` set up any other drive")
}

/// Returns the drives that the command line and the strategy choose; `None` if they leave the choice to the loader.
fn chosen(args: &RunArgs, strategy: Strategy) -> anyhow::Result<Option<Vec<DriveChoice>>> {
    let named = !args.drive.is_empty();
    let none = args.drive.contains(&DriveChoice::None);
    if none && args.drive.len() > 1 {
        wrong!("--drive none excludes any other --drive");
    }
    match strategy {
        Strategy::Cpu if named && !none => {
            wrong!("strategy cpu uses no drive: leave --drive out, or choose another strategy")
        }
        Strategy::Cpu => Ok(Some(Vec::new())),
        strategy if none && strategy == Strategy::Csd => {
            wrong!("strategy csd needs a drive: leave --drive none out, or choose strategy cpu")
        }
        _ if none && matches!(args.strategy, Some(Strategy::Mte | Strategy::Wrr)) => {
            wrong!(
                "--strategy {strategy} shares the work with a drive, but this run has no drive: leave --drive none \
                 out, or choose strategy cpu or ordered"
            )
        }
        _ if none => Ok(Some(Vec::new())),
        _ if named => Ok(Some(args.drive.clone())),
        _ => Ok(None),
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
