//! Drives that the kernel is connected to.

use crate::error::DriveError;
use ddlp_driver::kernel::KernelTarget;
use ddlp_driver::sysfs::{ControllerState, KernelController, Sysfs};
use std::io::ErrorKind;

/// Returns whether the kernel's controller is a DDLP drive, and not only the discovery controller of one.
pub fn is_drive(controller: &KernelController) -> bool {
    controller.model == ddlp_csd::MODEL && controller.serves_io()
}

/// Checks that the node belongs to a drive, without sending a command to it.
pub(super) fn check_drive(target: &KernelTarget) -> Result<(), DriveError> {
    let node = target.node.display();
    let remedy = "`ddlp devices` lists drives, and says how to connect one";
    match target.sysfs.controller_at(&target.node) {
        Ok(controller) if is_drive(&controller) => Ok(()),
        Ok(controller) => Err(format!("{node} is {}, not a DDLP drive; {remedy}", controller.model).into()),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(format!("there is no {node}; {remedy}").into()),
        Err(error) => Err(DriveError::of(error)),
    }
}

/// Finds the node of the one drive that the kernel is connected to.
pub(crate) fn find(sysfs: &Sysfs) -> Result<String, String> {
    let controllers = sysfs.controllers().map_err(|error| format!("cannot look for a drive: {error}"))?;
    let mut drives: Vec<KernelController> = Vec::new();
    let mut away = Vec::new();
    for controller in controllers {
        let is_drive = is_drive(&controller);
        // Several controllers of one subsystem are several paths to one drive.
        let is_known = drives.iter().any(|drive| drive.subsysnqn == controller.subsysnqn);
        if is_drive && controller.state != ControllerState::Live {
            away.push(format!("{} is {}", controller.node.display(), controller.state.as_str()));
        } else if is_drive && !is_known {
            drives.push(controller);
        }
    }
    match &drives[..] {
        [drive] => Ok(drive.node.display().to_string()),
        [] if !away.is_empty() => Err(format!("no path to the drive is live: {}", away.join(", "))),
        [] => Err("the kernel is connected to no drive: `ddlp devices` says how to connect one".into()),
        several => {
            let nodes: Vec<String> = several.iter().map(|drive| drive.node.display().to_string()).collect();
            Err(format!("the kernel is connected to several drives: name one of {}", nodes.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests;
