//! Where a controller is, whichever way it is reached.

use crate::contract::Controller;
use crate::error::DriverError;
use crate::tcp::{self, TcpTarget};
use std::sync::Arc;

/// Where a controller is, and who this host is to it.
#[derive(Clone, Debug)]
pub enum Target {
    /// By user-space NVMe/TCP.
    Tcp(TcpTarget),
}

impl Target {
    /// Reads `tcp://HOST[:PORT]/NQN`. This host gets a new identity.
    pub fn parse(address: &str) -> Result<Self, DriverError> {
        TcpTarget::parse(address).map(Self::Tcp)
    }

    /// The same host's way to another address.
    pub fn moved_to(&self, address: &str) -> Result<Self, DriverError> {
        let Self::Tcp(old) = self;
        Ok(Self::Tcp(TcpTarget { host: old.host.clone(), ..TcpTarget::parse(address)? }))
    }

    /// Connects and brings the controller up, which stays so until the last reference is dropped. For errors and time limits see
    /// [`tcp::connect`].
    pub fn connect(&self) -> Result<Arc<dyn Controller>, DriverError> {
        match self {
            Self::Tcp(target) => tcp::connect(target),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_follows_a_drive_to_another_port_stays_the_same_host() {
        let Target::Tcp(first) = Target::parse("tcp://127.0.0.1:1/nqn.2024-01.org.example:a").unwrap();
        let Target::Tcp(moved) =
            Target::Tcp(first.clone()).moved_to("tcp://127.0.0.1:2/nqn.2024-01.org.example:b").unwrap();
        assert_eq!((moved.address.as_str(), moved.nqn.as_str()), ("127.0.0.1:2", "nqn.2024-01.org.example:b"));
        assert_eq!(moved.host, first.host);
        assert!(Target::parse("/dev/null").is_err());
    }
}
