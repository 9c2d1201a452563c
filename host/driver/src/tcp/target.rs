//! Address and options of an association.

use crate::error::DriverError;
use crate::host::HostIdentity;
use ddlp_nvme::tcp::{Digests, IO_PORT};
use ddlp_nvme::text::check_nqn;
use std::net::Ipv6Addr;
use std::time::Duration;

/// Address and options of an association.
#[derive(Clone, Debug)]
pub struct TcpTarget {
    /// `HOST:PORT`, an IPv6 host in brackets; a link-local one with its interface, `[fe80::1%eth0]:4420`.
    pub address: String,
    /// NQN of the subsystem.
    pub nqn: String,
    /// Identity of this host. For a lasting NQN see [`crate::host::Host`].
    pub host: HostIdentity,
    /// Whether headers carry a CRC32C.
    pub header_digest: bool,
    /// Whether data carry a CRC32C. Of little use if the data contain a checksum that is verified.
    pub data_digest: bool,
    /// Keep alive time-out: the controller drops an association that is silent for that long, and this side drops one
    /// that does not answer for that long. Zero turns the keep alive off.
    pub keep_alive: Duration,
    /// Time limit for bringing the controller up.
    pub connect_timeout: Duration,
    /// Time limit for the peer to take what is sent to it.
    pub io_timeout: Duration,
    /// Number of I/O queues to request.
    pub io_queues_max: u16,
    /// Receive buffer of an I/O connection's socket to a near controller, if the system allows that size; otherwise the
    /// system tunes the buffer.
    pub receive_buffer_bytes: usize,
}

impl TcpTarget {
    /// Default of [`TcpTarget::receive_buffer_bytes`].
    pub const RECEIVE_BUFFER_BYTES: usize = 1 << 20;

    /// Names a subsystem at an address, with a random host identity that is not kept, and with defaults: no digests,
    /// keep alive 10 s, 10 s to connect, 30 s to send, 16 I/O queues.
    pub fn new(address: &str, nqn: &str) -> Result<Self, DriverError> {
        check_nqn(nqn).map_err(|error| DriverError::Invalid(format!("{nqn:?}: {error}")))?;
        Ok(Self {
            address: checked_address(address)?,
            nqn: nqn.to_owned(),
            host: HostIdentity::random().map_err(|error| DriverError::Invalid(error.to_string()))?,
            header_digest: false,
            data_digest: false,
            keep_alive: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(10),
            io_timeout: Duration::from_secs(30),
            io_queues_max: 16,
            receive_buffer_bytes: Self::RECEIVE_BUFFER_BYTES,
        })
    }

    /// Parses `tcp://HOST[:PORT]/NQN`; the default port is 4420.
    ///
    /// ```
    /// use ddlp_driver::tcp::TcpTarget;
    /// let target = TcpTarget::parse("tcp://[::1]/nqn.2024-01.org.example:drive").unwrap();
    /// assert_eq!(target.address, "[::1]:4420");
    /// assert_eq!(target.nqn, "nqn.2024-01.org.example:drive");
    /// ```
    pub fn parse(url: &str) -> Result<Self, DriverError> {
        let rest = url.strip_prefix("tcp://").and_then(|rest| rest.split_once('/'));
        let Some((address, nqn)) = rest else {
            return Err(DriverError::Invalid(format!("{url:?} is not tcp://HOST[:PORT]/NQN")));
        };
        Self::new(address, nqn)
    }

    /// Returns the digests to request.
    pub(super) fn digests(&self) -> Digests {
        Digests { header: self.header_digest, data: self.data_digest }
    }

    /// Returns the keep alive time-out in the unit of Connect.
    pub(super) fn keep_alive_ms(&self) -> u32 {
        u32::try_from(self.keep_alive.as_millis()).unwrap_or(u32::MAX)
    }
}

/// Checks an address and returns `HOST:PORT`, with the default port if none is given.
fn checked_address(address: &str) -> Result<String, DriverError> {
    let wrong = |why: &str| Err(DriverError::Invalid(format!("address {address:?}: {why}")));
    let (host, port) = match address.rsplit_once(':') {
        // The last colon of a bare IPv6 host in brackets is inside the brackets.
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => return checked_address_with(address, IO_PORT),
    };
    match port.parse::<u16>() {
        Ok(0) | Err(_) => wrong("the port is not a number from 1 to 65535"),
        Ok(port) => checked_address_with(host, port),
    }
}

fn checked_address_with(host: &str, port: u16) -> Result<String, DriverError> {
    let wrong = |why: &str| Err(DriverError::Invalid(format!("host {host:?}: {why}")));
    match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(inside) => {
            let (ip, interface) = inside.split_once('%').map_or((inside, None), |(ip, name)| (ip, Some(name)));
            match ip.parse::<Ipv6Addr>() {
                Err(_) => return wrong("no IPv6 address is in the brackets"),
                Ok(ip) if ip.is_unicast_link_local() && interface.is_none_or(str::is_empty) => {
                    return wrong("a link-local address needs the interface that leads there, as in [fe80::1%eth0]");
                }
                Ok(_) => {}
            }
        }
        None if host.is_empty() || host.contains(':') => {
            return wrong("not a name, an IPv4 address or an IPv6 address in brackets");
        }
        None => {}
    }
    Ok(format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn urls_are_read() {
        let target = TcpTarget::parse("tcp://localhost:1234/nqn.x").unwrap();
        assert_eq!((target.address.as_str(), target.nqn.as_str()), ("localhost:1234", "nqn.x"));
        assert_eq!(TcpTarget::parse("tcp://10.0.0.1/nqn.x").unwrap().address, "10.0.0.1:4420");
        assert_eq!(TcpTarget::parse("tcp://[::1]:9/nqn.x").unwrap().address, "[::1]:9");
        assert_eq!(TcpTarget::parse("tcp://[fe80::1%eth0]/nqn.x").unwrap().address, "[fe80::1%eth0]:4420");
    }

    #[test]
    fn wrong_urls_are_named() {
        for url in [
            "",
            "tcp://",
            "tcp://host:1",
            "tcp:///nqn.x",
            "http://host/nqn.x",
            "tcp://host:0/nqn.x",
            "tcp://host:99999/nqn.x",
            "tcp://::1:9/nqn.x",
            "tcp://[name]:9/nqn.x",
            "tcp://[fe80::1]:9/nqn.x",
            "tcp://[fe80::1%]:9/nqn.x",
            "tcp://host:1/iqn.x",
            "tcp://host:1/",
        ] {
            assert!(matches!(TcpTarget::parse(url), Err(DriverError::Invalid(_))), "{url:?}");
        }
    }

    proptest! {
        #[test]
        fn any_url_is_read_or_refused(url in "(tcp://)?[a-z0-9.:\\[\\]/]{0,40}") {
            if let Ok(target) = TcpTarget::parse(&url) {
                prop_assert!(target.address.contains(':') && target.nqn.starts_with("nqn."));
            }
        }
    }
}
