//! Whether hosts can reach the agent: whether it can listen at the configured addresses.

use super::finding::Finding;
use crate::agent::discovery::DiscoveryPort;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};

const SUBJECT: &str = "network";

/// Result of an attempt to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listening {
    /// The agent can listen there.
    Free,
    /// Something listens there already.
    Taken,
    /// The attempt failed, for this reason.
    Refused(String),
}

/// Separate port at which hosts discover the agent.
pub struct Discovery {
    /// The port, at the address where the agent listens.
    pub port: u16,
    /// Whether the user asked for the port; the agent then does not start without it.
    pub required: bool,
    /// Whether the agent can listen there.
    pub listening: Listening,
}

/// Addresses at which hosts reach the agent.
pub struct Reach {
    /// Address of the I/O service.
    pub listen: SocketAddr,
    /// Whether the agent can listen there.
    pub listening: Listening,
    /// Separate port for discovery, if there is one.
    pub discovery: Option<Discovery>,
}

impl Reach {
    /// Tries to listen at each address.
    pub fn read(listen: SocketAddr, discovery: Option<DiscoveryPort>) -> Self {
        // Kept open while the other port is tried, which may be the same one.
        let (_listener, listening) = try_to_listen(listen);
        let discovery = discovery.map(|DiscoveryPort { port, required }| {
            let (_, listening) = try_to_listen(SocketAddr::new(listen.ip(), port));
            Discovery { port, required, listening }
        });
        Self { listen, listening, discovery }
    }

    /// Returns the findings about the addresses.
    pub fn findings(&self) -> Vec<Finding> {
        let discovery = self.discovery.as_ref().map(|discovery| self.about_discovery(discovery));
        std::iter::once(self.about_listening()).chain(discovery).collect()
    }

    fn about_discovery(&self, Discovery { port, required, listening }: &Discovery) -> Finding {
        let at = SocketAddr::new(self.listen.ip(), *port);
        let instead = self.listen.port();
        let reason = match listening {
            Listening::Free => return Finding::fine(SUBJECT, format!("{at} is free, for discovery")),
            Listening::Taken if self.listening == Listening::Taken => {
                let text = format!("something already listens at {at}: a running agent does so for discovery");
                return Finding::fine(SUBJECT, text);
            }
            Listening::Taken => "something else listens there",
            Listening::Refused(reason) => reason,
        };
        if *required {
            let text = format!("cannot listen at {at}, for discovery: {reason}");
            Finding::failure(SUBJECT, text, "give `discovery` another port, above 1023, or \"off\"")
        } else {
            let text = format!("{at} is not available for discovery: hosts discover the agent at port {instead}");
            Finding::fine(SUBJECT, text)
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
                format!("something already listens at {listen}"),
                "no problem if that is the running agent; otherwise choose another port for `listen`",
            ),
            Listening::Refused(reason) => Finding::failure(
                SUBJECT,
                format!("cannot listen at {listen}: {reason}"),
                "give `listen` an address of this machine and a port above 1023",
            ),
        }
    }
}

fn try_to_listen(listen: SocketAddr) -> (Option<TcpListener>, Listening) {
    match TcpListener::bind(listen) {
        Ok(listener) => (Some(listener), Listening::Free),
        Err(error) if error.kind() == ErrorKind::AddrInUse => (None, Listening::Taken),
        Err(error) => (None, Listening::Refused(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::*;

    #[test]
    fn a_discovery_port_that_was_asked_for_has_to_be_free() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let taken_at = taken.local_addr().unwrap();
        let level = |listen: SocketAddr, port, required| {
            let reach = Reach::read(listen, Some(DiscoveryPort { port, required }));
            (reach.listening.clone(), reach.findings()[1].level)
        };
        let free: SocketAddr = "127.0.0.1:0".parse().unwrap();
        assert_eq!(level(free, 0, true), (Listening::Free, Severity::Fine));
        assert_eq!(level(free, taken_at.port(), true), (Listening::Free, Severity::Failure), "somebody else has it");
        assert_eq!(level(free, taken_at.port(), false), (Listening::Free, Severity::Fine), "nobody asked for it");
        assert_eq!(level(taken_at, taken_at.port(), true), (Listening::Taken, Severity::Fine), "maybe the agent");
        let port = taken_at.port();
        drop(taken);
        assert_eq!(level(taken_at, port, true), (Listening::Free, Severity::Failure), "one port cannot be both");
    }

    #[test]
    fn an_address_of_another_machine_is_a_failure_and_a_taken_port_is_not() {
        let level = |listen| Reach::read(listen, None).findings()[0].level;
        assert_eq!(level("192.0.2.1:4420".parse().unwrap()), Severity::Failure);
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(level(taken.local_addr().unwrap()), Severity::Warning);
    }
}
