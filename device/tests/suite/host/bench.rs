//! A subsystem without transport and workers, driven command by command.

use super::{command, images};
use ddlp_csd::log::{Counters, DriveIdentity};
use ddlp_device::controller::{Config, ConnId, ConnectRefusal, Gauges, Payload, Subsystem, SubsystemOutput};
use ddlp_device::identity::AgentIdentity;
use ddlp_device::job::JobId;
use ddlp_device::slots::Geometry;
use ddlp_nvme::admin::{GetLogPage, Identify, SetFeatures};
use ddlp_nvme::fabrics::{CONTROLLER_ANY, ConnectCommand, ConnectData, ConnectResult, PropertySet};
use ddlp_nvme::property::offset;
use ddlp_nvme::{AdminOpcode, Cns, Csi, FeatureId, LogId, NSID_ALL, Status, SubmissionEntry};
use std::sync::Arc;
use std::sync::atomic::{AtomicI16, Ordering};
use std::time::Instant;
use zerocopy::IntoBytes;

/// Address at which hosts reach the subsystem.
pub const REACHED: &str = "192.0.2.7:4420";
pub const OTHER_HOST: &str = "nqn.2014-08.org.example:other";

#[derive(Default)]
pub struct Thermometer(pub AtomicI16);

impl Gauges for Thermometer {
    fn counters(&self) -> Counters {
        let tenths = self.0.load(Ordering::Relaxed);
        Counters { temperature_dc: (tenths != 0).then_some(tenths), ..Counters::default() }
    }
}

/// A subsystem and its outputs so far.
pub struct Bench {
    pub subsystem: Subsystem,
    pub nqn: String,
    pub thermometer: Arc<Thermometer>,
    pub now: Instant,
    pub last_conn: u64,
    pub last_id: u16,
    pub started: Vec<JobId>,
    pub cancelled: Vec<JobId>,
    pub closed: Vec<ConnId>,
    pub forgotten: Vec<(ConnId, u16)>,
    pub refused: Vec<(ConnId, String, ConnectRefusal)>,
    pub answers: Vec<(ConnId, u16, Status, u64)>,
    pub data: Vec<u8>,
}

impl Bench {
    pub fn new(allowed_hosts: &[&str]) -> Self {
        Self::with_slots(allowed_hosts, 2)
    }

    pub fn with_slots(allowed_hosts: &[&str], slots: u32) -> Self {
        let identity = AgentIdentity::generate().unwrap();
        let thermometer = Arc::new(Thermometer::default());
        let drive = DriveIdentity {
            dataset: images::DATASET,
            dataset_samples: 10,
            abilities: ddlp_dataset::abilities().to_vec(),
            agent: [0; 16],
            slot_bytes: 1 << 20,
            slots,
            workers: 1,
        };
        let nqn = identity.nqn.clone();
        let subsystem = Subsystem::new(Config {
            identity,
            allowed_hosts: allowed_hosts.iter().map(|&nqn| nqn.to_owned()).collect(),
            dataset_blocks: 1000,
            geometry: Geometry { slots, slot_bytes: 1 << 20 },
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
            forgotten: Vec::new(),
            refused: Vec::new(),
            answers: Vec::new(),
            data: Vec::new(),
        }
    }

    pub fn take(&mut self, outputs: Vec<SubsystemOutput>) {
        for output in outputs {
            match output {
                SubsystemOutput::Complete { conn, completion, payload } => {
                    let id = completion.command_id.get();
                    self.answers.push((conn, id, completion.status(), completion.result.get()));
                    self.data = page(payload).unwrap_or_default();
                }
                SubsystemOutput::Start(job) => self.started.push(job.id),
                SubsystemOutput::Cancel(id) => self.cancelled.push(id),
                SubsystemOutput::Forget { conn, command_id } => self.forgotten.push((conn, command_id)),
                SubsystemOutput::Close(conn) => self.closed.push(conn),
                SubsystemOutput::Refused { conn, host_nqn, reason } => self.refused.push((conn, host_nqn, reason)),
                SubsystemOutput::Accepted { .. } => {}
            }
        }
    }

    pub fn conn(&mut self) -> ConnId {
        self.last_conn += 1;
        self.subsystem.opened(ConnId(self.last_conn), REACHED.parse().unwrap());
        ConnId(self.last_conn)
    }

    /// Sends a command. Returns its answer, if it comes at once.
    pub fn send(&mut self, conn: ConnId, mut entry: SubmissionEntry, data: &[u8]) -> Option<(Status, u64)> {
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

    pub fn status(&mut self, conn: ConnId, entry: SubmissionEntry, data: &[u8]) -> Status {
        self.send(conn, entry, data).expect("answered at once").0
    }

    pub fn ok(&mut self, conn: ConnId, entry: SubmissionEntry, data: &[u8]) -> u64 {
        let (status, result) = self.send(conn, entry, data).expect("answered at once");
        assert_eq!(status, Status::SUCCESS, "{entry:?}: {status}");
        result
    }

    /// Connects and enables a controller. Returns its admin connection and identifier.
    pub fn host(&mut self, nqn: &str, id: u8, keep_alive_ms: u32) -> (ConnId, u16) {
        let conn = self.conn();
        let data = ConnectData::new([id; 16], CONTROLLER_ANY, &self.nqn, nqn).unwrap();
        let result = self.ok(conn, ConnectCommand::new(0, 31, keep_alive_ms, false).entry(), data.as_bytes());
        self.ok(conn, PropertySet::new(offset::CC, 0x0046_0061).entry(), &[]);
        (conn, ConnectResult::from_result(result).controller_id)
    }

    pub fn queue(&mut self, controller_id: u16, nqn: &str, id: u8, queue_id: u16) -> (ConnId, (Status, u64)) {
        let conn = self.conn();
        let data = ConnectData::new([id; 16], controller_id, &self.nqn, nqn).unwrap();
        let answer = self.send(conn, ConnectCommand::new(queue_id, 63, 0, true).entry(), data.as_bytes());
        (conn, answer.unwrap())
    }

    pub fn io(&mut self, controller_id: u16, nqn: &str, id: u8, queue_id: u16) -> ConnId {
        let (conn, (status, _)) = self.queue(controller_id, nqn, id, queue_id);
        assert_eq!(status, Status::SUCCESS);
        conn
    }

    pub fn load(&mut self, admin: ConnId, index: u16) {
        let program = images::encoded(&images::program(ddlp_csd::program::CorruptPolicy::Fail));
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

/// Returns a page with its zeros.
pub fn page(payload: Payload) -> Option<Vec<u8>> {
    let Payload::Page { mut bytes, zeros } = payload else { return None };
    bytes.resize(bytes.len() + zeros, 0);
    Some(bytes)
}

pub fn activation(index: u16, select: u8) -> SubmissionEntry {
    command(0x88, 3, ddlp_nvme::cp::ProgramActivation { index, select }.dwords(), 0)
}

pub fn log_page(log: u8, csi: Csi, bytes: u32, retain_event: bool) -> SubmissionEntry {
    let page = GetLogPage { retain_event, ..GetLogPage::new(LogId(log), csi, 0, bytes) };
    command(AdminOpcode::GET_LOG_PAGE.0, NSID_ALL, page.dwords(), bytes as usize)
}

pub fn feature(opcode: AdminOpcode, feature: FeatureId, value: u32) -> SubmissionEntry {
    command(opcode.0, 0, SetFeatures { feature, value, ..SetFeatures::default() }.dwords(), 0)
}

pub fn identify(cns: Cns, nsid: u32, csi: Csi) -> SubmissionEntry {
    command(AdminOpcode::IDENTIFY.0, nsid, Identify { cns, csi, ..Identify::default() }.dwords(), 4096)
}
