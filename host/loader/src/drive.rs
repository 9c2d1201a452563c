//! A drive as a prong: how it is reached, and the thread that keeps it at work.
//!
//! - `prong`: the thread: it keeps Execute commands in flight. `flight`: one of them. `results`: what becomes of finished batches. `reading`:
//!   how they come out of the slots. `rejoin`: survival of whatever happens to the drive.
//! - `fault`: what is said when something goes wrong.
//! - `link`: one association, from the connection to the activated program.
//! - `local`: the agent as a child process, with shared result memory.
//! - `slots`: which slots are free, leases of shared ones.

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

use ddlp_driver::host::HostError;
use ddlp_driver::kernel::KernelTarget;
use ddlp_driver::sysfs::{ControllerState, KernelController, Sysfs};
use ddlp_driver::{Controller, DriverError, Host, HostIdentity, Target};
pub(crate) use link::{Expected, Link, LinkError};
pub(crate) use local::{AgentError, LocalAgent};
pub(crate) use prong::{DriveProng, DriveSetup};
pub(crate) use slots::{SlotLease, SlotTable};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

/// A drive to use.
#[derive(Clone, Debug, PartialEq)]
pub enum DriveSpec {
    /// An agent that the loader starts itself.
    Local(LocalDrive),
    /// An agent that runs already: `tcp://HOST:PORT/NQN`, or `/dev/nvme0` where the kernel is connected to it.
    Remote(String),
    /// The one drive that the kernel is connected to.
    Auto,
}

/// How the loader starts an agent of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalDrive {
    /// The program; without it, `ddlp-device` beside this program or on the PATH.
    pub agent: Option<PathBuf>,
    /// Worker threads. Without it, as many as [`cores`](Self::cores) names, or else this drive's share of half of the
    /// machine's cores (of all of them where the CPU prepares nothing).
    pub threads: Option<usize>,
    /// Cores the agent runs on; empty: any.
    pub cores: Vec<usize>,
    /// Share of its speed the agent works at, above 0 and up to 1.
    pub throttle: f64,
    /// Result slots; without it, as many as the strategy can use and memory allows.
    pub slots: Option<u32>,
    /// Where the results lie.
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

/// Where the results of a local drive lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalResults {
    /// In memory that the loader makes and shares with the agent; batches of pixels are delivered out of it without a copy.
    Shared,
    /// In a file that is shared the same way, and removed afterwards if it was not there before. Host and drive map it: whoever
    /// cuts it short while the run goes on ends both by SIGBUS.
    File(PathBuf),
    /// In the agent's own memory, read over NVMe/TCP.
    Read,
}

/// How a drive is reached, and how it is reached again: as one and the same host all the time.
pub(crate) struct Endpoint {
    /// The agent, if it is the loader's own.
    pub agent: Option<LocalAgent>,
    target: Target,
    /// Why the NQN of this host is a passing one.
    unkept: Option<HostError>,
}

impl Endpoint {
    /// The loader's own agent takes any host that reaches it, so nothing has to know this one again.
    pub fn local(agent: LocalAgent) -> Result<Self, DriverError> {
        Ok(Self { target: Target::parse(agent.url())?, agent: Some(agent), unkept: None })
    }

    /// An agent that runs already. In user space this end is a host of its own, by the NQN of `host`.
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

    /// A drive of the kernel's may be used in a moment: it is held still by a run that has just ended, being looked through by the
    /// kernel, or about to get its owner from udev.
    pub fn is_settling(&self, error: &DriverError) -> bool {
        let Target::Kernel(kernel) = &self.target else { return false };
        matches!(error, DriverError::InUse { .. } | DriverError::Lost { .. } | DriverError::Denied { .. })
            && kernel.node.exists()
    }

    /// What helps when the drive does not allow this host.
    pub fn allow(&self) -> String {
        match (&self.target, &self.unkept) {
            (Target::Tcp(_), Some(error)) => format!(
                "its list of allowed hosts does not name this one, which has another NQN each time ({error}): name one that is \
                 allowed by --host-nqn"
            ),
            (Target::Tcp(tcp), None) => {
                format!("the allowed-hosts of the agent's configuration must name this host, {}", tcp.host.nqn)
            }
            (Target::Kernel(_), _) => "its list of allowed hosts does not name this one".into(),
        }
    }

    /// Starts the loader's own agent again, if it has one; it may listen elsewhere afterwards.
    fn restart(&mut self, is_stopped: &dyn Fn() -> bool) -> Result<(), AgentError> {
        if let Some(agent) = &mut self.agent {
            agent.restart(is_stopped)?;
            self.target = self.target.moved_to(agent.url()).map_err(|error| AgentError::Ready(error.to_string()))?;
        }
        Ok(())
    }
}

/// The kernel's controller is a DDLP drive, and not the discovery controller of one.
pub fn is_drive(controller: &KernelController) -> bool {
    controller.model == ddlp_csd::MODEL && controller.serves_io()
}

/// Nothing is sent to a device that is no drive.
fn check_drive(target: &KernelTarget) -> Result<(), String> {
    let node = target.node.display();
    let remedy = "`ddlp devices` lists drives, and says how to connect one";
    match target.sysfs.controller_at(&target.node) {
        Ok(controller) if is_drive(&controller) => Ok(()),
        Ok(controller) => Err(format!("{node} is {}, no DDLP drive; {remedy}", controller.model)),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(format!("there is no {node}; {remedy}")),
        Err(error) => Err(error.to_string()),
    }
}

/// The node of the one drive that the kernel is connected to.
pub(crate) fn find(sysfs: &Sysfs) -> Result<String, String> {
    let controllers = sysfs.controllers().map_err(|error| format!("cannot look for it: {error}"))?;
    let mut drives: Vec<KernelController> = Vec::new();
    let mut away = Vec::new();
    for controller in controllers {
        let is_drive = is_drive(&controller);
        // Several controllers of one subsystem are several ways to one drive.
        let is_known = drives.iter().any(|drive| drive.subsysnqn == controller.subsysnqn);
        if is_drive && controller.state != ControllerState::Live {
            away.push(format!("{} is {}", controller.node.display(), controller.state.as_str()));
        } else if is_drive && !is_known {
            drives.push(controller);
        }
    }
    match &drives[..] {
        [drive] => Ok(drive.node.display().to_string()),
        [] if !away.is_empty() => Err(format!("no way to it is live: {}", away.join(", "))),
        [] => Err("the kernel is connected to none: `ddlp devices` says how to connect one".into()),
        several => {
            let nodes: Vec<String> = several.iter().map(|drive| drive.node.display().to_string()).collect();
            Err(format!("the kernel is connected to several, name one of them: {}", nodes.join(", ")))
        }
    }
}

/// Connects to a drive, checks it and gets it ready for work. `watch` gets the association as soon as there is one, to end it from
/// another thread.
pub(crate) fn connect(
    endpoint: &Endpoint,
    expected: &Expected,
    program: &ddlp_csd::program::Program,
    depth: usize,
    watch: impl FnOnce(Weak<dyn Controller>),
) -> Result<Link, LinkError> {
    let controller = endpoint.target.connect()?;
    watch(Arc::downgrade(&controller));
    Link::open(controller, expected, program, depth)
}
