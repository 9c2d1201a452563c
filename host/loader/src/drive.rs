//! A drive as a prong: the ways to reach it, and the thread that keeps it at work.
//!
//! - `prong`: the thread, which keeps Execute commands in flight. `flight`: one Execute command. `results`: checks
//!   finished batches and makes them ready. `reading`: gets them out of their slots. `rejoin`: handles loss and return
//!   of a drive.
//! - `trust`: judges a drive by its results. `fault`: the messages when something goes wrong.
//! - `link`: one association, from the connection to the activated program.
//! - `local`: the agent as a child process, with shared result memory.
//! - `slots`: the free slots, and leases of shared slots.

mod fault;
mod flight;
mod link;
mod local;
mod prong;
mod reading;
mod rejoin;
mod results;
mod slots;
#[cfg(test)]
mod tests;
mod trust;

use ddlp_driver::host::HostError;
use ddlp_driver::kernel::KernelTarget;
use ddlp_driver::sysfs::{ControllerState, KernelController, Sysfs};
use ddlp_driver::tcp::Closer;
use ddlp_driver::{Controller, DriverError, Host, HostIdentity, Target};
use ddlp_nvme::Status;
pub(crate) use link::{Expected, Link, LinkError};
pub(crate) use local::{AgentError, LocalAgent};
pub(crate) use prong::{DriveProng, DriveSetup};
pub(crate) use slots::{SlotLease, SlotTable};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

/// A drive for a run.
#[derive(Clone, Debug, PartialEq)]
pub enum DriveSpec {
    /// An agent that the loader starts itself.
    Local(LocalDrive),
    /// An agent that is already running: `tcp://HOST:PORT/NQN`, or `/dev/nvme0` where the kernel is connected to it.
    Remote(String),
    /// The one drive that the kernel is connected to.
    Auto,
}

/// Options of an agent that the loader starts itself.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalDrive {
    /// The agent's program. Default: `ddlp-device` beside this program or on the PATH.
    pub agent: Option<PathBuf>,
    /// Worker threads. Default: as many as [`cores`](Self::cores) names, or else this drive's share of half of the
    /// machine's cores (of all of them where the CPU prepares nothing).
    pub threads: Option<usize>,
    /// Cores that the agent may run on; an empty list allows all.
    pub cores: Vec<usize>,
    /// Share of its full speed at which the agent works, above 0 and at most 1.
    pub throttle: f64,
    /// Result slots. Default: as many as the strategy can use and memory allows.
    pub slots: Option<u32>,
    /// Memory in which the results lie.
    pub results: LocalResults,
}

impl Default for LocalDrive {
    fn default() -> Self {
        Self {
            agent: None,
            threads: None,
            cores: Vec::new(),
            throttle: 1.0,
            slots: None,
            results: LocalResults::Shared,
        }
    }
}

/// Memory in which the results of a local drive lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalResults {
    /// In memory that the loader allocates and shares with the agent. Batches of pixels are delivered from it without a
    /// copy.
    Shared,
    /// In a file that is shared in the same way. The loader removes the file afterwards if it did not exist before.
    /// Host and drive map the file: truncating it during the run kills both by SIGBUS.
    File(PathBuf),
    /// In the agent's own memory, read over NVMe/TCP.
    Read,
}

/// The address of a drive, and the host identity that this end uses for every connection to it.
pub(crate) struct Endpoint {
    /// The agent, if the loader started it.
    pub agent: Option<LocalAgent>,
    target: Target,
    /// Why the NQN of this host lasts for this run only.
    unkept: Option<HostError>,
}

impl Endpoint {
    /// Returns the endpoint of an agent that the loader started. This agent accepts any host, so this host needs no
    /// lasting identity.
    pub fn local(agent: LocalAgent) -> Result<Self, DriverError> {
        Ok(Self { target: Target::parse(agent.url())?, agent: Some(agent), unkept: None })
    }

    /// Returns the endpoint of an agent that is already running. Over `tcp://` this end is a host of its own, with the
    /// NQN of `host`.
    pub fn remote(address: &str, host: &Host) -> Result<Self, String> {
        let mut target = Target::parse(address).map_err(|error| error.to_string())?;
        let mut unkept = None;
        if let Target::Kernel(kernel) = &target {
            check_drive(kernel)?;
        }
        if let Target::Tcp(tcp) = &mut target {
            tcp.host = host.identity().or_else(|error| match error {
                HostError::Keep(..) => {
                    tracing::debug!(%error, "this run has a host NQN that is not kept");
                    unkept = Some(error);
                    HostIdentity::random().map_err(|error| error.to_string())
                }
                error => Err(error.to_string()),
            })?;
        }
        Ok(Self { agent: None, target, unkept })
    }

    /// Connects to the drive. Passes `watch` the means by which another thread can end the attempt.
    pub fn connect(&self, watch: impl FnOnce(Closer)) -> Result<Arc<dyn Controller>, DriverError> {
        self.target.connect_watched(watch)
    }

    /// Returns whether a drive that the kernel is connected to will probably be usable in a moment. A run that has just
    /// ended may still hold the drive, the kernel may still be scanning it, or udev may not have set the node's owner
    /// yet.
    pub fn is_settling(&self, error: &DriverError) -> bool {
        let Target::Kernel(kernel) = &self.target else { return false };
        matches!(error, DriverError::InUse { .. } | DriverError::Lost { .. } | DriverError::Denied { .. })
            && kernel.node.exists()
    }

    /// Says what to do when the drive does not allow this host.
    pub fn allow(&self) -> String {
        match (&self.target, &self.unkept) {
            (Target::Tcp(_), Some(error)) => format!(
                "its list of allowed hosts does not name this host, whose NQN is new in each run ({error}): give an \
                 allowed NQN with --host-nqn"
            ),
            (Target::Tcp(tcp), None) => {
                format!("the allowed-hosts of the agent's configuration must name this host, {}", tcp.host.nqn)
            }
            (Target::Kernel(_), _) => "its list of allowed hosts does not name this host".into(),
        }
    }

    /// Explains why a drive cannot be used, and what to do.
    pub fn unusable(&self, error: &LinkError) -> String {
        let hint = match error {
            LinkError::Refused(_)
            | LinkError::Driver(DriverError::Busy { .. } | DriverError::Denied { .. } | DriverError::Invalid(_)) => "",
            LinkError::Driver(DriverError::InUse { .. }) => {
                "; only one run at a time can use a drive through the kernel"
            }
            LinkError::Driver(error) if error.is_status(Status::CONNECT_PARAMETERS) => {
                return format!(
                    "there is no drive with that NQN: ddlp-device prints its address and its NQN when it starts \
                     ({error})"
                );
            }
            LinkError::Driver(error) if error.is_status(Status::CONNECT_INVALID_HOST) => {
                return format!("{error}; {}", self.allow());
            }
            LinkError::Driver(DriverError::Status { .. }) => "",
            LinkError::Driver(DriverError::Protocol { .. }) => "; does an NVMe/TCP drive listen there?",
            LinkError::Driver(DriverError::Lost { .. } | DriverError::TimedOut { .. }) => {
                "; is the agent running there?"
            }
        };
        format!("{error}{hint}")
    }

    /// Restarts the loader's own agent, if there is one. The agent may listen at another address afterwards.
    fn restart(&mut self, is_stopped: &dyn Fn() -> bool) -> Result<(), AgentError> {
        if let Some(agent) = &mut self.agent {
            agent.restart(is_stopped)?;
            self.target = self.target.moved_to(agent.url()).map_err(|_| agent.unlike_an_agent(agent.url()))?;
        }
        Ok(())
    }
}

/// Returns whether the kernel's controller is a DDLP drive, and not only the discovery controller of one.
pub fn is_drive(controller: &KernelController) -> bool {
    controller.model == ddlp_csd::MODEL && controller.serves_io()
}

/// Checks that the node belongs to a drive, without sending a command to it.
fn check_drive(target: &KernelTarget) -> Result<(), String> {
    let node = target.node.display();
    let remedy = "`ddlp devices` lists drives, and says how to connect one";
    match target.sysfs.controller_at(&target.node) {
        Ok(controller) if is_drive(&controller) => Ok(()),
        Ok(controller) => Err(format!("{node} is {}, not a DDLP drive; {remedy}", controller.model)),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(format!("there is no {node}; {remedy}")),
        Err(error) => Err(error.to_string()),
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

/// Returns a function by which another thread ends the association.
fn closing(controller: &Arc<dyn Controller>) -> Box<dyn Fn() + Send> {
    let controller: Weak<dyn Controller> = Arc::downgrade(controller);
    Box::new(move || {
        if let Some(controller) = controller.upgrade() {
            controller.close();
        }
    })
}

/// Connects to a drive, checks it and gets it ready for work. Passes `watch` a function by which another thread can end
/// the attempt and the association.
pub(crate) fn connect(
    endpoint: &Endpoint,
    expected: &Expected,
    program: &ddlp_csd::program::Program,
    depth: usize,
    watch: impl Fn(Box<dyn Fn() + Send>),
) -> Result<Link, LinkError> {
    let controller = endpoint.connect(|closer| watch(Box::new(move || closer.close())))?;
    watch(closing(&controller));
    Link::open(controller, expected, program, depth)
}
