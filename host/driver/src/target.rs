//! Addresses of controllers, for all drivers.

use crate::contract::Controller;
use crate::error::DriverError;
use crate::kernel::{self, KernelTarget};
use crate::tcp::{self, TcpTarget};
use std::sync::Arc;
use std::time::Duration;

/// Address of a controller, with the identity of this host towards it.
#[derive(Clone, Debug)]
pub enum Target {
    /// A controller reached by user-space NVMe/TCP.
    Tcp(TcpTarget),
    /// A controller that the kernel is already connected to.
    Kernel(KernelTarget),
}

impl Target {
    /// Parses `tcp://HOST[:PORT]/NQN`, with a random host identity (see [`TcpTarget::new`]), or `/dev/nvmeX` (see
    /// [`KernelTarget::parse`]).
    pub fn parse(address: &str) -> Result<Self, DriverError> {
        if address.starts_with('/') {
            return KernelTarget::parse(address).map(Self::Kernel);
        }
        TcpTarget::parse(address).map(Self::Tcp)
    }

    /// Returns another address with the same host identity.
    pub fn moved_to(&self, address: &str) -> Result<Self, DriverError> {
        match (self, Self::parse(address)?) {
            (Self::Tcp(old), Self::Tcp(new)) => Ok(Self::Tcp(TcpTarget { host: old.host.clone(), ..new })),
            (_, new) => Ok(new),
        }
    }

    /// Connects and brings the controller up; it stays up until the last reference is dropped. For `/dev/nvmeX`, opens
    /// the controller that the kernel is connected to. For errors and time limits see [`tcp::connect`] and
    /// [`kernel::open`].
    pub fn connect(&self) -> Result<Arc<dyn Controller>, DriverError> {
        self.connect_watched(Duration::MAX, |_| ())
    }

    /// Connects as [`Self::connect`] does. An attempt that may have to wait for the controller waits at most for the
    /// time `within`, and first passes `watch` the means to end it.
    pub fn connect_watched(
        &self,
        within: Duration,
        watch: impl FnOnce(tcp::Closer),
    ) -> Result<Arc<dyn Controller>, DriverError> {
        match self {
            Self::Tcp(target) => tcp::connect_watched(target, within, watch),
            Self::Kernel(target) => kernel::open(target),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_follows_a_drive_to_another_port_stays_the_same_host() {
        let tcp = |target| match target {
            Target::Tcp(target) => target,
            Target::Kernel(_) => panic!("a kernel's controller"),
        };
        let first = Target::parse("tcp://127.0.0.1:1/nqn.2024-01.org.example:a").unwrap();
        let moved = tcp(first.moved_to("tcp://127.0.0.1:2/nqn.2024-01.org.example:b").unwrap());
        let first = tcp(first);
        assert_eq!((moved.address.as_str(), moved.nqn.as_str()), ("127.0.0.1:2", "nqn.2024-01.org.example:b"));
        assert_eq!(moved.host, first.host);
        assert!(matches!(Target::parse("/dev/nvme0"), Ok(Target::Kernel(_))));
        assert!(Target::parse("/etc/nvme0").is_err());
    }
}
