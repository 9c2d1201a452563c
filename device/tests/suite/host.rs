//! A minimal host: blocking sockets, ddlp-nvme's codecs, one command at a time unless a test does otherwise.

pub mod agent;
pub mod bench;
pub mod images;

use ddlp_csd::cancel::CancelBatch;
use ddlp_csd::request::BatchRequest;
use ddlp_csd::{COMPUTE_NSID, PROGRAM_TYPE};
use ddlp_nvme::admin::GetLogPage;
use ddlp_nvme::cp::{ExecuteProgram, LoadProgram, ProgramActivation};
use ddlp_nvme::fabrics::{CONTROLLER_ANY, ConnectCommand, ConnectData, ConnectResult, PropertyGet, PropertySet};
use ddlp_nvme::io::BlockRange;
use ddlp_nvme::property::offset;
use ddlp_nvme::tcp::encode::DataPiece;
use ddlp_nvme::tcp::{
    CapsuleCommand, ConnectionPhase, DataDigest, DataHeader, Digests, FatalError, HeaderDecoder, IcReq, Pdu, PduLimits,
    ReadyToTransfer, Role,
};
use ddlp_nvme::{
    AdminOpcode, CompletionEntry, CpOpcode, Csi, IoOpcode, LogId, NSID_ALL, SglDescriptor, Status, SubmissionEntry,
};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use zerocopy::IntoBytes;

pub const HOST_NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";
pub const BOTH: Digests = Digests { header: true, data: true };
/// Any wait longer than this is a failure, not slowness.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A PDU from the controller.
#[derive(Debug)]
pub enum Received {
    Response(CompletionEntry),
    Data(DataHeader, Vec<u8>),
    ReadyToTransfer(ReadyToTransfer),
    Terminate(FatalError),
    Closed,
}

/// One connection.
pub struct Line {
    pub stream: TcpStream,
    decoder: HeaderDecoder,
    pub digests: Digests,
    pub h2c_bytes_max: usize,
    last_id: u16,
    /// Offsets of the data in all PDUs with data.
    pub data_offsets: Vec<usize>,
}

impl Line {
    /// Connects and sets the connection up.
    pub fn open(address: SocketAddr, digests: Digests) -> Self {
        Self::raw(address).set_up(IcReq::new(digests))
    }

    /// Asks for the digests and the alignment in `request`.
    pub fn set_up(self, request: IcReq) -> Self {
        let (mut line, digests) = (self, request.digests());
        line.stream.write_all(&request.encode()).unwrap();
        let mut response = [0; 128];
        line.stream.read_exact(&mut response).unwrap();
        let mut bytes = &response[..];
        let Pdu::IcResp(response) = line.decoder.feed(&mut bytes).unwrap().unwrap().pdu else { panic!("no ICResp") };
        response.check(digests).unwrap();
        line.decoder.set_phase(ConnectionPhase::Ready(digests));
        line.digests = digests;
        line.h2c_bytes_max = response.data_bytes_max.get() as usize;
        line
    }

    /// Connects without setting the connection up.
    pub fn raw(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let limits = PduLimits { capsule_bytes_max: 0, data_bytes_max: 4 << 20 };
        let decoder = HeaderDecoder::new(Role::Host, limits);
        Self { stream, decoder, digests: Digests::NONE, h2c_bytes_max: 0, last_id: 0, data_offsets: Vec::new() }
    }

    pub fn fresh_id(&mut self) -> u16 {
        self.last_id += 1;
        self.last_id
    }

    /// Sends a command, with its data in the capsule if its SGL says so.
    pub fn submit(&mut self, command: &SubmissionEntry, data: &[u8]) {
        let inside = if command.data.is_in_capsule() { data } else { &[] };
        let mut bytes = CapsuleCommand::encode(command, inside.len() as u32, self.digests).to_vec();
        bytes.extend_from_slice(inside);
        self.push_digest(&mut bytes, inside);
        self.stream.write_all(&bytes).unwrap();
    }

    fn push_digest(&self, bytes: &mut Vec<u8>, data: &[u8]) {
        if self.digests.data && !data.is_empty() {
            let mut digest = DataDigest::new();
            digest.update(data);
            bytes.extend_from_slice(&digest.wire());
        }
    }

    /// Answers an R2T.
    pub fn transfer(&mut self, request: &ReadyToTransfer, data: &[u8]) {
        let (start, length) = (request.offset.get() as usize, request.length.get() as usize);
        let wanted = &data[start..start + length];
        let mut sent = 0;
        for piece in wanted.chunks(self.h2c_bytes_max) {
            let header = DataPiece {
                command_id: request.command_id.get(),
                offset: (start + sent) as u32,
                length: piece.len() as u32,
                last: sent + piece.len() == length,
            };
            let mut bytes = header.encode_to_controller(request.tag.get(), self.digests).to_vec();
            bytes.extend_from_slice(piece);
            self.push_digest(&mut bytes, piece);
            self.stream.write_all(&bytes).unwrap();
            sent += piece.len();
        }
    }

    /// Receives the next PDU.
    pub fn receive(&mut self) -> Received {
        let incoming = loop {
            let space = self.decoder.space();
            let count = match self.stream.read(space) {
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => panic!("nothing received: {error}"),
            };
            if count == 0 {
                return Received::Closed;
            }
            if let Some(incoming) = self.decoder.advance(count).unwrap() {
                break incoming;
            }
        };
        let mut data = vec![0; incoming.data_bytes as usize];
        self.stream.read_exact(&mut data).unwrap();
        if incoming.data_digest {
            let mut received = [0; 4];
            self.stream.read_exact(&mut received).unwrap();
            let mut digest = DataDigest::new();
            digest.update(&data);
            assert_eq!(received, digest.wire(), "data digest");
        }
        match incoming.pdu {
            Pdu::Response(entry) => Received::Response(entry),
            Pdu::Data(header) => {
                self.data_offsets.push(header.head.data_offset.into());
                Received::Data(header, data)
            }
            Pdu::ReadyToTransfer(request) => Received::ReadyToTransfer(request),
            Pdu::Terminate(reason) => Received::Terminate(reason),
            other => panic!("a controller sends no {other:?}"),
        }
    }

    /// Runs one command to its end. Returns its completion and the data it read.
    pub fn run(&mut self, mut command: SubmissionEntry, data: &[u8]) -> (CompletionEntry, Vec<u8>) {
        command.command_id = self.fresh_id().into();
        self.submit(&command, data);
        let mut read = Vec::new();
        loop {
            match self.receive() {
                Received::Response(entry) => {
                    assert_eq!(entry.command_id, command.command_id);
                    return (entry, read);
                }
                Received::Data(header, piece) => {
                    assert_eq!(header.command_id, command.command_id);
                    assert_eq!(header.offset.get() as usize, read.len(), "data comes in order");
                    read.extend_from_slice(&piece);
                    if header.is_success() {
                        let id = header.command_id.get();
                        return (CompletionEntry::new(id, Status::SUCCESS, 0), read);
                    }
                }
                Received::ReadyToTransfer(request) => {
                    assert_eq!(request.command_id, command.command_id);
                    self.transfer(&request, data);
                }
                other => panic!("{command:?} got {other:?}"),
            }
        }
    }

    /// Does the same as [`Self::run`] for a command that has to succeed.
    pub fn ok(&mut self, command: SubmissionEntry, data: &[u8]) -> (u64, Vec<u8>) {
        let (entry, read) = self.run(command, data);
        assert_eq!(entry.status(), Status::SUCCESS, "{command:?}: {}", entry.status());
        (entry.result.get(), read)
    }

    /// Waits for the peer to close, and ignores everything that it sends before. Returns true.
    pub fn ends(&mut self) -> bool {
        loop {
            match self.receive() {
                Received::Closed => return true,
                Received::Terminate(_) | Received::Response(_) | Received::Data(..) => {}
                Received::ReadyToTransfer(_) => {}
            }
        }
    }
}

/// Makes a command with these dwords and data by the transport.
pub fn command(opcode: u8, nsid: u32, dwords: [u32; 6], bytes: usize) -> SubmissionEntry {
    let mut entry = SubmissionEntry { opcode, flags: 0x40, nsid: nsid.into(), ..SubmissionEntry::default() };
    entry.data = SglDescriptor::transport(bytes as u32);
    entry.with_dwords(dwords)
}

/// Returns the command with its data in the capsule.
pub fn in_capsule(mut entry: SubmissionEntry) -> SubmissionEntry {
    entry.data = SglDescriptor::in_capsule(entry.data.length.get());
    entry
}

pub fn execute(request: &BatchRequest, index: u16) -> (SubmissionEntry, Vec<u8>) {
    let data = request.to_bytes();
    let (parameter1, parameter2) = request.parameters();
    let execute = ExecuteProgram { index, parameter1, parameter2, ..ExecuteProgram::default() };
    let mut entry = command(CpOpcode::EXECUTE_PROGRAM.0, COMPUTE_NSID, execute.dwords(), data.len());
    entry.cdw2 = execute.cdw2().into();
    (entry, data)
}

pub fn read(nsid: u32, lba: u64, blocks: u32) -> SubmissionEntry {
    let range = BlockRange::new(lba, blocks).unwrap();
    command(IoOpcode::READ.0, nsid, range.dwords(), blocks as usize * 4096)
}

pub fn cancel(epoch: u32, batch: u32) -> SubmissionEntry {
    command(ddlp_csd::CANCEL_OPCODE, 0, CancelBatch { epoch, batch }.dwords(), 0)
}

/// An association: its admin queue, and everything to open more queues.
pub struct Association {
    pub admin: Line,
    pub controller_id: u16,
    pub address: SocketAddr,
    nqn: String,
    host_id: [u8; 16],
    /// Setup request of every queue.
    setup: IcReq,
}

impl Association {
    pub fn new(agent: (SocketAddr, &str), host_id: u8, digests: Digests) -> Self {
        Self::with_keep_alive(agent, host_id, digests, 0)
    }

    pub fn with_keep_alive(agent: (SocketAddr, &str), host_id: u8, digests: Digests, keep_alive_ms: u32) -> Self {
        Self::set_up(agent, host_id, IcReq::new(digests), keep_alive_ms)
    }

    /// Connects a host that wants its data aligned.
    pub fn aligned(agent: (SocketAddr, &str), host_id: u8, digests: Digests, data_alignment_z: u8) -> Self {
        Self::set_up(agent, host_id, IcReq { data_alignment_z, ..IcReq::new(digests) }, 0)
    }

    fn set_up(agent: (SocketAddr, &str), host_id: u8, setup: IcReq, keep_alive_ms: u32) -> Self {
        let (address, nqn) = agent;
        let mut admin = Line::raw(address).set_up(setup);
        let host_id = [host_id; 16];
        let data = ConnectData::new(host_id, CONTROLLER_ANY, nqn, HOST_NQN).unwrap();
        let entry = ConnectCommand::new(0, 31, keep_alive_ms, false).entry();
        let (result, _) = admin.ok(entry, data.as_bytes());
        let controller_id = ConnectResult::from_result(result).controller_id;
        admin.ok(PropertySet::new(offset::CC, 0x0046_0060).entry(), &[]);
        admin.ok(PropertySet::new(offset::CC, 0x0046_0061).entry(), &[]);
        assert_eq!(admin.ok(PropertyGet::new(offset::CSTS).entry(), &[]).0, 1);
        Self { admin, controller_id, address, nqn: nqn.to_owned(), host_id, setup }
    }

    pub fn open_queue(&self, id: u16, entries: u16, flow_control: bool) -> Line {
        let (mut line, entry) = self.try_open_queue(id, entries, flow_control);
        assert_eq!(entry.status(), Status::SUCCESS);
        line.last_id = 100;
        line
    }

    pub fn try_open_queue(&self, id: u16, entries: u16, flow_control: bool) -> (Line, CompletionEntry) {
        let mut line = Line::raw(self.address).set_up(self.setup);
        let data = ConnectData::new(self.host_id, self.controller_id, &self.nqn, HOST_NQN).unwrap();
        let entry = ConnectCommand::new(id, entries - 1, 0, !flow_control).entry();
        let (entry, _) = line.run(entry, data.as_bytes());
        (line, entry)
    }

    /// Loads a program in pieces and activates it.
    pub fn load(&mut self, index: u16, program: &[u8], piece_bytes: usize) {
        for (number, piece) in program.chunks(piece_bytes).enumerate() {
            let load = LoadProgram {
                index,
                kind: PROGRAM_TYPE,
                program_bytes: program.len() as u32,
                bytes: piece.len() as u32,
                offset: (number * piece_bytes) as u32,
                ..LoadProgram::default()
            };
            let entry = command(AdminOpcode::LOAD_PROGRAM.0, COMPUTE_NSID, load.dwords(), piece.len());
            // The data goes alternately in the capsule and by R2T.
            let entry = if number % 2 == 0 { in_capsule(entry) } else { entry };
            self.admin.ok(entry, piece);
        }
        let activation = ProgramActivation { index, select: ProgramActivation::ACTIVATE };
        let entry = command(AdminOpcode::PROGRAM_ACTIVATION.0, COMPUTE_NSID, activation.dwords(), 0);
        self.admin.ok(entry, &[]);
    }

    pub fn log(&mut self, log: u8, bytes: u32) -> Vec<u8> {
        let page = GetLogPage::new(LogId(log), Csi::NVM, 0, bytes);
        self.admin.ok(command(AdminOpcode::GET_LOG_PAGE.0, NSID_ALL, page.dwords(), bytes as usize), &[]).1
    }
}
