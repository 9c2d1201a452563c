//! One host's controller.

use super::ConnId;
use super::features::Features;
use super::profile::ControllerKind;
use super::property::Properties;
use crate::host::ConnectedHost;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Silence that ends a discovery controller without a keep alive time-out. Hosts that read the log once and leave ask
/// for none. Base 2.1, section "Discovery Controller", lets the controller choose; Linux's own target waits as long.
pub const DISCOVERY_SILENCE_MAX: Duration = Duration::from_secs(120);

/// Longest time from Connect until the host first sets CC.EN. After a reset there is no limit.
pub const ENABLE_TIME: Duration = Duration::from_secs(10);
/// Longest keep alive time-out with which an association keeps its place when all places are taken.
///
/// NVMe/TCP Transport 1.1, section "Keep Alive Model", requires Keep Alive: without it, a host that is gone looks like
/// one that is idle. Linux makes associations without it “for debug”; the agent serves them until another host needs
/// their place.
pub const GIVES_WAY_MS: u32 = 120_000;

/// One association: a controller that a host made by Connect.
pub struct Association {
    /// Controller identifier.
    pub controller_id: u16,
    /// Kind of the controller.
    pub kind: ControllerKind,
    /// The host.
    pub host: Arc<ConnectedHost>,
    /// Connection of the admin queue.
    pub admin: ConnId,
    /// Connections of I/O queues by queue identifier.
    pub io_queues: BTreeMap<u16, ConnId>,
    /// Controller properties.
    pub properties: Properties,
    /// Features.
    pub features: Features,
    /// Command identifiers of outstanding asynchronous event requests.
    pub event_requests: Vec<u16>,
    /// Whether an event was reported whose log page the host has not read since.
    pub event_masked: bool,
    /// Time of the last command.
    pub heard: Instant,
    /// Time of Connect.
    pub begun: Instant,
}

impl Association {
    /// Returns all connections, the admin queue's last, so that a host sees its I/O queues end first.
    pub fn connections(&self) -> Vec<ConnId> {
        self.io_queues.values().copied().chain([self.admin]).collect()
    }

    /// Returns the number of queues.
    pub fn queues(&self) -> usize {
        1 + self.io_queues.len()
    }

    /// Returns why the association has to end, if it has to.
    pub fn ended(&self, now: Instant) -> Option<&'static str> {
        let silent = now.saturating_duration_since(self.heard);
        if self.silence_max().is_some_and(|limit| silent > limit) {
            return Some("the host fell silent");
        }
        let waiting = now.saturating_duration_since(self.begun);
        (!self.properties.was_enabled() && waiting > ENABLE_TIME).then_some("the host did not enable its controller")
    }

    /// Returns whether the association ends when another host needs its place: its host promises no sign of life, or
    /// has never enabled the controller.
    pub fn gives_way(&self) -> bool {
        !(1..=GIVES_WAY_MS).contains(&self.features.keep_alive_ms) || !self.properties.was_enabled()
    }

    fn silence_max(&self) -> Option<Duration> {
        match self.features.keep_alive_ms {
            0 if self.kind.is_discovery() => Some(DISCOVERY_SILENCE_MAX),
            0 => None,
            milliseconds => Some(Duration::from_millis(milliseconds.into())),
        }
    }
}
