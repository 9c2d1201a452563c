//! Places for connections: which connection gets one, which gives way, and until when. Sans I/O.
//!
//! A connection is in one group at a time, and every group is bounded, so that the agent never has more than
//! [`CONNECTIONS_MAX`] connections.
//!
//! A successful Connect proves a connection; it needs the NQN of a host that may connect. From then on the connection's
//! place is one of the controller's (`QUEUES_MAX`, `DISCOVERY_ASSOCIATIONS_MAX` in [`crate::controller`]), which no
//! unproven connection can take. A new connection always gets in: when all places for unproven ones are taken, the
//! oldest connection from the address with the most of them gives way. So an address that floods the agent loses its
//! own connections, and a host that sends its Connect at once is not held up by others.
//!
//! Unproven connections from the address of a proven one have places of their own: a host opens its I/O queues
//! together, and strangers take none of their places.
//!
//! A proven connection that closes frees the controller's place at once, but its socket stays open for up to
//! [`CLOSE_TIME`] so that the host gets its last answers. A host may connect and close faster than that, so the number
//! of closing connections is bounded like that of unproven ones.

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
pub struct Places(BTreeMap<ConnId, Place>);

#[derive(Debug)]
struct Place {
    source: IpAddr,
    group: Group,
    /// Time at which the connection loses its place; `None` for a proven connection.
    until: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
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
        let is_known = self.0.values().any(|place| place.group == Group::Proven && place.source == source);
        let (group, most) =
            if is_known { (Group::Acquainted, ACQUAINTED_MAX) } else { (Group::Stranger, STRANGERS_MAX) };
        self.0.insert(conn, Place { source, group, until: Some(now + PROOF_TIME) });
        self.crowded_out(group, most)
    }

    /// Records a successful Connect.
    pub fn prove(&mut self, conn: ConnId) {
        if let Some(place) = self.0.get_mut(&conn).filter(|place| place.group != Group::Closing) {
            (place.group, place.until) = (Group::Proven, None);
        }
    }

    /// Records that a connection is about to end: it keeps its place for at most [`CLOSE_TIME`] from now. Returns the
    /// connection that gives way for it and has lost its place, if any.
    pub fn close(&mut self, conn: ConnId, now: Instant) -> Option<ConnId> {
        let place = self.0.get_mut(&conn)?;
        let end = now + CLOSE_TIME;
        place.until = Some(place.until.map_or(end, |until| until.min(end)));
        if place.group != Group::Proven {
            return None;
        }
        place.group = Group::Closing;
        self.crowded_out(Group::Closing, CLOSING_MAX)
    }

    /// Frees the place of a connection that is gone.
    pub fn leave(&mut self, conn: ConnId) {
        self.0.remove(&conn);
    }

    /// Returns the connections whose time is up, and frees their places.
    pub fn late(&mut self, now: Instant) -> Vec<ConnId> {
        let is_late = |place: &Place| place.until.is_some_and(|until| until <= now);
        let late: Vec<ConnId> = self.0.iter().filter(|(_, place)| is_late(place)).map(|(&conn, _)| conn).collect();
        late.iter().for_each(|&conn| self.leave(conn));
        late
    }

    /// If a group has more than `most` connections, frees a place and returns its connection: among those of the source
    /// with the most connections, the one with the least time left.
    fn crowded_out(&mut self, group: Group, most: usize) -> Option<ConnId> {
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
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

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

        fn is_open(&self, conn: ConnId) -> bool {
            self.places.0.contains_key(&conn)
        }

        /// Lets a connection through from accepting to its end, but for the last [`CLOSE_TIME`].
        fn come_and_go(&mut self, address: &str) -> (ConnId, Option<ConnId>) {
            let (conn, gone) = self.enter(address);
            assert_eq!(gone, None);
            self.places.prove(conn);
            (conn, self.places.close(conn, self.now))
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
            assert_eq!(crowd.places.0.len(), STRANGERS_MAX);
        }
    }

    /// The clock stands still: a host gets its places at once, not when a deadline has freed them.
    #[test]
    fn an_address_that_floods_the_agent_loses_only_its_own_places() {
        let mut crowd = Crowd::new();
        let (host, _) = crowd.enter("192.0.2.1");
        for number in 0..10_000 {
            crowd.enter(ATTACKERS[number % 2]);
            assert!(crowd.is_open(host), "after {number} connections of others");
        }
        crowd.places.prove(host);
        // The host opens its I/O queues, all before the first Connect, and more of them than any attacker has left.
        let queues: Vec<ConnId> = (0..40).map(|_| crowd.enter("192.0.2.1").0).collect();
        for number in 0..10_000 {
            crowd.enter(ATTACKERS[number % 2]);
        }
        assert!(queues.iter().all(|&conn| crowd.is_open(conn)));
        // A new host arrives during the flood.
        let (late, _) = crowd.enter("192.0.2.2");
        for number in 0..10_000 {
            crowd.enter(ATTACKERS[number % 2]);
        }
        assert!(crowd.is_open(late));
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
        let proven = crowd.places.0.values().filter(|place| place.group == Group::Proven).count();
        assert_eq!(proven, 10);
        conns.iter().for_each(|&conn| crowd.places.leave(conn));
        assert!(crowd.places.0.is_empty());
    }

    #[test]
    fn a_host_that_comes_and_goes_has_a_bounded_number_of_closing_connections() {
        let mut crowd = Crowd::new();
        let (good, _) = crowd.come_and_go("192.0.2.1");
        let conns: Vec<ConnId> = (1..CLOSING_MAX).map(|_| crowd.come_and_go("192.0.2.66").0).collect();
        for (number, &oldest) in conns.iter().enumerate() {
            assert_eq!(crowd.come_and_go("192.0.2.66").1, Some(oldest), "after {number} more");
            assert_eq!(crowd.places.0.len(), CLOSING_MAX);
        }
        assert!(crowd.is_open(good), "the connection of another host");
    }

    #[test]
    fn a_closing_connection_is_late_once_its_time_is_up() {
        let mut crowd = Crowd::new();
        let (unproven, _) = crowd.enter("192.0.2.1");
        crowd.places.close(unproven, crowd.now);
        let (proven, _) = crowd.come_and_go("192.0.2.1");
        crowd.now += CLOSE_TIME / 2;
        // Closing a second time gains nothing.
        crowd.places.close(proven, crowd.now);
        crowd.places.prove(proven);
        crowd.now += CLOSE_TIME / 2 - Duration::from_millis(1);
        assert_eq!(crowd.places.late(crowd.now), []);
        crowd.now += Duration::from_millis(1);
        assert_eq!(crowd.places.late(crowd.now), [unproven, proven]);
        // An unproven connection gains no time by closing.
        let (conn, _) = crowd.enter("192.0.2.1");
        crowd.now += PROOF_TIME - Duration::from_millis(1);
        crowd.places.close(conn, crowd.now);
        crowd.now += Duration::from_millis(1);
        assert_eq!(crowd.places.late(crowd.now), [conn]);
    }

    /// Fills every group to its bound, then opens more connections.
    #[test]
    fn the_number_of_connections_is_bounded_whatever_hosts_do() {
        let mut crowd = Crowd::new();
        let mut sources = (0..).map(|number: u32| Ipv4Addr::from_bits(number).to_string());
        for _ in 0..CLOSING_MAX {
            crowd.come_and_go("192.0.2.1");
        }
        for _ in 0..PROVEN_MAX {
            let (conn, _) = crowd.enter("192.0.2.1");
            crowd.places.prove(conn);
        }
        for _ in 0..2 * CONNECTIONS_MAX {
            crowd.enter("192.0.2.1");
            crowd.enter(&sources.next().unwrap());
            assert!(crowd.places.0.len() <= CONNECTIONS_MAX);
        }
        assert_eq!(crowd.places.0.len(), CONNECTIONS_MAX);
    }
}
