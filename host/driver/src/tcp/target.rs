//! Where an association goes, and how.

use crate::error::DriverError;
use ddlp_nvme::tcp::{DISCOVERY_PORT, Digests, IO_PORT};
use ddlp_nvme::text::{DISCOVERY_NQN, check_nqn};
use std::time::Duration;

/// Environment variable with this host's NQN.
const HOST_NQN_VARIABLE: &str = "DDLP_HOST_NQN";
/// Files with this host's NQN: that of nvme-cli, and the one that `ddlp connect` makes where there is none.
const HOST_NQN_FILES: [&str; 2] = ["/etc/nvme/hostnqn", "/var/lib/ddlp/hostnqn"];

/// Who this host is to a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostIdentity {
    /// Host NQN: what a controller's list of allowed hosts names.
    pub nqn: String,
    /// Host identifier, not zero.
    pub id: [u8; 16],
}

impl HostIdentity {
    /// The identity of a UUID: `nqn.2014-08.org.nvmexpress:uuid:…`.
    pub fn from_uuid(id: [u8; 16]) -> Self {
        let hex: Vec<String> = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let group = |from: usize, to: usize| hex[from..to].concat();
        let uuid = [group(0, 4), group(4, 6), group(6, 8), group(8, 10), group(10, 16)].join("-");
        Self { nqn: format!("nqn.2014-08.org.nvmexpress:uuid:{uuid}"), id }
    }

    /// The identity by which a drive's list of allowed hosts knows this machine: `DDLP_HOST_NQN` where that is set, else
    /// `/etc/nvme/hostnqn`, which nvme-cli has as well, or `/var/lib/ddlp/hostnqn`, which `ddlp connect` keeps, else a new one.
    ///
    /// The identifier is the UUID within the NQN, else a new one.
    pub fn of_this_machine() -> Result<Self, DriverError> {
        let set = std::env::var(HOST_NQN_VARIABLE).ok().map(|nqn| (HOST_NQN_VARIABLE, nqn));
        let kept = || HOST_NQN_FILES.into_iter().find_map(|file| Some((file, std::fs::read_to_string(file).ok()?)));
        let found = set.or_else(kept).map(|(place, nqn)| (place, nqn.trim().to_owned()));
        match found.filter(|(_, nqn)| !nqn.is_empty()) {
            Some((place, nqn)) => Self::named(&nqn).map_err(|error| DriverError::Invalid(format!("{place}: {error}"))),
            None => Self::random(),
        }
    }

    fn named(nqn: &str) -> Result<Self, DriverError> {
        check_nqn(nqn).map_err(|error| DriverError::Invalid(format!("{nqn:?}: {error}")))?;
        let id = nqn.rsplit_once("uuid:").and_then(|(_, uuid)| uuid_bytes(uuid));
        Ok(Self { nqn: nqn.to_owned(), id: id.map_or_else(|| Self::random().map(|host| host.id), Ok)? })
    }

    /// A new identity (UUID version 4).
    pub fn random() -> Result<Self, DriverError> {
        let mut id = [0; 16];
        getrandom::fill(&mut id).map_err(|error| DriverError::Invalid(format!("no random host identity: {error}")))?;
        id[6] = (id[6] & 0x0F) | 0x40;
        id[8] = (id[8] & 0x3F) | 0x80;
        Ok(Self::from_uuid(id))
    }
}

/// The bytes of `00112233-4455-6677-8899-aabbccddeeff`, unless all are zero.
fn uuid_bytes(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u8> =
        text.chars().filter(|&letter| letter != '-').map_while(|c| Some(c.to_digit(16)? as u8)).collect();
    let bytes: [u8; 16] =
        digits.chunks(2).map(|pair| pair[0] << 4 | pair.get(1).unwrap_or(&0)).collect::<Vec<_>>().try_into().ok()?;
    (digits.len() == 32 && text.len() == 36 && bytes != [0; 16]).then_some(bytes)
}

/// Options of an association.
#[derive(Clone, Debug)]
pub struct TcpTarget {
    /// `HOST:PORT`, an IPv6 host in brackets.
    pub address: String,
    /// NQN of the subsystem.
    pub nqn: String,
    /// This host.
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

    /// A subsystem at an address, with this machine's identity and defaults: no digests, keep alive 10 s, 10 s to connect, 30 s to
    /// send, 16 I/O queues.
    pub fn new(address: &str, nqn: &str) -> Result<Self, DriverError> {
        check_nqn(nqn).map_err(|error| DriverError::Invalid(format!("{nqn:?}: {error}")))?;
        Ok(Self {
            address: checked_address(address, IO_PORT)?,
            nqn: nqn.to_owned(),
            host: HostIdentity::of_this_machine()?,
            header_digest: false,
            data_digest: false,
            keep_alive: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(10),
            io_timeout: Duration::from_secs(30),
            io_queues_max: 16,
            receive_buffer_bytes: Self::RECEIVE_BUFFER_BYTES,
        })
    }

    /// The discovery service at `HOST[:PORT]`; the port is 8009 unless given. For [`super::discover`], with the defaults of
    /// [`Self::new`].
    pub fn discovery(address: &str) -> Result<Self, DriverError> {
        Self::new(&checked_address(address, DISCOVERY_PORT)?, DISCOVERY_NQN)
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
            return Err(DriverError::Invalid(format!("{url:?} is not tcp://HOST:PORT/NQN")));
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
fn checked_address(address: &str, default_port: u16) -> Result<String, DriverError> {
    let wrong = |why: &str| Err(DriverError::Invalid(format!("address {address:?}: {why}")));
    let (host, port) = match address.rsplit_once(':') {
        // The last colon of a bare IPv6 host in brackets is inside them.
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => return checked_address_with(address, default_port),
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
        let discovery = |address| TcpTarget::discovery(address).unwrap().address;
        assert_eq!((discovery("[::1]"), discovery("10.0.0.1:4420")), ("[::1]:8009".into(), "10.0.0.1:4420".into()));
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

    #[test]
    fn host_identities_are_uuids() {
        let host = HostIdentity::from_uuid(*b"\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff");
        assert_eq!(host.nqn, "nqn.2014-08.org.nvmexpress:uuid:00112233-4455-6677-8899-aabbccddeeff");
        let random = HostIdentity::random().unwrap();
        assert_eq!((random.id[6] >> 4, random.id[8] >> 6), (4, 2));
        assert_ne!(random, HostIdentity::random().unwrap());
    }

    #[test]
    fn a_named_host_has_the_identifier_that_its_nqn_tells() {
        let uuid = HostIdentity::from_uuid(*b"\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff");
        assert_eq!(HostIdentity::named(&uuid.nqn).unwrap(), uuid);
        let other = HostIdentity::named("nqn.2024-01.org.example:host").unwrap();
        assert_eq!((other.nqn.as_str(), other.id == [0; 16]), ("nqn.2024-01.org.example:host", false));
        assert!(matches!(HostIdentity::named("host"), Err(DriverError::Invalid(_))));
        for none in ["", "00112233", "00112233-4455-6677-8899-aabbccddeefg", "00000000-0000-0000-0000-000000000000"] {
            assert_eq!(uuid_bytes(none), None, "{none}");
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
