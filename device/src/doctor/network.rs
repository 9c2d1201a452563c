//! The network: whether the agent can listen where it is told to, who can reach it, and what the links carry.

use super::finding::{Finding, Level};
use super::system::System;
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
    /// Speed in Mbit/s, where the driver tells.
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

/// The network.
#[derive(Clone, Debug, Serialize)]
pub struct Network {
    /// Where the agent is to listen.
    pub listen: SocketAddr,
    /// Whether it can.
    pub listening: Listening,
    /// Interfaces that are up, but loopback.
    pub interfaces: Vec<Interface>,
}

impl Network {
    /// Looks at the interfaces, and tries to listen.
    pub fn read(system: &System, listen: SocketAddr) -> Self {
        Self { listen, listening: try_to_listen(listen), interfaces: interfaces(system, &addresses()) }
    }

    /// Images per second that the fastest interface carries; `None` for loopback and where no driver tells.
    pub fn images_per_s(&self) -> Option<f64> {
        if self.listen.ip().is_loopback() {
            return None;
        }
        let fastest = self.interfaces.iter().filter_map(|interface| interface.mbit_s).max()?;
        Some(f64::from(fastest) * 1e6 / 8.0 * PAYLOAD / IMAGE_BYTES)
    }

    /// What there is to say.
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings = vec![self.about_listening()];
        findings.extend(self.interfaces.iter().map(|interface| Finding::fine(SUBJECT, describe(interface))));
        if self.interfaces.is_empty() {
            let level = if self.listen.ip().is_loopback() { Level::Fine } else { Level::Warning };
            let advice = (level == Level::Warning).then(|| "bring an interface up: no host can reach the drive".into());
            findings.push(Finding { subject: SUBJECT, level, text: "no interface is up but loopback".into(), advice });
        }
        findings
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

fn describe(interface: &Interface) -> String {
    let speed = match interface.mbit_s {
        Some(mbit_s) => {
            let images = f64::from(mbit_s) * 1e6 / 8.0 * PAYLOAD / IMAGE_BYTES;
            format!("{mbit_s} Mbit/s, which carries about {images:.0} images/s of 224 × 224")
        }
        None => "speed unknown".into(),
    };
    let addresses: Vec<String> = interface.addresses.iter().map(IpAddr::to_string).collect();
    let addresses = if addresses.is_empty() { "no address".into() } else { addresses.join(", ") };
    format!("{} is up, {speed}; {addresses}", interface.name)
}

fn try_to_listen(listen: SocketAddr) -> Listening {
    match TcpListener::bind(listen) {
        Ok(_) => Listening::Free,
        Err(error) if error.kind() == ErrorKind::AddrInUse => Listening::Taken,
        Err(error) => Listening::Refused(error.to_string()),
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
        is_up.then(|| Interface {
            // Without a link, drivers say -1.
            mbit_s: system.value::<i64>(&file("speed")).and_then(|speed| u32::try_from(speed).ok()),
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
            ("sys/class/net/eth1/operstate", "down\n"),
            ("sys/class/net/usb0/operstate", "unknown\n"),
            ("sys/class/net/usb0/speed", "-1\n"),
            ("sys/class/net/lo/operstate", "unknown\n"),
        ]);
        let here = BTreeMap::from([("eth0".to_owned(), vec!["192.0.2.7".parse().unwrap()])]);
        let interfaces = interfaces(&system, &here);
        let short: Vec<_> = interfaces.iter().map(|found| (found.name.as_str(), found.mbit_s)).collect();
        assert_eq!(short, [("eth0", Some(2500)), ("usb0", None)]);
        let network = Network { listen: "192.0.2.7:4420".parse().unwrap(), listening: Listening::Free, interfaces };
        assert_eq!(network.images_per_s().map(|images| images as u32), Some(1951));
        let said = network.findings();
        assert!(said[1].text.starts_with("eth0 is up, 2500 Mbit/s") && said[1].text.ends_with("192.0.2.7"));
        assert_eq!(said[2].text, "usb0 is up, speed unknown; no address");
    }

    #[test]
    fn an_address_of_another_machine_is_a_failure_and_a_taken_port_is_not() {
        let (_root, system) = board_with(&[]);
        let network = Network::read(&system, "192.0.2.1:4420".parse().unwrap());
        assert_eq!(network.findings()[0].level, Level::Failure);
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let network = Network::read(&system, taken.local_addr().unwrap());
        assert_eq!(network.listening, Listening::Taken);
        assert_eq!(network.findings()[0].level, Level::Warning);
        assert_eq!(network.images_per_s(), None, "loopback");
        assert_eq!(network.findings()[1].level, Level::Fine, "loopback needs no other interface");
    }
}
