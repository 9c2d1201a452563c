//! Places for connections that have shown nothing yet: who gets one, who gives it up, and when. Sans I/O.
//!
//! A connection is proven by a successful Connect, which takes the NQN of a host that may connect. From then on its
//! place is one of the controller's (`QUEUES_MAX`, `DISCOVERY_ASSOCIATIONS_MAX` in [`crate::controller`]), and nothing
//! that unproven connections do costs it that place. An unproven connection always gets in: when all places are taken,
//! another one gives way, the oldest of the address that has most of them. So an address that floods the agent loses
//! its own connections, and a host that goes on to its Connect at once is not held up by those that do not.
//!
//! Connections from the address of a proven one have places of their own: a host opens its I/O queues together, and
//! hosts that are at work lose none of them to strangers.

use crate::controller::{ConnId, QUEUES_MAX};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Unproven connections from addresses of which nothing is known.
pub const STRANGERS_MAX: usize = 64;
/// Unproven connections from addresses that have a proven one: as many as hosts can have queues.
pub const ACQUAINTED_MAX: usize = QUEUES_MAX;
/// From accepting a connection to its successful Connect.
pub const PROOF_TIME: Duration = Duration::from_secs(5);
/// Bits of an IPv6 address that name a network. A host has all addresses of its network.
const NETWORK_BITS: u32 = 64;

/// The open connections.
#[derive(Debug, Default)]
pub struct Places {
    /// Without a successful Connect, oldest first.
    unproven: BTreeMap<ConnId, Unproven>,
    /// With one, and where they come from.
    proven: BTreeMap<ConnId, IpAddr>,
}

#[derive(Debug)]
struct Unproven {
    source: IpAddr,
    acquainted: bool,
    until: Instant,
}

impl Places {
    /// Gives a place to a new connection. Returns the connection that has to give way for it, which has no place any
    /// more. Identifiers ascend.
    pub fn enter(&mut self, conn: ConnId, address: IpAddr, now: Instant) -> Option<ConnId> {
        let source = source(address);
        let acquainted = self.proven.values().any(|&proven| proven == source);
        self.unproven.insert(conn, Unproven { source, acquainted, until: now + PROOF_TIME });
        let most = if acquainted { ACQUAINTED_MAX } else { STRANGERS_MAX };
        let taken = self.unproven.values().filter(|other| other.acquainted == acquainted).count();
        let gives_way = (taken > most).then(|| self.oldest_of_most(acquainted)).flatten();
        gives_way.inspect(|gone| self.leave(*gone))
    }

    /// Returns the oldest connection of the source that has most; of several such sources, of that with the oldest one.
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

    /// Takes back the place of a connection that is gone.
    pub fn leave(&mut self, conn: ConnId) {
        self.unproven.remove(&conn);
        self.proven.remove(&conn);
    }

    /// Returns the connections whose time is up, which have no place any more.
    pub fn late(&mut self, now: Instant) -> Vec<ConnId> {
        let late: Vec<ConnId> = self.unproven.iter().filter(|(_, of)| of.until <= now).map(|(&conn, _)| conn).collect();
        late.iter().for_each(|&conn| self.leave(conn));
        late
    }
}

/// Returns what connections of one host have in common: the address, of IPv6 the network.
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
    fn a_flood_takes_places_from_those_who_flood() {
        let mut crowd = Crowd::new();
        let (host, _) = crowd.enter("192.0.2.1");
        for number in 0..10_000 {
            crowd.enter(ATTACKERS[number % 2]);
            assert!(crowd.unproven(host), "after {number} connections of others");
        }
        crowd.places.prove(host);
        // Its I/O queues, all before the first Connect of one, and more than any attacker has left.
        let queues: Vec<ConnId> = (0..40).map(|_| crowd.enter("192.0.2.1").0).collect();
        for number in 0..10_000 {
            crowd.enter(ATTACKERS[number % 2]);
        }
        assert!(queues.iter().all(|&conn| crowd.unproven(conn)));
        // A host that was not there before.
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
    fn who_proves_nothing_in_time_is_late_once() {
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
    fn nothing_is_kept_of_who_has_left() {
        let mut crowd = Crowd::new();
        let conns: Vec<ConnId> = (0..200).map(|_| crowd.enter("192.0.2.1").0).collect();
        conns[190..].iter().for_each(|&conn| crowd.places.prove(conn));
        // One that gave way is proven no more.
        crowd.places.prove(conns[0]);
        assert_eq!(crowd.places.proven.len(), 10);
        conns.iter().for_each(|&conn| crowd.places.leave(conn));
        assert!(crowd.places.unproven.is_empty() && crowd.places.proven.is_empty());
    }
}
