//! What a discovery controller says: connect to it, read its log, leave.

use super::admin::{ADMIN_COMMANDS, ADMIN_ENTRIES_Z, AdminQueue};
use super::bringup::{connect_queue, enable, shut_down};
use super::connection::{Connection, Deadline};
use super::engine::{Engine, QueueRules};
use super::link::Link;
use super::target::TcpTarget;
use crate::contract::{AdminData, Command};
use crate::error::DriverError;
use ddlp_nvme::admin::GetLogPage;
use ddlp_nvme::fabrics::{CONTROLLER_ANY, ConnectCommand};
use ddlp_nvme::identify::IdentifyController;
use ddlp_nvme::log::{DiscoveryEntry, DiscoveryHeader};
use ddlp_nvme::tcp::ADMIN_CAPSULE_BYTES;
use ddlp_nvme::{AdminOpcode, Csi, LogId};
use std::sync::Arc;

/// Entries of a log that are read.
pub const DISCOVERY_ENTRIES_MAX: u64 = 1024;
/// Times that a log is read anew because it changed meanwhile.
const CHANGES_MAX: u32 = 8;
/// Entries read by one command: 4 KiB, which any controller transfers.
const ENTRIES_AT_ONCE: u64 = 4;

/// What an entry of a discovery log is about. Base 2.1, figure "Discovery Log Page Entry Data Structure", SUBTYPE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscoveredKind {
    /// Another discovery service.
    Referral,
    /// A subsystem with namespaces.
    Nvm,
    /// The discovery service that was asked.
    Current,
    /// A value without a name here.
    Other(u8),
}

/// One entry of a discovery log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovered {
    /// What it is about.
    pub kind: DiscoveredKind,
    /// Name of the subsystem.
    pub nqn: String,
    /// `HOST:PORT`, an IPv6 host in brackets: where TCP reaches it, `None` when another transport does.
    pub address: Option<String>,
}

impl Discovered {
    fn read(entry: &DiscoveryEntry) -> Result<Self, String> {
        let kind = match entry.subsystem_type {
            DiscoveryEntry::SUBSYSTEM_REFERRAL => DiscoveredKind::Referral,
            DiscoveryEntry::SUBSYSTEM_NVM => DiscoveredKind::Nvm,
            DiscoveryEntry::SUBSYSTEM_CURRENT => DiscoveredKind::Current,
            other => DiscoveredKind::Other(other),
        };
        let nqn = entry.subsystem_nqn().map_err(|error| format!("discovery log: {error}"))?.to_owned();
        let address = (entry.transport == DiscoveryEntry::TRANSPORT_TCP).then(|| address(entry)).transpose()?;
        Ok(Self { kind, nqn, address })
    }
}

fn address(entry: &DiscoveryEntry) -> Result<String, String> {
    let (host, service) = (entry.address(), entry.service());
    let wrong = || format!("discovery log: {host:?} port {service:?} is no address");
    let host = match entry.address_family {
        DiscoveryEntry::FAMILY_IPV4 => host.parse().map(std::net::IpAddr::V4).map_err(|_| wrong())?,
        DiscoveryEntry::FAMILY_IPV6 => host.parse().map(std::net::IpAddr::V6).map_err(|_| wrong())?,
        family => return Err(format!("discovery log: address family {family} of a tcp entry")),
    };
    // Linux takes the unspecified address for this machine.
    if host.is_unspecified() || host.is_multicast() {
        return Err(wrong());
    }
    let port: u16 = service.parse().map_err(|_| wrong())?;
    Ok(std::net::SocketAddr::new(host, port).to_string())
}

/// Asks a discovery controller which subsystems there are, and where. Leaves in order.
///
/// # Errors
/// As those of [`super::connect`]; `Invalid` if a controller that answers is not one of discovery, `Protocol` for a log in
/// which nothing makes sense, or that never stays the same. All within [`TcpTarget::connect_timeout`], name resolution apart.
pub fn discover(target: &TcpTarget) -> Result<Vec<Discovered>, DriverError> {
    let deadline = Deadline::after(target.connect_timeout);
    let link = Arc::new(Link::new(&format!("tcp://{}/{}", target.address, target.nqn)));
    let outcome = link.resolve(&target.address).and_then(|addresses| {
        let connection = Connection::open(&addresses, target, &link, None, deadline)?;
        let rules = QueueRules { capsule_bytes_max: ADMIN_CAPSULE_BYTES as usize, success_flag: false };
        let mut admin = AdminQueue::new(Engine::new(connection, ADMIN_COMMANDS, rules));
        // No keep alive: the association lasts for a few commands.
        let command = ConnectCommand::new(0, ADMIN_ENTRIES_Z, 0, false);
        let controller_id = connect_queue(admin.engine(), target, &command, CONTROLLER_ANY, rules, deadline)?;
        let (_, identify) = enable(&mut admin, controller_id, deadline)?;
        if identify.controller_type != IdentifyController::TYPE_DISCOVERY {
            let (peer, kind) = (link.peer(), identify.controller_type);
            return Err(DriverError::Invalid(format!("{peer} is not a discovery controller (type {kind})")));
        }
        let entries = read_log(&mut admin, deadline)?;
        if let Err(error) = shut_down(&mut admin, deadline) {
            tracing::debug!(%error, "shutdown was not orderly");
        }
        Ok(entries)
    });
    // Whatever came of it, no socket stays open.
    link.fail("closed by this host");
    outcome
}

/// Reads the log until it was the same before and after.
fn read_log(admin: &mut AdminQueue, deadline: Deadline) -> Result<Vec<Discovered>, DriverError> {
    let mut before = header(admin, deadline)?;
    for _ in 0..=CHANGES_MAX {
        let count = before.entries.get();
        if count > DISCOVERY_ENTRIES_MAX {
            return Err(admin
                .link()
                .protocol(format!("discovery log of {count} entries, at most {DISCOVERY_ENTRIES_MAX} are read")));
        }
        let entries = entries(admin, count, deadline)?;
        let after = header(admin, deadline)?;
        if (before.generation, before.entries) == (after.generation, after.entries) {
            return sensible(&entries).map_err(|error| admin.link().protocol(error));
        }
        before = after;
    }
    Err(admin.link().protocol("discovery log changes again and again".into()))
}

/// The entries that can be read. One that cannot hides no other; an error when there is none beside such.
fn sensible(entries: &[DiscoveryEntry]) -> Result<Vec<Discovered>, String> {
    let (mut read, mut wrong) = (Vec::new(), None);
    for entry in entries {
        match Discovered::read(entry) {
            Ok(discovered) => read.push(discovered),
            Err(error) => {
                tracing::debug!("entry left out: {error}");
                wrong = Some(error);
            }
        }
    }
    match wrong {
        Some(error) if read.is_empty() => Err(error),
        _ => Ok(read),
    }
}

fn header(admin: &mut AdminQueue, deadline: Deadline) -> Result<DiscoveryHeader, DriverError> {
    let mut bytes = [0; size_of::<DiscoveryHeader>()];
    read_piece(admin, 0, &mut bytes, deadline)?;
    let header = DiscoveryHeader::parse(&bytes).map_err(|error| admin.link().protocol(error.to_string()))?;
    match header.record_format.get() {
        0 => Ok(*header),
        format => Err(admin.link().protocol(format!("discovery log of record format {format}"))),
    }
}

fn entries(admin: &mut AdminQueue, count: u64, deadline: Deadline) -> Result<Vec<DiscoveryEntry>, DriverError> {
    const ENTRY_BYTES: usize = size_of::<DiscoveryEntry>();
    let mut entries = Vec::new();
    for first in (0..count).step_by(ENTRIES_AT_ONCE as usize) {
        let mut bytes = [0; ENTRIES_AT_ONCE as usize * ENTRY_BYTES];
        let piece = &mut bytes[..(count - first).min(ENTRIES_AT_ONCE) as usize * ENTRY_BYTES];
        read_piece(admin, (size_of::<DiscoveryHeader>() + first as usize * ENTRY_BYTES) as u64, piece, deadline)?;
        for entry in piece.chunks(ENTRY_BYTES) {
            let entry = DiscoveryEntry::parse(entry).map_err(|error| admin.link().protocol(error.to_string()))?;
            entries.push(*entry);
        }
    }
    Ok(entries)
}

fn read_piece(admin: &mut AdminQueue, offset: u64, piece: &mut [u8], deadline: Deadline) -> Result<(), DriverError> {
    let request = GetLogPage::new(LogId::DISCOVERY, Csi::NVM, offset, piece.len() as u32);
    let command = Command { opcode: AdminOpcode::GET_LOG_PAGE.0, cdw10_15: request.dwords(), ..Command::default() };
    let completion = admin.run(&command, AdminData::Read(piece), deadline)?;
    completion.success(admin.link().peer(), "discovery log").map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_are_read_by_their_family() {
        let entry = |address: &str, ipv6, port: &str| {
            DiscoveryEntry::tcp("nqn.2024-01.org.example:a", address, ipv6, port).unwrap()
        };
        for (made, address) in [
            (entry("192.0.2.7", false, "4420"), "192.0.2.7:4420"),
            (entry("2001:db8::7", true, "4420"), "[2001:db8::7]:4420"),
        ] {
            let found = Discovered::read(&made).unwrap();
            assert_eq!((found.kind, found.address.as_deref()), (DiscoveredKind::Nvm, Some(address)));
            assert_eq!(found.nqn, "nqn.2024-01.org.example:a");
        }
        for wrong in [
            entry("192.0.2.7", true, "4420"),
            entry("example.org", false, "4420"),
            entry("192.0.2.7", false, "70000"),
            entry("0.0.0.0", false, "4420"),
            entry("ff02::1", true, "4420"),
            entry("192.0.2.7", false, ""),
            DiscoveryEntry { address_family: 9, ..entry("192.0.2.7", false, "4420") },
        ] {
            assert!(Discovered::read(&wrong).is_err(), "{} {}", wrong.address(), wrong.service());
        }
        let rdma = DiscoveryEntry { transport: 1, subsystem_type: 1, ..entry("fabric", false, "") };
        let found = Discovered::read(&rdma).unwrap();
        assert_eq!((found.kind, found.address), (DiscoveredKind::Referral, None));
    }

    #[test]
    fn an_entry_that_cannot_be_read_hides_no_other() {
        let good = DiscoveryEntry::tcp("nqn.2024-01.org.example:a", "192.0.2.7", false, "4420").unwrap();
        let bad = DiscoveryEntry::tcp("nqn.2024-01.org.example:b", "example.org", false, "4420").unwrap();
        assert_eq!(sensible(&[bad, good]).unwrap().len(), 1);
        assert!(sensible(&[bad]).unwrap_err().contains("example.org"));
        assert!(sensible(&[]).unwrap().is_empty());
    }

    proptest! {
        #[test]
        fn any_entry_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 1024), tcp: bool) {
            let mut entry = *DiscoveryEntry::parse(&bytes).unwrap();
            if tcp {
                entry.transport = DiscoveryEntry::TRANSPORT_TCP;
            }
            if let Ok(found) = Discovered::read(&entry) {
                prop_assert!(found.nqn.starts_with("nqn."));
            }
        }
    }
}
