//! `ddlp disconnect`: the kernel forgets a drive on the network.

use crate::kernel::Kernel;
use crate::{Ending, output, text};
use anyhow::{Context, anyhow, bail};
use clap::Args;
use ddlp_driver::sysfs::KernelController;
use ddlp_host::is_drive;
use nix::errno::Errno;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::Path;

/// Word for all drives.
const ALL: &str = "all";

/// Make this machine's kernel forget a drive on the network. A run that uses it goes on without it.
///
/// Only DDLP drives are disconnected, never other NVMe devices. Needs root.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sudo ddlp disconnect /dev/nvme0
  sudo ddlp disconnect nqn.2024-01.example:drive     on all paths to it
  sudo ddlp disconnect all                           all DDLP drives that are reached over a network")]
pub struct DisconnectArgs {
    /// A drive by its node or its NQN, or all
    #[arg(value_name = "/dev/nvmeX|NQN|all")]
    drive: String,
}

/// Runs the command.
pub fn disconnect(args: &DisconnectArgs) -> anyhow::Result<Ending> {
    output::print(&disconnect_from(&args.drive, &Kernel::system())?)?;
    Ok(Ending::Done)
}

fn disconnect_from(wanted: &str, kernel: &Kernel) -> anyhow::Result<String> {
    let chosen = choose(wanted, kernel)?;
    if chosen.is_empty() {
        return Ok("no DDLP drive is connected over a network\n".to_string());
    }
    let mut said = String::new();
    for controller in &chosen {
        // What has been done before is part of the answer.
        delete(controller).map_err(|error| if said.is_empty() { error } else { error.context(said.clone()) })?;
        let node = controller.node.display();
        said.push_str(&format!("{node} disconnected, {}\n", text::printable(&controller.subsysnqn)));
    }
    Ok(said)
}

/// The controllers that were meant; none only for [`ALL`].
fn choose(wanted: &str, kernel: &Kernel) -> anyhow::Result<Vec<KernelController>> {
    let controllers = kernel.sysfs.controllers().context("cannot read what the kernel says of its NVMe devices")?;
    let drives = |controller: &KernelController| is_drive(controller) && controller.is_fabric();
    if wanted == ALL {
        return Ok(controllers.into_iter().filter(drives).collect());
    }
    let is_meant =
        |controller: &&KernelController| controller.node == Path::new(wanted) || controller.subsysnqn == wanted;
    let meant: Vec<KernelController> = controllers.iter().filter(is_meant).cloned().collect();
    if meant.is_empty() {
        return Err(unknown(wanted, controllers.iter().filter(|c| drives(c))));
    }
    // One that is no drive may claim the name of one.
    for controller in &meant {
        let (node, model) = (controller.node.display(), text::printable(&controller.model));
        if !is_drive(controller) {
            bail!("{node} is no DDLP drive but {model}: it is left alone; `nvme disconnect` disconnects other devices");
        }
        if !controller.is_fabric() {
            bail!("{node} is not connected over a network but by {}: it cannot be disconnected", controller.transport);
        }
    }
    Ok(meant)
}

fn unknown<'a>(wanted: &str, drives: impl Iterator<Item = &'a KernelController>) -> anyhow::Error {
    let wanted = text::printable(wanted);
    let names: Vec<String> =
        drives.map(|drive| format!("\n  {}  {}", drive.node.display(), text::printable(&drive.subsysnqn))).collect();
    if names.is_empty() {
        anyhow!("there is no drive {wanted}: no DDLP drive is connected over a network")
    } else {
        anyhow!("there is no drive {wanted}; connected are:{}", names.concat())
    }
}

/// The kernel answers when the controller is gone.
fn delete(controller: &KernelController) -> anyhow::Result<()> {
    let path = controller.folder.join("delete_controller");
    let node = controller.node.display();
    let told = OpenOptions::new().write(true).open(&path).and_then(|mut file| file.write_all(b"1"));
    match told {
        // Someone else was first.
        Err(error) if error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(Errno::ENODEV as i32) => {
            Ok(())
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            bail!("disconnecting {node} needs root: {} may not be written by this user; try sudo", path.display())
        }
        Err(error) if error.kind() == ErrorKind::ResourceBusy => {
            bail!("{node} is still being connected: try again when it is live, or has given up (ddlp devices)")
        }
        result => result.with_context(|| format!("cannot disconnect {node} by {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::planted::{Planted, kernel};
    use ddlp_test_support::trees;
    use std::fs;

    const FIRST: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-4333-8444-555555555555";
    const SECOND: &str = "nqn.2014-08.org.nvmexpress:uuid:66666666-7777-4888-9999-aaaaaaaaaaaa";

    fn deleted(planted: &Planted, name: &str) -> bool {
        let path = planted.kernel.path(&format!("sys/class/nvme/{name}/delete_controller"));
        fs::read_to_string(path).is_ok_and(|told| told == "1")
    }

    fn error(planted: &Planted, wanted: &str) -> String {
        planted.rooted(&format!("{:#}", disconnect_from(wanted, &planted.kernel).unwrap_err()))
    }

    #[test]
    fn a_drive_goes_by_its_nqn_or_its_node_and_the_others_stay() {
        let planted = kernel(trees::TWO_DRIVES, "6.12.1");
        let said = planted.rooted(&disconnect_from(SECOND, &planted.kernel).unwrap());
        assert_eq!(said, format!("/dev/nvme3 disconnected, {SECOND}\n"));
        assert!(deleted(&planted, "nvme3") && !deleted(&planted, "nvme0"));
        let node = planted.kernel.path("dev/nvme0");
        disconnect_from(node.to_str().unwrap(), &planted.kernel).unwrap();
        assert!(deleted(&planted, "nvme0"));
    }

    #[test]
    fn an_nqn_means_all_paths_and_a_node_one() {
        let planted = kernel(trees::TWO_PATHS, "6.1");
        let node = planted.kernel.path("dev/nvme1");
        disconnect_from(node.to_str().unwrap(), &planted.kernel).unwrap();
        assert!(deleted(&planted, "nvme1") && !deleted(&planted, "nvme0"));
        disconnect_from(FIRST, &planted.kernel).unwrap();
        assert!(deleted(&planted, "nvme0"));
    }

    #[test]
    fn all_are_all_drives_and_nothing_else() {
        let planted = kernel(trees::DISK_AND_DRIVE, "6.12.1");
        disconnect_from(ALL, &planted.kernel).unwrap();
        assert!(deleted(&planted, "nvme1") && !deleted(&planted, "nvme0"));
        let none = kernel("", "6.12.1");
        assert_eq!(disconnect_from(ALL, &none.kernel).unwrap(), "no DDLP drive is connected over a network\n");
    }

    #[test]
    fn other_devices_are_left_alone() {
        let planted = kernel(trees::DISK_AND_DRIVE, "6.12.1");
        let node = planted.kernel.path("dev/nvme0");
        let said = error(&planted, node.to_str().unwrap());
        assert!(said.starts_with("/dev/nvme0 is no DDLP drive but QEMU NVMe Ctrl"), "{said}");
        assert!(error(&planted, "nqn.2019-08.org.qemu:deadbeef").contains("left alone"));
        assert!(!deleted(&planted, "nvme0"));
    }

    #[test]
    fn a_drive_in_a_slot_stays() {
        let tree = trees::NO_MULTIPATH.replace("transport = tcp", "transport = pcie");
        let planted = kernel(&tree, "6.12.1");
        let said = error(&planted, planted.kernel.path("dev/nvme0").to_str().unwrap());
        assert!(said.contains("is not connected over a network but by pcie"), "{said}");
        assert!(!deleted(&planted, "nvme0"));
    }

    #[test]
    fn unknown_names_list_what_is_there() {
        let planted = kernel(trees::TWO_DRIVES, "6.12.1");
        let said = error(&planted, "/dev/nvme9");
        assert!(said.contains("there is no drive /dev/nvme9; connected are:\n  /dev/nvme0  nqn."), "{said}");
        assert!(said.ends_with(SECOND), "{said}");
        // A namespace's node is no controller.
        assert!(error(&planted, "/dev/nvme0n1").contains("connected are"));
        assert!(error(&kernel("", "6.1"), "nqn.x").ends_with("no DDLP drive is connected over a network"));
    }
}
