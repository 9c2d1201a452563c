//! From a controller to a drive that can be used: the kernel looks for namespaces after it has connected.

use crate::kernel::Kernel;
use anyhow::Context;
use ddlp_csd::{COMPUTE_NSID, DATASET_NSID, RESULTS_NSID};
use ddlp_driver::sysfs::{ControllerState, KernelController};
use ddlp_host::is_drive;
use std::io::ErrorKind;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The controller as soon as it is settled, or as it is when `patience` is over.
pub fn wait(kernel: &Kernel, name: &str, patience: Duration) -> anyhow::Result<KernelController> {
    let end = Instant::now() + patience;
    loop {
        let late = Instant::now() >= end;
        match kernel.sysfs.controller(name) {
            Ok(controller) if late || is_settled(&controller) => return Ok(controller),
            Err(error) if late || error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("the kernel made {name}, and lost it again: see dmesg"));
            }
            _ => thread::sleep(LOOK_EVERY),
        }
    }
}

/// The controller is live and, if it is a drive, all its namespaces are there with the nodes for commands.
pub fn is_settled(controller: &KernelController) -> bool {
    let usable = |nsid| {
        let node = controller.namespace(nsid).and_then(|namespace| namespace.generic.as_deref());
        node.is_some_and(Path::exists)
    };
    controller.state == ControllerState::Live
        && (!is_drive(controller) || [DATASET_NSID, RESULTS_NSID, COMPUTE_NSID].into_iter().all(usable))
}
