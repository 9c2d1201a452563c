//! Recordings of unmodified kernels, Linux 6.1 and 6.12, replayed against session and subsystem.
//!
//! - `linux-*.txt`: an I/O controller, recorded with a trial controller.
//! - `discovery-*.txt`: `nvme discover`, then with `--persistent --keep-alive-tmo=4`, a pause of five seconds, `nvme
//!   reset`, `nvme disconnect-all`, recorded with nvme-cli 2.3 and this agent.
//!
//! The tests feed the host's PDUs as recorded, and compare fields of the answers: identifiers, head and queue always,
//! status and result if they do not depend on the controller.

use ddlp_csd::log::{Counters, DriveIdentity};
use ddlp_device::controller::{Config, ConnId, Gauges, Payload, Subsystem, SubsystemOutput};
use ddlp_device::identity::AgentIdentity;
use ddlp_device::slots::Geometry;
use ddlp_device::tcp::session::{Agreement, CommandHandler, Session};
use ddlp_nvme::fabrics::fabrics_type;
use ddlp_nvme::identify::{
    Descriptor, Descriptors, IdentifyController, IdentifyNamespace, IndependentIdentifyNamespace,
};
use ddlp_nvme::log::{DiscoveryEntry, DiscoveryHeader};
use ddlp_nvme::tcp::{Alignment, Digests, Encoded, FatalError};
use ddlp_nvme::text::DISCOVERY_NQN;
use ddlp_nvme::{AdminOpcode, Cns, CompletionEntry, FABRICS_OPCODE, FabricsType, LogId, Status, SubmissionEntry, view};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// Subsystem NQN in the recordings.
const NQN: &str = "nqn.2026-01.io.test:csd";

struct NoGauges;

impl Gauges for NoGauges {
    fn counters(&self) -> Counters {
        Counters::default()
    }
}

fn subsystem() -> Subsystem {
    let mut identity = AgentIdentity::generate().unwrap();
    identity.nqn = NQN.into();
    let drive = DriveIdentity {
        dataset: [1; 32],
        dataset_samples: 10,
        abilities: Vec::new(),
        agent: [0; 16],
        slot_bytes: 8 << 20,
        slots: 1,
        workers: 1,
    };
    let geometry = Geometry { slots: 1, slot_bytes: 8 << 20 };
    let gauges = Arc::new(NoGauges);
    Subsystem::new(Config { identity, allowed_hosts: Vec::new(), dataset_blocks: 2048, geometry, drive, gauges })
}

/// Controller with which a recording was made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum With {
    /// A trial controller. It moved its head only when it answered, so its heads lack the asynchronous event requests
    /// that it had taken.
    Trial,
    /// This agent.
    Agent,
}

struct Replay {
    subsystem: Subsystem,
    answers: BTreeMap<u64, Vec<(CompletionEntry, Payload)>>,
    commands: BTreeMap<(u64, u16), SubmissionEntry>,
    sent: Vec<Vec<u8>>,
}

impl Replay {
    fn take(&mut self, outputs: Vec<SubsystemOutput>) {
        for output in outputs {
            match output {
                SubsystemOutput::Complete { conn, completion, payload } => {
                    self.answers.entry(conn.0).or_default().push((completion, payload));
                }
                SubsystemOutput::Accepted { .. } | SubsystemOutput::Forget { .. } => {}
                other => panic!("a recording has no cause for {other:?}"),
            }
        }
    }
}

struct Port<'a>(&'a mut Replay, ConnId);

impl CommandHandler for Port<'_> {
    fn begin(&mut self, command: &SubmissionEntry) -> Result<Result<usize, Status>, FatalError> {
        self.0.commands.insert((self.1.0, command.command_id.get()), *command);
        Ok(self.0.subsystem.data_wanted(self.1, command))
    }

    fn run(&mut self, command: &SubmissionEntry, data: &[u8]) {
        let outputs = self.0.subsystem.command(self.1, command, data, Instant::now());
        self.0.take(outputs);
    }

    fn reject(&mut self, command: &SubmissionEntry, status: Status) {
        panic!("{command:?} was rejected with {status}");
    }

    fn ready(&mut self, setup: Agreement) {
        assert_eq!(setup, Agreement { digests: Digests::NONE, alignment: Alignment::NONE });
    }

    fn send(&mut self, pdu: Encoded) {
        self.0.sent.push(pdu.to_vec());
    }
}

struct Pdu<'a> {
    conn: u64,
    from_host: bool,
    name: &'a str,
    bytes: Vec<u8>,
    data_bytes: usize,
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// Parses header and data of a PDU, and adds the zeros that the recording leaves out.
fn parse(line: &str) -> Pdu<'_> {
    let parts: Vec<&str> = line.split(' ').collect();
    let mut bytes = parts.get(3).map_or(Vec::new(), |hex| unhex(hex));
    let name = parts[2];
    if name.starts_with("IC") {
        bytes.resize(128, 0);
    }
    let mut data_bytes = 0;
    if let Some(data) = parts.get(4).and_then(|part| part.strip_prefix("data=")) {
        let (length, hex) = data.split_once(':').unwrap();
        data_bytes = length.parse().unwrap();
        let mut data = if hex == "elided" { Vec::new() } else { unhex(hex) };
        data.resize(data_bytes, 0);
        bytes.extend_from_slice(&data);
    }
    Pdu { conn: parts[0].parse().unwrap(), from_host: parts[1] == ">", name, bytes, data_bytes }
}

/// Replays a recording that was made with the controller `with`.
fn replay(text: &str, with: With) {
    let mut replay =
        Replay { subsystem: subsystem(), answers: BTreeMap::new(), commands: BTreeMap::new(), sent: Vec::new() };
    let mut sessions: BTreeMap<u64, Session> = BTreeMap::new();
    let mut read_bytes = BTreeMap::new();
    let mut events: BTreeMap<u64, u16> = BTreeMap::new();
    let mut compared = 0;
    for line in text.lines() {
        let mut pdu = parse(line);
        let session = sessions.entry(pdu.conn).or_insert_with(|| {
            replay.subsystem.opened(ConnId(pdu.conn), ([127, 0, 0, 1], 4420).into());
            Session::default()
        });
        match (pdu.from_host, pdu.name) {
            (true, "EOF") => {
                assert_eq!(session.partial(), None);
                let outputs = replay.subsystem.disconnected(ConnId(pdu.conn));
                let outputs = outputs.into_iter().filter(|output| !matches!(output, SubsystemOutput::Close(_)));
                replay.take(outputs.collect());
            }
            (true, name) => {
                if name == "H2CData" {
                    // This controller does not want the data, as the result namespace is write protected.
                    let Some(request) =
                        replay.sent.iter().rev().find(|sent| sent[0] == 9 && sent[8..10] == pdu.bytes[8..10])
                    else {
                        continue;
                    };
                    pdu.bytes[10..12].copy_from_slice(&request[10..12]);
                }
                if name == "CapsuleCmd" && pdu.bytes[8] == AdminOpcode::ASYNC_EVENT.0 {
                    *events.entry(pdu.conn).or_default() += 1u16;
                }
                session.feed(&pdu.bytes, &mut Port(&mut replay, ConnId(pdu.conn))).unwrap();
            }
            (false, "ICResp") => {
                let sent = replay.sent.pop().unwrap();
                assert_eq!((sent.len(), &sent[..8]), (128, &pdu.bytes[..8]));
            }
            (false, "R2T") => {}
            (false, "C2HData") => {
                read_bytes.insert((pdu.conn, u16::from_le_bytes([pdu.bytes[8], pdu.bytes[9]])), pdu.data_bytes);
            }
            (false, _) => {
                let recorded = view::<CompletionEntry>(&pdu.bytes[8..], "completion").unwrap();
                let (entry, payload) = replay.answers.get_mut(&pdu.conn).unwrap().remove(0);
                let key = (pdu.conn, recorded.command_id.get());
                let command = replay.commands[&key];
                let events = if with == With::Trial { events.get(&pdu.conn).copied().unwrap_or(0) } else { 0 };
                compare(&command, recorded, &entry, events);
                let bytes = match &payload {
                    Payload::None => 0,
                    Payload::Page { bytes, zeros } => bytes.len() + zeros,
                    Payload::Blocks { bytes, .. } => *bytes,
                };
                assert_eq!(bytes, read_bytes.remove(&key).unwrap_or(0), "{command:?}");
                if let Payload::Page { bytes, .. } = payload {
                    check_page(&command, &bytes);
                }
                compared += 1;
            }
        }
    }
    assert!(replay.answers.values().all(Vec::is_empty), "answers that no controller gave");
    assert_eq!(compared, text.matches(" < CapsuleResp ").count());
    assert!(compared > 40, "{compared} answers");
    assert_eq!(replay.subsystem.associations(), 0);
}

/// Returns the status that a command has to get: success, unless it needs a program of the trial controller, or writes
/// to a protected namespace.
fn wanted_status(command: &SubmissionEntry) -> Status {
    match (command.opcode, command.nsid.get()) {
        (0x85, 3) => Status::INVALID_PROGRAM_DATA,
        (0x88, 3) | (0x01, 3) => Status::NO_PROGRAM,
        (0x01, 2) => Status::WRITE_PROTECTED,
        _ => Status::SUCCESS,
    }
}

/// Compares a completion with the recorded one. `events` is the number of asynchronous event requests that the recorded
/// head lacks. The recorded head does not wrap at the end of the queue either.
fn compare(command: &SubmissionEntry, recorded: &CompletionEntry, entry: &CompletionEntry, events: u16) {
    assert_eq!(entry.command_id, recorded.command_id);
    let entries = if recorded.sq_id.get() == 0 { 32 } else { 128 };
    let head = ((recorded.sq_head.get() + events) % entries, recorded.sq_id.get());
    assert_eq!((entry.sq_head.get(), entry.sq_id.get()), head, "{command:?}");
    assert!(entry.status().same_code(wanted_status(command)), "{command:?}: {}", entry.status());
    let fabrics = command.opcode == FABRICS_OPCODE;
    let kind = fabrics_type(command);
    let free = fabrics && kind == FabricsType::PROPERTY_GET && [0x00, 0x08].contains(&command.cdw(11));
    if free || command.opcode == 0x09 || entry.status() != Status::SUCCESS {
        // Each controller has its own CAP, VS and number of granted queues.
        return;
    }
    assert_eq!(entry.result, recorded.result, "{command:?}");
}

/// Checks the fields for which Linux may refuse a controller.
fn check_page(command: &SubmissionEntry, page: &[u8]) {
    if command.opcode == AdminOpcode::GET_LOG_PAGE.0 && command.cdw(10) as u8 == LogId::DISCOVERY.0 {
        // nvme-cli 2.3 reads the head, then head and entries together.
        assert_eq!(DiscoveryHeader::parse(page).unwrap().entries.get(), 1);
        if let Some(entry) = page.get(size_of::<DiscoveryHeader>()..).filter(|entries| !entries.is_empty()) {
            let entry = DiscoveryEntry::parse(entry).unwrap();
            assert_eq!((entry.subsystem_nqn(), entry.address(), entry.service()), (Ok(NQN), "127.0.0.1", "4420"));
        }
    }
    if command.opcode != 0x06 {
        return;
    }
    let nsid = command.nsid.get();
    match Cns(command.cdw(10) as u8) {
        Cns::CONTROLLER => {
            let id = IdentifyController::parse(page).unwrap();
            let is_discovery = id.subsystem_nqn() == DISCOVERY_NQN;
            assert!(is_discovery || id.subsystem_nqn() == NQN);
            assert!(id.keep_alive_granularity.get() > 0 && id.command_capsule.get() >= 4);
            assert!(id.response_capsule.get() >= 1 && id.capsule_data_offset.get() == 0);
            assert_eq!(id.sgl.get() & 3, 1);
            assert!(id.commands_max.get() > 0 && id.namespaces_max.get() <= id.namespaces.get());
            if is_discovery {
                assert_eq!((id.controller_type, id.namespaces.get()), (2, 0));
                return;
            }
            assert_eq!((id.submission_entry, id.completion_entry, id.controller_type), (0x66, 0x44, 1));
            assert!(id.has_effects_log() && id.multipath & 2 != 0);
        }
        Cns::ACTIVE_NAMESPACES => assert_eq!(page[..16], [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]),
        Cns::NAMESPACE_DESCRIPTORS => {
            let csi = Descriptors::new(page).find_map(|item| match item.unwrap() {
                Descriptor::CommandSet(csi) => Some(csi.0),
                _ => None,
            });
            assert_eq!(csi, Some(if nsid == 3 { 4 } else { 0 }));
        }
        Cns::NAMESPACE => {
            let namespace = IdentifyNamespace::parse(page).unwrap();
            assert_eq!(namespace.block_bytes(), Some(4096));
            assert_eq!((namespace.blocks.get(), namespace.attributes & 1, namespace.sharing & 1), (2048, 1, 1));
        }
        Cns::INDEPENDENT_NAMESPACE => assert!(IndependentIdentifyNamespace::parse(page).unwrap().is_ready()),
        _ => {}
    }
}

#[test]
fn linux_6_1() {
    replay(include_str!("traces/linux-6.1.txt"), With::Trial);
}

#[test]
fn linux_6_12() {
    replay(include_str!("traces/linux-6.12.txt"), With::Trial);
}

#[test]
fn discovery_of_linux_6_1() {
    replay(include_str!("traces/discovery-6.1.txt"), With::Agent);
}

#[test]
fn discovery_of_linux_6_12() {
    replay(include_str!("traces/discovery-6.12.txt"), With::Agent);
}
