//! Places for connections: which connection gets one, which gives way, and until when. Sans I/O.
//!
//! A connection is in one group at a time, and every group is bounded, so that the agent never has more than
//! [`CONNECTIONS_MAX`] connections.
//!
//! A successful Connect proves a connection, and needs the NQN of an allowed host. From then on the connection's place
//! is one of the controller's (`QUEUES_MAX`, `DISCOVERY_ASSOCIATIONS_MAX` in [`crate::controller`]), which no unproven
//! connection can take. A new connection always gets in: when all places for unproven ones are taken, the oldest
//! connection from the address with the most of them gives way. So an address that floods the agent loses its own
//! connections, and a host that sends its Connect at once is not held up by others.
//!
//! Unproven connections from the address of a proven one have places of their own: a host opens its I/O queues
//! together, and strangers take none of their places.
//!
//! A proven connection that closes frees the controller's place at once, but its socket stays open for up to
//! [`CLOSE_TIME`] so that the host gets its last answers. A host may connect and close faster than that, so the number
//! of closing connections is bounded, like the number of unproven ones.

use super::CLOSE_TIME;
use crate::controller::{ConnId, DISCOVERY_ASSOCIATIONS_MAX, QUEUES_MAX};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Most unproven connections from addresses without a proven one.
pub const STRANGERS_MAX: usize = 64;
/// Most unproven connections from addresses with a proven one: as many as all hosts together can have queues.
pub const ACQUAINTED_MAX: usize = QUEUES_MAX;
/// Most proven connections. The controller refuses further ones.
pub const PROVEN_MAX: usize = QUEUES_MAX + DISCOVERY_ASSOCIATIONS_MAX;
/// Most closing connections that were proven: all proven ones may close at once.
pub const CLOSING_MAX: usize = PROVEN_MAX;
/// Most connections.
pub const CONNECTIONS_MAX: usize = STRANGERS_MAX + ACQUAINTED_MAX + PROVEN_MAX + CLOSING_MAX;
/// Longest time from accepting a connection to its successful Connect.
pub const PROOF_TIME: Duration = Duration::from_secs(5);
/// Number of bits of an IPv6 address that name the network. One host may use all addresses of its network.
const NETWORK_BITS: u32 = 64;

/// The open connections.
#[derive(Debug, Default)]
pub struct Places(BTreeMap<ConnId, ConnectionPlace>);

#[derive(Debug)]
struct ConnectionPlace {
    source: IpAddr,
    group: PlaceGroup,
    /// Time at which the connection loses its place; `None` for a proven connection.
    until: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlaceGroup {
    /// Unproven, from an address without a proven connection.
    Stranger,
    /// Unproven, from an address with a proven connection.
    Acquainted,
    /// After a successful Connect.
    Proven,
    /// Was proven, and is about to end.
    Closing,
}

impl Places {
    /// Gives a place to a new connection. Returns the connection that gives way for it and has lost its place, if any.
    /// Identifiers have to ascend.
    pub fn enter(&mut self, conn: ConnId, address: IpAddr, now: Instant) -> Option<ConnId> {
        let source = source(address);
        let is_known = self.0.values().any(|place| place.group == PlaceGroup::Proven && place.source == source);
        let (group, most) =
            if is_known { (PlaceGroup::Acquainted, ACQUAINTED_MAX) } else { (PlaceGroup::Stranger, STRANGERS_MAX) };
        self.0.insert(conn, ConnectionPlace { source, group, until: Some(now + PROOF_TIME) });
        self.crowded_out(group, most)
    }

    /// Records a successful Connect.
    pub fn prove(&mut self, conn: ConnId) {
        if let Some(place) = self.0.get_mut(&conn).filter(|place| place.group != PlaceGroup::Closing) {
            (place.group, place.until) = (PlaceGroup::Proven, None);
        }
    }

    /// Records that a connection is about to end: it keeps its place for at most [`CLOSE_TIME`] from now. Returns the
    /// connection that gives way for it and has lost its place, if any.
    pub fn close(&mut self, conn: ConnId, now: Instant) -> Option<ConnId> {
        let place = self.0.get_mut(&conn)?;
        let end = now + CLOSE_TIME;
        place.until = Some(place.until.map_or(end, |until| until.min(end)));
        if place.group != PlaceGroup::Proven {
            return None;
        }
        place.group = PlaceGroup::Closing;
        self.crowded_out(PlaceGroup::Closing, CLOSING_MAX)
    }

    /// Frees the place of a connection that is gone.
    pub fn leave(&mut self, conn: ConnId) {
        self.0.remove(&conn);
    }

    /// Returns the connections whose time is up, and frees their places.
    pub fn late(&mut self, now: Instant) -> Vec<ConnId> {
        let is_late = |place: &ConnectionPlace| place.until.is_some_and(|until| until <= now);
        let late: Vec<ConnId> = self.0.iter().filter(|(_, place)| is_late(place)).map(|(&conn, _)| conn).collect();
        late.iter().for_each(|&conn| self.leave(conn));
        late
    }

    /// If a group has more than `most` connections, frees a place and returns its connection: the one with the least
    /// time left, from the source with the most connections.
    fn crowded_out(&mut self, group: PlaceGroup, most: usize) -> Option<ConnId> {
        // For each source: the number of its connections, and the one that loses its place first.
        let mut sources: BTreeMap<IpAddr, (usize, (Option<Instant>, ConnId))> = BTreeMap::new();
        let (mut taken, members) = (0, self.0.iter().filter(|(_, place)| place.group == group));
        for (&conn, place) in members {
            let own = (place.until, conn);
            let (count, first) = sources.entry(place.source).or_insert((0, own));
            (*count, *first) = (*count + 1, own.min(*first));
            taken += 1;
        }
        if taken <= most {
            return None;
        }
        let (_, (_, gone)) = sources.into_values().max_by_key(|&(count, first)| (count, std::cmp::Reverse(first)))?;
        self.leave(gone);
        Some(gone)
    }
}

/// Returns the part of an address that all connections of one host share: all of it for IPv4, the network for IPv6.
fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            let network = address.to_bits() >> NETWORK_BITS << NETWORK_BITS;
            Ipv6Addr::from_bits(network).into()
        }
        address => address,
    }
}

#[cfg(test)]
mod tests;
