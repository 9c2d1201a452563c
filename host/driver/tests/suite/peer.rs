//! A scripted controller on a loopback socket, for behaviour that a real one never shows. It brings itself up
//! correctly, serves one namespace whose bytes are a pattern, and offers every command to the script first.

use ddlp_driver::tcp::TcpTarget;
use ddlp_nvme::admin::{GetLogPage, Identify, NumberOfQueues};
use ddlp_nvme::cp::LoadProgram;
use ddlp_nvme::fabrics::{ConnectCommand, ConnectResult, PropertyGet, PropertySet, fabrics_type};
use ddlp_nvme::identify::{IdentifyController, IdentifyNamespace};
use ddlp_nvme::io::BlockRange;
use ddlp_nvme::property::{Capabilities, Configuration, ControllerStatus, offset};
use ddlp_nvme::tcp::encode::DataPiece;
use ddlp_nvme::tcp::{
    Alignment, CapsuleResponse, ConnectionPhase, DataDigest, DataHeader, Digests, FatalError, HeaderDecoder, IcResp,
    Pdu, PduLimits, ReadyToTransfer, Role,
};
use ddlp_nvme::{AdminOpcode, Cns, CompletionEntry, FABRICS_OPCODE, FabricsType, IoOpcode, Status, SubmissionEntry};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use zerocopy::IntoBytes;

pub const NQN: &str = "nqn.2024-01.org.example:peer";
pub const NSID: u32 = 2;
pub const BLOCK: usize = 4096;
pub const BLOCKS: u64 = 4096;
pub const CONTROLLER: u16 = 7;
/// Long enough for any machine: a test that waits this long has failed.
pub const LONG: Duration = Duration::from_secs(30);

/// Events that the peer reports.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    Connected(u16),
    Terminated(FatalError),
    KeepAlive,
    ShutdownAsked,
    Closed(u16),
    /// A mark that a script sets.
    Mark(u64),
}

/// A command with its in-capsule data.
pub struct Received {
    pub queue_id: u16,
    pub entry: SubmissionEntry,
    pub data: Vec<u8>,
}

impl Received {
    pub fn cid(&self) -> u16 {
        self.entry.command_id.get()
    }

    pub fn is(&self, opcode: AdminOpcode) -> bool {
        self.queue_id == 0 && self.entry.opcode == opcode.0
    }

    pub fn is_read(&self) -> bool {
        self.queue_id > 0 && self.entry.opcode == IoOpcode::READ.0
    }

    pub fn is_execute(&self) -> bool {
        self.queue_id > 0 && self.entry.opcode == 1
    }
}

/// Whether the script answered a command itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Handled {
    Yes,
    No,
    /// The script asks the peer to close this connection.
    Close,
}

type Script = dyn Fn(&mut Wire, &Received) -> Handled + Send + Sync;

#[derive(Clone)]
pub struct Config {
    pub mdts: u8,
    /// In-capsule data size (IOCCSZ), in units of 16 bytes.
    pub capsule: u32,
    pub flow_control_can_be_off: bool,
    pub data_piece: usize,
    pub h2c_bytes_max: u32,
    pub ic_resp: Option<IcResp>,
    pub never_ready: bool,
    pub connect_status: Status,
    pub io_queues: u16,
    /// Commands that a queue takes (MAXCMD). A longer queue is refused.
    pub commands: u16,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mdts: 6,
            capsule: 4 + 64,
            flow_control_can_be_off: true,
            data_piece: 100_000,
            h2c_bytes_max: 8192,
            ic_resp: None,
            never_ready: false,
            connect_status: Status::SUCCESS,
            io_queues: 4,
            commands: 64,
        }
    }
}

#[derive(Default)]
pub struct Shared {
    cc: Mutex<u32>,
    /// The program that Load Program brought.
    pub program: Mutex<Vec<u8>>,
}

pub struct Peer {
    pub address: SocketAddr,
    events: Receiver<Event>,
    pub shared: Arc<Shared>,
}

impl Peer {
    pub fn start(config: Config, script: impl Fn(&mut Wire, &Received) -> Handled + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, events) = channel();
        let shared = Arc::new(Shared::default());
        let script: Arc<Script> = Arc::new(script);
        let for_thread = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (config, sender) = (config.clone(), sender.clone());
                let (script, shared) = (Arc::clone(&script), Arc::clone(&for_thread));
                std::thread::spawn(move || serve(stream.unwrap(), config, sender, &*script, &shared));
            }
        });
        Self { address, events, shared }
    }

    /// Starts a peer without a script.
    pub fn honest(config: Config) -> Self {
        Self::start(config, |_, _| Handled::No)
    }

    pub fn target(&self) -> TcpTarget {
        let mut target = TcpTarget::new(&self.address.to_string(), NQN).unwrap();
        target.connect_timeout = LONG;
        target.io_timeout = LONG;
        target.keep_alive = Duration::ZERO;
        target
    }

    /// Waits for an event that `wanted` accepts; drops the others.
    pub fn wait_for(&self, wanted: impl Fn(&Event) -> bool) -> Event {
        loop {
            let event = self.events.recv_timeout(LONG).expect("the peer sees what the test waits for");
            if wanted(&event) {
                return event;
            }
        }
    }

    pub fn wait_for_termination(&self) -> FatalError {
        match self.wait_for(|event| matches!(event, Event::Terminated(_))) {
            Event::Terminated(fatal) => fatal,
            _ => unreachable!(),
        }
    }
}

/// One connection from the peer's side.
pub struct Wire {
    pub stream: TcpStream,
    decoder: HeaderDecoder,
    pub digests: Digests,
    pub config: Config,
    events: Sender<Event>,
    /// Commands that came while the peer waited for data.
    pending: VecDeque<(Pdu, Vec<u8>)>,
}

impl Wire {
    /// Returns the next PDU; PDUs that had to wait come first.
    fn next(&mut self) -> Option<(Pdu, Vec<u8>)> {
        self.pending.pop_front().or_else(|| self.receive())
    }

    fn receive(&mut self) -> Option<(Pdu, Vec<u8>)> {
        loop {
            let space = self.decoder.space();
            let count = match self.stream.read(space) {
                Ok(0) | Err(_) => return None,
                Ok(count) => count,
            };
            let Some(incoming) = self.decoder.advance(count).expect("the driver sends sound pdus") else { continue };
            let mut data = vec![0; incoming.data_bytes as usize];
            self.stream.read_exact(&mut data).ok()?;
            if incoming.data_digest {
                let mut received = [0; 4];
                self.stream.read_exact(&mut received).ok()?;
                let mut digest = DataDigest::new();
                digest.update(&data);
                assert_eq!(digest.wire(), received, "the driver's data digest");
            }
            return Some((incoming.pdu, data));
        }
    }

    /// Returns the next H2CData.
    pub fn host_data(&mut self) -> (DataHeader, Vec<u8>) {
        loop {
            match self.receive() {
                Some((Pdu::Data(header), data)) => return (header, data),
                Some(other) => self.pending.push_back(other),
                None => panic!("the end instead of data"),
            }
        }
    }

    pub fn mark(&self, mark: u64) {
        let _ = self.events.send(Event::Mark(mark));
    }

    pub fn raw(&mut self, bytes: &[u8]) {
        // The driver may have closed the connection already.
        let _ = self.stream.write_all(bytes);
    }

    pub fn respond(&mut self, cid: u16, status: Status, result: u64) {
        self.respond_entry(&CompletionEntry::new(cid, status, result));
    }

    fn respond_entry(&mut self, entry: &CompletionEntry) {
        let pdu = CapsuleResponse::encode(entry, self.digests);
        self.raw(&pdu);
    }

    pub fn data(&mut self, cid: u16, offset: usize, bytes: &[u8], last: bool, success: bool) {
        self.data_with(cid, offset, bytes, last, success, 0);
    }

    /// Sends data, with the data digest changed by `damage`.
    pub fn data_with(&mut self, cid: u16, offset: usize, bytes: &[u8], last: bool, success: bool, damage: u8) {
        let piece = DataPiece { command_id: cid, offset: offset as u32, length: bytes.len() as u32, last };
        let mut pdu = piece.encode_to_host(success, self.digests, Alignment::NONE).to_vec();
        pdu.extend_from_slice(bytes);
        if self.digests.data {
            let mut digest = DataDigest::new();
            digest.update(bytes);
            pdu.extend(digest.wire().map(|byte| byte ^ damage));
        }
        self.raw(&pdu);
    }

    pub fn r2t(&mut self, cid: u16, tag: u16, offset: usize, length: usize) {
        let pdu = ReadyToTransfer::encode(cid, tag, offset as u32, length as u32, self.digests);
        self.raw(&pdu);
    }

    /// Sends all data of a read, and its response.
    pub fn answer_read(&mut self, cid: u16, bytes: &[u8], success_flag: bool) {
        let pieces = bytes.chunks(self.config.data_piece);
        let count = pieces.len();
        for (index, piece) in pieces.enumerate() {
            let last = index + 1 == count;
            self.data(cid, index * self.config.data_piece, piece, last, success_flag && last);
        }
        if !success_flag {
            self.respond(cid, Status::SUCCESS, 0);
        }
    }
}

/// Returns bytes of the namespace.
pub fn pattern(lba: u64, bytes: usize) -> Vec<u8> {
    let start = lba * BLOCK as u64;
    (start..start + bytes as u64).map(|at| (at ^ (at >> 8) ^ (at >> 16)).wrapping_mul(0x9D) as u8).collect()
}

/// Returns bytes of the log page.
pub fn log_page(offset: u64, bytes: usize) -> Vec<u8> {
    (offset..offset + bytes as u64).map(|at| (at ^ (at >> 8)) as u8).collect()
}

fn serve(stream: TcpStream, config: Config, events: Sender<Event>, script: &Script, shared: &Shared) {
    stream.set_nodelay(true).unwrap();
    let limits = PduLimits { capsule_bytes_max: 8192, data_bytes_max: config.h2c_bytes_max };
    let decoder = HeaderDecoder::new(Role::Controller, limits);
    let mut wire = Wire { stream, decoder, digests: Digests::NONE, config, events, pending: VecDeque::new() };
    let Some((Pdu::IcReq(request), _)) = wire.next() else { return };
    request.check().unwrap();
    let response = wire.config.ic_resp.unwrap_or(IcResp::new(request.digests(), wire.config.h2c_bytes_max));
    wire.raw(&response.encode());
    wire.digests = request.digests();
    wire.decoder.set_phase(ConnectionPhase::Ready(request.digests()));
    let mut queue_id = 0;
    let mut success_flag = false;
    while let Some((pdu, data)) = wire.next() {
        let entry = match pdu {
            Pdu::Command(entry) => entry,
            Pdu::Terminate(fatal) => {
                let _ = wire.events.send(Event::Terminated(fatal));
                continue;
            }
            // Ignore data that nobody requested: the script that provoked them has already seen its effect.
            Pdu::Data(_) => continue,
            other => panic!("{other:?} out of place"),
        };
        let received = Received { queue_id, entry, data };
        match script(&mut wire, &received) {
            Handled::Yes => continue,
            Handled::Close => break,
            Handled::No => {}
        }
        if entry.opcode == FABRICS_OPCODE {
            fabrics(&mut wire, &received, shared, &mut queue_id, &mut success_flag);
        } else if queue_id == 0 {
            admin(&mut wire, &received, shared);
        } else {
            io(&mut wire, &received, success_flag);
        }
    }
    let _ = wire.events.send(Event::Closed(queue_id));
}

fn fabrics(wire: &mut Wire, received: &Received, shared: &Shared, queue_id: &mut u16, success_flag: &mut bool) {
    let entry = &received.entry;
    let cid = received.cid();
    match fabrics_type(entry) {
        FabricsType::CONNECT => {
            let command = ConnectCommand::view(entry);
            *queue_id = command.queue_id.get();
            *success_flag = command.no_flow_control() && wire.config.flow_control_can_be_off;
            let result = ConnectResult { controller_id: CONTROLLER, authentication_required: false }.result();
            let is_too_long = *queue_id > 0 && command.sq_size_z.get() > wire.config.commands;
            let status = if is_too_long { Status::CONNECT_PARAMETERS } else { wire.config.connect_status };
            let mut response = CompletionEntry::new(cid, status, result);
            if *success_flag {
                response.sq_head = u16::MAX.into();
            }
            wire.respond_entry(&response);
            let _ = wire.events.send(Event::Connected(*queue_id));
        }
        FabricsType::PROPERTY_GET => {
            let cc = Configuration(*shared.cc.lock().unwrap());
            let shutdown = if cc.shutdown() == 0 { 0 } else { ControllerStatus::SHUTDOWN_COMPLETE };
            let csts = ControllerStatus::default().with_ready(cc.enabled() && !wire.config.never_ready);
            let value = match PropertyGet::view(entry).offset.get() {
                offset::CAP => {
                    Capabilities::default().with_queue_entries_max_z(127).with_timeout(1).with_io_command_sets(true).0
                }
                offset::CC => cc.0.into(),
                offset::CSTS => csts.with_shutdown(shutdown).0.into(),
                offset::VS => ddlp_nvme::property::VERSION_2_1.into(),
                other => panic!("property {other:#x}"),
            };
            wire.respond(cid, Status::SUCCESS, value);
        }
        FabricsType::PROPERTY_SET => {
            let command = PropertySet::view(entry);
            assert_eq!(command.offset.get(), offset::CC);
            let value = Configuration(command.value.get() as u32);
            *shared.cc.lock().unwrap() = value.0;
            wire.respond(cid, Status::SUCCESS, 0);
            if value.shutdown() != 0 {
                let _ = wire.events.send(Event::ShutdownAsked);
            }
        }
        other => panic!("{other}"),
    }
}

fn admin(wire: &mut Wire, received: &Received, shared: &Shared) {
    let entry = &received.entry;
    let cid = received.cid();
    match AdminOpcode(entry.opcode) {
        AdminOpcode::IDENTIFY => {
            let page = identify(Identify::parse(entry), &wire.config);
            wire.answer_read(cid, &page, false);
        }
        AdminOpcode::SET_FEATURES => {
            let granted_z = wire.config.io_queues - 1;
            let granted = NumberOfQueues { submission_z: granted_z, completion_z: granted_z };
            wire.respond(cid, Status::SUCCESS, granted.value().into());
        }
        AdminOpcode::KEEP_ALIVE => {
            wire.respond(cid, Status::SUCCESS, 0);
            let _ = wire.events.send(Event::KeepAlive);
        }
        AdminOpcode::GET_LOG_PAGE => {
            let request = GetLogPage::parse(entry);
            wire.answer_read(cid, &log_page(request.offset, request.bytes() as usize), false);
        }
        AdminOpcode::LOAD_PROGRAM => {
            let request = LoadProgram::parse(entry);
            let mut program = shared.program.lock().unwrap();
            let sound = program.len() == request.offset as usize && received.data.len() == request.bytes as usize;
            program.extend_from_slice(&received.data);
            wire.respond(cid, if sound { Status::SUCCESS } else { Status::INVALID_PROGRAM_DATA }, 0);
        }
        AdminOpcode::PROGRAM_ACTIVATION => wire.respond(cid, Status::SUCCESS, 0),
        _ => wire.respond(cid, Status::INVALID_OPCODE.do_not_retry(), 0),
    }
}

fn identify(request: Identify, config: &Config) -> Vec<u8> {
    if request.cns == Cns::NAMESPACE {
        let mut namespace = IdentifyNamespace::zeroed();
        namespace.blocks = BLOCKS.into();
        namespace.formats[0].data_size_log2 = 12;
        return namespace.as_bytes().to_vec();
    }
    let mut controller = IdentifyController::zeroed();
    controller.controller_type = IdentifyController::TYPE_IO;
    controller.controller_id = CONTROLLER.into();
    controller.mdts = config.mdts;
    controller.command_capsule = config.capsule.into();
    controller.response_capsule = 1.into();
    controller.keep_alive_granularity = 1.into();
    controller.commands_max = config.commands.into();
    controller.as_bytes().to_vec()
}

fn io(wire: &mut Wire, received: &Received, success_flag: bool) {
    let cid = received.cid();
    if received.is_read() {
        let range = BlockRange::parse(&received.entry);
        assert_eq!(received.entry.data.length.get() as usize, range.blocks() as usize * BLOCK);
        wire.answer_read(cid, &pattern(range.lba, range.blocks() as usize * BLOCK), success_flag);
        return;
    }
    let data = match received.entry.data.is_in_capsule() {
        true => received.data.clone(),
        false => fetch(wire, cid, received.entry.data.length.get() as usize),
    };
    wire.respond(cid, Status::SUCCESS, data.iter().map(|&byte| u64::from(byte)).sum());
}

/// Requests a command's data, in two R2Ts.
pub fn fetch(wire: &mut Wire, cid: u16, length: usize) -> Vec<u8> {
    let mut data = Vec::new();
    for (tag, end) in [(3, length.div_ceil(2)), (4, length)] {
        if end == data.len() {
            continue;
        }
        wire.r2t(cid, tag, data.len(), end - data.len());
        while data.len() < end {
            let (header, piece) = wire.host_data();
            assert_eq!((header.command_id.get(), header.tag.get()), (cid, tag));
            assert_eq!(header.offset.get() as usize, data.len());
            data.extend(piece);
            assert_eq!(header.is_last(), data.len() == end);
        }
    }
    data
}
