//! The subsystem by itself: the status of each wrong command, pages, features, resets.

use crate::host::bench::{Bench, OTHER_HOST, activation, feature, identify, log_page};
use crate::host::{HOST_NQN, command, execute, images, read};
use ddlp_csd::COMPUTE_NSID;
use ddlp_csd::program::{CorruptPolicy, program_id};
use ddlp_csd::request::BatchRequest;
use ddlp_device::controller::{ConnectRefusal, IO_QUEUES_MAX, Payload, QUEUE_ENTRIES_MAX, SubsystemOutput};
use ddlp_nvme::admin::{GetLogPage, SetFeatures};
use ddlp_nvme::cp::LoadProgram;
use ddlp_nvme::fabrics::{
    CONTROLLER_ANY, ConnectCommand, ConnectData, ConnectFault, Disconnect, PropertyGet, PropertySet,
};
use ddlp_nvme::identify::{IdentifyController, IdentifyNamespace};
use ddlp_nvme::log::{EffectsLog, ErrorEntry};
use ddlp_nvme::property::{Capabilities, offset};
use ddlp_nvme::text::NqnError;
use ddlp_nvme::{AdminOpcode, Cns, Csi, FeatureId, LogId, NSID_ALL, Status, SubmissionEntry, view};
use zerocopy::IntoBytes;

#[test]
fn connect_refuses_wrong_fields_and_names_them() {
    let mut bench = Bench::new(&[HOST_NQN]);
    let nqn = bench.nqn.clone();
    let good = ConnectCommand::new(0, 31, 0, false);
    let data = |id, nqn: &str, host: &str| ConnectData::new([1; 16], id, nqn, host).unwrap();
    let (small, big) = (ConnectCommand::new(0, 0, 0, false), ConnectCommand::new(0, QUEUE_ENTRIES_MAX, 0, false));
    let format = ConnectCommand { record_format: 1.into(), ..good };
    let parameters = |offset, in_data| (Status::CONNECT_PARAMETERS, ConnectFault { offset, in_data }.result());
    let cases = [
        (format, data(CONTROLLER_ANY, &nqn, HOST_NQN), (Status::CONNECT_FORMAT, 0)),
        (good, data(CONTROLLER_ANY, "nqn.another", HOST_NQN), parameters(256, true)),
        (good, data(CONTROLLER_ANY, &nqn, OTHER_HOST), (Status::CONNECT_INVALID_HOST, 0)),
        (good, data(1, &nqn, HOST_NQN), parameters(16, true)),
        (small, data(CONTROLLER_ANY, &nqn, HOST_NQN), parameters(44, false)),
        (big, data(CONTROLLER_ANY, &nqn, HOST_NQN), parameters(44, false)),
        (ConnectCommand::new(1, 31, 0, false), data(77, &nqn, HOST_NQN), parameters(16, true)),
    ];
    for (number, (entry, data, (status, result))) in cases.into_iter().enumerate() {
        let conn = bench.conn();
        let answer = bench.send(conn, entry.entry(), data.as_bytes()).unwrap();
        assert!(answer.0.same_code(status), "case {number}: {}", answer.0);
        assert_eq!(answer.1, result, "case {number}");
        assert!(answer.0.is_do_not_retry());
    }
    let other = ConnectRefusal::OtherSubsystem { asked: "nqn.another".into(), here: nqn.clone() };
    let told = [(HOST_NQN.to_owned(), other), (OTHER_HOST.to_owned(), ConnectRefusal::HostNotAllowed)];
    assert!(
        bench
            .refused
            .iter()
            .map(|(_, host, reason)| (host, reason))
            .eq(told.iter().map(|(host, reason)| (host, reason)))
    );
    let conn = bench.conn();
    assert!(bench.status(conn, read(1, 0, 1), &[]).same_code(Status::COMMAND_SEQUENCE), "before Connect");
    let (conn, _) = bench.host(HOST_NQN, 1, 0);
    let again = bench.status(conn, good.entry(), data(CONTROLLER_ANY, &nqn, HOST_NQN).as_bytes());
    assert!(again.same_code(Status::COMMAND_SEQUENCE), "connected twice");
}

#[test]
fn a_refused_name_that_is_not_an_nqn_is_logged_as_sent() {
    let mut bench = Bench::new(&[HOST_NQN]);
    let nqn = bench.nqn.clone();
    let mut refused = |subsystem: &[u8], host: &[u8]| {
        let mut data = ConnectData::new([1; 16], CONTROLLER_ANY, &nqn, HOST_NQN).unwrap();
        for (field, name) in [(&mut data.subsystem_nqn, subsystem), (&mut data.host_nqn, host)] {
            *field = [0; 256];
            field[..name.len()].copy_from_slice(name);
        }
        let conn = bench.conn();
        let status = bench.status(conn, ConnectCommand::new(0, 31, 0, false).entry(), data.as_bytes());
        assert!(status.same_code(Status::CONNECT_PARAMETERS), "{status}");
        bench.refused.pop().expect("whoever runs the drive is told")
    };
    // Some versions of SPDK send this name.
    let spdk = "2014-08.org.nvmexpress:uuid:00000000-0000-0000-0000-000000000001";
    let (_, host, reason) = refused(nqn.as_bytes(), spdk.as_bytes());
    assert_eq!((host.as_str(), reason), (spdk, ConnectRefusal::NoHostNqn(NqnError::Prefix)));
    let (_, host, reason) = refused(nqn.as_bytes(), b"\xFFx");
    assert_eq!((host.as_str(), reason), ("\u{FFFD}x", ConnectRefusal::NoHostNqn(NqnError::NotText)));
    let (_, host, reason) = refused(b"drive", HOST_NQN.as_bytes());
    let other = ConnectRefusal::OtherSubsystem { asked: "drive".into(), here: nqn.clone() };
    assert_eq!((host.as_str(), reason), (HOST_NQN, other));
}

#[test]
fn an_io_queue_needs_its_own_host_controller_and_number() {
    let mut bench = Bench::new(&[]);
    let (admin, controller_id) = bench.host(HOST_NQN, 1, 0);
    let parameters =
        |offset, in_data| (Status::CONNECT_PARAMETERS.do_not_retry(), ConnectFault { offset, in_data }.result());
    assert_eq!(bench.queue(controller_id, OTHER_HOST, 1, 1).1, parameters(512, true), "another host");
    assert_eq!(bench.queue(controller_id, HOST_NQN, 2, 1).1, parameters(0, true), "another host identifier");
    assert_eq!(bench.queue(controller_id, HOST_NQN, 1, IO_QUEUES_MAX + 1).1, parameters(42, false));
    let queue = bench.io(controller_id, HOST_NQN, 1, 1);
    assert_eq!(bench.queue(controller_id, HOST_NQN, 1, 1).1, parameters(42, false), "in use");
    bench.ok(queue, Disconnect::new().entry(), &[]);
    assert_eq!(bench.closed, [queue]);
    bench.subsystem.disconnected(queue);
    bench.io(controller_id, HOST_NQN, 1, 1);
    bench.ok(admin, PropertySet::new(offset::CC, 0x0046_0060).entry(), &[]);
    let (_, (status, _)) = bench.queue(controller_id, HOST_NQN, 1, 2);
    assert!(status.same_code(Status::COMMAND_SEQUENCE), "disabled");
}

#[test]
fn every_wrong_admin_command_has_its_status() {
    let mut bench = Bench::new(&[]);
    let (admin, controller_id) = bench.host(HOST_NQN, 1, 0);
    let short = command(AdminOpcode::IDENTIFY.0, 0, [1, 0, 0, 0, 0, 0], 4092);
    let save = SetFeatures { save: true, feature: FeatureId::ARBITRATION, ..SetFeatures::default() };
    let odd = GetLogPage { offset: 2, ..GetLogPage::new(LogId::SMART, Csi::NVM, 0, 512) };
    let beyond = GetLogPage { offset: 516, ..odd };
    let log = |page: GetLogPage| command(AdminOpcode::GET_LOG_PAGE.0, NSID_ALL, page.dwords(), 512);
    let cases = [
        (command(0x84, 0, [0; 6], 0), Status::INVALID_OPCODE),
        (command(0xC4, 0, [0; 6], 0), Status::INVALID_OPCODE),
        (short, Status::SGL_DATA_LENGTH),
        (identify(Cns::NAMESPACE, 4, Csi::NVM), Status::INVALID_NAMESPACE),
        (identify(Cns::NAMESPACE, 0, Csi::NVM), Status::INVALID_NAMESPACE),
        (identify(Cns::NAMESPACE, NSID_ALL, Csi::NVM), Status::INVALID_NAMESPACE),
        (identify(Cns::INDEPENDENT_NAMESPACE, NSID_ALL, Csi::NVM), Status::INVALID_NAMESPACE),
        (identify(Cns::CSI_NAMESPACE, NSID_ALL, Csi::NVM), Status::INVALID_NAMESPACE),
        (identify(Cns::CSI_NAMESPACE, 1, Csi::COMPUTE), Status::IO_COMMAND_SET_UNSUPPORTED),
        (identify(Cns::CSI_CONTROLLER, 0, Csi::ZONED), Status::IO_COMMAND_SET_UNSUPPORTED),
        (identify(Cns::NAMESPACE_DESCRIPTORS, 0, Csi::NVM), Status::INVALID_NAMESPACE),
        (identify(Cns::ACTIVE_NAMESPACES, NSID_ALL, Csi::NVM), Status::INVALID_NAMESPACE),
        (identify(Cns(0x7E), 0, Csi::NVM), Status::INVALID_FIELD),
        (log_page(0x70, Csi::NVM, 512, true), Status::INVALID_LOG_PAGE),
        (log(odd), Status::INVALID_FIELD),
        (log(beyond), Status::INVALID_FIELD),
        (command(AdminOpcode::SET_FEATURES.0, 0, save.dwords(), 0), Status::FEATURE_NOT_SAVEABLE),
        (feature(AdminOpcode::SET_FEATURES, FeatureId::NUMBER_OF_QUEUES, 0xFFFF), Status::INVALID_FIELD),
        (feature(AdminOpcode::GET_FEATURES, FeatureId(0x7F), 0), Status::INVALID_FIELD),
        (feature(AdminOpcode::GET_FEATURES, FeatureId::HOST_BEHAVIOR, 0), Status::SGL_DATA_LENGTH),
        (activation(32, 1), Status::INVALID_PROGRAM_INDEX),
        (activation(0, 1), Status::NO_PROGRAM),
        (activation(0, 2), Status::INVALID_FIELD),
        (command(0x88, 1, [0; 6], 0), Status::INVALID_NAMESPACE),
        (command(ddlp_csd::CANCEL_OPCODE, 0, [0, 0, 1, 0, 0, 0], 0), Status::INVALID_FIELD),
        (command(ddlp_csd::CANCEL_OPCODE, 0, [0, 0, 0, 0, 0, 1], 0), Status::INVALID_FIELD),
        (PropertyGet::new(0x10).entry(), Status::INVALID_FIELD),
        (PropertySet::new(offset::VS, 1).entry(), Status::INVALID_FIELD),
        (Disconnect::new().entry(), Status::INVALID_FIELD),
    ];
    let failed = cases.len() as u64;
    for (entry, status) in cases {
        let found = bench.status(admin, entry, &[]);
        assert!(found.same_code(status), "{entry:?}: {found}, {status} expected");
    }
    let errors = bench.ok(admin, log_page(LogId::ERROR.0, Csi::NVM, 64, true), &[]);
    assert_eq!(errors, 0);
    let newest = view::<ErrorEntry>(&bench.data, "error").unwrap();
    assert_eq!((newest.count.get(), newest.opcode), (failed, 0x7F));
    let queue = bench.io(controller_id, HOST_NQN, 1, 1);
    let property = bench.status(queue, PropertyGet::new(offset::CAP).entry(), &[]);
    assert!(property.same_code(Status::INVALID_FIELD), "properties are the admin queue's");
}

#[test]
fn every_wrong_io_command_has_its_status() {
    let mut bench = Bench::new(&[]);
    let (admin, controller_id) = bench.host(HOST_NQN, 1, 0);
    let queue = bench.io(controller_id, HOST_NQN, 1, 1);
    let mut short = read(1, 0, 2);
    short.data.length = 4096.into();
    let cases = [
        (read(0, 0, 1), Status::INVALID_NAMESPACE),
        (read(4, 0, 1), Status::INVALID_NAMESPACE),
        (read(1, 1000, 1), Status::LBA_OUT_OF_RANGE),
        (read(1, u64::MAX, 1), Status::LBA_OUT_OF_RANGE),
        (read(2, 512, 1), Status::LBA_OUT_OF_RANGE),
        (read(1, 0, 257), Status::INVALID_FIELD),
        (short, Status::SGL_DATA_LENGTH),
        (command(0x01, 1, [0; 6], 4096), Status::WRITE_PROTECTED),
        (command(0x01, 2, [0; 6], 4096), Status::WRITE_PROTECTED),
        // Optional commands that ONCS denies: Write Uncorrectable, Write Zeroes, Dataset Management.
        (command(0x04, 2, [0; 6], 0), Status::INVALID_OPCODE),
        (command(0x08, 2, [0; 6], 0), Status::INVALID_OPCODE),
        (command(0x09, 2, [0; 6], 16), Status::INVALID_OPCODE),
        (command(0x05, 2, [0; 6], 4096), Status::INVALID_OPCODE),
        (command(0x02, 3, [0; 6], 4096), Status::INVALID_OPCODE),
        (command(0x01, 3, [0; 6], 100), Status::NO_PROGRAM),
    ];
    for (entry, status) in cases {
        let found = bench.status(queue, entry, &[0; 4096]);
        assert!(found.same_code(status), "{entry:?}: {found}, {status} expected");
        assert!(found.is_do_not_retry());
    }
    bench.ok(queue, command(0x00, NSID_ALL, [0; 6], 0), &[]);
    bench.load(admin, 0);
    let request = images::request(1, 1, vec![0, 1]);
    let (good, data) = execute(&request, 0);
    let with = |change: fn(&mut SubmissionEntry)| {
        let mut entry = good;
        change(&mut entry);
        entry
    };
    let cases = [
        (with(|entry| entry.cdw2 = 32.into()), Status::INVALID_PROGRAM_INDEX),
        (with(|entry| entry.cdw2 = 0x0001_0000.into()), Status::INVALID_FIELD),
        (with(|entry| entry.cdw3 = 1.into()), Status::INVALID_FIELD),
        (with(|entry| entry.cdw10_15[0] = 9.into()), Status::INVALID_FIELD),
        (with(|entry| entry.cdw10_15[1] = 9.into()), Status::INVALID_FIELD),
        (with(|entry| entry.cdw10_15[2] = 0.into()), Status::INVALID_FIELD),
        (with(|entry| entry.data.length = 72.into()), Status::INVALID_PROGRAM_DATA),
        (with(|entry| entry.data.length = (1 << 20).into()), Status::SGL_DATA_LENGTH),
        (with(|entry| entry.data.kind = 0), Status::SGL_DESCRIPTOR_TYPE),
    ];
    let foreign = BatchRequest { program: request.program ^ 1, ..request.clone() };
    let (entry, foreign) = execute(&foreign, 0);
    assert!(bench.status(queue, entry, &foreign).same_code(Status::PROGRAM_NOT_ACTIVATED), "for another program");
    for (entry, status) in cases {
        let found = bench.status(queue, entry, &data);
        assert!(found.same_code(status), "{entry:?}: {found}, {status} expected");
    }
    // One more sample than a slot of 1 MiB holds, and a slot that does not exist.
    let many = images::request(1, 1, (0..342).collect());
    let (entry, data) = execute(&many, 0);
    assert!(bench.status(queue, entry, &data).same_code(Status::INVALID_FIELD));
    let (entry, data) = execute(&images::request(1, 2, vec![0]), 0);
    assert!(bench.status(queue, entry, &data).same_code(Status::INVALID_FIELD));
    assert!(bench.started.is_empty());
    assert_eq!(bench.subsystem.counters().errors, 2 + 1 + 9 + 2);
}

#[test]
fn data_needs_one_sgl_of_a_kind_that_the_transport_has() {
    let mut bench = Bench::new(&[]);
    let (admin, controller_id) = bench.host(HOST_NQN, 1, 0);
    let queue = bench.io(controller_id, HOST_NQN, 1, 1);
    bench.load(admin, 0);
    let (execute, data) = execute(&images::request(1, 1, vec![0, 1]), 0);
    let commands = [
        (admin, identify(Cns::CONTROLLER, 0, Csi::NVM)),
        (admin, log_page(LogId::SMART.0, Csi::NVM, 512, true)),
        (admin, command(AdminOpcode::KEEP_ALIVE.0, 0, [0; 6], 0)),
        (queue, read(1, 0, 1)),
        (queue, execute),
    ];
    for (conn, good) in commands {
        // Fused commands, and every PSDT except that of an SGL without metadata.
        for flags in [0x00, 0x80, 0xC0, 0x41, 0x42, 0x43] {
            let found = bench.status(conn, SubmissionEntry { flags, ..good }, &data);
            assert_eq!(found, Status::INVALID_FIELD.do_not_retry(), "{good:?} with flags {flags:#x}");
        }
        let to_host = good.opcode & 0b11 == 0b10;
        for kind in [0x00, 0x0A, 0x01, 0x11, 0x40, 0x50, 0x5F, 0xF0] {
            let mut entry = good;
            entry.data.kind = kind;
            if good.data.length.get() > 0 && (to_host || kind != 0x01) {
                let found = bench.status(conn, entry, &data);
                assert_eq!(found, Status::SGL_DESCRIPTOR_TYPE.do_not_retry(), "{good:?} with type {kind:#x}");
            }
        }
    }
    assert!(bench.started.is_empty());
}

#[test]
fn an_answer_takes_no_more_memory_than_its_page() {
    let mut bench = Bench::new(&[]);
    let (admin, _) = bench.host(HOST_NQN, 1, 0);
    let asked = 1 << 20;
    for log in [LogId::SUPPORTED.0, LogId::ERROR.0, LogId::SMART.0, LogId::EFFECTS.0, 0xC0, 0xC1] {
        let outputs = bench.subsystem.command(admin, &log_page(log, Csi::NVM, asked, true), &[], bench.now);
        let [SubsystemOutput::Complete { payload: Payload::Page { bytes, zeros }, .. }] = &outputs[..] else {
            panic!("{outputs:?}")
        };
        assert!(bytes.len() <= 4096, "log {log:#x}: {} bytes are held", bytes.len());
        assert_eq!(bytes.len() + zeros, asked as usize);
    }
}

#[test]
fn effects_and_pages() {
    let mut bench = Bench::new(&[]);
    let (admin, _) = bench.host(HOST_NQN, 1, 0);
    bench.ok(admin, log_page(LogId::EFFECTS.0, Csi::COMPUTE, 4096, true), &[]);
    let effects = EffectsLog::parse(&bench.data).unwrap();
    assert_eq!(effects.io(0x01).0, 0b11, "CSUPP and LBCC, or Linux makes it privileged");
    assert_eq!((effects.admin(0x85).0, effects.admin(0x88).0, effects.io(0x02).0), (1, 1, 0));
    bench.ok(admin, log_page(LogId::EFFECTS.0, Csi::NVM, 4096, true), &[]);
    let effects = EffectsLog::parse(&bench.data).unwrap();
    assert_eq!((effects.io(0x02).0, effects.io(0x01).0, effects.admin(0xC0).0), (1, 0, 1));
    bench.ok(admin, log_page(LogId::SUPPORTED.0, Csi::NVM, 1024, true), &[]);
    let listed: Vec<u8> = (0..=255).filter(|&log: &u8| bench.data[usize::from(log) * 4] == 1).collect();
    for log in listed {
        bench.ok(admin, log_page(log, Csi::NVM, 64, true), &[]);
    }
    bench.load(admin, 5);
    bench.ok(admin, log_page(LogId::PROGRAM_LIST.0, Csi::NVM, 32, true), &[]);
    assert_eq!((bench.data[0], bench.data[16], bench.data[18], bench.data[19]), (1, 5, 0xC0, 1));
    bench.ok(admin, identify(Cns::IO_COMMAND_SETS, 0, Csi::NVM), &[]);
    assert_eq!(bench.data[0], 0b1_0001);
    bench.ok(admin, identify(Cns::CSI_ACTIVE_NAMESPACES, 0, Csi::COMPUTE), &[]);
    assert_eq!(bench.data[..8], [3, 0, 0, 0, 0, 0, 0, 0]);
    bench.ok(admin, identify(Cns::CSI_NAMESPACE, 3, Csi::COMPUTE), &[]);
    assert_eq!((bench.data[0], bench.data[8]), (32, 2));
}

/// Sends what SPDK's initiator asks a controller with several command sets while it attaches. SPDK gives up if one of
/// the commands that have to succeed here fails: `lib/nvme/nvme_ctrlr.c` at 32bcbb8e of longhorn/spdk, a fork of SPDK,
/// from `nvme_ctrlr_identify_iocs_specific` on.
#[test]
fn spdk_attaches() {
    let mut bench = Bench::new(&[]);
    let (admin, _) = bench.host(HOST_NQN, 1, 10_000);
    bench.ok(admin, identify(Cns::CONTROLLER, 0, Csi::NVM), &[]);
    bench.ok(admin, feature(AdminOpcode::SET_FEATURES, FeatureId::ASYNC_EVENT_CONFIGURATION, 0x100), &[]);
    bench.ok(admin, feature(AdminOpcode::GET_FEATURES, FeatureId::KEEP_ALIVE_TIMER, 0), &[]);
    // A controller may lack the zoned set.
    let zoned = bench.status(admin, identify(Cns::CSI_CONTROLLER, 0, Csi::ZONED), &[]);
    assert!(zoned.same_code(Status::IO_COMMAND_SET_UNSUPPORTED), "{zoned}");
    bench.ok(admin, feature(AdminOpcode::SET_FEATURES, FeatureId::NUMBER_OF_QUEUES, 0x0000_0000), &[]);
    bench.ok(admin, identify(Cns::ACTIVE_NAMESPACES, 0, Csi::NVM), &[]);
    let active: Vec<u32> = bench.data.chunks(4).map(|nsid| u32::from_le_bytes(nsid.try_into().unwrap())).collect();
    assert_eq!(active[..4], [1, 2, 3, 0]);
    for &nsid in &active[..3] {
        bench.ok(admin, identify(Cns::NAMESPACE, nsid, Csi::NVM), &[]);
        let capacity = IdentifyNamespace::parse(&bench.data).unwrap().capacity.get();
        assert_eq!(capacity > 0, nsid != COMPUTE_NSID, "SPDK uses namespaces of some capacity: {nsid}");
        assert!(nsid != COMPUTE_NSID || bench.data.iter().all(|&byte| byte == 0));
    }
    for &nsid in &active[..3] {
        bench.ok(admin, identify(Cns::NAMESPACE_DESCRIPTORS, nsid, Csi::NVM), &[]);
    }
}

/// Sends what `nvme effects-log` without `--csi` asks: nvme-cli 2.3 and later ask for the NVM set and, if CAP.CSS has
/// bit 6, for the zoned one, and print nothing after an error (`nvme.c`, `get_effects_log`).
#[test]
fn there_is_an_effects_page_for_every_command_set_that_nvme_cli_asks_for() {
    let mut bench = Bench::new(&[]);
    let (admin, _) = bench.host(HOST_NQN, 1, 0);
    assert!(Capabilities(bench.ok(admin, PropertyGet::new(offset::CAP).entry(), &[])).io_command_sets());
    bench.ok(admin, log_page(LogId::EFFECTS.0, Csi::NVM, 4096, true), &[]);
    let of_the_nvm_set = *EffectsLog::parse(&bench.data).unwrap();
    for csi in [Csi::KEY_VALUE, Csi::ZONED, Csi::LOCAL_MEMORY, Csi(0x30)] {
        bench.ok(admin, log_page(LogId::EFFECTS.0, csi, 4096, true), &[]);
        let effects = EffectsLog::parse(&bench.data).unwrap();
        assert_eq!(effects.admin, of_the_nvm_set.admin, "{csi}");
        assert!(effects.io.iter().all(|effects| effects.get() == 0), "{csi}: no I/O command is supported");
    }
}

#[test]
fn the_firmware_is_in_one_slot_that_cannot_be_written() {
    let mut bench = Bench::new(&[]);
    let (admin, _) = bench.host(HOST_NQN, 1, 0);
    bench.ok(admin, identify(Cns::CONTROLLER, 0, Csi::NVM), &[]);
    let id = IdentifyController::parse(&bench.data).unwrap();
    // Bits 3:1 are the number of slots, from 1 to 7; bit 0: the first one is read-only. OACS bit 2: no download.
    assert_eq!((id.firmware_updates, id.optional_admin.get() & 1 << 2), (0b11, 0));
}

#[test]
fn a_reset_ends_the_io_queues_and_leaves_the_admin_queue() {
    let mut bench = Bench::new(&[]);
    let (admin, id) = bench.host(HOST_NQN, 1, 0);
    let queues = [bench.io(id, HOST_NQN, 1, 1), bench.io(id, HOST_NQN, 1, 2)];
    bench.ok(admin, PropertySet::new(offset::CC, 0x0046_0060).entry(), &[]);
    assert_eq!(bench.closed, queues, "their connections end");
    bench.ok(admin, PropertySet::new(offset::CC, 0x0046_0061).entry(), &[]);
    let late = bench.status(queues[0], read(1, 0, 1), &[]);
    assert!(late.same_code(Status::COMMAND_SEQUENCE), "before the connection ends, it is no queue: {late}");
    let again = bench.io(id, HOST_NQN, 1, 1);
    for queue in queues {
        let outputs = bench.subsystem.disconnected(queue);
        bench.take(outputs);
    }
    bench.ok(again, read(1, 0, 1), &[]);
    // A shutdown ends the work, and leaves the queues in place.
    bench.closed.clear();
    bench.ok(admin, PropertySet::new(offset::CC, 0x0046_4061).entry(), &[]);
    assert_eq!(bench.closed, []);
}

#[test]
fn commands_that_a_reset_ends_give_their_places_back() {
    let mut bench = Bench::new(&[]);
    let (admin, _) = bench.host(HOST_NQN, 1, 5000);
    assert_eq!(bench.send(admin, command(AdminOpcode::ASYNC_EVENT.0, 0, [0; 6], 0), &[]), None);
    let request = bench.last_id;
    bench.ok(admin, PropertySet::new(offset::CC, 0x0046_0060).entry(), &[]);
    assert_eq!(bench.forgotten, [(admin, request)]);
}

#[test]
fn a_command_without_data_may_have_any_data_pointer() {
    let mut bench = Bench::new(&[]);
    let (admin, _) = bench.host(HOST_NQN, 1, 5000);
    let zeroes = |entry: SubmissionEntry| SubmissionEntry { data: Default::default(), ..entry };
    let queues = zeroes(feature(AdminOpcode::SET_FEATURES, FeatureId::NUMBER_OF_QUEUES, 0x0003_0005));
    bench.ok(admin, queues, &[]);
    let unload = LoadProgram { unload: true, ..LoadProgram::default() };
    let unload = zeroes(command(AdminOpcode::LOAD_PROGRAM.0, COMPUTE_NSID, unload.dwords(), 0));
    assert_eq!(bench.subsystem.data_wanted(admin, &unload), Ok(0));
}

#[test]
fn a_program_for_another_dataset_is_not_executed() {
    let mut bench = Bench::new(&[]);
    let (admin, controller_id) = bench.host(HOST_NQN, 1, 5000);
    let io = bench.io(controller_id, HOST_NQN, 1, 1);
    bench.load(admin, 0);
    let request = images::request(1, 1, vec![0]);
    let program = images::program(CorruptPolicy::Fail);
    let foreign = BatchRequest { program: program_id(&[8; 32], &images::encoded(&program)), ..request.clone() };
    let (entry, data) = execute(&foreign, 0);
    assert!(bench.status(io, entry, &data).same_code(Status::PROGRAM_NOT_ACTIVATED));
    let (entry, data) = execute(&request, 0);
    assert_eq!(bench.send(io, entry, &data), None, "it is executed");
}

#[test]
fn features_are_set_read_and_reset() {
    let mut bench = Bench::new(&[]);
    let (admin, _) = bench.host(HOST_NQN, 1, 5000);
    let get = |id| feature(AdminOpcode::GET_FEATURES, id, 0);
    assert_eq!(bench.ok(admin, get(FeatureId::KEEP_ALIVE_TIMER), &[]), 5000);
    let queues = feature(AdminOpcode::SET_FEATURES, FeatureId::NUMBER_OF_QUEUES, 0x0003_0005);
    assert_eq!(bench.ok(admin, queues, &[]), 0x0003_0003);
    let many = feature(AdminOpcode::SET_FEATURES, FeatureId::NUMBER_OF_QUEUES, 0x00FE_00FE);
    assert_eq!(bench.ok(admin, many, &[]) & 0xFFFF, u64::from(IO_QUEUES_MAX) - 1);
    bench.ok(admin, feature(AdminOpcode::SET_FEATURES, FeatureId::ASYNC_EVENT_CONFIGURATION, 0x100), &[]);
    assert_eq!(bench.ok(admin, get(FeatureId::ASYNC_EVENT_CONFIGURATION), &[]), 0x100);
    let behavior = command(AdminOpcode::SET_FEATURES.0, 0, [0x16, 0, 0, 0, 0, 0], 512);
    bench.ok(admin, behavior, &[5; 512]);
    bench.ok(admin, command(AdminOpcode::GET_FEATURES.0, 0, [0x16, 0, 0, 0, 0, 0], 512), &[]);
    assert_eq!(bench.data, [5; 512]);
    let supported = command(AdminOpcode::GET_FEATURES.0, 0, [0x307, 0, 0, 0, 0, 0], 0);
    assert_eq!(bench.ok(admin, supported, &[]), 0b100);
    bench.ok(admin, PropertySet::new(offset::CC, 0x0046_0060).entry(), &[]);
    bench.ok(admin, PropertySet::new(offset::CC, 0x0046_0061).entry(), &[]);
    assert_eq!(bench.ok(admin, get(FeatureId::ASYNC_EVENT_CONFIGURATION), &[]), 0);
    assert_eq!(bench.ok(admin, get(FeatureId::KEEP_ALIVE_TIMER), &[]), 5000);
}
