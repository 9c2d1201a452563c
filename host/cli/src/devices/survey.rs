//! The kernel's NVMe controllers, and what this process may do with them.

use super::advice::{self, Advice, DriveUse};
use super::facts::{Device, Holder, KernelPart};
use crate::kernel::RunningKernel;
use ddlp_driver::sysfs::KernelController;
use serde::Serialize;
use std::io;

/// All NVMe controllers of this machine. The field names are part of the interface.
#[derive(Serialize)]
pub struct DeviceSurvey {
    pub kernel: KernelPart,
    pub drives: Vec<SurveyedDrive>,
    pub others: Vec<Device>,
}

/// A DDLP drive.
#[derive(Serialize)]
pub struct SurveyedDrive {
    #[serde(flatten)]
    pub device: Device,
    /// Nodes of other controllers of the same drive.
    pub other_paths: Vec<String>,
    /// The process that has locked the drive's namespaces, as a run does.
    pub held_by: Option<Holder>,
    /// Whether a run could use the drive now.
    pub usable: bool,
    pub ways: Vec<DriveUse>,
    pub problems: Vec<Advice>,
    pub warnings: Vec<Advice>,
}

impl DeviceSurvey {
    /// Surveys the kernel's controllers. No command is sent to any of them.
    pub fn of(kernel: &RunningKernel) -> io::Result<Self> {
        let part = kernel_part(kernel);
        let (drives, others) = kernel.controllers()?;
        let locks = kernel.locks();
        let holder = |drive: &KernelController| {
            let mut nodes = drive.namespaces.iter().filter_map(|namespace| namespace.generic.as_deref());
            let process = nodes.find_map(|node| locks.holder(node))?;
            Some(Holder { process, name: kernel.process_name(process) })
        };
        let paths = |drive: &KernelController| {
            let others = drives.iter().filter(|other| other.name != drive.name && other.subsysnqn == drive.subsysnqn);
            others.map(|other| other.node.display().to_string()).collect()
        };
        Ok(Self {
            drives: drives
                .iter()
                .map(|drive| SurveyedDrive::assess(Device::of(drive), paths(drive), holder(drive), &part))
                .collect(),
            others: others.iter().map(Device::of).collect(),
            kernel: part,
        })
    }
}

fn kernel_part(kernel: &RunningKernel) -> KernelPart {
    KernelPart {
        release: kernel.release(),
        nvme_tcp: kernel.nvme_tcp(),
        io_uring: kernel.io_uring(),
        sys_admin: kernel.has_sys_admin(),
        lets_io_through: kernel.lets_io_through(),
        host_nqn: kernel.host.known(),
        connect: advice::connect_command(kernel.unknown_to_nvme_cli().as_ref()),
    }
}

impl SurveyedDrive {
    /// Determines which parts of a run would work.
    pub fn assess(device: Device, other_paths: Vec<String>, held_by: Option<Holder>, kernel: &KernelPart) -> Self {
        let ways = advice::ways(&device, kernel);
        Self {
            usable: device.is_live() && held_by.is_none() && advice::suffice(&ways),
            problems: advice::problems(&device, held_by.as_ref(), &ways, kernel),
            warnings: advice::warnings(&device),
            ways,
            device,
            other_paths,
            held_by,
        }
    }
}
