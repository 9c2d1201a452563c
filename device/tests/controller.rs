//! The subsystem by tables: each wrong command has its status, and what several hosts do stays apart.

mod host;

use ddlp_csd::log::{Counters, DriveIdentity};
use ddlp_device::controller::{Config, ConnId, Gauges, IO_QUEUES_MAX, Output, Payload, QUEUE_ENTRIES_MAX, Subsystem};
use ddlp_device::identity::Identity;
use ddlp_device::job::{JobEvent, JobId};
use ddlp_device::slots::Geometry;
use ddlp_nvme::admin::{GetLogPage, Identify, SetFeatures};
use ddlp_nvme::event::AsyncEvent;
use ddlp_nvme::fabrics::{
    CONTROLLER_ANY, ConnectCommand, ConnectData, ConnectFault, ConnectResult, Disconnect, PropertyGet, PropertySet,
};
use ddlp_nvme::log::{EffectsLog, ErrorEntry, SmartLog};
use ddlp_nvme::property::offset;
use ddlp_nvme::{AdminOpcode, Cns, Csi, FeatureId, LogId, NSID_ALL, Status, SubmissionEntry, view};
use host::{HOST_NQN, cancel, command, execute, images, read};
use std::sync::Arc;
use std::sync::atomic::{AtomicI16, Ordering};
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

const OTHER_HOST: &str = "nqn.2014-08.org.example:other";

#[derive(Default)]
struct Thermometer(AtomicI16);

impl Gauges for Thermometer {
    fn counters(&self) -> Counters {
        let tenths = self.0.load(Ordering::Relaxed);
        Counters { temperature_dc: (tenths != 0).then_some(tenths), ..Counters::default() }
    }
}

struct Bench {
    subsystem: Subsystem,
    nqn: String,
    thermometer: Arc<Thermometer>,
    now: Instant,
    last_conn: u64,
    last_id: u16,
    started: Vec<JobId>,
    cancelled: Vec<JobId>,
    closed: Vec<ConnId>,
    answers: Vec<(ConnId, u16, Status, u64)>,
    data: Vec<u8>,
}

impl Bench {
    fn new(allowed_hosts: &[&str]) -> Self {
        let identity = Identity::generate().unwrap();
        let thermometer = Arc::new(Thermometer::default());
        let drive = DriveIdentity {
            dataset: [1; 32],
            dataset_samples: 10,
            fingerprint: [2; 32],
            slot_bytes: 1 << 20,
            slots: 2,
            workers: 1,
        };
        let nqn = identity.nqn.clone();
        let subsystem = Subsystem::new(Config {
            identity,
            allowed_hosts: allowed_hosts.iter().map(|&nqn| nqn.to_owned()).collect(),
            dataset_blocks: 1000,
            geometry: Geometry { slots: 2, slot_bytes: 1 << 20 },
            drive,
            gauges: thermometer.clone(),
        });
        Self {
            subsystem,
            nqn,
            thermometer,
            now: Instant::now(),
            last_conn: 0,
            last_id: 0,
            started: Vec::new(),
            cancelled: Vec::new(),
            closed: Vec::new(),
            answers: Vec::new(),
            data: Vec::new(),
        }
    }

    fn take(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Complete { conn, completion, payload } => {
                    let id = completion.command_id.get();
                    self.answers.push((conn, id, completion.status(), completion.result.get()));
                    self.data = if let Payload::Bytes(bytes) = payload { bytes } else { Vec::new() };
                }
                Output::Start(job) => self.started.push(job.id),
                Output::Cancel(id) => self.cancelled.push(id),
                Output::Close(conn) => self.closed.push(conn),
                Output::Accepted { .. } => {}
            }
        }
    }

    fn conn(&mut self) -> ConnId {
        self.last_conn += 1;
        ConnId(self.last_conn)
    }

    /// Sends a command; its answer, if there is one at once.
    fn send(&mut self, conn: ConnId, mut entry: SubmissionEntry, data: &[u8]) -> Option<(Status, u64)> {
        self.last_id += 1;
        entry.command_id = self.last_id.into();
        self.answers.clear();
        let outputs = match self.subsystem.data_wanted(conn, &entry) {
            Ok(wanted) => self.subsystem.command(conn, &entry, &data[..wanted], self.now),
            Err(status) => self.subsystem.reject(conn, &entry, status),
        };
        self.take(outputs);
        let own = self.answers.iter().find(|answer| (answer.0, answer.1) == (conn, self.last_id));
        own.map(|&(_, _, status, result)| (status, result))
    }

    fn status(&mut self, conn: ConnId, entry: SubmissionEntry, data: &[u8]) -> Status {
        self.send(conn, entry, data).expect("answered at once").0
    }

    fn ok(&mut self, conn: ConnId, entry: SubmissionEntry, data: &[u8]) -> u64 {
        let (status, result) = self.send(conn, entry, data).expect("answered at once");
        assert_eq!(status, Status::SUCCESS, "{entry:?}: {status}");
        result
    }

    /// An enabled controller: its admin connection and identifier.
    fn host(&mut self, nqn: &str, id: u8, keep_alive_ms: u32) -> (ConnId, u16) {
        let conn = self.conn();
        let data = ConnectData::new([id; 16], CONTROLLER_ANY, &self.nqn, nqn).unwrap();
        let result = self.ok(conn, ConnectCommand::new(0, 31, keep_alive_ms, false).entry(), data.as_bytes());
        self.ok(conn, PropertySet::new(offset::CC, 0x0046_0061).entry(), &[]);
        (conn, ConnectResult::from_result(result).controller_id)
    }

    fn queue(&mut self, controller_id: u16, nqn: &str, id: u8, queue_id: u16) -> (ConnId, (Status, u64)) {
        let conn = self.conn();
        let data = ConnectData::new([id; 16], controller_id, &self.nqn, nqn).unwrap();
        let answer = self.send(conn, ConnectCommand::new(queue_id, 63, 0, true).entry(), data.as_bytes());
        (conn, answer.unwrap())
    }

    fn io(&mut self, controller_id: u16, nqn: &str, id: u8, queue_id: u16) -> ConnId {
        let (conn, (status, _)) = self.queue(controller_id, nqn, id, queue_id);
        assert_eq!(status, Status::SUCCESS);
        conn
    }

    fn load(&mut self, admin: ConnId, index: u16) {
        let program = images::program(ddlp_csd::program::CorruptPolicy::Fail).to_bytes().unwrap();
        let load = ddlp_nvme::cp::LoadProgram {
            index,
            kind: ddlp_csd::PROGRAM_TYPE,
            program_bytes: program.len() as u32,
            bytes: program.len() as u32,
            ..Default::default()
        };
        self.ok(admin, command(0x85, 3, load.dwords(), program.len()), &program);
        self.ok(admin, activation(index, 1), &[]);
    }
}

fn activation(index: u16, select: u8) -> SubmissionEntry {
    command(0x88, 3, ddlp_nvme::cp::ProgramActivation { index, select }.dwords(), 0)
}

fn log_page(log: u8, csi: Csi, bytes: u32, retain_event: bool) -> SubmissionEntry {
    let page = GetLogPage { retain_event, ..GetLogPage::new(LogId(log), csi, 0, bytes) };
    command(AdminOpcode::GET_LOG_PAGE.0, NSID_ALL, page.dwords(), bytes as usize)
}

fn feature(opcode: AdminOpcode, feature: FeatureId, value: u32) -> SubmissionEntry {
    command(opcode.0, 0, SetFeatures { feature, value, ..SetFeatures::default() }.dwords(), 0)
}

fn identify(cns: Cns, nsid: u32, csi: Csi) -> SubmissionEntry {
    command(AdminOpcode::IDENTIFY.0, nsid, Identify { cns, csi, ..Identify::default() }.dwords(), 4096)
}

#[test]
fn connect_refuses_what_is_wrong_and_says_where() {
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
    let conn = bench.conn();
    assert!(bench.status(conn, read(1, 0, 1), &[]).same_code(Status::COMMAND_SEQUENCE), "before Connect");
    let (conn, _) = bench.host(HOST_NQN, 1, 0);
    let again = bench.status(conn, good.entry(), data(CONTROLLER_ANY, &nqn, HOST_NQN).as_bytes());
    assert!(again.same_code(Status::COMMAND_SEQUENCE), "connected twice");
}

#[test]
fn io_queues_belong_to_their_host_and_number() {
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
        (identify(Cns::NAMESPACE, 3, Csi::NVM), Status::IO_COMMAND_SET_UNSUPPORTED),
        (identify(Cns::CSI_NAMESPACE, 1, Csi::COMPUTE), Status::IO_COMMAND_SET_UNSUPPORTED),
        (identify(Cns::CSI_CONTROLLER, 0, Csi::ZONED), Status::IO_COMMAND_SET_UNSUPPORTED),
        (identify(Cns::NAMESPACE_DESCRIPTORS, 0, Csi::NVM), Status::INVALID_NAMESPACE),
        (identify(Cns::ACTIVE_NAMESPACES, NSID_ALL, Csi::NVM), Status::INVALID_NAMESPACE),
        (identify(Cns(0x7E), 0, Csi::NVM), Status::INVALID_FIELD),
        (log_page(0x70, Csi::NVM, 512, true), Status::INVALID_LOG_PAGE),
        (log_page(LogId::EFFECTS.0, Csi::ZONED, 4096, true), Status::IO_COMMAND_SET_UNSUPPORTED),
        (log(odd), Status::INVALID_FIELD),
        (log(beyond), Status::INVALID_FIELD),
        (command(AdminOpcode::SET_FEATURES.0, 0, save.dwords(), 0), Status::FEATURE_NOT_SAVEABLE),
        (feature(AdminOpcode::SET_FEATURES, FeatureId::NUMBER_OF_QUEUES, 0xFFFF), Status::INVALID_FIELD),
        (feature(AdminOpcode::GET_FEATURES, FeatureId(0x7F), 0), Status::INVALID_FIELD),
        (activation(9, 1), Status::INVALID_PROGRAM_INDEX),
        (activation(0, 1), Status::NO_PROGRAM),
        (activation(0, 2), Status::INVALID_FIELD),
        (command(0x88, 1, [0; 6], 0), Status::INVALID_NAMESPACE),
        (command(ddlp_csd::CANCEL_OPCODE, 0, [0, 0, 1, 0, 0, 0], 0), Status::INVALID_FIELD),
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
        (command(0x08, 2, [0; 6], 0), Status::WRITE_PROTECTED),
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
        (with(|entry| entry.cdw2 = 8.into()), Status::INVALID_PROGRAM_INDEX),
        (with(|entry| entry.cdw2 = 0x0001_0000.into()), Status::INVALID_FIELD),
        (with(|entry| entry.cdw3 = 1.into()), Status::INVALID_FIELD),
        (with(|entry| entry.cdw10_15[0] = 9.into()), Status::INVALID_FIELD),
        (with(|entry| entry.cdw10_15[1] = 9.into()), Status::INVALID_FIELD),
        (with(|entry| entry.cdw10_15[2] = 0.into()), Status::INVALID_FIELD),
        (with(|entry| entry.data.length = 72.into()), Status::INVALID_PROGRAM_DATA),
        (with(|entry| entry.data.length = (1 << 20).into()), Status::SGL_DATA_LENGTH),
        (with(|entry| entry.data.kind = 0), Status::SGL_DESCRIPTOR_TYPE),
    ];
    for (entry, status) in cases {
        let found = bench.status(queue, entry, &data);
        assert!(found.same_code(status), "{entry:?}: {found}, {status} expected");
    }
    // One more sample than a slot of 1 MiB holds, and a slot that there is not.
    let many = images::request(1, 1, (0..342).collect());
    let (entry, data) = execute(&many, 0);
    assert!(bench.status(queue, entry, &data).same_code(Status::INVALID_FIELD));
    let (entry, data) = execute(&images::request(1, 2, vec![0]), 0);
    assert!(bench.status(queue, entry, &data).same_code(Status::INVALID_FIELD));
    assert!(bench.started.is_empty());
    assert_eq!(bench.subsystem.counters().errors, 2 + 9 + 2);
}

/// Starts a batch; its job.
fn start(bench: &mut Bench, queue: ConnId, batch: u32, slot: u32) -> JobId {
    let (entry, data) = execute(&images::request(batch, slot, vec![0]), 0);
    assert_eq!(bench.send(queue, entry, &data), None);
    *bench.started.last().unwrap()
}

#[test]
fn hosts_stay_apart() {
    let mut bench = Bench::new(&[]);
    let (admin_a, a) = bench.host(HOST_NQN, 1, 0);
    let (admin_b, b) = bench.host(OTHER_HOST, 2, 0);
    assert_ne!(a, b);
    bench.load(admin_a, 0);
    let (queue_a, queue_b) = (bench.io(a, HOST_NQN, 1, 1), bench.io(b, OTHER_HOST, 2, 1));
    let (entry, data) = execute(&images::request(5, 1, vec![0]), 0);
    assert!(bench.status(queue_b, entry, &data).same_code(Status::NO_PROGRAM), "programs are the host's own");
    bench.load(admin_b, 0);
    let job_a = start(&mut bench, queue_a, 5, 0);
    let job_b = start(&mut bench, queue_b, 5, 1);
    assert_eq!(bench.ok(admin_b, cancel(3, 5), &[]), 1, "only its own");
    assert_eq!(bench.cancelled, [job_b]);
    // One association ends; the other goes on.
    let outputs = bench.subsystem.disconnected(admin_b);
    bench.take(outputs);
    assert_eq!(bench.closed, [queue_b, admin_b]);
    bench.answers.clear();
    let outputs = bench.subsystem.job_event(JobEvent::Released { id: job_b });
    bench.take(outputs);
    assert!(bench.answers.is_empty(), "nobody waits for it");
    let outputs = bench.subsystem.job_event(JobEvent::Done { id: job_a, corrupt: 4 });
    bench.take(outputs);
    assert_eq!((bench.answers[0].0, bench.answers[0].2, bench.answers[0].3), (queue_a, Status::SUCCESS, 4));
    assert!(bench.subsystem.is_idle());
}

#[test]
fn a_multipath_host_executes_on_either_association() {
    let mut bench = Bench::new(&[]);
    let (admin_a, _) = bench.host(HOST_NQN, 1, 0);
    let (_, b) = bench.host(HOST_NQN, 1, 0);
    bench.load(admin_a, 0);
    let queue_b = bench.io(b, HOST_NQN, 1, 1);
    let job = start(&mut bench, queue_b, 5, 0);
    assert_eq!(bench.ok(admin_a, cancel(3, 5), &[]), 1, "cancelled through the other one");
    assert_eq!(bench.cancelled, [job]);
}

#[test]
fn a_reset_gives_up_work_and_programs() {
    let mut bench = Bench::new(&[]);
    let (admin, id) = bench.host(HOST_NQN, 1, 0);
    bench.load(admin, 0);
    let queue = bench.io(id, HOST_NQN, 1, 1);
    let job = start(&mut bench, queue, 1, 0);
    assert!(bench.status(admin, activation(0, 0), &[]).same_code(Status::PROGRAM_IN_USE));
    bench.ok(admin, PropertySet::new(offset::CC, 0x0046_0060).entry(), &[]);
    assert_eq!(bench.cancelled, [job]);
    assert!(bench.status(queue, read(1, 0, 1), &[]).same_code(Status::COMMAND_SEQUENCE), "disabled");
    bench.ok(admin, PropertySet::new(offset::CC, 0x0046_0061).entry(), &[]);
    assert!(bench.status(admin, activation(0, 1), &[]).same_code(Status::NO_PROGRAM));
}

#[test]
fn keep_alive_ends_silent_associations_only() {
    let mut bench = Bench::new(&[]);
    let (silent, silent_id) = bench.host(HOST_NQN, 1, 1500);
    let (talking, talking_id) = bench.host(OTHER_HOST, 2, 1500);
    let (patient, _) = bench.host(OTHER_HOST, 3, 0);
    let (queue, busy) = (bench.io(silent_id, HOST_NQN, 1, 1), bench.io(talking_id, OTHER_HOST, 2, 1));
    bench.now += Duration::from_millis(1900);
    bench.ok(busy, command(0x00, NSID_ALL, [0; 6], 0), &[]);
    let outputs = bench.subsystem.tick(bench.now);
    assert!(outputs.is_empty(), "the time-out is rounded up to whole seconds");
    bench.now += Duration::from_millis(200);
    let outputs = bench.subsystem.tick(bench.now);
    bench.take(outputs);
    assert_eq!(bench.closed, [queue, silent]);
    bench.now += Duration::from_secs(3600);
    let outputs = bench.subsystem.tick(bench.now);
    bench.take(outputs);
    assert_eq!(bench.closed[2..], [busy, talking]);
    bench.ok(patient, command(0x18, 0, [0; 6], 0), &[]);
}

#[test]
fn a_hot_drive_says_so_once_until_its_log_is_read() {
    let mut bench = Bench::new(&[]);
    let (admin, _) = bench.host(HOST_NQN, 1, 0);
    bench.ok(admin, feature(AdminOpcode::SET_FEATURES, FeatureId::ASYNC_EVENT_CONFIGURATION, 2), &[]);
    for _ in 0..4 {
        assert_eq!(bench.send(admin, command(0x0C, 0, [0; 6], 0), &[]), None);
    }
    let fifth = bench.status(admin, command(0x0C, 0, [0; 6], 0), &[]);
    assert!(fifth.same_code(Status::ASYNC_EVENT_LIMIT));
    bench.answers.clear();
    bench.thermometer.0.store(901, Ordering::Relaxed);
    for _ in 0..2 {
        let outputs = bench.subsystem.tick(bench.now);
        bench.take(outputs);
    }
    assert_eq!(bench.answers.len(), 1);
    let event = AsyncEvent::from_result(bench.answers[0].3);
    assert_eq!((event.kind, event.info, event.log), (AsyncEvent::SMART, 1, LogId::SMART));
    bench.ok(admin, log_page(LogId::SMART.0, Csi::NVM, 512, true), &[]);
    let smart = *SmartLog::parse(&bench.data).unwrap();
    assert_eq!((smart.temperature_k.get(), smart.critical_warning), (363, 2));
    let outputs = bench.subsystem.tick(bench.now);
    assert!(outputs.is_empty(), "read with the event retained");
    bench.ok(admin, log_page(LogId::SMART.0, Csi::NVM, 512, false), &[]);
    bench.answers.clear();
    let outputs = bench.subsystem.tick(bench.now);
    bench.take(outputs);
    assert_eq!(bench.answers.len(), 1, "armed again");
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
    assert_eq!((bench.data[0], bench.data[8]), (8, 1));
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

#[test]
fn the_number_of_associations_is_bounded() {
    let mut bench = Bench::new(&[]);
    for _ in 0..ddlp_device::controller::ASSOCIATIONS_MAX {
        bench.host(HOST_NQN, 1, 0);
    }
    let conn = bench.conn();
    let data = ConnectData::new([1; 16], CONTROLLER_ANY, &bench.nqn, HOST_NQN).unwrap();
    let status = bench.status(conn, ConnectCommand::new(0, 31, 0, false).entry(), data.as_bytes());
    assert_eq!(status, Status::CONTROLLER_BUSY, "to be tried again");
}
