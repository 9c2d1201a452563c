//! Admin commands: dispatch, Abort, asynchronous events, keep alive.

use super::profile::ASYNC_EVENTS_MAX;
use super::queue_pair::QueuePair;
use super::{Answer, CommandResult, ConnId, Payload, Subsystem, discovery, features};
use ddlp_csd::CANCEL_OPCODE;
use ddlp_csd::program::PROGRAM_BYTES_MAX;
use ddlp_nvme::admin::{Abort, GetLogPage, SetFeatures};
use ddlp_nvme::cp::LoadProgram;
use ddlp_nvme::event::AsyncEvent;
use ddlp_nvme::log::SmartLog;
use ddlp_nvme::{AdminOpcode, FABRICS_OPCODE, FeatureId, LogId, Status, SubmissionEntry};

/// Information of a SMART event: temperature beyond its threshold.
const EVENT_TEMPERATURE: u8 = 0x01;

/// Returns the most bytes of data that an admin command takes from the host. The data pointer of a command that takes
/// none is ignored.
pub fn data_bytes_max(command: &SubmissionEntry, discovery: bool) -> usize {
    match AdminOpcode(command.opcode) {
        AdminOpcode::LOAD_PROGRAM if !discovery && !LoadProgram::parse(command).unload => PROGRAM_BYTES_MAX,
        AdminOpcode::SET_FEATURES if SetFeatures::parse(command).feature == FeatureId::HOST_BEHAVIOR => {
            features::HOST_BEHAVIOR_BYTES
        }
        _ => 0,
    }
}

impl Subsystem {
    pub(super) fn admin(&mut self, queue: QueuePair, command: &SubmissionEntry, data: &[u8]) -> CommandResult {
        let Some(association) = self.associations.get(&queue.controller_id) else {
            return Err(Status::COMMAND_SEQUENCE);
        };
        let opcode = AdminOpcode(command.opcode);
        if !association.properties.is_ready() && opcode != AdminOpcode::KEEP_ALIVE {
            return Err(Status::COMMAND_SEQUENCE.do_not_retry());
        }
        if association.kind.is_discovery() {
            discovery::admit(command)?;
        }
        match opcode {
            AdminOpcode::IDENTIFY => self.identify(queue, command),
            AdminOpcode::GET_LOG_PAGE => self.get_log_page(queue, command),
            AdminOpcode::SET_FEATURES => self.set_features(queue, command, data),
            AdminOpcode::GET_FEATURES => self.get_features(queue, command),
            AdminOpcode::KEEP_ALIVE => Answer::DONE,
            AdminOpcode::ASYNC_EVENT => self.event_request(queue, command),
            AdminOpcode::ABORT => self.abort(queue, Abort::parse(command)),
            AdminOpcode::LOAD_PROGRAM => self.load_program(queue, command, data),
            AdminOpcode::PROGRAM_ACTIVATION => self.activate_program(queue, command),
            AdminOpcode(CANCEL_OPCODE) => self.cancel_batch(queue, command),
            _ => Err(Status::INVALID_OPCODE.do_not_retry()),
        }
    }

    /// Aborts an Execute or an event request. Every other command is answered before an Abort can name it.
    fn abort(&mut self, queue: QueuePair, abort: Abort) -> CommandResult {
        let Some(association) = self.associations.get_mut(&queue.controller_id) else {
            return Err(Status::COMMAND_SEQUENCE);
        };
        let (admin, command_id) = (association.admin, abort.command_id);
        let conn = match abort.queue_id {
            0 => admin,
            id => match association.io_queues.get(&id) {
                Some(&conn) => conn,
                None => return Answer::result(Abort::result(false)),
            },
        };
        if let Some(at) = association.event_requests.iter().position(|&id| conn == admin && id == command_id) {
            association.event_requests.remove(at);
            self.complete_id(admin, command_id, Status::ABORT_REQUESTED, 0, Payload::None);
            return Answer::result(Abort::result(true));
        }
        let aborted = self.cancel(|work| work.conn == conn && work.command_id == command_id);
        Answer::result(Abort::result(aborted > 0))
    }

    fn event_request(&mut self, queue: QueuePair, command: &SubmissionEntry) -> CommandResult {
        let Some(association) = self.associations.get_mut(&queue.controller_id) else {
            return Err(Status::COMMAND_SEQUENCE);
        };
        if association.event_requests.len() >= ASYNC_EVENTS_MAX {
            return Err(Status::ASYNC_EVENT_LIMIT.do_not_retry());
        }
        association.event_requests.push(command.command_id.get());
        self.watch_temperature();
        Ok(Answer::Later)
    }

    /// Reports a temperature above its threshold to every controller whose host asked for that event: once, until the
    /// host has read the SMART log.
    pub(super) fn watch_temperature(&mut self) {
        let Some(kelvin) = self.temperature_k() else { return };
        let mut due: Vec<(ConnId, u16)> = Vec::new();
        for association in self.associations.values_mut() {
            let features = &association.features;
            // A discovery controller has no SMART log.
            let wanted = !association.kind.is_discovery()
                && features.events.smart_warnings() & SmartLog::TEMPERATURE_WARNING != 0;
            if !wanted || association.event_masked || kelvin < features.temperature_threshold_k {
                continue;
            }
            if let Some(command_id) = association.event_requests.pop() {
                association.event_masked = true;
                due.push((association.admin, command_id));
            }
        }
        let event = AsyncEvent { kind: AsyncEvent::SMART, info: EVENT_TEMPERATURE, log: LogId::SMART };
        for (conn, command_id) in due {
            self.complete_id(conn, command_id, Status::SUCCESS, event.result(), Payload::None);
        }
    }

    /// Returns the temperature of the drive in kelvin, if it has a sensor.
    pub(super) fn temperature_k(&self) -> Option<u16> {
        let tenths_celsius = i32::from(self.config.gauges.counters().temperature_dc?);
        u16::try_from((tenths_celsius + 2731) / 10).ok()
    }

    /// Re-arms the temperature event after a command that read the SMART log.
    pub(super) fn after_command(&mut self, conn: ConnId, command: &SubmissionEntry) {
        if command.opcode == FABRICS_OPCODE || command.opcode != AdminOpcode::GET_LOG_PAGE.0 {
            return;
        }
        let page = GetLogPage::parse(command);
        let Some(queue) = self.queues.get(&conn).filter(|queue| queue.id == 0) else { return };
        if let Some(association) = self.associations.get_mut(&queue.controller_id)
            && page.log == LogId::SMART
            && !page.retain_event
        {
            association.event_masked = false;
        }
    }
}
