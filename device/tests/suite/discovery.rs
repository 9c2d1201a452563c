//! The discovery controller: what Linux and nvme-cli ask it, what it refuses, and that it takes nothing from hosts of
//! the namespaces.

use crate::host::bench::{Bench, OTHER_HOST, activation, feature, identify, log_page};
use crate::host::{HOST_NQN, cancel, command, execute, images};
use ddlp_device::controller::{ASSOCIATIONS_MAX, ConnId, DISCOVERY_ASSOCIATIONS_MAX};
use ddlp_device::job::JobEvent;
use ddlp_nvme::admin::{Abort, GetLogPage};
use ddlp_nvme::fabrics::{
    CONTROLLER_ANY, ConnectCommand, ConnectData, ConnectFault, ConnectResult, Disconnect, PropertyGet, PropertySet,
};
use ddlp_nvme::identify::IdentifyController;
use ddlp_nvme::log::{DiscoveryEntry, DiscoveryHeader};
use ddlp_nvme::property::{Capabilities, offset};
use ddlp_nvme::text::DISCOVERY_NQN;
use ddlp_nvme::{AdminOpcode, Cns, Csi, FeatureId, LogId, Status, SubmissionEntry};
use std::sync::atomic::Ordering;
use std::time::Duration;
use zerocopy::IntoBytes;

/// Values of CC that Linux writes to a controller without a choice of command sets: entry sizes, then enabled, then
/// shut down.
const CC: [u64; 3] = [0x0046_0000, 0x0046_0001, 0x0046_4001];

fn try_connect(bench: &mut Bench, nqn: &str, keep_alive_ms: u32) -> (ConnId, (Status, u64)) {
    let conn = bench.conn();
    let data = ConnectData::new([1; 16], CONTROLLER_ANY, DISCOVERY_NQN, nqn).unwrap();
    let answer = bench.send(conn, ConnectCommand::new(0, 31, keep_alive_ms, false).entry(), data.as_bytes());
    (conn, answer.unwrap())
}

/// Connects and enables a discovery controller. Returns its connection and identifier.
fn discovery(bench: &mut Bench, nqn: &str, keep_alive_ms: u32) -> (ConnId, u16) {
    let (conn, (status, result)) = try_connect(bench, nqn, keep_alive_ms);
    assert_eq!(status, Status::SUCCESS);
    bench.ok(conn, PropertySet::new(offset::CC, CC[1]).entry(), &[]);
    (conn, ConnectResult::from_result(result).controller_id)
}

/// Makes Get Log Page as libnvme sends it, without a namespace.
fn log(offset: u64, bytes: u32) -> SubmissionEntry {
    let page = GetLogPage { retain_event: false, ..GetLogPage::new(LogId::DISCOVERY, Csi::NVM, offset, bytes) };
    command(AdminOpcode::GET_LOG_PAGE.0, 0, page.dwords(), bytes as usize)
}

fn event_request() -> SubmissionEntry {
    command(AdminOpcode::ASYNC_EVENT.0, 0, [0; 6], 0)
}

/// Does what `nvme discover` does: the kernel's bring-up, then the log as later versions of nvme-cli read it (head,
/// entries, head again), then the kernel's shutdown. `replay.rs` has what version 2.3 does.
#[test]
fn a_host_discovers_the_namespaces_where_it_reached_the_agent() {
    let mut bench = Bench::new(&[]);
    let (conn, (status, result)) = try_connect(&mut bench, HOST_NQN, 0);
    assert_eq!(status, Status::SUCCESS);
    let cap = Capabilities(bench.ok(conn, PropertyGet::new(offset::CAP).entry(), &[]));
    assert!(!cap.io_command_sets() && cap.nvm_command_set(), "Linux then writes CSS 000b");
    bench.ok(conn, PropertySet::new(offset::CC, CC[0]).entry(), &[]);
    assert_eq!(bench.ok(conn, PropertyGet::new(offset::CC).entry(), &[]), CC[0]);
    bench.ok(conn, PropertySet::new(offset::CC, CC[1]).entry(), &[]);
    assert_eq!(bench.ok(conn, PropertyGet::new(offset::CSTS).entry(), &[]), 0b0001);
    assert_eq!(bench.ok(conn, PropertyGet::new(offset::VS).entry(), &[]), 0x0002_0100);

    bench.ok(conn, identify(Cns::CONTROLLER, 0, Csi::NVM), &[]);
    let id = *IdentifyController::parse(&bench.data).unwrap();
    assert_eq!(id.controller_id.get(), ConnectResult::from_result(result).controller_id);
    assert_eq!((id.controller_type, id.subsystem_nqn(), id.namespaces.get()), (2, DISCOVERY_NQN, 0));
    assert_eq!(id.discovery_type, 0, "or hosts would register");
    assert!(!id.has_effects_log() && id.log_attributes & 0b100 != 0, "no effects log, offsets");
    assert!(id.commands_max.get() > 0 && id.sgl.get() & 3 == 1 && id.command_capsule.get() >= 4);
    assert!(id.response_capsule.get() >= 1 && id.capsule_data_offset.get() == 0);
    assert_eq!(id.async_events.get(), 1 << 31, "a change of the discovery log");

    // The kernel configures the event and asks for it, whether or not the host stays.
    bench.ok(conn, feature(AdminOpcode::SET_FEATURES, FeatureId::ASYNC_EVENT_CONFIGURATION, 1 << 31), &[]);
    assert_eq!(bench.send(conn, event_request(), &[]), None);

    bench.ok(conn, log(0, 20), &[]);
    let (generation, entries) = (bench.data[..8].to_vec(), bench.data[8..16].to_vec());
    assert_eq!(entries, 1u64.to_le_bytes());
    bench.ok(conn, log(1024, 1024), &[]);
    let entry = *DiscoveryEntry::parse(&bench.data).unwrap();
    assert_eq!((entry.transport, entry.address_family, entry.subsystem_type), (3, 1, 2));
    assert_eq!((entry.address(), entry.service()), ("192.0.2.7", "4420"));
    assert_eq!(entry.subsystem_nqn(), Ok(bench.nqn.as_str()));
    assert_eq!((entry.controller_id.get(), entry.flags.get()), (0xFFFF, 0));
    assert!(entry.admin_queue_entries_max.get() >= 32 && entry.port_id.get() > 0);
    // The entry does not ask for a secure channel, which nvme-cli would set up. Flow control may be off.
    assert_eq!((entry.requirements, entry.transport_specific[0]), (0b100, 0));
    bench.ok(conn, log(0, 20), &[]);
    assert_eq!((&bench.data[..8], &bench.data[8..16]), (&generation[..], &entries[..]), "nothing changed");

    bench.ok(conn, PropertySet::new(offset::CC, CC[2]).entry(), &[]);
    assert_eq!(bench.ok(conn, PropertyGet::new(offset::CSTS).entry(), &[]), 0b1001, "shut down");
    let outputs = bench.subsystem.disconnected(conn);
    bench.take(outputs);
    assert_eq!(bench.subsystem.associations(), 0);
}

#[test]
fn the_log_can_be_read_in_any_pieces() {
    let mut bench = Bench::new(&[]);
    let (conn, _) = discovery(&mut bench, HOST_NQN, 0);
    bench.ok(conn, log(0, 2048), &[]);
    let whole = bench.data.clone();
    assert_eq!(DiscoveryHeader::parse(&whole).unwrap().record_format.get(), 0);
    for piece in [4, 20, 1000, 1024, 4096] {
        let mut pieces = Vec::new();
        while pieces.len() < whole.len() {
            bench.ok(conn, log(pieces.len() as u64, piece), &[]);
            assert_eq!(bench.data.len(), piece as usize);
            pieces.extend_from_slice(&bench.data);
        }
        let (log, beyond) = pieces.split_at(whole.len());
        assert!(log == whole && beyond.iter().all(|&byte| byte == 0), "pieces of {piece}");
    }
    bench.ok(conn, log(0, 1 << 20), &[]);
    assert!(bench.data.starts_with(&whole) && bench.data[whole.len()..].iter().all(|&byte| byte == 0));
    for (offset, bytes) in [(2052, 4), (u64::MAX - 3, 4), (2, 4), (0, (1 << 20) + 4)] {
        let status = bench.status(conn, log(offset, bytes), &[]);
        assert!(status.same_code(Status::INVALID_FIELD), "{bytes} bytes at {offset}: {status}");
    }
}

#[test]
fn everything_else_has_its_status() {
    let mut bench = Bench::new(&[]);
    let (conn, (status, _)) = try_connect(&mut bench, HOST_NQN, 0);
    assert_eq!(status, Status::SUCCESS);
    assert!(bench.status(conn, log(0, 20), &[]).same_code(Status::COMMAND_SEQUENCE), "not enabled");
    let all_sets = bench.status(conn, PropertySet::new(offset::CC, 0x0046_0061).entry(), &[]);
    assert!(all_sets.same_code(Status::INVALID_FIELD), "it has no command sets");
    bench.ok(conn, PropertySet::new(offset::CC, CC[1]).entry(), &[]);
    let get = |id| feature(AdminOpcode::GET_FEATURES, id, 0);
    let set = |id, value| feature(AdminOpcode::SET_FEATURES, id, value);
    let cases = [
        (identify(Cns::NAMESPACE, 1, Csi::NVM), Status::INVALID_FIELD),
        (identify(Cns::ACTIVE_NAMESPACES, 0, Csi::NVM), Status::INVALID_FIELD),
        (identify(Cns::NAMESPACE_DESCRIPTORS, 1, Csi::NVM), Status::INVALID_FIELD),
        (identify(Cns::CSI_CONTROLLER, 0, Csi::NVM), Status::INVALID_FIELD),
        (identify(Cns::IO_COMMAND_SETS, 0, Csi::NVM), Status::INVALID_FIELD),
        (log_page(LogId::SMART.0, Csi::NVM, 512, true), Status::INVALID_LOG_PAGE),
        (log_page(LogId::EFFECTS.0, Csi::NVM, 4096, true), Status::INVALID_LOG_PAGE),
        (log_page(0xC0, Csi::NVM, 512, true), Status::INVALID_LOG_PAGE),
        (get(FeatureId::NUMBER_OF_QUEUES), Status::INVALID_FIELD),
        (set(FeatureId::NUMBER_OF_QUEUES, 0), Status::INVALID_FIELD),
        (command(AdminOpcode::SET_FEATURES.0, 0, [0x16, 0, 0, 0, 0, 0], 512), Status::INVALID_FIELD),
        (command(AdminOpcode::ABORT.0, 0, Abort::default().dwords(), 0), Status::INVALID_OPCODE),
        (command(AdminOpcode::LOAD_PROGRAM.0, 3, [0; 6], 100), Status::INVALID_OPCODE),
        (activation(0, 1), Status::INVALID_OPCODE),
        (cancel(1, 1), Status::INVALID_OPCODE),
        (command(0x21, 0, [0; 6], 0), Status::INVALID_OPCODE),
        (Disconnect::new().entry(), Status::INVALID_FIELD),
    ];
    for (entry, status) in cases {
        let found = bench.status(conn, entry, &[0; 512]);
        assert!(found.same_code(status) && found.is_do_not_retry(), "{entry:?}: {found}, {status} expected");
    }
    bench.ok(conn, log_page(LogId::SUPPORTED.0, Csi::NVM, 1024, true), &[]);
    let listed: Vec<u8> = (0..=255).filter(|&log: &u8| bench.data[usize::from(log) * 4] == 1).collect();
    assert_eq!(listed, [0x00, 0x70]);
    let (io, _) = bench.host(HOST_NQN, 1, 0);
    assert!(bench.status(io, log(0, 20), &[]).same_code(Status::INVALID_LOG_PAGE), "of discovery controllers only");
}

#[test]
fn a_discovery_controller_has_no_io_queues() {
    let mut bench = Bench::new(&[]);
    let (_, discovery_id) = discovery(&mut bench, HOST_NQN, 0);
    let (_, io_id) = bench.host(HOST_NQN, 1, 0);
    let nqn = bench.nqn.clone();
    let cases = [
        (DISCOVERY_NQN, discovery_id, ConnectFault { offset: 42, in_data: false }),
        (DISCOVERY_NQN, io_id, ConnectFault { offset: 42, in_data: false }),
        (nqn.as_str(), discovery_id, ConnectFault { offset: 16, in_data: true }),
    ];
    for (subsystem, controller_id, fault) in cases {
        let conn = bench.conn();
        let data = ConnectData::new([1; 16], controller_id, subsystem, HOST_NQN).unwrap();
        let answer = bench.send(conn, ConnectCommand::new(1, 31, 0, false).entry(), data.as_bytes()).unwrap();
        assert_eq!(answer, (Status::CONNECT_PARAMETERS.do_not_retry(), fault.result()), "{subsystem} {controller_id}");
    }
}

#[test]
fn the_list_of_allowed_hosts_holds_for_discovery() {
    let mut bench = Bench::new(&[HOST_NQN]);
    assert!(try_connect(&mut bench, OTHER_HOST, 0).1.0.same_code(Status::CONNECT_INVALID_HOST));
    assert_eq!(try_connect(&mut bench, HOST_NQN, 0).1.0, Status::SUCCESS);
}

#[test]
fn discovery_takes_no_place_from_hosts_of_the_namespaces() {
    let mut bench = Bench::new(&[]);
    let conns: Vec<ConnId> =
        (0..DISCOVERY_ASSOCIATIONS_MAX).map(|_| discovery(&mut bench, OTHER_HOST, 30_000).0).collect();
    assert_eq!(try_connect(&mut bench, OTHER_HOST, 0).1.0, Status::CONTROLLER_BUSY, "to be tried again");
    assert_eq!(bench.closed, []);
    for _ in 0..ASSOCIATIONS_MAX {
        bench.host(HOST_NQN, 1, 0);
    }
    let outputs = bench.subsystem.disconnected(conns[0]);
    bench.take(outputs);
    discovery(&mut bench, OTHER_HOST, 0);
}

/// Connects hosts that read the log once and stay connected: they keep no other host out.
#[test]
fn an_idle_discovery_host_gives_way_to_the_next_one() {
    let mut bench = Bench::new(&[]);
    let (io, _) = bench.host(HOST_NQN, 1, 0);
    let (staying, _) = discovery(&mut bench, HOST_NQN, 30_000);
    let idle: Vec<ConnId> = (1..DISCOVERY_ASSOCIATIONS_MAX).map(|_| discovery(&mut bench, OTHER_HOST, 0).0).collect();
    let (newcomer, _) = discovery(&mut bench, HOST_NQN, 0);
    assert_eq!(bench.closed, idle[..1]);
    for conn in [newcomer, staying] {
        bench.ok(conn, log(0, 20), &[]);
    }
    bench.ok(io, command(AdminOpcode::KEEP_ALIVE.0, 0, [0; 6], 0), &[]);
}

/// Keeps a host at the discovery controller only: it no longer owns the slots that it used.
#[test]
fn a_slot_does_not_wait_for_a_host_that_only_discovers() {
    let mut bench = Bench::new(&[]);
    discovery(&mut bench, HOST_NQN, 30_000);
    let (admin_a, a) = bench.host(HOST_NQN, 1, 0);
    let (admin_b, b) = bench.host(OTHER_HOST, 2, 0);
    bench.load(admin_a, 0);
    bench.load(admin_b, 0);
    let (queue_a, queue_b) = (bench.io(a, HOST_NQN, 1, 1), bench.io(b, OTHER_HOST, 2, 1));
    let (entry, data) = execute(&images::request(5, 0, vec![0]), 0);
    assert_eq!(bench.send(queue_a, entry, &data), None);
    let outputs = bench.subsystem.job_event(JobEvent::Done { id: bench.started[0], corrupt: 0 });
    bench.take(outputs);
    assert_eq!(bench.status(queue_b, entry, &data), Status::INSUFFICIENT_RESOURCES);
    let outputs = bench.subsystem.disconnected(admin_a);
    bench.take(outputs);
    assert_eq!(bench.send(queue_b, entry, &data), None, "accepted");
}

#[test]
fn a_host_with_keep_alive_stays_connected_and_a_silent_one_is_forgotten() {
    let mut bench = Bench::new(&[]);
    let (forgetful, _) = discovery(&mut bench, HOST_NQN, 0);
    let (staying, _) = discovery(&mut bench, OTHER_HOST, 30_000);
    assert_eq!(bench.ok(staying, feature(AdminOpcode::GET_FEATURES, FeatureId::KEEP_ALIVE_TIMER, 0), &[]), 30_000);
    let keep_alive = command(AdminOpcode::KEEP_ALIVE.0, 0, [0; 6], 0);
    for _ in 0..8 {
        let outputs = bench.subsystem.tick(bench.now);
        assert!(outputs.is_empty());
        bench.now += Duration::from_secs(15);
        bench.ok(staying, keep_alive, &[]);
    }
    bench.now += Duration::from_secs(1);
    let outputs = bench.subsystem.tick(bench.now);
    bench.take(outputs);
    assert_eq!(bench.closed, [forgetful]);
    bench.now += Duration::from_secs(30);
    let outputs = bench.subsystem.tick(bench.now);
    bench.take(outputs);
    assert_eq!(bench.closed, [forgetful, staying]);
}

#[test]
fn discovery_controllers_get_no_events_of_the_drive() {
    let mut bench = Bench::new(&[]);
    let (conn, _) = discovery(&mut bench, HOST_NQN, 30_000);
    bench.ok(conn, feature(AdminOpcode::SET_FEATURES, FeatureId::ASYNC_EVENT_CONFIGURATION, 1 << 31 | 2), &[]);
    assert_eq!(bench.send(conn, event_request(), &[]), None);
    bench.thermometer.0.store(901, Ordering::Relaxed);
    let outputs = bench.subsystem.tick(bench.now);
    assert!(outputs.is_empty(), "{outputs:?}");
}
