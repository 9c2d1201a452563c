//! Which drive to connect, and where it is.

use anyhow::{Context, anyhow, bail};
use ddlp_driver::tcp::TcpTarget;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Until an address answers.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
const LOOKS_LIKE: &str = "a drive looks like tcp://10.0.0.7:4420/nqn.2024-01.example:drive";

/// A drive as the command line names it.
#[derive(Debug)]
pub struct Peer {
    target: TcpTarget,
    /// Whose word it is that the drive is there, if not the command line's.
    named_by: Option<String>,
}

/// An address as the kernel takes it: no host name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub address: String,
    pub port: u16,
}

/// What the command line names.
#[derive(Debug)]
pub enum Wanted {
    /// A drive.
    Drive(Peer),
    /// The only drive at `HOST[:PORT]`.
    At(String),
}

impl Wanted {
    /// Reads `tcp://HOST[:PORT][/NQN]`, or `HOST[:PORT]` and perhaps an NQN beside it.
    pub fn parse(address: &str, nqn: Option<&str>) -> anyhow::Result<Self> {
        let (place, inside) = match address.strip_prefix("tcp://") {
            Some(rest) => rest.split_once('/').map_or((rest, None), |(place, nqn)| (place, Some(nqn))),
            None => (address, None),
        };
        match (inside.filter(|nqn| !nqn.is_empty()), nqn) {
            (Some(inside), Some(beside)) if inside != beside => {
                bail!("the address names the drive {inside}, and --nqn names {beside}: leave one of them out")
            }
            (Some(nqn), _) | (None, Some(nqn)) => Peer::new(place, nqn).map(Self::Drive),
            (None, None) => match TcpTarget::discovery(place) {
                Ok(_) => Ok(Self::At(place.to_owned())),
                Err(error) => bail!("{error}; {LOOKS_LIKE}"),
            },
        }
    }
}

impl Peer {
    /// The drive of this NQN at `HOST[:PORT]`.
    pub fn new(place: &str, nqn: &str) -> anyhow::Result<Self> {
        check_name(nqn, "the drive's NQN")?;
        let target = TcpTarget::new(place, nqn).map_err(|error| anyhow!("{error}; {LOOKS_LIKE}"))?;
        Ok(Self { target, named_by: None })
    }

    /// This drive, of which the discovery controller at `asked` (`HOST:PORT`) says where it is. A drive behind a forwarded port does
    /// not know how it is reached: it is where it was found, if it is not where it says, or would be this machine itself.
    pub fn found_at(mut self, asked: &str) -> Self {
        if asked == self.target.address {
            return self;
        }
        self.named_by = Some(asked.to_owned());
        let is_here =
            |peer: &Self| addresses(&peer.target.address).is_ok_and(|all| all.iter().all(|at| at.ip().is_loopback()));
        match Self::new(asked, self.nqn()) {
            Ok(there) if (is_here(&there) != is_here(&self) || self.reach().is_err()) && there.reach().is_ok() => there,
            _ => self,
        }
    }

    /// `tcp://HOST:PORT/NQN`.
    pub fn url(&self) -> String {
        format!("tcp://{}/{}", self.target.address, self.target.nqn)
    }

    /// NQN of the drive.
    pub fn nqn(&self) -> &str {
        &self.target.nqn
    }

    /// The first of the host's addresses that answers. The kernel would try one alone, and for minutes.
    pub fn reach(&self) -> anyhow::Result<Place> {
        let asked = &self.target.address;
        let addresses = addresses(asked)?;
        let mut failed = None;
        for address in addresses {
            match TcpStream::connect_timeout(&address, ANSWER_WITHIN) {
                Ok(_) => return Ok(Place::from(address)),
                Err(error) => failed = Some((address, error)),
            }
        }
        let Some((address, error)) = failed else { bail!("no address is known for {asked}") };
        let what = match error.kind() {
            io::ErrorKind::ConnectionRefused => {
                format!("nothing listens at {address}: does the agent run, with `--listen` on this address and port?")
            }
            io::ErrorKind::TimedOut => {
                format!("{address} does not answer: is the machine on, and no firewall between?")
            }
            _ => format!("{address} cannot be reached"),
        };
        let what = match &self.named_by {
            Some(by) => format!("{what} (what answers at {by} says that the drive is there)"),
            None => what,
        };
        Err(anyhow::Error::new(error).context(what))
    }
}

/// The addresses of `HOST:PORT`.
pub fn addresses(place: &str) -> anyhow::Result<Vec<SocketAddr>> {
    let host = || place.rsplit_once(':').map_or(place, |(host, _)| host);
    let found = place.to_socket_addrs().with_context(|| format!("no address is known for {}", host()))?;
    Ok(found.collect())
}

impl From<SocketAddr> for Place {
    fn from(address: SocketAddr) -> Self {
        let scope = match address {
            SocketAddr::V6(v6) if v6.scope_id() != 0 => format!("%{}", v6.scope_id()),
            _ => String::new(),
        };
        Self { address: format!("{}{scope}", address.ip()), port: address.port() }
    }
}

/// A name goes into a list that commas divide.
fn check_name(name: &str, what: &str) -> anyhow::Result<()> {
    match name.chars().find(|c| *c == ',' || c.is_whitespace() || c.is_control()) {
        Some(c) => bail!("{what} {name:?} has {c:?} in it, which an NQN cannot have"),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn drive(address: &str, nqn: Option<&str>) -> Peer {
        match Wanted::parse(address, nqn).unwrap() {
            Wanted::Drive(peer) => peer,
            Wanted::At(place) => panic!("no drive is named, but {place}"),
        }
    }

    #[test]
    fn drives_are_named_in_two_ways() {
        for (address, nqn, place) in [
            ("tcp://10.0.0.7:4421/nqn.a", None, "10.0.0.7:4421"),
            ("tcp://10.0.0.7/nqn.a", Some("nqn.a"), "10.0.0.7:4420"),
            ("10.0.0.7", Some("nqn.a"), "10.0.0.7:4420"),
            ("tcp://drive.local:9", Some("nqn.a"), "drive.local:9"),
            ("[fd00::7]", Some("nqn.a"), "[fd00::7]:4420"),
            ("tcp://[fd00::7]:9/", Some("nqn.a"), "[fd00::7]:9"),
        ] {
            let peer = drive(address, nqn);
            assert_eq!((peer.target.address.as_str(), peer.nqn()), (place, "nqn.a"), "{address}");
        }
    }

    #[test]
    fn a_drive_that_is_not_where_it_says_is_where_it_was_found() {
        let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
        let place = |listener: &TcpListener| listener.local_addr().unwrap().to_string();
        let (asked, named) = (listen(), listen());
        let found = |asked: &str, named: &str| Peer::new(named, "nqn.a").unwrap().found_at(asked);
        assert_eq!(found(&place(&asked), &place(&named)).target.address, place(&named), "it answers there");
        let gone = place(&named);
        drop(named);
        assert_eq!(found(&place(&asked), &gone).target.address, place(&asked));
        let asked_gone = place(&asked);
        drop(asked);
        let neither = found(&asked_gone, &gone);
        let error = format!("{:#}", neither.reach().unwrap_err());
        assert!(error.contains(&format!("nothing listens at {gone}")), "{error}");
        assert!(error.contains(&format!("(what answers at {asked_gone} says")), "{error}");
    }

    #[test]
    fn a_drive_need_not_be_named() {
        for (address, place) in
            [("10.0.0.7", "10.0.0.7"), ("tcp://10.0.0.7:8009", "10.0.0.7:8009"), ("tcp://[fd00::7]/", "[fd00::7]")]
        {
            let wanted = Wanted::parse(address, None).unwrap();
            assert!(matches!(&wanted, Wanted::At(at) if at == place), "{address}: {wanted:?}");
        }
    }

    #[test]
    fn wrong_names_are_explained() {
        let error = |address, nqn| format!("{:#}", Wanted::parse(address, nqn).unwrap_err());
        assert!(error("10.0.0.7:x", None).contains("looks like tcp://"));
        assert!(error("tcp://h/nqn.a", Some("nqn.b")).contains("leave one of them out"));
        assert!(error("10.0.0.7:0", Some("nqn.a")).contains("port"));
        assert!(error("fd00::7", Some("nqn.a")).contains("bracketed"));
        assert!(error("10.0.0.7", Some("iqn.a")).contains("nqn."));
        for sly in ["nqn.a,duplicate_connect", "nqn.a\nnqn=nqn.b", "nqn.a b"] {
            assert!(error("10.0.0.7", Some(sly)).contains("cannot have"), "{sly}");
        }
    }

    #[test]
    fn hosts_are_resolved_to_what_answers() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let peer = drive(&format!("localhost:{port}"), Some("nqn.a"));
        assert_eq!(peer.reach().unwrap(), Place { address: "127.0.0.1".into(), port });
        drop(listener);
        let error = format!("{:#}", peer.reach().unwrap_err());
        assert!(error.contains("nothing listens at 127.0.0.1:") && error.contains("--listen"), "{error}");
    }

    #[test]
    fn scopes_of_local_addresses_are_kept() {
        let address: SocketAddr = "[fe80::1%3]:4420".parse().unwrap();
        assert_eq!(Place::from(address), Place { address: "fe80::1%3".into(), port: 4420 });
    }
}
