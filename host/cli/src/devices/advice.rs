//! What a drive lacks for a run, and how to remedy it.

use super::facts::{Device, Holder, KernelPart, role};
use crate::kernel::{IoUring, Module, Node};
use ddlp_csd::{COMPUTE_NSID, DATASET_NSID, RESULTS_NSID};
use ddlp_driver::HostIdentity;
use serde::Serialize;

/// Seconds after a loss until reads of a drive's blocks fail.
const FAST_IO_FAIL_S: u32 = 5;

/// Namespaces of a drive.
const NSIDS: [u32; 3] = [DATASET_NSID, RESULTS_NSID, COMPUTE_NSID];

/// Loading and activating the program that prepares images: admin commands, for which the kernel always requires
/// CAP_SYS_ADMIN.
const LOAD: &str = "load the program";
/// Executing the program for a batch.
const EXECUTE: &str = "execute it";
/// Reading the results.
const READ: &str = "read its results";
/// Locking the nodes of all namespaces against other runs.
const CLAIM: &str = "keep other runs away";
/// Many commands in flight with one system call.
const URING: &str = "use io_uring";

/// A finding, and what to do about it.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Advice {
    pub what: String,
    /// Remedies, any one of which helps.
    pub remedies: Vec<String>,
}

impl Advice {
    fn new<const N: usize>(what: impl Into<String>, remedies: [String; N]) -> Self {
        Self { what: what.into(), remedies: remedies.into() }
    }
}

/// One thing that a run does with a drive.
#[derive(Serialize)]
pub struct DriveUse {
    pub way: &'static str,
    pub usable: bool,
    /// The reason why it is not possible.
    pub missing: Option<String>,
}

/// Returns each thing that a run does with a drive, and whether this process could do it.
pub fn ways(device: &Device, kernel: &KernelPart) -> Vec<DriveUse> {
    let generic = |nsid| device.namespace(nsid).and_then(|namespace| namespace.generic.as_ref());
    let io = kernel.sys_admin || kernel.lets_io_through;
    vec![
        way(LOAD, lacks(Some(&device.node)).or_else(|| lacks_right(kernel.sys_admin))),
        way(EXECUTE, lacks(generic(COMPUTE_NSID)).or_else(|| lacks_right(io))),
        way(READ, lacks(generic(RESULTS_NSID)).or_else(|| lacks_right(io))),
        way(CLAIM, NSIDS.into_iter().find_map(|nsid| lacks(generic(nsid)))),
        way(URING, lacks_uring(kernel.io_uring)),
    ]
}

fn way(way: &'static str, missing: Option<String>) -> DriveUse {
    DriveUse { way, usable: missing.is_none(), missing }
}

/// Returns whether a run could do everything that it must; io_uring is only the faster way.
pub fn suffice(ways: &[DriveUse]) -> bool {
    ways.iter().all(|way| way.usable || way.way == URING)
}

/// Returns what keeps commands from going through a node, which must be readable and writable.
fn lacks(node: Option<&Node>) -> Option<String> {
    let Some(node) = node else { return Some("the kernel shows no node for it".to_string()) };
    let path = node.path.display();
    match node {
        _ if !node.present => Some(format!("{path} does not exist")),
        _ if !node.readable => Some(format!("{path} may not be read by this user")),
        _ if !node.writable => Some(format!("{path} may not be written by this user")),
        _ => None,
    }
}

fn lacks_right(granted: bool) -> Option<String> {
    (!granted).then(|| "needs root (CAP_SYS_ADMIN)".to_string())
}

fn lacks_uring(io_uring: IoUring) -> Option<String> {
    match io_uring {
        IoUring::Available => None,
        IoUring::Restricted => Some("kernel.io_uring_disabled is 1; ioctl is used instead".to_string()),
        IoUring::Disabled => Some("kernel.io_uring_disabled is 2; ioctl is used instead".to_string()),
        IoUring::Unsupported => Some("Linux 6.0 or newer has it; ioctl is used instead".to_string()),
    }
}

/// Returns the problems that keep a run from using the drive.
pub fn problems(device: &Device, held_by: Option<&Holder>, ways: &[DriveUse], kernel: &KernelPart) -> Vec<Advice> {
    let mut found = Vec::new();
    found.extend(state(device));
    found.extend(held_by.map(held));
    if device.is_live() {
        found.extend(missing_namespaces(device));
    }
    if suffice(ways) {
        return found;
    }
    found.extend(missing_nodes(device));
    found.extend(closed_nodes(device));
    if !kernel.sys_admin {
        found.push(Advice {
            what: "this process has no CAP_SYS_ADMIN, which it needs beside the right to open the nodes".to_string(),
            remedies: rights_remedies(device),
        });
    }
    found
}

fn state(device: &Device) -> Option<Advice> {
    let what = format!("the drive is {}, and takes no commands", device.state);
    let wait = "wait until the drive is live".to_string();
    Some(match device.state.as_str() {
        "live" => return None,
        "resetting" | "connecting" if device.is_fabric() => {
            let mend = "start its agent again or mend the network: the kernel then reconnects by itself".to_string();
            Advice::new(what, [mend, format!("give it up: sudo nvme disconnect -d {}", device.controller)])
        }
        "new" | "resetting" | "connecting" => Advice::new(what, [wait]),
        "deleting" => Advice::new(what, ["wait until the drive is gone, then connect it again".to_string()]),
        _ => Advice::new(what, ["the kernel's log (dmesg) says why the kernel gave the drive up".to_string()]),
    })
}

fn held(by: &Holder) -> Advice {
    let name = if by.name.is_empty() { String::new() } else { format!(" ({})", by.name) };
    let what = format!(
        "process {}{name} uses the drive, and only one run at a time can use a drive through the kernel",
        by.process
    );
    Advice::new(what, ["wait until that process ends".to_string()])
}

fn missing_namespaces(device: &Device) -> Option<Advice> {
    let missing: Vec<String> = NSIDS
        .into_iter()
        .filter(|nsid| device.namespace(*nsid).is_none())
        .map(|nsid| format!("{nsid} ({})", role(nsid).unwrap_or_default()))
        .collect();
    if missing.is_empty() {
        return None;
    }
    Some(Advice::new(
        format!("the kernel has not taken over namespace {}", missing.join(", ")),
        ["the kernel's log (dmesg) says why; \"duplicate IDs\": another drive has the same identifiers, as happens \
          when the state of an agent is copied"
            .to_string()],
    ))
}

/// Returns a finding for nodes that are missing though the kernel has made their devices.
fn missing_nodes(device: &Device) -> Option<Advice> {
    let missing: Vec<String> = nodes(device).filter(|node| !node.present).map(path).collect();
    (!missing.is_empty()).then(|| {
        let what = format!("{} missing, though the kernel has the device", missing.join(", "));
        let container = "in a container: give it the nodes (docker run --device …)".to_string();
        Advice::new(what, [container, "otherwise check that udev runs".to_string()])
    })
}

/// Returns a finding for nodes that this user may not use.
fn closed_nodes(device: &Device) -> Option<Advice> {
    let closed = |node: &&Node| node.present && !(node.readable && node.writable);
    let closed: Vec<String> = nodes(device).filter(closed).map(path).collect();
    (!closed.is_empty()).then(|| {
        let what = format!("this user may not read and write {}", closed.join(", "));
        let rule = "open a drive's nodes to the group ddlp, and join it; from a checkout, then log in again:\n\
                    sudo groupadd -rf ddlp && sudo usermod -aG ddlp \"$USER\"\n\
                    sudo install -m 644 packaging/udev/60-ddlp.rules /etc/udev/rules.d/\n\
                    sudo udevadm control --reload && sudo udevadm trigger --subsystem-match=nvme \
                    --subsystem-match=nvme-generic";
        Advice::new(what, ["run as root".to_string(), rule.to_string()])
    })
}

/// Returns the nodes that a run uses.
fn nodes(device: &Device) -> impl Iterator<Item = &Node> {
    let generic = device.namespaces.iter().filter_map(|namespace| namespace.generic.as_ref());
    std::iter::once(&device.node).chain(generic)
}

fn path(node: &Node) -> String {
    node.path.display().to_string()
}

fn rights_remedies(device: &Device) -> Vec<String> {
    let mut remedies = vec![
        "run as root".to_string(),
        "give the program this right, for every user of this machine:\n\
         sudo setcap cap_sys_admin+ep \"$(command -v ddlp)\""
            .to_string(),
    ];
    if let (true, Some(traddr), Some(port)) = (device.transport == "tcp", &device.traddr, &device.trsvcid) {
        let host = if traddr.contains(':') { format!("[{traddr}]") } else { traddr.clone() };
        remedies.push(format!("use the drive without the kernel:\n--drive tcp://{host}:{port}/{}", device.nqn));
    }
    remedies
}

/// Returns what may harm a run without keeping it from using the drive.
pub fn warnings(device: &Device) -> Vec<Advice> {
    if !device.is_fabric() || device.fast_io_fail_s.is_some() {
        return Vec::new();
    }
    let wait = match device.ctrl_loss_s {
        Some(seconds) => format!("for up to {seconds} s"),
        None => "for as long as the drive is lost".to_string(),
    };
    vec![Advice::new(
        format!(
            "fast_io_fail_tmo is off: when the drive is lost, a read of its blocks waits {wait}, and a process that \
             waits for it cannot be killed"
        ),
        [format!("echo {FAST_IO_FAIL_S} | sudo tee /sys/class/nvme/{}/fast_io_fail_tmo", device.controller)],
    )]
}

/// Returns the command that connects the kernel to a drive on the network, as docs/drives.md has it. `host` gives the
/// options that name this host, if nvme-cli would use another name.
pub fn connect_command(host: Option<&HostIdentity>) -> String {
    let host = host.map(|host| format!(" --hostnqn={} --hostid={}", host.nqn, host.id_text()));
    format!(
        "sudo nvme connect -t tcp -a HOST -s 4420 -n NQN --reconnect-delay=2 --keep-alive-tmo=10 \
         --fast_io_fail_tmo={FAST_IO_FAIL_S}{}",
        host.unwrap_or_default()
    )
}

/// Returns how to get the module `nvme-tcp`; `None` if it is loaded.
pub fn module_remedy(module: Module, release: &str) -> Option<String> {
    match module {
        Module::Loaded => None,
        Module::Available => Some("sudo modprobe nvme-tcp".to_string()),
        Module::Missing => Some(format!(
            "no module nvme-tcp is installed for this kernel ({}): some distributions have it in a package of extra \
             modules, such as linux-modules-extra; `--drive tcp://HOST:PORT/NQN` reaches a drive without it",
            if release.is_empty() { "of an unknown release" } else { release }
        )),
    }
}
