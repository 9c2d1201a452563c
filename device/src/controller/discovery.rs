//! The discovery controller: tells a host where the NVM subsystem is. Base 2.1, section "Discovery Controller".
//!
//! It has an admin queue, one log with one entry, and neither namespaces nor I/O queues. The entry names the address at
//! which the asking host reached the agent, whatever address the agent listens at. The log never changes while the
//! agent runs. Hosts that stay connected (with a keep alive time-out other than 0) may ask for a notice of changes,
//! which never comes; they find a restarted agent by connecting again.
//!
//! There is no entry for the discovery subsystem itself (subtype 3). That subtype announces a discovery subsystem with
//! a name of its own, or further paths to one; this subsystem has the well-known name and gives the same answer at
//! every port, and `nvme-cli` skips entries of that subtype. Discovery Information Management is not offered either
//! (DCTYPE is not reported), since nothing registers here.

use super::profile::{QUEUE_ENTRIES_MAX, supported_logs};
use ddlp_nvme::admin::{GetFeatures, Identify};
use ddlp_nvme::log::{DiscoveryEntry, DiscoveryHeader};
use ddlp_nvme::{AdminOpcode, Cns, FeatureId, LogId, Status, SubmissionEntry};
use std::net::SocketAddr;
use zerocopy::IntoBytes;

/// Generation of the log, which never changes.
const GENERATION: u64 = 1;
/// The agent's only port in the sense of the specification, whatever address leads to it.
const PORT_ID: u16 = 1;
/// Refuses admin commands that a discovery controller does not have.
pub fn admit(command: &SubmissionEntry) -> Result<(), Status> {
    let refused = match AdminOpcode(command.opcode) {
        AdminOpcode::GET_LOG_PAGE | AdminOpcode::ASYNC_EVENT | AdminOpcode::KEEP_ALIVE => return Ok(()),
        AdminOpcode::IDENTIFY if Identify::parse(command).cns == Cns::CONTROLLER => return Ok(()),
        AdminOpcode::SET_FEATURES | AdminOpcode::GET_FEATURES => match GetFeatures::parse(command).feature {
            FeatureId::ASYNC_EVENT_CONFIGURATION | FeatureId::KEEP_ALIVE_TIMER => return Ok(()),
            _ => Status::INVALID_FIELD,
        },
        AdminOpcode::IDENTIFY => Status::INVALID_FIELD,
        _ => Status::INVALID_OPCODE,
    };
    Err(refused.do_not_retry())
}

/// Returns a log page. `nqn` is the NVM subsystem, and `reached` the address at which the asking host finds it.
pub fn page(log: LogId, nqn: &str, reached: SocketAddr) -> Result<Vec<u8>, Status> {
    match log {
        LogId::SUPPORTED => Ok(supported_logs(true)),
        LogId::DISCOVERY => {
            let entry = entry(nqn, reached)?;
            Ok([DiscoveryHeader::new(GENERATION, 1).as_bytes(), entry.as_bytes()].concat())
        }
        _ => Err(Status::INVALID_LOG_PAGE.do_not_retry()),
    }
}

fn entry(nqn: &str, reached: SocketAddr) -> Result<DiscoveryEntry, Status> {
    // A host with an IPv4 address knows nothing of the IPv6 address to which the socket maps it.
    let address = reached.ip().to_canonical();
    let port = reached.port().to_string();
    // An NQN from the identity was checked when it was read or made.
    let mut entry = DiscoveryEntry::tcp(nqn, &address.to_string(), address.is_ipv6(), &port)
        .map_err(|_| Status::INTERNAL.do_not_retry())?;
    entry.requirements = DiscoveryEntry::FLOW_CONTROL_OPTIONAL;
    entry.port_id = PORT_ID.into();
    entry.admin_queue_entries_max = QUEUE_ENTRIES_MAX.into();
    Ok(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_an_address_of_the_host_s_family() {
        let cases = [
            ("192.0.2.7:4420", 1, "192.0.2.7"),
            ("[2001:db8::7]:4420", 2, "2001:db8::7"),
            ("[::ffff:192.0.2.7]:4420", 1, "192.0.2.7"),
            ("[fe80::1%3]:4420", 2, "fe80::1"),
        ];
        for (reached, family, address) in cases {
            let entry = entry("nqn.2024-01.org.example:a", reached.parse().unwrap()).unwrap();
            assert_eq!(
                (entry.address_family, entry.address(), entry.service()),
                (family, address, "4420"),
                "{reached}"
            );
        }
    }
}
