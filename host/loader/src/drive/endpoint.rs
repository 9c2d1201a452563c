//! How to reach a drive: its address, the identity that this host uses there, and the agent if the loader started it.

use super::kernel::check_drive;
use super::link::{DriveLink, Expected, LinkError, closing};
use super::local::{AgentError, LocalAgent};
use crate::error::DriveError;
use ddlp_cause::with_causes;
use ddlp_driver::host::HostError;
use ddlp_driver::tcp::Closer;
use ddlp_driver::{Controller, DriverError, Host, HostIdentity, Target};
use ddlp_nvme::Status;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

/// The address of a drive, and the host identity that this end uses for every connection to it.
pub(crate) struct Endpoint {
    /// The agent, if the loader started it.
    pub agent: Option<LocalAgent>,
    /// Whether the host's CPU reads the dataset from this drive.
    pub holds_dataset: bool,
    target: Target,
    /// Why the NQN of this host lasts for this run only.
    unkept: Option<HostError>,
}

impl Endpoint {
    /// Returns the endpoint of an agent that the loader started. This agent accepts any host, so this host needs no
    /// lasting identity.
    pub fn local(agent: LocalAgent) -> Result<Self, DriverError> {
        Ok(Self { target: Target::parse(agent.url())?, agent: Some(agent), holds_dataset: false, unkept: None })
    }

    /// Returns the endpoint of an agent that is already running. Over `tcp://` this end is a host of its own, with the
    /// NQN of `host`.
    pub fn remote(address: &str, host: &Host) -> Result<Self, DriveError> {
        let mut target = Target::parse(address).map_err(DriveError::of)?;
        let mut unkept = None;
        if let Target::Kernel(kernel) = &target {
            check_drive(kernel)?;
        }
        if let Target::Tcp(tcp) = &mut target {
            let host = host.identity().or_else(|error| match error {
                HostError::Keep(..) => {
                    tracing::debug!(error = &error as &dyn Error, "this run has a host NQN that is not kept");
                    unkept = Some(error);
                    HostIdentity::random()
                }
                error => Err(error),
            });
            tcp.host = host.map_err(DriveError::of)?;
        }
        Ok(Self { agent: None, holds_dataset: false, target, unkept })
    }

    /// Connects to the drive. The attempt ends after the time `within`, or earlier, by the driver's own limit. Passes
    /// `watch` the means by which another thread can end the attempt.
    pub fn connect(&self, within: Duration, watch: impl FnOnce(Closer)) -> Result<Arc<dyn Controller>, DriverError> {
        self.target.connect_watched(within, watch)
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
                "its list of allowed hosts does not name this host, whose NQN is new in each run ({}): give an allowed \
                 NQN as `host_nqn`",
                with_causes(error)
            ),
            (Target::Tcp(tcp), None) => {
                format!("the allowed-hosts of the agent's configuration must name this host, {}", tcp.host.nqn)
            }
            (Target::Kernel(_), _) => "its list of allowed hosts does not name this host".into(),
        }
    }

    /// Returns the error for a drive that cannot be used, with what to do and `remedy`.
    pub fn unusable(&self, error: LinkError, remedy: &str) -> DriveError {
        DriveError::new(self.explain(&error) + remedy, error)
    }

    /// Explains why a drive cannot be used, and what to do.
    fn explain(&self, error: &LinkError) -> String {
        let hint = match error {
            LinkError::Refused(_)
            | LinkError::Driver(DriverError::Busy { .. } | DriverError::Denied { .. } | DriverError::Invalid(_)) => "",
            LinkError::Driver(DriverError::InUse { .. }) => {
                "; only one process at a time can use a drive through the kernel: wait until the other one ends, or \
                 use a drive at an address (tcp://HOST:PORT/NQN), which several can share"
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
            // These have a source, which messages name behind what to do.
            LinkError::Driver(DriverError::Protocol { .. }) => " (does an NVMe/TCP drive listen there?)",
            LinkError::Driver(DriverError::Lost { .. } | DriverError::TimedOut { .. }) => {
                " (is the agent running there?)"
            }
            LinkError::Driver(DriverError::TooManyFiles { .. }) => " (close files, or raise the limit: `ulimit -n`)",
            LinkError::Driver(DriverError::Unresolved { .. }) => " (check the host's name, or give its IP address)",
        };
        format!("{error}{hint}")
    }

    /// Restarts the loader's own agent, if there is one. The agent may listen at another address afterwards.
    pub fn restart(&mut self, is_stopped: &dyn Fn() -> bool) -> Result<(), AgentError> {
        if let Some(agent) = &mut self.agent {
            agent.restart(is_stopped)?;
            self.target = self.target.moved_to(agent.url()).map_err(|_| agent.unlike_an_agent(agent.url()))?;
        }
        Ok(())
    }
}

/// Connects to a drive, checks it and gets it ready for work. Passes `watch` a function by which another thread can end
/// the attempt and the association.
pub(crate) fn connect(
    endpoint: &Endpoint,
    expected: &Expected,
    depth: usize,
    watch: impl Fn(Box<dyn Fn() + Send>),
) -> Result<DriveLink, LinkError> {
    let controller = endpoint.connect(Duration::MAX, |closer| watch(Box::new(move || closer.close())))?;
    watch(closing(&controller));
    DriveLink::open(controller, expected, depth)
}

#[cfg(test)]
mod tests;
