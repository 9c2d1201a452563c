//! Places for connections before their Connect: which connection gets one, and which gives way. Sans I/O.
//!
//! A successful Connect proves a connection; it needs the NQN of a host that may connect. From then on the connection's
//! place is one of the controller's (`QUEUES_MAX`, `DISCOVERY_ASSOCIATIONS_MAX` in [`crate::controller`]), which no
//! unproven connection can take. A new connection always gets in: when all places for unproven ones are taken, the
//! oldest connection of the address with most of them gives way. So an address that floods the agent loses its own
//! connections, and a host that sends its Connect at once is not held up by others.
//!
//! Unproven connections from the address of a proven one have places of their own: a host opens its I/O queues
//! together, and strangers take none of their places.

use crate::controller::{ConnId, QUEUES_MAX};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Most unproven connections from addresses without a proven one.
pub const STRANGERS_MAX: usize = 64;
/// Most unproven connections from addresses with a proven one: as many as all hosts together can have queues.
pub const ACQUAINTED_MAX: usize = QUEUES_MAX;
/// Longest time from accepting a connection to its successful Connect.
pub const PROOF_TIME: Duration = Duration::from_secs(5);
/// Number of bits of an IPv6 address that name the network. One host may use all addresses of its network.
const NETWORK_BITS: u32 = 64;

/// The open connections.
#[derive(Debug, Default)]
pub struct Places {
    /// Connections without a successful Connect, oldest first.
    unproven: BTreeMap<ConnId, Unproven>,
    /// Connections with a successful Connect, and their sources.
    proven: BTreeMap<ConnId, IpAddr>,
}

#[derive(Debug)]
struct Unproven {
    source: IpAddr,
    acquainted: bool,
    until: Instant,
}

impl Places {
    /// Gives a place to a new connection. Returns the connection that gives way for it and has lost its place, if any.
    /// Identifiers have to ascend.
    pub fn enter(&mut self, conn: ConnId, address: IpAddr, now: Instant) -> Option<ConnId> {
        let source = source(address);
        let acquainted = self.proven.values().any(|&proven| proven == source);
        self.unproven.insert(conn, Unproven { source, acquainted, until: now + PROOF_TIME });
        let most = if acquainted { ACQUAINTED_MAX } else { STRANGERS_MAX };
        let taken = self.unproven.values().filter(|other| other.acquainted == acquainted).count();
        let gives_way = (taken > most).then(|| self.oldest_of_most(acquainted)).flatten();
        gives_way.inspect(|gone| self.leave(*gone))
    }

    /// Returns the oldest connection of the source with most connections; among equals, of the source with the oldest.
    fn oldest_of_most(&self, acquainted: bool) -> Option<ConnId> {
        let mut sources: BTreeMap<IpAddr, (usize, ConnId)> = BTreeMap::new();
        for (&conn, of) in self.unproven.iter().filter(|(_, of)| of.acquainted == acquainted) {
            sources.entry(of.source).or_insert((0, conn)).0 += 1;
        }
        sources
            .into_values()
            .max_by_key(|&(count, oldest)| (count, std::cmp::Reverse(oldest)))
            .map(|(_, oldest)| oldest)
    }

    /// Takes note of a successful Connect.
    pub fn prove(&mut self, conn: ConnId) {
        if let Some(of) = self.unproven.remove(&conn) {
            self.proven.insert(conn, of.source);
        }
    }

    /// Frees the place of a connection that is gone.
    pub fn leave(&mut self, conn: ConnId) {
        self.unproven.remove(&conn);
        self.proven.remove(&conn);
    }

    /// Returns the connections whose time is up, and frees their places.
    pub fn late(&mut self, now: Instant) -> Vec<ConnId> {
        let late: Vec<ConnId> = self.unproven.iter().filter(|(_, of)| of.until <= now).map(|(&conn, _)| conn).collect();
        late.iter().for_each(|&conn| self.leave(conn));
        late
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
mod tests {
    use super::*;

    const ATTACKERS: [&str; 2] = ["192.0.2.66", "2001:db8::66"];

    /// A crowd with a clock of its own.
    struct Crowd {
        places: Places,
        last: u64,
        now: Instant,
    }

    impl Crowd {
        fn new() -> Self {
            Self { places: Places::default(), last: 0, now: Instant::now() }
        }

        fn enter(&mut self, address: &str) -> (ConnId, Option<ConnId>) {
            self.last += 1;
            let conn = ConnId(self.last);
            (conn, self.places.enter(conn, address.parse().unwrap(), self.now))
        }

        fn unproven(&self, conn: ConnId) -> bool {
            self.places.unproven.contains_key(&conn)
        }
    }

    #[test]
    fn the_oldest_gives_way_when_all_places_are_taken() {
        let mut crowd = Crowd::new();
        for _ in 0..STRANGERS_MAX {
            assert_eq!(crowd.enter("192.0.2.1").1, None);
        }
        for number in 1..=1000 {
            assert_eq!(crowd.enter("192.0.2.1").1, Some(ConnId(number)));
            assert_eq!(crowd.places.unproven.len(), STRANGERS_MAX);
        }
    }

    #[test]
    fn an_address_that_floods_the_agent_loses_only_its_own_places() {
        let mut crowd = Crowd::new();
        let (host, _) = crowd.enter("192.0.2.1");
        for number in 0..10_000 {
            crowd.enter(ATTACKERS[number % 2]);
            assert!(crowd.unproven(host), "after {number} connections of others");
        }
        crowd.places.prove(host);
        // The host opens its I/O queues, all before the first Connect, and more of them than any attacker has left.
        let queues: Vec<ConnId> = (0..40).map(|_| crowd.enter("192.0.2.1").0).collect();
        for number in 0..10_000 {
            crowd.enter(ATTACKERS[number % 2]);
        }
        assert!(queues.iter().all(|&conn| crowd.unproven(conn)));
        // A new host arrives during the flood.
        let (late, _) = crowd.enter("192.0.2.2");
        for number in 0..10_000 {
            crowd.enter(ATTACKERS[number % 2]);
        }
        assert!(crowd.unproven(late));
    }

    #[test]
    fn addresses_of_one_host_are_one_source() {
        let all =
            ["2001:db8::1", "2001:db8::ffff:2", "2001:db8:0:0:1::"].map(|address| source(address.parse().unwrap()));
        assert!(all.windows(2).all(|pair| pair[0] == pair[1]));
        let other: IpAddr = "2001:db8:0:1::1".parse().unwrap();
        assert_ne!(source(other), all[0]);
        let mapped: IpAddr = "::ffff:192.0.2.1".parse().unwrap();
        assert_eq!(source(mapped).to_string(), "192.0.2.1");
    }

    #[test]
    fn an_unproven_connection_is_late_once_its_time_is_up() {
        let mut crowd = Crowd::new();
        let (slow, _) = crowd.enter("192.0.2.1");
        let (quick, _) = crowd.enter("192.0.2.1");
        crowd.places.prove(quick);
        crowd.now += PROOF_TIME / 2;
        let (young, _) = crowd.enter("192.0.2.1");
        crowd.now += PROOF_TIME / 2 - Duration::from_millis(1);
        assert_eq!(crowd.places.late(crowd.now), []);
        crowd.now += Duration::from_millis(1);
        assert_eq!(crowd.places.late(crowd.now), [slow]);
        assert_eq!(crowd.places.late(crowd.now), []);
        crowd.now += PROOF_TIME;
        assert_eq!(crowd.places.late(crowd.now), [young]);
        crowd.now += PROOF_TIME * 1000;
        assert_eq!(crowd.places.late(crowd.now), [], "a proven connection has all the time that it wants");
    }

    #[test]
    fn a_connection_that_has_left_is_forgotten() {
        let mut crowd = Crowd::new();
        let conns: Vec<ConnId> = (0..200).map(|_| crowd.enter("192.0.2.1").0).collect();
        conns[190..].iter().for_each(|&conn| crowd.places.prove(conn));
        // A connection that gave way can no longer be proven.
        crowd.places.prove(conns[0]);
        assert_eq!(crowd.places.proven.len(), 10);
        conns.iter().for_each(|&conn| crowd.places.leave(conn));
        assert!(crowd.places.unproven.is_empty() && crowd.places.proven.is_empty());
    }
}
