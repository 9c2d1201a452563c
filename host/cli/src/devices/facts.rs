//! What the kernel shows of itself and of its NVMe controllers. The field names are part of the interface.

use crate::kernel::{IoUring, Module, Node};
use ddlp_csd::{COMPUTE_NSID, DATASET_NSID, RESULTS_NSID};
use ddlp_driver::sysfs::{ControllerState, KernelController, KernelNamespace};
use ddlp_host::is_drive;
use serde::Serialize;

/// Facts about the kernel on which all drives depend.
#[derive(Clone, Serialize)]
pub struct KernelPart {
    pub release: String,
    pub nvme_tcp: Module,
    pub io_uring: IoUring,
    /// Whether this process has CAP_SYS_ADMIN.
    pub sys_admin: bool,
    /// Whether a writable node is enough for I/O commands, without CAP_SYS_ADMIN.
    pub lets_io_through: bool,
    /// NQN under which this machine connects to drives; `None` before the first time.
    pub host_nqn: Option<String>,
    /// Command that connects the kernel to a drive on the network; HOST and NQN stand for the drive's.
    pub connect: String,
}

/// A controller.
#[derive(Serialize)]
pub struct Device {
    pub controller: String,
    pub node: Node,
    pub model: String,
    pub firmware: String,
    pub serial: String,
    pub nqn: String,
    pub subsystem: Option<String>,
    pub transport: String,
    pub address: String,
    pub traddr: Option<String>,
    pub trsvcid: Option<String>,
    pub state: String,
    pub host_nqn: Option<String>,
    pub keep_alive_s: Option<u32>,
    pub reconnect_delay_s: Option<u32>,
    pub ctrl_loss_s: Option<u32>,
    pub fast_io_fail_s: Option<u32>,
    pub namespaces: Vec<Namespace>,
}

/// A namespace of a controller.
#[derive(Serialize)]
pub struct Namespace {
    pub nsid: u32,
    /// Role on a DDLP drive: `dataset`, `results` or `compute`.
    pub role: Option<&'static str>,
    pub bytes: u64,
    pub generic: Option<Node>,
    pub block: Option<Node>,
}

/// A process that has locked a drive.
#[derive(Debug, Serialize)]
pub struct Holder {
    pub process: u32,
    /// Its name; empty if unknown.
    pub name: String,
}

impl Device {
    /// Looks at a controller.
    pub fn of(controller: &KernelController) -> Self {
        let of_ddlp = is_drive(controller);
        Self {
            controller: controller.name.clone(),
            node: Node::look(&controller.node),
            model: controller.model.clone(),
            firmware: controller.firmware_rev.clone(),
            serial: controller.serial.clone(),
            nqn: controller.subsysnqn.clone(),
            subsystem: controller.subsystem.clone(),
            transport: controller.transport.clone(),
            address: controller.address.clone(),
            traddr: controller.traddr.clone(),
            trsvcid: controller.trsvcid.clone(),
            state: controller.state.as_str().to_owned(),
            host_nqn: controller.hostnqn.clone(),
            keep_alive_s: controller.kato.filter(|seconds| *seconds > 0),
            reconnect_delay_s: controller.reconnect_delay,
            ctrl_loss_s: controller.ctrl_loss_tmo,
            fast_io_fail_s: controller.fast_io_fail_tmo,
            namespaces: controller.namespaces.iter().map(|entry| Namespace::of(entry, of_ddlp)).collect(),
        }
    }

    /// Returns the namespace with this NSID.
    pub fn namespace(&self, nsid: u32) -> Option<&Namespace> {
        self.namespaces.iter().find(|namespace| namespace.nsid == nsid)
    }

    /// Returns whether the controller takes commands.
    pub fn is_live(&self) -> bool {
        self.state == ControllerState::Live.as_str()
    }

    /// Returns whether the controller is reached over a network.
    pub fn is_fabric(&self) -> bool {
        self.host_nqn.is_some()
    }
}

impl Namespace {
    fn of(namespace: &KernelNamespace, of_ddlp: bool) -> Self {
        Self {
            nsid: namespace.nsid,
            role: role(namespace.nsid).filter(|_| of_ddlp),
            bytes: namespace.bytes,
            generic: namespace.generic.as_deref().map(Node::look),
            block: namespace.block.as_deref().map(Node::look),
        }
    }
}

/// Returns what a drive uses a namespace for.
pub fn role(nsid: u32) -> Option<&'static str> {
    match nsid {
        DATASET_NSID => Some("dataset"),
        RESULTS_NSID => Some("results"),
        COMPUTE_NSID => Some("compute"),
        _ => None,
    }
}
