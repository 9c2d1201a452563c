//! The network: whether the agent can listen where it is told to, who can reach it, and what the links carry.
//!
//! Links are those of network cards: bridges, veths and the like name speeds that nothing stands behind.

use super::finding::{Finding, Level};
use super::system::System;
use crate::agent::discovery::DiscoveryPort;
use nix::ifaddrs::getifaddrs;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener};

const SUBJECT: &str = "network";
const INTERFACES: &str = "sys/class/net";
const LOOPBACK: &str = "lo";

/// Bytes of a prepared image of 224 × 224 pixels, which are what crosses the network.
const IMAGE_BYTES: f64 = 224.0 * 224.0 * 3.0;
/// Share of a link's bits that TCP's payload gets.
const PAYLOAD: f64 = 0.94;

/// One interface that is up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Whether a device stands behind it.
    pub is_physical: bool,
    /// Speed in Mbit/s, where the driver of a device tells.
    pub mbit_s: Option<u32>,
    /// Largest packet.
    pub mtu: Option<u32>,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

/// What became of an attempt to listen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "state", content = "reason")]
pub enum Listening {
    /// It worked.
    Free,
    /// Something listens there already.
    Taken,
    /// It did not work.
    Refused(String),
}

/// The further port at which hosts discover the agent.
#[derive(Clone, Debug, Serialize)]
pub struct Discovery {
    /// The port, at the address where the agent listens.
    pub port: u16,
    /// Whether it was asked for: the agent does not start without it then.
    pub required: bool,
    /// Whether the agent can listen there.
    pub listening: Listening,
}

/// The network.
#[derive(Clone, Debug, Serialize)]
pub struct Network {
    /// Where the agent is to listen.
    pub listen: SocketAddr,
    /// Whether it can.
    pub listening: Listening,
    /// The further port for discovery, and whether the agent can listen there.
    pub discovery: Option<Discovery>,
    /// Interfaces that are up, but loopback.
    pub interfaces: Vec<Interface>,
}

impl Network {
    /// Looks at the interfaces, and tries to listen.
    pub fn read(system: &System, listen: SocketAddr, discovery: Option<DiscoveryPort>) -> Self {
        // Kept while the other port is tried, which may be the same one.
        let (_listener, listening) = try_to_listen(listen);
        let discovery = discovery.map(|DiscoveryPort { port, required }| {
            let (_, listening) = try_to_listen(SocketAddr::new(listen.ip(), port));
            Discovery { port, required, listening }
        });
        Self { listen, listening, discovery, interfaces: interfaces(system, &addresses()) }
    }

    /// The fastest link by which hosts reach the agent, and the images per second that it carries; `None` for loopback and where no
    /// driver tells.
    pub fn fastest(&self) -> Option<(&str, f64)> {
        if self.listen.ip().is_loopback() {
            return None;
        }
        let speeds = self.links().filter_map(|link| Some((link.name.as_str(), link.mbit_s?)));
        speeds.max_by_key(|(_, mbit_s)| *mbit_s).map(|(name, mbit_s)| (name, images_per_s(mbit_s)))
    }

    /// The interfaces by which hosts reach the agent: with the one address at which it listens, or all network cards. For an agent on
    /// loopback, those that it could have.
    fn links(&self) -> impl Iterator<Item = &Interface> {
        let address = self.listen.ip();
        let any = address.is_loopback() || address.is_unspecified();
        let is_link = move |link: &&Interface| if any { link.is_physical } else { link.addresses.contains(&address) };
        self.interfaces.iter().filter(is_link)
    }

    /// What there is to say.
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings = vec![self.about_listening()];
        findings.extend(self.discovery.as_ref().map(|discovery| self.about_discovery(discovery)));
        let said = findings.len();
        findings.extend(self.links().map(|interface| Finding::fine(SUBJECT, describe(interface))));
        if findings.len() == said {
            let level = if self.listen.ip().is_loopback() { Level::Fine } else { Level::Warning };
            let advice =
                "bring one up, unless hosts reach the drive through a virtual one (of a container, for example)";
            let advice = (level == Level::Warning).then(|| advice.into());
            findings.push(Finding { subject: SUBJECT, level, text: "no network card is up".into(), advice });
        }
        findings
    }

    fn about_discovery(&self, Discovery { port, required, listening }: &Discovery) -> Finding {
        let at = SocketAddr::new(self.listen.ip(), *port);
        let instead = self.listen.port();
        match listening {
            Listening::Free => Finding::fine(SUBJECT, format!("{at} is free, for discovery")),
            Listening::Taken if self.listening == Listening::Taken => {
                Finding::fine(SUBJECT, format!("something listens at {at} already, for discovery if it is the agent"))
            }
            Listening::Taken if *required => Finding::failure(
                SUBJECT,
                format!("cannot listen at {at}, for discovery: something else listens there"),
                "give `discovery` another port, or \"off\"",
            ),
            Listening::Refused(reason) if *required => Finding::failure(
                SUBJECT,
                format!("cannot listen at {at}, for discovery: {reason}"),
                "give `discovery` a port above 1023, or \"off\"",
            ),
            Listening::Taken | Listening::Refused(_) => Finding::fine(
                SUBJECT,
                format!("{at} cannot be had for discovery: hosts discover the agent at port {instead}"),
            ),
        }
    }

    fn about_listening(&self) -> Finding {
        let listen = self.listen;
        match &self.listening {
            Listening::Free if listen.ip().is_loopback() => {
                Finding::fine(SUBJECT, format!("{listen} is free: loopback, reached from this machine only"))
            }
            Listening::Free => Finding::fine(SUBJECT, format!("{listen} is free")),
            Listening::Taken => Finding::warning(
                SUBJECT,
                format!("something listens at {listen} already"),
                "fine if it is the running agent; else choose another port for `listen`",
            ),
            Listening::Refused(reason) => Finding::failure(
                SUBJECT,
                format!("cannot listen at {listen}: {reason}"),
                "give `listen` an address of this machine and a port above 1023",
            ),
        }
    }
}

/// Images per second that a link carries.
fn images_per_s(mbit_s: u32) -> f64 {
    f64::from(mbit_s) * 1e6 / 8.0 * PAYLOAD / IMAGE_BYTES
}

fn describe(interface: &Interface) -> String {
    let speed = match interface.mbit_s {
        Some(mbit_s) => {
            let images = images_per_s(mbit_s);
            format!("{mbit_s} Mbit/s, which carries about {images:.0} images/s of 224 × 224")
        }
        None => "speed unknown".into(),
    };
    let addresses: Vec<String> = interface.addresses.iter().map(IpAddr::to_string).collect();
    let addresses = if addresses.is_empty() { "no address".into() } else { addresses.join(", ") };
    format!("{} is up, {speed}; {addresses}", interface.name)
}

fn try_to_listen(listen: SocketAddr) -> (Option<TcpListener>, Listening) {
    match TcpListener::bind(listen) {
        Ok(listener) => (Some(listener), Listening::Free),
        Err(error) if error.kind() == ErrorKind::AddrInUse => (None, Listening::Taken),
        Err(error) => (None, Listening::Refused(error.to_string())),
    }
}

/// Addresses by interface; without those of a link alone (fe80::/10).
fn addresses() -> BTreeMap<String, Vec<IpAddr>> {
    let mut by_name: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
    for entry in getifaddrs().into_iter().flatten() {
        let Some(address) = entry.address else { continue };
        let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
        let v6 = address.as_sockaddr_in6().map(|address| address.ip());
        let v6 = v6.filter(|address| !address.is_unicast_link_local()).map(IpAddr::V6);
        if let Some(address) = v4.or(v6) {
            by_name.entry(entry.interface_name).or_default().push(address);
        }
    }
    by_name
}

fn interfaces(system: &System, addresses: &BTreeMap<String, Vec<IpAddr>>) -> Vec<Interface> {
    let interface = |name: String| {
        let file = |file: &str| format!("{INTERFACES}/{name}/{file}");
        // Some virtual devices say «unknown» while they work.
        let is_up = matches!(system.text(&file("operstate")).as_deref(), Some("up" | "unknown"));
        let is_physical = system.path(&file("device")).exists();
        // Without a link, drivers say -1.
        let mbit_s = system.value::<i64>(&file("speed")).and_then(|speed| u32::try_from(speed).ok());
        is_up.then(|| Interface {
            is_physical,
            mbit_s: mbit_s.filter(|_| is_physical),
            mtu: system.value(&file("mtu")),
            addresses: addresses.get(&name).cloned().unwrap_or_default(),
            name: name.clone(),
        })
    };
    system.names(INTERFACES).into_iter().filter(|name| name != LOOPBACK).filter_map(interface).collect()
}

#[cfg(test)]
mod tests {
    use super::super::system::board_with;
    use super::*;

    #[test]
    fn interfaces_that_are_up_are_told_with_their_speed() {
        let (_root, system) = board_with(&[
            ("sys/class/net/eth0/operstate", "up\n"),
            ("sys/class/net/eth0/speed", "2500\n"),
            ("sys/class/net/eth0/mtu", "1500\n"),
            ("sys/class/net/eth0/device/vendor", "0x1af4\n"),
            ("sys/class/net/eth1/operstate", "down\n"),
            ("sys/class/net/eth1/device/vendor", "0x1af4\n"),
            ("sys/class/net/eth2/operstate", "up\n"),
            ("sys/class/net/eth2/speed", "1000\n"),
            ("sys/class/net/eth2/device/vendor", "0x1af4\n"),
            ("sys/class/net/docker0/operstate", "up\n"),
            ("sys/class/net/docker0/speed", "10000\n"),
            ("sys/class/net/usb0/operstate", "unknown\n"),
            ("sys/class/net/usb0/speed", "-1\n"),
            ("sys/class/net/usb0/device/idVendor", "0bda\n"),
            ("sys/class/net/lo/operstate", "unknown\n"),
        ]);
        let one = |name: &str, address: &str| (name.to_owned(), vec![address.parse().unwrap()]);
        let here = BTreeMap::from([one("eth0", "192.0.2.7"), one("eth2", "192.0.2.8"), one("docker0", "172.17.0.1")]);
        let interfaces = interfaces(&system, &here);
        let short: Vec<_> = interfaces.iter().map(|found| (found.name.as_str(), found.mbit_s)).collect();
        assert_eq!(short, [("docker0", None), ("eth0", Some(2500)), ("eth2", Some(1000)), ("usb0", None)]);
        let network = |listen: &str| Network {
            listen: listen.parse().unwrap(),
            listening: Listening::Free,
            discovery: None,
            interfaces: interfaces.clone(),
        };
        let fastest = |listen: &str| network(listen).fastest().map(|(name, images)| (name.to_owned(), images as u32));
        for any in ["0.0.0.0:4420", "[::]:4420"] {
            assert_eq!(fastest(any), Some(("eth0".into(), 1951)));
        }
        assert_eq!(fastest("192.0.2.8:4420"), Some(("eth2".into(), 780)), "the other one carries nothing of it");
        assert_eq!([fastest("172.17.0.1:4420"), fastest("127.0.0.1:4420")], [None, None]);
        let texts =
            |listen: &str| network(listen).findings().into_iter().map(|finding| finding.text).collect::<Vec<_>>();
        let said = texts("0.0.0.0:4420");
        assert!(said[1].starts_with("eth0 is up, 2500 Mbit/s") && said[1].ends_with("192.0.2.7"), "{said:?}");
        assert_eq!(said[3..], ["usb0 is up, speed unknown; no address"]);
        assert_eq!(texts("172.17.0.1:4420")[1..], ["docker0 is up, speed unknown; 172.17.0.1"]);
    }

    #[test]
    fn a_discovery_port_that_was_asked_for_has_to_be_free() {
        let (_root, system) = board_with(&[]);
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let taken_at = taken.local_addr().unwrap();
        let level = |listen: SocketAddr, port, required| {
            let network = Network::read(&system, listen, Some(DiscoveryPort { port, required }));
            (network.listening.clone(), network.findings()[1].level)
        };
        let free: SocketAddr = "127.0.0.1:0".parse().unwrap();
        assert_eq!(level(free, 0, true), (Listening::Free, Level::Fine));
        assert_eq!(level(free, taken_at.port(), true), (Listening::Free, Level::Failure), "somebody else has it");
        assert_eq!(level(free, taken_at.port(), false), (Listening::Free, Level::Fine), "nobody asked for it");
        assert_eq!(level(taken_at, taken_at.port(), true), (Listening::Taken, Level::Fine), "maybe the agent");
        let port = taken_at.port();
        drop(taken);
        assert_eq!(level(taken_at, port, true), (Listening::Free, Level::Failure), "one port cannot be both");
    }

    #[test]
    fn an_address_of_another_machine_is_a_failure_and_a_taken_port_is_not() {
        let (_root, system) = board_with(&[]);
        let network = Network::read(&system, "192.0.2.1:4420".parse().unwrap(), None);
        assert_eq!(network.findings()[0].level, Level::Failure);
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let network = Network::read(&system, taken.local_addr().unwrap(), None);
        assert_eq!(network.listening, Listening::Taken);
        assert_eq!(network.findings()[0].level, Level::Warning);
        assert_eq!(network.fastest(), None, "loopback");
        assert_eq!(network.findings()[1].level, Level::Fine, "loopback needs no other interface");
    }
}
