//! Execute Program: jobs, their slots, and how jobs are given up.
//!
//! A slot is idle or has one job. A job that is cancelled, or whose connection ended, keeps its slot until the workers
//! have released it; meanwhile one later Execute may wait for the slot. A host gets a completion from the workers only
//! while the job is live; later ones are dropped.
//!
//! Several hosts share the slots without knowing of each other. A slot belongs to the host that used it last, until
//! that host has no association any more. An Execute of another host into the slot is refused (Insufficient Resources),
//! and so is a Read of it (`block`). A host that is alone may have all slots. While another host waits for one and has
//! less than its share, a host with more than its share has to give slots back: its next Execute into one of its own
//! slots is refused too. By then the host has fetched that slot's batch. An Execute of the same host is refused while
//! that host has live work in the slot (Namespace Not Ready, to be tried again): a host that reconnects may be faster
//! than the news that its former association is lost. [`ddlp_csd::request`] lists every status.

use super::queue_pair::QueuePair;
use super::{Answer, CommandResult, Config, ConnId, Payload, Subsystem, SubsystemOutput};
use crate::host::ConnectedHost;
use crate::job::{Job, JobEvent, JobId, LoadedProgram};
use ddlp_csd::COMPUTE_NSID;
use ddlp_csd::cancel::CancelBatch;
use ddlp_csd::request::{BatchRequest, REQUEST_BYTES_MAX};
use ddlp_csd::slot::SlotLayout;
use ddlp_nvme::cp::ExecuteProgram;
use ddlp_nvme::{CpOpcode, Status, SubmissionEntry};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Returns the most bytes of data that an I/O command takes from the host.
pub fn data_bytes_max(command: &SubmissionEntry) -> usize {
    let execute = command.nsid.get() == COMPUTE_NSID && CpOpcode(command.opcode) == CpOpcode::EXECUTE_PROGRAM;
    if execute { REQUEST_BYTES_MAX } else { 0 }
}

/// One accepted Execute.
pub(super) struct AcceptedExecute {
    pub(super) conn: ConnId,
    pub(super) command_id: u16,
    pub(super) controller_id: u16,
    program_index: u16,
    epoch: u32,
    batch: u32,
    slot: u32,
    stage: Stage,
}

enum Stage {
    /// The workers have the job.
    Live,
    /// The job waits until the workers have released the slot's old job.
    Parked(Box<Job>),
    /// The job is given up; workers may still be at it.
    Draining,
}

#[derive(Clone, Default)]
struct SlotState {
    holder: Option<JobId>,
    parked: Option<JobId>,
    /// The host that used the slot last, and owns its contents as long as it has an association.
    owner: Option<Arc<ConnectedHost>>,
}

/// All accepted Executes and the state of the slots.
pub(super) struct Executes {
    accepted: BTreeMap<JobId, AcceptedExecute>,
    slots: Vec<SlotState>,
    /// Hosts to which a slot was refused since they last got one.
    waiting: BTreeSet<Arc<ConnectedHost>>,
    last_job: u64,
}

impl Executes {
    pub(super) fn new(slots: u32) -> Self {
        let slots = vec![SlotState::default(); slots as usize];
        Self { accepted: BTreeMap::new(), slots, waiting: BTreeSet::new(), last_job: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.accepted.is_empty()
    }

    /// Returns the number of Executes that hosts wait for.
    pub(super) fn outstanding(&self) -> usize {
        self.accepted.values().filter(|work| !matches!(work.stage, Stage::Draining)).count()
    }

    pub(super) fn uses_program(&self, controllers: &[u16], index: u16) -> bool {
        let live = |work: &&AcceptedExecute| !matches!(work.stage, Stage::Draining);
        let mut works = self.accepted.values().filter(live);
        works.any(|work| controllers.contains(&work.controller_id) && work.program_index == index)
    }

    /// Returns whether a host waits for an Execute on this controller.
    pub(super) fn is_at_work(&self, controller_id: u16) -> bool {
        !self.matching(|work| work.controller_id == controller_id).is_empty()
    }

    fn matching(&self, wanted: impl Fn(&AcceptedExecute) -> bool) -> Vec<JobId> {
        let live = |work: &AcceptedExecute| !matches!(work.stage, Stage::Draining);
        self.accepted.iter().filter(|(_, work)| live(work) && wanted(work)).map(|(&id, _)| id).collect()
    }
}

impl Subsystem {
    pub(super) fn execute(
        &mut self,
        conn: ConnId,
        queue: QueuePair,
        entry: &SubmissionEntry,
        data: &[u8],
    ) -> CommandResult {
        if CpOpcode(entry.opcode) != CpOpcode::EXECUTE_PROGRAM {
            return Err(Status::INVALID_OPCODE.do_not_retry());
        }
        if self.draining {
            return Err(Status::NAMESPACE_NOT_READY.do_not_retry());
        }
        let command = ExecuteProgram::parse(entry);
        let program = self.program(queue, command.index).map_err(Status::do_not_retry)?;
        let (request, layout) = order(entry, &command, &program, data, &self.config).map_err(Status::do_not_retry)?;
        let host = self.associations.get(&queue.controller_id).ok_or(Status::COMMAND_SEQUENCE)?.host.clone();
        let id = JobId(self.executes.last_job + 1);
        let is_foreign = self.is_foreign(request.slot as usize, &host);
        let is_beyond_share = !is_foreign && self.is_beyond_share(request.slot as usize, &host);
        let slot = &mut self.executes.slots[request.slot as usize];
        let work = |stage| AcceptedExecute {
            conn,
            command_id: entry.command_id.get(),
            controller_id: queue.controller_id,
            program_index: command.index,
            epoch: request.epoch,
            batch: request.batch,
            slot: request.slot,
            stage,
        };
        let holder_is_live = slot.holder.is_some_and(|holder| {
            self.executes.accepted.get(&holder).is_some_and(|work| !matches!(work.stage, Stage::Draining))
        });
        if is_foreign {
            self.wait(host);
            return Err(Status::INSUFFICIENT_RESOURCES);
        }
        // Not Command Interrupted: only hosts with Advanced Command Retry may get that status.
        if holder_is_live || slot.parked.is_some() {
            return Err(Status::NAMESPACE_NOT_READY);
        }
        if is_beyond_share {
            slot.owner = None;
            self.wait(host);
            return Err(Status::INSUFFICIENT_RESOURCES);
        }
        slot.owner = Some(host.clone());
        self.executes.waiting.remove(&host);
        self.executes.last_job += 1;
        if slot.holder.is_some() {
            slot.parked = Some(id);
            let parked = work(Stage::Parked(Box::new(Job { id, program, host, request: request.clone(), layout })));
            self.executes.accepted.insert(id, parked);
        } else {
            slot.holder = Some(id);
            self.executes.accepted.insert(id, work(Stage::Live));
            self.outputs.push(SubsystemOutput::Start(Box::new(Job { id, program, host, request, layout })));
        }
        Ok(Answer::Later)
    }

    /// Returns whether a slot belongs to another host than this one.
    pub(super) fn is_foreign(&self, slot: usize, host: &ConnectedHost) -> bool {
        self.executes.slots[slot]
            .owner
            .as_deref()
            .is_some_and(|owner| owner != host && self.io_associations().any(|association| *association.host == *owner))
    }

    /// Notes that a host waits for a slot, and forgets hosts that are gone.
    fn wait(&mut self, host: Arc<ConnectedHost>) {
        let connected: BTreeSet<_> = self.io_associations().map(|association| association.host.clone()).collect();
        self.executes.waiting.retain(|host| connected.contains(host));
        self.executes.waiting.insert(host);
    }

    /// Returns whether a host would have more than its share with this slot, while another host that has less than its
    /// share waits for one. All hosts that have slots or wait have equal shares, at least one slot each.
    fn is_beyond_share(&self, slot: usize, host: &ConnectedHost) -> bool {
        let Executes { slots, waiting, .. } = &self.executes;
        if waiting.iter().all(|other| **other == *host) {
            return false;
        }
        let connected: BTreeSet<&ConnectedHost> =
            self.io_associations().map(|association| &*association.host).collect();
        let mut held: BTreeMap<&ConnectedHost, usize> =
            waiting.iter().map(|host| &**host).chain([host]).map(|host| (host, 0)).collect();
        for (number, owner) in slots.iter().enumerate().filter_map(|(at, slot)| Some((at, slot.owner.as_deref()?))) {
            *held.entry(owner).or_default() += usize::from(number != slot);
        }
        held.retain(|host, _| connected.contains(host));
        let share = (slots.len() / held.len()).max(1);
        let waits = |other: &ConnectedHost| other != host && waiting.contains(other);
        held[host] + 1 > share && held.iter().any(|(other, held)| waits(other) && *held < share)
    }

    /// Cancels a batch of this host, on whichever of the host's associations it runs. A vendor admin command.
    pub(super) fn cancel_batch(&mut self, queue: QueuePair, entry: &SubmissionEntry) -> CommandResult {
        let wanted = CancelBatch::from_dwords(entry.dwords()).ok_or(Status::INVALID_FIELD.do_not_retry())?;
        let own = self.associations.get(&queue.controller_id).ok_or(Status::COMMAND_SEQUENCE)?;
        let same_host = self.associations.values().filter(|other| other.host == own.host);
        let controllers: Vec<u16> = same_host.map(|association| association.controller_id).collect();
        let cancelled = self.cancel(|work| {
            let of_batch = CancelBatch { epoch: work.epoch, batch: work.batch } == wanted;
            of_batch && controllers.contains(&work.controller_id)
        });
        Answer::result(cancelled as u64)
    }

    /// Gives up the matching jobs and completes their Executes. Returns their number.
    pub(super) fn cancel(&mut self, wanted: impl Fn(&AcceptedExecute) -> bool) -> usize {
        let ids = self.executes.matching(wanted);
        for &id in &ids {
            if let Some((conn, command_id)) = self.give_up(id) {
                self.complete_id(conn, command_id, Status::ABORT_REQUESTED, 0, Payload::None);
            }
        }
        ids.len()
    }

    /// Gives up the matching jobs whose host is gone.
    pub(super) fn abandon(&mut self, wanted: impl Fn(&AcceptedExecute) -> bool) {
        for id in self.executes.matching(wanted) {
            if let Some((conn, command_id)) = self.give_up(id) {
                self.outputs.push(SubsystemOutput::Forget { conn, command_id });
            }
        }
    }

    fn give_up(&mut self, id: JobId) -> Option<(ConnId, u16)> {
        let work = self.executes.accepted.get_mut(&id)?;
        let answer_to = (work.conn, work.command_id);
        self.usage.cancelled += 1;
        match work.stage {
            Stage::Live => {
                work.stage = Stage::Draining;
                self.outputs.push(SubsystemOutput::Cancel(id));
            }
            Stage::Parked(_) => {
                self.executes.slots[work.slot as usize].parked = None;
                self.executes.accepted.remove(&id);
            }
            Stage::Draining => return None,
        }
        Some(answer_to)
    }

    /// Takes note that the workers have released a job's slot, whether or not the job is finished.
    pub fn job_event(&mut self, event: JobEvent) -> Vec<SubsystemOutput> {
        let (id, made) = match event {
            JobEvent::Done { id, corrupt } => (id, Ok(corrupt)),
            // Released, though nobody cancelled it: a worker panicked, or the slot could not be leased.
            JobEvent::Released { id } => (id, Err(Status::INTERNAL)),
            JobEvent::NoMemory { id } => (id, Err(Status::CAPACITY_EXCEEDED)),
        };
        let work = self.executes.accepted.remove(&id).expect("workers report each job once");
        match (work.stage, made) {
            (Stage::Draining, _) => {}
            (_, Ok(corrupt)) => {
                self.complete_id(work.conn, work.command_id, Status::SUCCESS, corrupt.into(), Payload::None);
            }
            (_, Err(status)) => {
                self.usage.errors += 1;
                self.complete_id(work.conn, work.command_id, status, 0, Payload::None);
            }
        }
        self.next_for_slot(work.slot as usize);
        std::mem::take(&mut self.outputs)
    }

    fn next_for_slot(&mut self, slot: usize) {
        let state = &mut self.executes.slots[slot];
        state.holder = state.parked.take();
        let Some(work) = state.holder.and_then(|id| self.executes.accepted.get_mut(&id)) else { return };
        if let Stage::Parked(job) = std::mem::replace(&mut work.stage, Stage::Live) {
            self.outputs.push(SubsystemOutput::Start(job));
        }
    }
}

/// Checks an Execute against its program and the slots.
fn order(
    entry: &SubmissionEntry,
    command: &ExecuteProgram,
    program: &LoadedProgram,
    data: &[u8],
    config: &Config,
) -> Result<(BatchRequest, SlotLayout), Status> {
    let geometry = config.geometry;
    if command.set_id != 0 || command.ranges != 0 {
        // There are no memory range sets: a program addresses the result namespace by slot.
        return Err(Status::INVALID_FIELD);
    }
    let request = BatchRequest::parse(data).map_err(|error| {
        tracing::debug!(%error, command_id = entry.command_id.get(), "batch request refused");
        Status::INVALID_PROGRAM_DATA
    })?;
    if program.id != request.program {
        // Another run of the same host has loaded its own program there, or this drive has come back with another
        // dataset.
        return Err(Status::PROGRAM_NOT_ACTIVATED);
    }
    if request.parameters() != (command.parameter1, command.parameter2) || request.slot >= geometry.slots {
        return Err(Status::INVALID_FIELD);
    }
    let layout =
        SlotLayout::new(request.sample_ids.len(), program.program.pipeline.output()).ok_or(Status::INVALID_FIELD)?;
    if layout.total_bytes as u64 > geometry.slot_bytes {
        return Err(Status::INVALID_FIELD);
    }
    Ok((request, layout))
}
