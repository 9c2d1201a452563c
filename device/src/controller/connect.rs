//! Connect and Disconnect. Base 2.1, section "Fabrics Command Set".

use super::association::Association;
use super::features::{Features, keep_alive_rounded};
use super::profile::{
    ASSOCIATIONS_MAX, ControllerKind, DISCOVERY_ASSOCIATIONS_MAX, IO_QUEUES_MAX, QUEUE_ENTRIES_MAX, QUEUES_MAX,
};
use super::property::Properties;
use super::queue_pair::QueuePair;
use super::{Answer, CommandResult, ConnId, ConnectRefusal, Payload, Subsystem, SubsystemOutput};
use crate::host::ConnectedHost;
use ddlp_nvme::fabrics::{
    CONTROLLER_ANY, ConnectCommand, ConnectData, ConnectFault, ConnectResult, PropertyGet, PropertySet, fabrics_type,
};
use ddlp_nvme::text::{DISCOVERY_NQN, NQN_FIELD_BYTES, nqn_bytes};
use ddlp_nvme::{FABRICS_OPCODE, FabricsType, Status, SubmissionEntry};
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::sync::Arc;
use std::time::Instant;

/// Bytes of Connect's data.
pub const DATA_BYTES: usize = size_of::<ConnectData>();

/// Fewest entries of a queue, by Base 2.1.
const QUEUE_ENTRIES_MIN: u16 = 2;

enum Refusal {
    Status(Status),
    Field(ConnectFault),
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self::Status(status.do_not_retry())
    }
}

fn in_command(offset: usize) -> Refusal {
    Refusal::Field(ConnectFault { offset: offset as u16, in_data: false })
}

fn in_data(offset: usize) -> Refusal {
    Refusal::Field(ConnectFault { offset: offset as u16, in_data: true })
}

/// Returns the name that a host sent, whether or not it is a qualified name. It may contain anything.
fn as_sent(field: &[u8; NQN_FIELD_BYTES]) -> String {
    String::from_utf8_lossy(nqn_bytes(field)).into_owned()
}

impl Subsystem {
    /// Runs the first command of a connection; anything but Connect is out of sequence.
    pub(super) fn connect(
        &mut self,
        conn: ConnId,
        entry: &SubmissionEntry,
        data: &[u8],
        now: Instant,
    ) -> CommandResult {
        if entry.opcode != FABRICS_OPCODE || fabrics_type(entry) != FabricsType::CONNECT {
            return Err(Status::COMMAND_SEQUENCE.do_not_retry());
        }
        match self.try_connect(conn, entry, data, now) {
            Ok(result) => Answer::result(result),
            Err(Refusal::Status(status)) => Err(status),
            Err(Refusal::Field(fault)) => {
                self.refuse(conn, entry, Status::CONNECT_PARAMETERS.do_not_retry(), fault.result());
                Ok(Answer::Later)
            }
        }
    }

    fn try_connect(
        &mut self,
        conn: ConnId,
        entry: &SubmissionEntry,
        data: &[u8],
        now: Instant,
    ) -> Result<u64, Refusal> {
        let command = ConnectCommand::view(entry);
        let data = ConnectData::parse(data).map_err(|_| Status::SGL_DATA_LENGTH)?;
        if command.record_format.get() != 0 {
            return Err(Status::CONNECT_FORMAT.into());
        }
        let kind = match data.subsystem_nqn() {
            Ok(nqn) if nqn == self.config.identity.nqn => ControllerKind::Io,
            Ok(DISCOVERY_NQN) => {
                ControllerKind::Discovery(*self.reached.get(&conn).expect("connections are opened first"))
            }
            _ => {
                let (asked, here) = (as_sent(&data.subsystem_nqn), self.config.identity.nqn.clone());
                self.tell_refused(conn, data, ConnectRefusal::OtherSubsystem { asked, here });
                return Err(in_data(offset_of!(ConnectData, subsystem_nqn)));
            }
        };
        let host_nqn = data.host_nqn().map_err(|error| {
            self.tell_refused(conn, data, ConnectRefusal::NoHostNqn(error));
            in_data(offset_of!(ConnectData, host_nqn))
        })?;
        let allowed = &self.config.allowed_hosts;
        if !allowed.is_empty() && !allowed.iter().any(|nqn| nqn == host_nqn) {
            self.tell_refused(conn, data, ConnectRefusal::HostNotAllowed);
            return Err(Status::CONNECT_INVALID_HOST.into());
        }
        let entries = command.sq_size_z.get().saturating_add(1);
        if !(QUEUE_ENTRIES_MIN..=QUEUE_ENTRIES_MAX).contains(&entries) {
            return Err(in_command(offset_of!(ConnectCommand, sq_size_z)));
        }
        let host = Arc::new(ConnectedHost { nqn: host_nqn.to_owned(), id: data.host_id });
        let controller_id = match command.queue_id.get() {
            0 => self.new_association((conn, kind), command, data, host, now)?,
            // A discovery controller has only its admin queue.
            _ if kind.is_discovery() => return Err(in_command(offset_of!(ConnectCommand, queue_id))),
            _ => self.join_association(conn, command, data, &host, now)?,
        };
        let flow_control = !command.no_flow_control();
        let queue = QueuePair { controller_id, id: command.queue_id.get(), entries, flow_control, head: 0 };
        self.queues.insert(conn, queue);
        if let Some(queue) = self.queues.get_mut(&conn) {
            queue.advance();
        }
        self.outputs.push(SubsystemOutput::Accepted { conn, entries, flow_control });
        Ok(ConnectResult { controller_id, authentication_required: false }.result())
    }

    fn new_association(
        &mut self,
        (conn, kind): (ConnId, ControllerKind),
        command: &ConnectCommand,
        data: &ConnectData,
        host: Arc<ConnectedHost>,
        now: Instant,
    ) -> Result<u16, Refusal> {
        if data.controller_id.get() != CONTROLLER_ANY {
            return Err(in_data(offset_of!(ConnectData, controller_id)));
        }
        if self.draining {
            return Err(Refusal::Status(Status::CONTROLLER_BUSY));
        }
        let most = if kind.is_discovery() { DISCOVERY_ASSOCIATIONS_MAX } else { ASSOCIATIONS_MAX };
        let same_kind = |other: &&Association| other.kind.is_discovery() == kind.is_discovery();
        let is_full = self.associations.values().filter(same_kind).count() >= most;
        if is_full && !self.make_room(kind, &host, None, |_| 1) {
            return Err(self.busy(conn, data, ConnectRefusal::TooManyAssociations(most)));
        }
        if !kind.is_discovery() {
            self.room_for_queue(conn, data, &host, None)?;
        }
        let controller_id = self.free_controller_id();
        let features = Features::new(keep_alive_rounded(command.keep_alive_ms.get()));
        self.associations.insert(
            controller_id,
            Association {
                controller_id,
                kind,
                host,
                admin: conn,
                io_queues: BTreeMap::new(),
                properties: Properties::new(kind),
                features,
                event_requests: Vec::new(),
                event_masked: false,
                heard: now,
                begun: now,
            },
        );
        Ok(controller_id)
    }

    /// Refuses a host for now; the host may try again, since another association may end meanwhile.
    fn busy(&mut self, conn: ConnId, data: &ConnectData, reason: ConnectRefusal) -> Refusal {
        self.tell_refused(conn, data, reason);
        Refusal::Status(Status::CONTROLLER_BUSY)
    }

    /// Makes sure that there is room for one more queue. `controller_id` is the association that the queue joins, if it
    /// exists already. That association does not give way to its own queue.
    fn room_for_queue(
        &mut self,
        conn: ConnId,
        data: &ConnectData,
        host: &ConnectedHost,
        controller_id: Option<u16>,
    ) -> Result<(), Refusal> {
        let queues: usize = self.io_associations().map(Association::queues).sum();
        if queues < QUEUES_MAX || self.make_room(ControllerKind::Io, host, controller_id, Association::queues) {
            return Ok(());
        }
        Err(self.busy(conn, data, ConnectRefusal::TooManyQueues(QUEUES_MAX)))
    }

    /// Ends one association of this kind to make room for a host. Returns whether there was one to end. Ends the
    /// longest silent association that gives way and has no work, but never `but`; otherwise an association of a host
    /// that holds more than its share. `places` says how many places an association takes.
    fn make_room(
        &mut self,
        kind: ControllerKind,
        host: &ConnectedHost,
        but: Option<u16>,
        places: impl Fn(&Association) -> usize,
    ) -> bool {
        let gives_way = |association: &&Association| {
            association.kind.is_discovery() == kind.is_discovery()
                && association.gives_way()
                && but != Some(association.controller_id)
                && !self.executes.is_at_work(association.controller_id)
        };
        let longest_silent = self.associations.values().filter(gives_way).min_by_key(|association| association.heard);
        if let Some(controller_id) = longest_silent.map(|association| association.controller_id) {
            tracing::info!(controller_id, "association ended: another host needs its place");
            self.end_association(controller_id);
            return true;
        }
        let Some(association) = self.beyond_share(kind, host, places) else { return false };
        let (controller_id, host_nqn) = (association.controller_id, association.host.nqn.clone());
        tracing::warn!(controller_id, host_nqn, "association ended: its host holds most places, and another needs one");
        self.end_association(controller_id);
        true
    }

    /// Returns an association of the host that holds most places, if that host keeps at least as many without it as
    /// `host` has with one place more; so two hosts never take the same place from each other in turn. Prefers an
    /// association without work, then one that has been silent for long. All runs with one NQN are one host here, since
    /// an allowed host can choose any identifiers.
    fn beyond_share(
        &self,
        kind: ControllerKind,
        host: &ConnectedHost,
        places: impl Fn(&Association) -> usize,
    ) -> Option<&Association> {
        let same_kind = |other: &&Association| other.kind.is_discovery() == kind.is_discovery();
        let mut held = BTreeMap::<&str, usize>::new();
        for association in self.associations.values().filter(same_kind) {
            *held.entry(&association.host.nqn).or_default() += places(association);
        }
        let wanted = held.get(&*host.nqn).copied().unwrap_or(0) + 1;
        let (most_nqn, most) = held.into_iter().max_by_key(|&(_, held)| held)?;
        let dispensable = |association: &&Association| {
            association.host.nqn == most_nqn && most.saturating_sub(places(association)) >= wanted
        };
        let candidates = self.associations.values().filter(same_kind).filter(dispensable);
        candidates.min_by_key(|other| (self.executes.is_at_work(other.controller_id), other.heard))
    }

    fn tell_refused(&mut self, conn: ConnId, data: &ConnectData, reason: ConnectRefusal) {
        self.outputs.push(SubsystemOutput::Refused { conn, host_nqn: as_sent(&data.host_nqn), reason });
    }

    /// Returns the next free identifier after the last one given, so that a stale identifier rarely names anybody.
    fn free_controller_id(&mut self) -> u16 {
        loop {
            // FFF0h and above are reserved.
            self.last_controller_id = if self.last_controller_id >= 0xFFEF { 1 } else { self.last_controller_id + 1 };
            if !self.associations.contains_key(&self.last_controller_id) {
                return self.last_controller_id;
            }
        }
    }

    fn join_association(
        &mut self,
        conn: ConnId,
        command: &ConnectCommand,
        data: &ConnectData,
        host: &ConnectedHost,
        now: Instant,
    ) -> Result<u16, Refusal> {
        let controller_id = data.controller_id.get();
        let joined =
            self.associations.get_mut(&controller_id).filter(|association| association.kind == ControllerKind::Io);
        let Some(association) = joined else {
            return Err(in_data(offset_of!(ConnectData, controller_id)));
        };
        if association.host.nqn != host.nqn {
            return Err(in_data(offset_of!(ConnectData, host_nqn)));
        }
        if association.host.id != host.id {
            return Err(in_data(offset_of!(ConnectData, host_id)));
        }
        if !association.properties.is_ready() {
            return Err(Status::COMMAND_SEQUENCE.into());
        }
        let id = command.queue_id.get();
        if id > IO_QUEUES_MAX || association.io_queues.contains_key(&id) {
            return Err(in_command(offset_of!(ConnectCommand, queue_id)));
        }
        association.heard = now;
        self.room_for_queue(conn, data, host, Some(controller_id))?;
        if let Some(association) = self.associations.get_mut(&controller_id) {
            association.io_queues.insert(id, conn);
        }
        Ok(controller_id)
    }

    /// Runs a Fabrics command of a connected queue.
    pub(super) fn fabrics(&mut self, conn: ConnId, queue: QueuePair, entry: &SubmissionEntry) -> CommandResult {
        match (fabrics_type(entry), queue.id) {
            (FabricsType::PROPERTY_GET, 0) => self.property_get(queue, PropertyGet::view(entry)),
            (FabricsType::PROPERTY_SET, 0) => self.property_set(queue, PropertySet::view(entry)),
            (FabricsType::DISCONNECT, 1..) => {
                self.complete(conn, entry, Status::SUCCESS, 0, Payload::None);
                self.outputs.push(SubsystemOutput::Close(conn));
                Ok(Answer::Later)
            }
            (FabricsType::CONNECT, _) => Err(Status::COMMAND_SEQUENCE.do_not_retry()),
            (FabricsType::PROPERTY_GET | FabricsType::PROPERTY_SET | FabricsType::DISCONNECT, _) => {
                Err(Status::INVALID_FIELD.do_not_retry())
            }
            _ => Err(Status::INVALID_OPCODE.do_not_retry()),
        }
    }
}
