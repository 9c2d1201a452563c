//! The NVMe subsystem as a sans-IO state machine: commands and events in, [`SubsystemOutput`]s out.
//!
//! - `profile`: what the controllers can do: limits, Identify pages, log pages, capabilities. The others are handlers.
//! - `connect`: Connect; `association`: one host's controller; `queue_pair`: one of its queues; `property`: controller
//!   properties; `discovery`: the discovery controller.
//! - `admin`: dispatch of admin commands, Abort, asynchronous events; `features`, `identify`, `logs`.
//! - `programs`: Load Program and Program Activation; `compute`: Execute Program, slots and cancelling.
//! - `block`: Read, Flush and Write on the block namespaces.
//!
//! The subsystem knows queues and commands with their data. PDUs, R2T and digests stay below ([`crate::tcp`]), pixels
//! above ([`crate::workers`]). Several hosts may have several associations each; every association is a controller of
//! its own.
//!
//! Decisions that the specification leaves open:
//!
//! - Program indices belong to the host that loaded them, as long as the host has an association: a multipath host
//!   loads on one path and executes on any.
//! - Both block namespaces are write protected for hosts.
//! - Any command counts as a sign of life, not only Keep Alive.
//! - A host that promises no sign of life (no keep alive time-out, or one of more than two minutes) is served until
//!   another host needs its place ([`GIVES_WAY_MS`]).
//! - When all places are taken, a host that holds fewer places than another host gets one of that host's places
//!   (`connect`).
//! - There is no asymmetric namespace access (ANA): all paths end in this process and are equal, as Linux assumes
//!   without ANA.

mod admin;
mod association;
mod block;
mod compute;
mod connect;
mod discovery;
mod features;
mod identify;
mod logs;
mod profile;
mod programs;
mod property;
mod queue_pair;

use crate::host::ConnectedHost;
use crate::identity::AgentIdentity;
use crate::job::{Job, JobId};
use crate::slots::Geometry;
use association::Association;
pub use association::{ENABLE_TIME, GIVES_WAY_MS};
use compute::Executes;
use ddlp_csd::log::{Counters, DriveIdentity};
use ddlp_nvme::code::Direction;
use ddlp_nvme::fabrics::fabrics_type;
use ddlp_nvme::text::NqnError;
use ddlp_nvme::{CompletionEntry, FABRICS_OPCODE, FabricsType, Status, SubmissionEntry};
use logs::ErrorLog;
use profile::ControllerKind;
pub use profile::{
    ASSOCIATIONS_MAX, ASYNC_EVENTS_MAX, DISCOVERY_ASSOCIATIONS_MAX, IN_CAPSULE_BYTES_MAX, IO_QUEUES_MAX, MDTS,
    QUEUE_ENTRIES_MAX, QUEUES_MAX, TRANSFER_BYTES_MAX,
};
use programs::ProgramTable;
use queue_pair::QueuePair;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

/// Identifier of a transport connection; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// Reason to refuse a host that the user can mend in the configuration of the drive or of the host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectRefusal {
    /// The configuration names the hosts that may connect, and this one is not among them.
    #[error("allowed-hosts does not name it")]
    HostNotAllowed,
    /// The host gave a name that is not an NQN.
    #[error("its name is not a valid host NQN: {0}")]
    NoHostNqn(NqnError),
    /// The host wants another subsystem.
    #[error("it asks for {asked:?}, but this drive is {here}")]
    OtherSubsystem {
        /// Subsystem NQN in the host's Connect.
        asked: String,
        /// NQN of this subsystem.
        here: String,
    },
    /// All associations of this kind are taken.
    #[error("all {0} associations are taken, and none of them gives way")]
    TooManyAssociations(usize),
    /// All queues are taken.
    #[error("all {0} queues are taken, and no association gives way")]
    TooManyQueues(usize),
}

/// Namespace whose blocks a Read returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockNamespace {
    /// Namespace 1, the dataset.
    Dataset,
    /// Namespace 2, the result slots, as this host sees them: slots that are not its own read as zeros.
    Results(Arc<ConnectedHost>),
}

/// Data that goes with a completion to the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// No data.
    None,
    /// A page, padded with zeros to the length that the host asked for. The zeros are made when they are sent, so that
    /// an answer that its host does not take needs memory for the page alone.
    Page {
        /// The page.
        bytes: Vec<u8>,
        /// Number of zeros after the page.
        zeros: usize,
    },
    /// Bytes of a namespace, read when they are sent. If reading fails, the completion is an unrecovered read error.
    Blocks {
        /// Which namespace.
        region: BlockNamespace,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        bytes: usize,
    },
}

/// Action for the caller to carry out.
#[derive(Debug)]
pub enum SubsystemOutput {
    /// The connection is now a queue.
    Accepted {
        /// The connection.
        conn: ConnId,
        /// Most commands outstanding.
        entries: u16,
        /// Submission queue flow control is on.
        flow_control: bool,
    },
    /// A host was refused and has its answer; the log should tell the person who runs the drive.
    Refused {
        /// The host's connection.
        conn: ConnId,
        /// The NQN that the host sent, whether or not it is valid.
        host_nqn: String,
        /// The reason.
        reason: ConnectRefusal,
    },
    /// Answer a command.
    Complete {
        /// The command's connection.
        conn: ConnId,
        /// The completion.
        completion: CompletionEntry,
        /// Data that goes with it.
        payload: Payload,
    },
    /// Give a job to the workers.
    Start(Box<Job>),
    /// Ask the workers to give up a job.
    Cancel(JobId),
    /// Free the place of a command that gets no answer, because its controller was reset or its host has gone.
    Forget {
        /// The command's connection.
        conn: ConnId,
        /// The command's identifier.
        command_id: u16,
    },
    /// Send what is queued, then close.
    Close(ConnId),
}

/// Live numbers from outside the state machine.
pub trait Gauges: Send + Sync {
    /// Returns all counters except `cancelled`, `errors` and `outstanding`, which the subsystem adds.
    fn counters(&self) -> Counters;
}

/// Configuration of the subsystem.
pub struct Config {
    /// Identity of the agent.
    pub identity: AgentIdentity,
    /// Host NQNs that may connect; empty for any.
    pub allowed_hosts: Vec<String>,
    /// Blocks of namespace 1.
    pub dataset_blocks: u64,
    /// The result slots.
    pub geometry: Geometry,
    /// The vendor identity page.
    pub drive: DriveIdentity,
    /// Live numbers.
    pub gauges: Arc<dyn Gauges>,
}

/// The subsystem.
pub struct Subsystem {
    config: Config,
    associations: BTreeMap<u16, Association>,
    /// Open connections, and the address at which the host of each finds the NVM subsystem.
    reached: BTreeMap<ConnId, SocketAddr>,
    queues: BTreeMap<ConnId, QueuePair>,
    executes: Executes,
    programs: BTreeMap<Arc<ConnectedHost>, ProgramTable>,
    errors: ErrorLog,
    usage: Usage,
    last_controller_id: u16,
    draining: bool,
    outputs: Vec<SubsystemOutput>,
}

/// Totals of what hosts have asked for.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    reads: u64,
    read_bytes: u64,
    cancelled: u64,
    errors: u64,
}

/// Answer to a command: now, with a result and data, or later.
enum Answer {
    Now(u64, Payload),
    Later,
}

type CommandResult = Result<Answer, Status>;

impl Answer {
    const DONE: CommandResult = Ok(Self::Now(0, Payload::None));

    fn result(result: u64) -> CommandResult {
        Ok(Self::Now(result, Payload::None))
    }

    fn data(bytes: Vec<u8>, zeros: usize) -> CommandResult {
        Ok(Self::Now(0, Payload::Page { bytes, zeros }))
    }
}

impl Subsystem {
    /// Makes a subsystem without associations.
    pub fn new(config: Config) -> Self {
        let executes = Executes::new(config.geometry.slots);
        Self {
            config,
            associations: BTreeMap::new(),
            reached: BTreeMap::new(),
            queues: BTreeMap::new(),
            executes,
            programs: BTreeMap::new(),
            errors: ErrorLog::default(),
            usage: Usage::default(),
            last_controller_id: 0,
            draining: false,
            outputs: Vec::new(),
        }
    }

    /// Takes note of a new connection. `reached` is the address to which the host connected, with the port of the I/O
    /// service; the discovery controller tells it to the host.
    pub fn opened(&mut self, conn: ConnId, reached: SocketAddr) {
        self.reached.insert(conn, reached);
    }

    /// Returns the bytes of host data to collect before calling [`Self::command`]; an error is the command's status.
    ///
    /// A command that takes no data gets none, however much the host offers; its own status says what is wrong.
    pub fn data_wanted(&self, conn: ConnId, command: &SubmissionEntry) -> Result<usize, Status> {
        let fabrics = command.opcode == FABRICS_OPCODE;
        // Earlier editions of the specification reserve this byte in Fabrics commands.
        if !fabrics && !command.is_plain() {
            return Err(Status::INVALID_FIELD.do_not_retry());
        }
        let code = if fabrics { fabrics_type(command).0 } else { command.opcode };
        match Direction::of(code) {
            Direction::Write => self.host_data(conn, command),
            // Only the transport moves data to the host.
            Direction::Read if command.data.length.get() > 0 && !command.data.is_transport() => {
                Err(Status::SGL_DESCRIPTOR_TYPE.do_not_retry())
            }
            _ => Ok(0),
        }
    }

    /// Returns [`Self::data_wanted`] of a command whose data goes to the controller.
    fn host_data(&self, conn: ConnId, command: &SubmissionEntry) -> Result<usize, Status> {
        let fabrics = command.opcode == FABRICS_OPCODE;
        let most = match self.queues.get(&conn) {
            _ if fabrics => usize::from(fabrics_type(command) == FabricsType::CONNECT) * connect::DATA_BYTES,
            None => 0,
            Some(queue) if queue.id == 0 => admin::data_bytes_max(command, self.is_discovery(queue)),
            Some(_) => compute::data_bytes_max(command),
        };
        if most == 0 {
            return Ok(0);
        }
        let sgl = &command.data;
        if !sgl.is_in_capsule() && !sgl.is_transport() {
            return Err(Status::SGL_DESCRIPTOR_TYPE.do_not_retry());
        }
        if sgl.is_in_capsule() && sgl.address.get() != 0 {
            return Err(Status::SGL_OFFSET.do_not_retry());
        }
        let bytes = sgl.length.get() as usize;
        let fits = bytes <= most && !(sgl.is_in_capsule() && bytes > IN_CAPSULE_BYTES_MAX);
        if fits { Ok(bytes) } else { Err(Status::SGL_DATA_LENGTH.do_not_retry()) }
    }

    /// Runs a command with the data that [`Self::data_wanted`] asked for.
    pub fn command(
        &mut self,
        conn: ConnId,
        command: &SubmissionEntry,
        data: &[u8],
        now: Instant,
    ) -> Vec<SubsystemOutput> {
        if let Some(queue) = self.queues.get_mut(&conn) {
            queue.advance();
            if let Some(association) = self.associations.get_mut(&queue.controller_id) {
                association.heard = now;
            }
        }
        let outcome = match self.queues.get(&conn).copied() {
            None => self.connect(conn, command, data, now),
            Some(queue) if command.opcode == FABRICS_OPCODE => self.fabrics(conn, queue, command),
            Some(queue) if queue.id == 0 => self.admin(queue, command, data),
            Some(queue) => self.io(conn, queue, command, data),
        };
        match outcome {
            Ok(Answer::Now(result, payload)) => self.complete(conn, command, Status::SUCCESS, result, payload),
            Ok(Answer::Later) => {}
            Err(status) => self.refuse(conn, command, status, 0),
        }
        self.after_command(conn, command);
        std::mem::take(&mut self.outputs)
    }

    /// Refuses a command before it runs: [`Self::data_wanted`] gave an error, or the data did not arrive intact.
    pub fn reject(&mut self, conn: ConnId, command: &SubmissionEntry, status: Status) -> Vec<SubsystemOutput> {
        if let Some(queue) = self.queues.get_mut(&conn) {
            queue.advance();
        }
        self.refuse(conn, command, status, 0);
        std::mem::take(&mut self.outputs)
    }

    /// Forgets a connection that is gone. If the connection was an admin queue, this ends the association.
    pub fn disconnected(&mut self, conn: ConnId) -> Vec<SubsystemOutput> {
        self.reached.remove(&conn);
        if let Some(queue) = self.queues.remove(&conn) {
            if queue.id == 0 {
                self.end_association(queue.controller_id);
            } else if let Some(association) = self.associations.get_mut(&queue.controller_id) {
                association.io_queues.remove(&queue.id);
                self.abandon(|work| work.conn == conn);
            }
        }
        std::mem::take(&mut self.outputs)
    }

    /// Ends associations whose keep alive ran out or whose controller was not enabled in time, and reports a
    /// temperature above its threshold. To be called periodically.
    pub fn tick(&mut self, now: Instant) -> Vec<SubsystemOutput> {
        let ended = |association: &Association| association.ended(now).map(|why| (association.controller_id, why));
        for (controller_id, why) in self.associations.values().filter_map(ended).collect::<Vec<_>>() {
            tracing::warn!(controller_id, "association ended: {why}");
            self.end_association(controller_id);
        }
        self.watch_temperature();
        std::mem::take(&mut self.outputs)
    }

    /// Refuses new Executes and associations from now on.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Returns whether no Execute is queued or running.
    pub fn is_idle(&self) -> bool {
        self.executes.is_empty()
    }

    fn is_discovery(&self, queue: &QueuePair) -> bool {
        self.associations.get(&queue.controller_id).is_some_and(|association| association.kind.is_discovery())
    }

    /// Returns the associations that have namespaces.
    fn io_associations(&self) -> impl Iterator<Item = &Association> {
        self.associations.values().filter(|association| association.kind == ControllerKind::Io)
    }

    /// Returns the number of associations, including those for discovery.
    pub fn associations(&self) -> usize {
        self.associations.len()
    }

    /// Ends an association: drops its queued work, stops its running work, closes its connections.
    fn end_association(&mut self, controller_id: u16) {
        let Some(association) = self.associations.remove(&controller_id) else { return };
        self.abandon(|work| work.controller_id == controller_id);
        self.forget_programs(&association.host, controller_id);
        for conn in association.connections() {
            self.queues.remove(&conn);
            self.outputs.push(SubsystemOutput::Close(conn));
        }
    }

    fn io(&mut self, conn: ConnId, queue: QueuePair, command: &SubmissionEntry, data: &[u8]) -> CommandResult {
        let Some(association) = self.associations.get(&queue.controller_id) else {
            return Err(Status::COMMAND_SEQUENCE);
        };
        if !association.properties.is_ready() {
            return Err(Status::COMMAND_SEQUENCE.do_not_retry());
        }
        match command.nsid.get() {
            ddlp_csd::COMPUTE_NSID => self.execute(conn, queue, command, data),
            _ => {
                let host = association.host.clone();
                self.block(host, command)
            }
        }
    }

    fn complete(&mut self, conn: ConnId, command: &SubmissionEntry, status: Status, result: u64, payload: Payload) {
        self.complete_id(conn, command.command_id.get(), status, result, payload);
    }

    fn complete_id(&mut self, conn: ConnId, command_id: u16, status: Status, result: u64, payload: Payload) {
        let mut completion = CompletionEntry::new(command_id, status, result);
        if let Some(queue) = self.queues.get(&conn) {
            completion.sq_head = queue.head_reported().into();
            completion.sq_id = queue.id.into();
        }
        self.outputs.push(SubsystemOutput::Complete { conn, completion, payload });
    }

    fn refuse(&mut self, conn: ConnId, command: &SubmissionEntry, status: Status, result: u64) {
        let queue_id = self.queues.get(&conn).map_or(0, |queue| queue.id);
        self.errors.record(queue_id, command, status);
        if queue_id > 0 && command.nsid.get() == ddlp_csd::COMPUTE_NSID {
            self.usage.errors += 1;
        }
        self.complete(conn, command, status, result, Payload::None);
    }
}
