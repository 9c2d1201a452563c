//! Which drives there are at an address: its discovery controller says.
//!
//! Discovery has a port of its own, 8009; an agent answers at the port of its drive as well, 4420. Both are asked where the address
//! has none.

use super::peer::{self, Peer};
use super::refusal;
use anyhow::bail;
use ddlp_driver::tcp::{self, Discovered, DiscoveredKind, TcpTarget};
use ddlp_driver::{DriverError, HostIdentity};
use ddlp_nvme::Status;
use ddlp_nvme::text::DISCOVERY_NQN;
use std::time::Duration;

/// Until a discovery controller has said everything.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The drives that a discovery controller at `HOST[:PORT]` names to this host; one at least, each once.
pub fn drives(place: &str, host: &HostIdentity) -> anyhow::Result<Vec<Peer>> {
    let targets = targets(place, host)?;
    // A name without an address is no drive that is silent.
    peer::addresses(&targets[0].address)?;
    let (mut silent, mut told) = (None, None);
    for target in &targets {
        // Something else may have the port of discovery, or another drive alone.
        match tcp::discover(target) {
            Ok(log) => match named(&target.address, &log) {
                Ok(drives) => {
                    return Ok(drives.into_iter().map(|drive| drive.found_at(&target.address)).collect());
                }
                Err(error) => told = Some(error),
            },
            Err(error @ (DriverError::Lost { .. } | DriverError::TimedOut { .. })) => silent = Some(error),
            Err(error) => told = Some(refused(target, error)),
        }
    }
    if let Some(error) = told {
        return Err(error);
    }
    let asked: Vec<&str> = targets.iter().map(|target| &*target.address).collect();
    let what = format!(
        "nothing at {} says which drives there are: does the agent run, with `--listen` on this address? Give the port of another \
         one in the address, or name the drive by --nqn",
        asked.join(" and ")
    );
    Err(anyhow::Error::new(silent.expect("one is asked at least")).context(what))
}

/// The only one of them.
pub fn the_one(place: &str, mut drives: Vec<Peer>) -> anyhow::Result<Peer> {
    match (drives.pop(), &drives[..]) {
        (Some(drive), []) => Ok(drive),
        (last, others) => {
            let urls: Vec<String> = others.iter().chain(&last).map(|drive| format!("  {}", drive.url())).collect();
            bail!("there are several drives at {place}; connect one of them:\n{}", urls.join("\n"))
        }
    }
}

/// Where discovery may be answered.
fn targets(place: &str, host: &HostIdentity) -> Result<Vec<TcpTarget>, DriverError> {
    let mut targets = vec![TcpTarget::discovery(place)?, TcpTarget::new(place, DISCOVERY_NQN)?];
    // The same where the address has a port.
    targets.dedup_by(|second, first| second.address == first.address);
    for target in &mut targets {
        target.host = host.clone();
        target.connect_timeout = ANSWER_WITHIN;
    }
    Ok(targets)
}

/// The drives that a log names.
fn named(address: &str, log: &[Discovered]) -> anyhow::Result<Vec<Peer>> {
    let (mut drives, mut unusable) = (Vec::<Peer>::new(), None);
    for entry in log.iter().filter(|entry| entry.kind == DiscoveredKind::Nvm) {
        // What other transports reach is none for the kernel's nvme-tcp; several addresses are several ways to one drive.
        if let Some(place) = &entry.address
            && !drives.iter().any(|drive| drive.nqn() == entry.nqn)
        {
            match Peer::new(place, &entry.nqn) {
                Ok(drive) => drives.push(drive),
                // It is no reason to hide the others.
                Err(error) => unusable = Some(error),
            }
        }
    }
    if drives.is_empty() {
        if let Some(error) = unusable {
            return Err(error);
        }
        bail!("the discovery controller at {address} names no drive that tcp reaches: name it by --nqn");
    }
    Ok(drives)
}

fn refused(target: &TcpTarget, error: DriverError) -> anyhow::Error {
    let address = &target.address;
    let what = if error.is_status(Status::CONNECT_INVALID_HOST) {
        refusal::not_allowed(&target.host.nqn)
    } else if error.is_status(Status::CONNECT_PARAMETERS) || matches!(error, DriverError::Invalid(_)) {
        format!("{address} answers, and not to discovery: name the drive by --nqn")
    } else if matches!(error, DriverError::Protocol { .. }) {
        format!("cannot understand what answers at {address}: is it a drive (NVMe/TCP)?")
    } else {
        format!("{address} does not say which drives there are: name one by --nqn")
    };
    anyhow::Error::new(error).context(what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn entry(kind: DiscoveredKind, nqn: &str, address: Option<&str>) -> Discovered {
        Discovered { kind, nqn: nqn.into(), address: address.map(String::from) }
    }

    fn message<T>(result: anyhow::Result<T>) -> String {
        format!("{:#}", result.map(drop).unwrap_err())
    }

    #[test]
    fn an_entry_that_cannot_be_used_hides_no_other() {
        let bad = || entry(DiscoveredKind::Nvm, "nqn.a,traddr=1", Some("10.0.0.6:4420"));
        let good = entry(DiscoveredKind::Nvm, "nqn.2024-01.example:a", Some("10.0.0.7:4420"));
        let drives = named("here", &[bad(), good]).unwrap();
        assert_eq!(drives.iter().map(Peer::url).collect::<Vec<_>>(), ["tcp://10.0.0.7:4420/nqn.2024-01.example:a"]);
        assert!(message(named("here", &[bad()])).contains("nqn.a,traddr=1"));
    }

    #[test]
    fn both_ports_are_asked_unless_one_is_given() {
        let host = HostIdentity::from_uuid([7; 16]);
        let asked = |place: &str| -> Vec<String> {
            let targets = targets(place, &host).unwrap();
            assert!(targets.iter().all(|target| target.host == host && target.nqn == DISCOVERY_NQN));
            targets.into_iter().map(|target| target.address).collect()
        };
        assert_eq!(asked("10.0.0.7"), ["10.0.0.7:8009", "10.0.0.7:4420"]);
        assert_eq!(asked("[fd00::7]"), ["[fd00::7]:8009", "[fd00::7]:4420"]);
        assert_eq!(asked("10.0.0.7:4420"), ["10.0.0.7:4420"]);
        assert_eq!(asked("10.0.0.7:8009"), ["10.0.0.7:8009"]);
        assert!(targets("10.0.0.7:0", &host).is_err());
    }

    #[test]
    fn drives_are_those_that_tcp_reaches_each_once() {
        let log = [
            entry(DiscoveredKind::Current, DISCOVERY_NQN, Some("10.0.0.7:8009")),
            entry(DiscoveredKind::Nvm, "nqn.a", Some("10.0.0.7:4420")),
            entry(DiscoveredKind::Nvm, "nqn.a", Some("10.0.1.7:4420")),
            entry(DiscoveredKind::Nvm, "nqn.b", None),
            entry(DiscoveredKind::Referral, DISCOVERY_NQN, Some("10.0.0.9:8009")),
        ];
        let drive = the_one("10.0.0.7", named("10.0.0.7:8009", &log).unwrap()).unwrap();
        assert_eq!(drive.url(), "tcp://10.0.0.7:4420/nqn.a");
        assert!(message(named("10.0.0.7:8009", &log[3..])).contains("10.0.0.7:8009 names no drive"));
        let sly = [entry(DiscoveredKind::Nvm, "nqn.a,duplicate_connect", Some("10.0.0.7:4420"))];
        assert!(message(named("10.0.0.7:8009", &sly)).contains("cannot have"));
    }

    #[test]
    fn of_several_drives_one_has_to_be_named() {
        let log = ["nqn.a", "nqn.b"].map(|nqn| entry(DiscoveredKind::Nvm, nqn, Some("[fd00::7]:4421")));
        let said = message(the_one("drives.local", named("drives.local:8009", &log).unwrap()));
        assert!(said.contains("several drives at drives.local"), "{said}");
        assert!(said.ends_with(":\n  tcp://[fd00::7]:4421/nqn.a\n  tcp://[fd00::7]:4421/nqn.b"), "{said}");
    }

    #[test]
    fn silence_is_explained() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = listener.local_addr().unwrap().to_string();
        drop(listener);
        let said = message(drives(&place, &HostIdentity::from_uuid([7; 16])));
        assert!(said.starts_with(&format!("nothing at {place} says which drives there are")), "{said}");
        assert!(said.contains("--listen") && said.contains("--nqn"), "{said}");
    }

    #[test]
    fn refusals_say_what_to_do() {
        let mut target = TcpTarget::discovery("10.0.0.7").unwrap();
        target.host = HostIdentity::from_uuid([7; 16]);
        let status = |code| DriverError::Status {
            peer: "tcp://10.0.0.7:8009".into(),
            what: "Connect".into(),
            status: "refused".into(),
            code,
        };
        let said = |error| message::<()>(Err(refused(&target, error)));
        assert!(said(status(0x4184)).contains(":uuid:07070707-") && said(status(0x4184)).contains("allowed hosts"));
        assert!(
            said(status(0x4182)).starts_with("10.0.0.7:8009 answers, and not to discovery: name the drive by --nqn")
        );
        let protocol = DriverError::Protocol { peer: "p".into(), what: "garbage".into() };
        assert!(said(protocol).contains("is it a drive (NVMe/TCP)?"));
    }
}
