//! Where an association goes, and how.

use crate::error::DriverError;
use crate::host::HostIdentity;
use ddlp_nvme::tcp::{Digests, IO_PORT};
use ddlp_nvme::text::check_nqn;
use std::time::Duration;

/// Options of an association.
#[derive(Clone, Debug)]
pub struct TcpTarget {
    /// `HOST:PORT`, an IPv6 host in brackets.
    pub address: String,
    /// NQN of the subsystem.
    pub nqn: String,
    /// This host. For a lasting NQN see [`crate::host::Host`].
    pub host: HostIdentity,
    /// CRC32C over headers.
    pub header_digest: bool,
    /// CRC32C over data. Of little use where the data itself carries a checksum that is verified.
    pub data_digest: bool,
    /// Keep alive time-out: the controller drops an association that is silent for that long, and this side one that does
    /// not answer for that long. Zero: none.
    pub keep_alive: Duration,
    /// Until the controller is up.
    pub connect_timeout: Duration,
    /// Until a peer takes what is sent to it.
    pub io_timeout: Duration,
    /// I/O queues to ask for.
    pub io_queues_max: u16,
    /// Receive buffer of an I/O connection's socket, where the system allows as much; otherwise it tunes the buffer itself.
    pub receive_buffer_bytes: usize,
}

impl TcpTarget {
    /// Default of [`TcpTarget::receive_buffer_bytes`].
    pub const RECEIVE_BUFFER_BYTES: usize = 1 << 20;

    /// A subsystem at an address, with a random host identity, which nothing keeps, and defaults: no digests, keep alive 10 s,
    /// 10 s to connect, 30 s to send, 16 I/O queues.
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

    /// Reads `tcp://HOST[:PORT]/NQN`; the port is 4420 unless given.
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

    /// The digests to ask for.
    pub(super) fn digests(&self) -> Digests {
        Digests { header: self.header_digest, data: self.data_digest }
    }

    /// Keep alive time-out as Connect carries it.
    pub(super) fn keep_alive_ms(&self) -> u32 {
        u32::try_from(self.keep_alive.as_millis()).unwrap_or(u32::MAX)
    }
}

/// `HOST:PORT` with the port filled in.
fn checked_address(address: &str) -> Result<String, DriverError> {
    let wrong = |why: &str| Err(DriverError::Invalid(format!("address {address:?}: {why}")));
    let (host, port) = match address.rsplit_once(':') {
        // The last colon of a bare IPv6 host in brackets is inside them.
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => return checked_address_with(address, IO_PORT),
    };
    match port.parse::<u16>() {
        Ok(0) | Err(_) => wrong("no port from 1 to 65535"),
        Ok(port) => checked_address_with(host, port),
    }
}

fn checked_address_with(host: &str, port: u16) -> Result<String, DriverError> {
    let bracketed = host.starts_with('[') && host.ends_with(']');
    if host.is_empty() || (host.contains(':') && !bracketed) {
        return Err(DriverError::Invalid(format!("host {host:?}: not a name, an ipv4 or a bracketed ipv6 address")));
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
