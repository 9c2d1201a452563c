//! Takes any commands of a host: a sequence of submission queue entries with data, on admin and I/O queues of an I/O
//! controller and of a discovery controller.
#![no_main]

use ddlp_csd::log::{Counters, DriveIdentity};
use ddlp_device::controller::{Config, ConnId, Gauges, Subsystem, SubsystemOutput};
use ddlp_device::identity::AgentIdentity;
use ddlp_device::slots::Geometry;
use ddlp_nvme::SubmissionEntry;
use ddlp_nvme::fabrics::PropertySet;
use ddlp_nvme::property::offset;
use ddlp_nvme::text::DISCOVERY_NQN;
use libfuzzer_sys::fuzz_target;
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use zerocopy::FromBytes;

/// Number of connections: an I/O controller's admin queue and I/O queue, a discovery controller's admin queue, and one
/// without Connect.
const CONNECTIONS: u64 = 4;

struct Still;

impl Gauges for Still {
    fn counters(&self) -> Counters {
        Counters::default()
    }
}

fn identity() -> AgentIdentity {
    static IDENTITY: OnceLock<AgentIdentity> = OnceLock::new();
    IDENTITY.get_or_init(|| AgentIdentity::generate().expect("random bytes")).clone()
}

fn subsystem() -> Subsystem {
    let geometry = Geometry { slots: 4, slot_bytes: 1 << 20 };
    let drive = DriveIdentity {
        dataset: [1; 32],
        dataset_samples: 100,
        abilities: Vec::new(),
        agent: [0; 16],
        slot_bytes: geometry.slot_bytes,
        slots: geometry.slots,
        workers: 1,
    };
    let config = Config {
        identity: identity(),
        allowed_hosts: Vec::new(),
        dataset_blocks: 64,
        geometry,
        drive,
        gauges: Arc::new(Still),
    };
    Subsystem::new(config)
}

/// Sends a well-formed Connect to a subsystem for queue `qid`.
fn connect(subsystem: &mut Subsystem, conn: ConnId, nqn: &str, qid: u16, controller: u16) -> u16 {
    let mut entry = [0u8; 64];
    (entry[0], entry[1], entry[4]) = (0x7F, 0x40, 0x01);
    entry[32..36].copy_from_slice(&1024u32.to_le_bytes());
    entry[39] = 0x01;
    entry[42..44].copy_from_slice(&qid.to_le_bytes());
    entry[44..46].copy_from_slice(&31u16.to_le_bytes());
    let mut data = vec![0u8; 1024];
    data[..16].fill(7);
    data[16..18].copy_from_slice(&controller.to_le_bytes());
    data[256..256 + nqn.len()].copy_from_slice(nqn.as_bytes());
    let host = b"nqn.2014-08.org.nvmexpress:uuid:11111111-2222-4333-8444-555555555555";
    data[512..512 + host.len()].copy_from_slice(host);
    let entry = SubmissionEntry::read_from_bytes(&entry).expect("64 bytes");
    let outputs = subsystem.command(conn, &entry, &data, Instant::now());
    outputs
        .iter()
        .find_map(|output| match output {
            SubsystemOutput::Complete { completion, .. } => Some(completion.result.get() as u16),
            _ => None,
        })
        .unwrap_or(0)
}

fuzz_target!(|input: Vec<(u8, [u8; 64], Vec<u8>)>| {
    let mut subsystem = subsystem();
    for conn in 0..CONNECTIONS {
        subsystem.opened(ConnId(conn), ([192, 0, 2, 7], 4420).into());
    }
    let nqn = identity().nqn;
    let controller = connect(&mut subsystem, ConnId(1), &nqn, 0, 0xFFFF);
    // Enable the controller with all command sets, as a driver does, so that I/O queues can follow.
    let mut enable = [0u8; 64];
    (enable[0], enable[1], enable[4]) = (0x7F, 0x40, 0x00);
    enable[44] = 0x14;
    enable[48..52].copy_from_slice(&0x0046_0061u32.to_le_bytes());
    let enable = SubmissionEntry::read_from_bytes(&enable).expect("64 bytes");
    subsystem.command(ConnId(1), &enable, &[], Instant::now());
    connect(&mut subsystem, ConnId(2), &nqn, 1, controller);
    connect(&mut subsystem, ConnId(3), DISCOVERY_NQN, 0, 0xFFFF);
    subsystem.command(ConnId(3), &PropertySet::new(offset::CC, 1).entry(), &[], Instant::now());
    for (choice, entry, mut data) in input {
        let entry = SubmissionEntry::read_from_bytes(&entry).expect("64 bytes");
        let conn = ConnId(u64::from(choice) % CONNECTIONS);
        if choice >= 250 {
            subsystem.disconnected(conn);
            subsystem.opened(conn, ([192, 0, 2, 7], 4420).into());
            continue;
        }
        match subsystem.data_wanted(conn, &entry) {
            Ok(wanted) => {
                data.resize(wanted, 0);
                subsystem.command(conn, &entry, &data, Instant::now());
            }
            Err(status) => {
                subsystem.reject(conn, &entry, status);
            }
        }
    }
});
