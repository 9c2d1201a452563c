//! One host's controller, and the queues that lead to it.

use super::ConnId;
use super::features::Features;
use super::property::Properties;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Reported head when submission queue flow control is off.
const HEAD_RESERVED: u16 = 0xFFFF;
/// Keep alive time-outs are rounded up to this (KAS × 100 ms).
pub const KEEP_ALIVE_GRANULARITY_MS: u32 = 1000;

/// Silence that ends a discovery controller whose host gave no keep alive time-out, as hosts do that ask once and
/// leave. Base 2.1, section "Discovery Controller", lets the controller choose; Linux' own target waits as long.
pub const DISCOVERY_SILENCE_MAX: Duration = Duration::from_secs(120);

/// From Connect to the first CC.EN. After a reset a host may take its time.
pub const ENABLE_TIME: Duration = Duration::from_secs(10);
/// Longest keep alive time-out that keeps an association its place when all are taken. NVMe/TCP Transport 1.1, section
/// "Keep Alive Model", requires Keep Alive: without it nothing tells a host that is gone from one that is idle. Such an
/// association is served all the same (Linux makes them «for debug»), until another host needs the place.
pub const GIVES_WAY_MS: u32 = 120_000;

/// A host as it names itself in Connect.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Host {
    /// Host NQN.
    pub nqn: String,
    /// Host identifier.
    pub id: [u8; 16],
}

/// What a host wants of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The namespaces.
    Io,
    /// To be told that the NVM subsystem is at this address.
    Discovery(SocketAddr),
}

impl Kind {
    /// A discovery controller.
    pub fn is_discovery(self) -> bool {
        matches!(self, Self::Discovery(_))
    }
}

/// One queue pair.
#[derive(Clone, Copy, Debug)]
pub struct QueuePair {
    /// Its controller.
    pub controller_id: u16,
    /// Queue identifier, 0 for the admin queue.
    pub id: u16,
    /// Entries of the submission queue.
    pub entries: u16,
    /// Submission queue flow control is on.
    pub flow_control: bool,
    /// Next entry to be taken.
    pub head: u16,
}

impl QueuePair {
    /// Takes one entry.
    pub fn advance(&mut self) {
        self.head = if self.head + 1 < self.entries { self.head + 1 } else { 0 };
    }

    /// Head as completions report it.
    pub fn head_reported(&self) -> u16 {
        if self.flow_control { self.head } else { HEAD_RESERVED }
    }
}

/// One association: a controller that a host made by Connect.
pub struct Association {
    /// Controller identifier.
    pub controller_id: u16,
    /// What the host wants of it.
    pub kind: Kind,
    /// The host.
    pub host: Host,
    /// Connection of the admin queue.
    pub admin: ConnId,
    /// Connections of I/O queues by queue identifier.
    pub io_queues: BTreeMap<u16, ConnId>,
    /// Controller properties.
    pub properties: Properties,
    /// Features.
    pub features: Features,
    /// Outstanding asynchronous event requests.
    pub event_requests: Vec<u16>,
    /// An event was reported whose log page has not been read since.
    pub event_masked: bool,
    /// Last command.
    pub heard: Instant,
    /// Connect.
    pub begun: Instant,
}

impl Association {
    /// All connections, admin last, so that a host sees its I/O queues end first.
    pub fn connections(&self) -> Vec<ConnId> {
        self.io_queues.values().copied().chain([self.admin]).collect()
    }

    /// Returns why the association is at its end, if it is.
    pub fn ended(&self, now: Instant) -> Option<&'static str> {
        let silent = now.saturating_duration_since(self.heard);
        if self.silence_max().is_some_and(|limit| silent > limit) {
            return Some("the host fell silent");
        }
        let waiting = now.saturating_duration_since(self.begun);
        (!self.properties.was_enabled() && waiting > ENABLE_TIME).then_some("the host did not enable its controller")
    }

    /// The association ends when another host needs its place: it promises no sign of life, or has not begun.
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

/// A keep alive time-out rounded up to the granularity; 0 stays 0, for none.
pub fn keep_alive_rounded(milliseconds: u32) -> u32 {
    milliseconds.checked_next_multiple_of(KEEP_ALIVE_GRANULARITY_MS).unwrap_or(u32::MAX)
}
