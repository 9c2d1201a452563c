//! The drives of a run, with their options. The loader decides what the options leave open.

use super::args::{DriveChoice, RunArgs};
use crate::wrong::wrong;
use ddlp_host::{DriveSpec, LoaderOptions, Strategy, drive_address, remote_address};

/// Adds the drives of a run to the loader's options, in the order of the command line, and refuses options that would
/// have no effect on these drives. If the command line names no drive, a run over files gets a local drive, and a run
/// over a URL none.
pub fn add_drives(args: &RunArgs, options: &mut LoaderOptions) -> anyhow::Result<()> {
    let chosen = chosen(args, options.strategy)?;
    options.drives = chosen.map(|drives| drives.iter().filter_map(|drive| spec(args, drive)).collect());
    if options.drives.is_none() && options.drives_taking_part().is_empty() {
        let is_url = remote_address(&args.dataset).is_some();
        options.drives = Some(if is_url { vec![] } else { vec![DriveSpec::Local(args.given.drive.clone())] });
    }
    let drives = options.drives_taking_part();
    if !drives.iter().any(|drive| matches!(drive, DriveSpec::Local(_))) {
        refuse_local_options(args, &drives)?;
    }
    let is_tcp = |drive: &DriveSpec| matches!(drive, DriveSpec::Remote(address) if address.starts_with("tcp://"));
    let is_read_by_tcp = drive_address(&args.dataset).is_some_and(|address| address.starts_with("tcp://"));
    if args.given.has("host_nqn") && !is_read_by_tcp && !drives.iter().any(is_tcp) {
        wrong!(
            "--host-nqn applies only to a drive at a tcp:// address: the kernel has a host NQN of its own (nvme \
             connect), and a local drive needs none"
        );
    }
    if args.given.has("drive_optional") && !drives.iter().any(is_tcp) {
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
        DriveChoice::Local => Some(DriveSpec::Local(args.given.drive.clone())),
        DriveChoice::Auto => Some(DriveSpec::Auto),
        DriveChoice::At(address) => Some(DriveSpec::Remote(address.clone())),
        DriveChoice::None => None,
    }
}

/// Refuses options of a local drive that would have no effect on another drive.
fn refuse_local_options(args: &RunArgs, drives: &[DriveSpec]) -> anyhow::Result<()> {
    let named = &args.given.drive_flags;
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
    let drives = args.given.drives();
    let named = !drives.is_empty();
    let none = drives.contains(&DriveChoice::None);
    if none && drives.len() > 1 {
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
        Strategy::Mte | Strategy::Wrr if none && args.given.has("strategy") => {
            wrong!(
                "--strategy {strategy} shares the work with a drive, but this run has no drive: leave --drive none \
                 out, or choose strategy cpu or ordered"
            )
        }
        _ if none => Ok(Some(Vec::new())),
        _ if named => Ok(Some(drives)),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests;
