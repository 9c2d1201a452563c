//! At which port hosts discover the agent, beside the port of its I/O service.

use ddlp_nvme::tcp::{DISCOVERY_PORT, IO_PORT};
use serde::Deserialize;
use std::str::FromStr;

/// What is said of the discovery port: `--discovery 8009`, `discovery = 8009`, or "off".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "toml::Value")]
pub enum DiscoveryChoice {
    /// None.
    Off,
    /// This one.
    Port(u16),
}

impl FromStr for DiscoveryChoice {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "off" => Ok(Self::Off),
            port => port.parse().map(Self::Port).map_err(|_| "expected a port from 0 to 65535, or `off`"),
        }
    }
}

impl TryFrom<toml::Value> for DiscoveryChoice {
    type Error = &'static str;

    fn try_from(value: toml::Value) -> Result<Self, Self::Error> {
        value.as_str().map_or_else(|| value.to_string(), str::to_owned).parse()
    }
}

/// A further port for discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiscoveryPort {
    /// The port, 0 for a free one.
    pub port: u16,
    /// The agent does not start without it.
    pub required: bool,
}

impl DiscoveryPort {
    /// The usual port of discovery goes with the usual port of the I/O service: agents at other ports share their
    /// machine with others, and which of them is found there must not depend on which came first. From what was said,
    /// if anything was, and the port of the I/O service.
    pub fn decide(choice: Option<DiscoveryChoice>, io_port: u16) -> Option<Self> {
        match choice {
            Some(DiscoveryChoice::Off) => None,
            Some(DiscoveryChoice::Port(port)) => Some(Self { port, required: true }),
            None => (io_port == IO_PORT).then_some(Self { port: DISCOVERY_PORT, required: false }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_port_goes_with_the_usual_port_only() {
        let decided = |io_port, choice: Option<&str>| {
            DiscoveryPort::decide(choice.map(|choice| choice.parse().unwrap()), io_port)
        };
        let port = |port, required| Some(DiscoveryPort { port, required });
        assert_eq!(decided(4420, None), port(8009, false));
        assert_eq!(decided(4420, Some("off")), None);
        assert_eq!(decided(0, None), None, "agents that a loader starts");
        assert_eq!(decided(4421, None), None);
        assert_eq!(decided(4421, Some("8009")), port(8009, true));
    }

    #[test]
    fn a_choice_is_a_port_or_off() {
        #[derive(Deserialize)]
        struct File {
            discovery: DiscoveryChoice,
        }
        let read = |text: &str| toml::from_str::<File>(text).map(|file| file.discovery);
        assert_eq!(read("discovery = 9").unwrap(), DiscoveryChoice::Port(9));
        assert_eq!(read("discovery = \"off\"").unwrap(), DiscoveryChoice::Off);
        for wrong in ["70000", "-1", "true", "\"on\"", "\"127.0.0.1:8009\""] {
            let error = read(&format!("discovery = {wrong}")).unwrap_err();
            assert!(error.message().contains("`off`"), "{wrong}: {error}");
        }
    }
}
