//! The port at which hosts discover the agent, in addition to the port of its I/O service.

use ddlp_nvme::tcp::{DISCOVERY_PORT, IO_PORT};
use serde::Deserialize;
use std::str::FromStr;

/// Value of `--discovery` or `discovery`: a port, or "off".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "toml::Value")]
pub enum DiscoveryChoice {
    /// No discovery port.
    Off,
    /// The port.
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

/// Port for discovery, beside the port of the I/O service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiscoveryPort {
    /// The port; 0 takes a free one.
    pub port: u16,
    /// Whether the agent refuses to start without the port.
    pub required: bool,
}

impl DiscoveryPort {
    /// Decides from the user's choice, if there is one, and the port of the I/O service.
    ///
    /// By default, only an agent at the usual I/O port takes the usual discovery port. Agents at other ports share
    /// their machine with each other, and which of them hosts discover must not depend on which one started first.
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
    fn only_an_agent_at_the_usual_io_port_takes_the_usual_discovery_port() {
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
