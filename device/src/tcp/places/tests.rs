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

    /// Takes a connection from accepting to closing; its socket stays open for [`CLOSE_TIME`].
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
    let all = ["2001:db8::1", "2001:db8::ffff:2", "2001:db8:0:0:1::"].map(|address| source(address.parse().unwrap()));
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
    let proven = crowd.places.0.values().filter(|place| place.group == PlaceGroup::Proven).count();
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
