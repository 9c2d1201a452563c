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

/// Silence that ends a discovery controller whose host gave no keep alive time-out, as hosts do that ask once and leave.
/// Base 2.1, section "Discovery Controller", lets the controller choose; Linux' own target waits as long.
pub const DISCOVERY_SILENCE_MAX: Duration = Duration::from_secs(120);

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
}

impl Association {
    /// All connections, admin last, so that a host sees its I/O queues end first.
    pub fn connections(&self) -> Vec<ConnId> {
        self.io_queues.values().copied().chain([self.admin]).collect()
    }

    /// The host has been silent for longer than it may.
    pub fn expired(&self, now: Instant) -> bool {
        self.silence_max().is_some_and(|limit| now.saturating_duration_since(self.heard) > limit)
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
