//! From a fresh connection to a ready controller: Connect, properties, Identify, number of queues. Also the orderly
//! shutdown.

use super::admin::AdminQueue;
use super::deadline::Deadline;
use super::exchange::{CommandData, Exchange, ExchangeStep, QueueRules};
use super::target::TcpTarget;
use super::{QUEUE_COMMANDS_MAX, TRANSFER_BYTES_MAX};
use crate::contract::{AdminData, Command};
use crate::error::DriverError;
use ddlp_nvme::admin::{Identify, NumberOfQueues, SetFeatures};
use ddlp_nvme::fabrics::{ConnectCommand, ConnectData, ConnectFault, ConnectResult, PropertyGet, PropertySet};
use ddlp_nvme::identify::IdentifyController;
use ddlp_nvme::property::{Capabilities, Configuration, ControllerStatus, offset};
use ddlp_nvme::{AdminOpcode, Cns, FeatureId, IDENTIFY_BYTES, Status};
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// Interval between two reads of CSTS while the controller gets ready or shuts down: there is no event to wait for.
const STATUS_INTERVAL: Duration = Duration::from_millis(2);

/// Results of bringing a controller up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) controller_id: u16,
    pub(super) transfer_bytes_max: usize,
    /// Most in-capsule data on I/O queues, in bytes.
    pub(super) capsule_bytes_max: usize,
    /// Most commands in flight on an I/O queue: at least one.
    pub(super) commands_max: usize,
    pub(super) io_queues_max: u16,
    /// Least time in which the controller answered a command, as far as was measured.
    pub(super) round_trip: Duration,
    /// Whether the controller has a keep alive timer and the target wants one.
    pub(super) keep_alive: bool,
}

/// Connects a queue and returns the controller that it belongs to. `rules` apply afterwards, with the success flag if
/// the controller allows flow control to be off.
pub(super) fn connect_queue(
    exchange: &mut Exchange,
    target: &TcpTarget,
    command: &ConnectCommand,
    controller_id: u16,
    rules: QueueRules,
    deadline: Deadline,
) -> Result<u16, DriverError> {
    let data = ConnectData::new(target.host.id, controller_id, &target.nqn, &target.host.nqn)
        .map_err(|error| DriverError::Invalid(error.to_string()))?;
    let what = format!("connect of queue {}", command.queue_id);
    let ticket = exchange.submit(command.entry(), CommandData::Write(data.as_bytes().to_vec()))?;
    let done = loop {
        match exchange.step(&mut [], deadline.at, deadline)? {
            ExchangeStep::Done(done) if done.ticket == ticket => break done,
            ExchangeStep::Idle => return Err(deadline.timed_out(exchange.link().peer(), &what)),
            ExchangeStep::Done(_) | ExchangeStep::Progress => {}
        }
    };
    let status = done.completion.status();
    let what = if status.same_code(Status::CONNECT_PARAMETERS) {
        let fault = ConnectFault::from_result(done.completion.result);
        let place = if fault.in_data { "data" } else { "command" };
        format!("{what} (it objects to byte {} of the {place})", fault.offset)
    } else if status.same_code(Status::CONTROLLER_BUSY) {
        format!("{what} (too many hosts, associations or queues are connected: end other runs, or try again later)")
    } else {
        what
    };
    let result = ConnectResult::from_result(done.completion.success(exchange.link().peer(), &what)?);
    if result.authentication_required {
        return Err(DriverError::Invalid(format!("{} requires authentication", exchange.link().peer())));
    }
    let without_flow_control = command.no_flow_control() && done.sq_head == u16::MAX;
    exchange.set_rules(QueueRules { success_flag: rules.success_flag || without_flow_control, ..rules });
    Ok(result.controller_id)
}

/// Enables a controller of any type. Returns its capabilities and its Identify data.
pub(super) fn enable(
    admin: &mut AdminQueue,
    controller_id: u16,
    deadline: Deadline,
) -> Result<(Capabilities, Box<IdentifyController>), DriverError> {
    let capabilities = Capabilities(get_property(admin, offset::CAP, deadline)?);
    let sets = if capabilities.io_command_sets() { Configuration::CSS_ALL } else { Configuration::CSS_NVM };
    let configuration = Configuration::default()
        .with_command_sets(sets)
        .with_submission_entry(6)
        .with_completion_entry(4)
        .with_enabled(true);
    set_property(admin, offset::CC, configuration.0.into(), deadline)?;
    await_status(admin, deadline, "enable", ControllerStatus::ready)?;
    let version = get_property(admin, offset::VS, deadline)?;
    let identify = identify_controller(admin, deadline)?;
    if identify.controller_id.get() != controller_id {
        return Err(admin
            .link()
            .protocol(format!("controller {} answers for {controller_id}", identify.controller_id)));
    }
    tracing::debug!(
        peer = admin.link().peer(),
        version = format_args!("{version:#x}"),
        kind = identify.controller_type,
        model = identify.model(),
        serial = identify.serial(),
        "controller is up"
    );
    Ok((capabilities, identify))
}

/// Enables an I/O controller and learns its limits.
pub(super) fn bring_up(
    admin: &mut AdminQueue,
    target: &TcpTarget,
    controller_id: u16,
    deadline: Deadline,
) -> Result<Facts, DriverError> {
    let begun = Instant::now();
    let (capabilities, identify) = enable(admin, controller_id, deadline)?;
    // It sent four commands at least.
    let of_four = begun.elapsed() / 4;
    check(admin, &identify)?;
    let asked = Instant::now();
    let io_queues_max = ask_for_queues(admin, target.io_queues_max, deadline)?;
    let round_trip = asked.elapsed().min(of_four);
    let commands_max = match identify.commands_max.get() {
        0 => capabilities.queue_entries_max_z(),
        most => capabilities.queue_entries_max_z().min(most),
    };
    let limit = identify.transfer_bytes_max(capabilities.page_min()).and_then(|bytes| usize::try_from(bytes).ok());
    Ok(Facts {
        controller_id,
        transfer_bytes_max: limit.map_or(TRANSFER_BYTES_MAX, |bytes| bytes.min(TRANSFER_BYTES_MAX)),
        capsule_bytes_max: identify.in_capsule_bytes_max(),
        commands_max: usize::from(commands_max).clamp(1, QUEUE_COMMANDS_MAX),
        io_queues_max,
        round_trip,
        keep_alive: !target.keep_alive.is_zero() && identify.keep_alive_granularity.get() != 0,
    })
}

fn identify_controller(admin: &mut AdminQueue, deadline: Deadline) -> Result<Box<IdentifyController>, DriverError> {
    let request = Identify { cns: Cns::CONTROLLER, ..Identify::default() };
    let command = Command { opcode: AdminOpcode::IDENTIFY.0, cdw10_15: request.dwords(), ..Command::default() };
    let mut page = Box::new([0; IDENTIFY_BYTES]);
    let completion = admin.run(&command, AdminData::Read(&mut page[..]), deadline)?;
    completion.success(admin.link().peer(), &request.cns.to_string())?;
    let identify = IdentifyController::parse(&page[..]);
    Ok(Box::new(*identify.map_err(|error| admin.link().protocol(error))?))
}

/// Checks the properties that this driver cannot do without.
fn check(admin: &AdminQueue, identify: &IdentifyController) -> Result<(), DriverError> {
    let protocol = |what: String| Err(admin.link().protocol(what));
    if identify.controller_type != IdentifyController::TYPE_IO {
        let (peer, kind) = (admin.link().peer(), identify.controller_type);
        return Err(DriverError::Invalid(format!("{peer} is not an i/o controller (type {kind})")));
    }
    if identify.command_capsule.get() < 4 || identify.response_capsule.get() < 1 {
        let (command, response) = (identify.command_capsule, identify.response_capsule);
        return protocol(format!("capsules of {command} and {response} units of 16 bytes"));
    }
    if identify.capsule_data_offset.get() != 0 {
        return protocol(format!("in-capsule data at offset {}", identify.capsule_data_offset));
    }
    Ok(())
}

/// Requests I/O queues; returns how many the controller grants.
fn ask_for_queues(admin: &mut AdminQueue, wanted: u16, deadline: Deadline) -> Result<u16, DriverError> {
    let wanted_z = wanted.clamp(1, u16::MAX - 1) - 1;
    let value = NumberOfQueues { submission_z: wanted_z, completion_z: wanted_z }.value();
    let request = SetFeatures { feature: FeatureId::NUMBER_OF_QUEUES, value, ..SetFeatures::default() };
    let command = Command { opcode: AdminOpcode::SET_FEATURES.0, cdw10_15: request.dwords(), ..Command::default() };
    let completion = admin.run(&command, AdminData::None, deadline)?;
    let result = completion.success(admin.link().peer(), "number of queues")?;
    let granted = NumberOfQueues::from_value(result as u32);
    Ok(granted.submission_z.min(granted.completion_z).min(wanted_z) + 1)
}

/// Requests a normal shutdown and waits for its end.
pub(super) fn shut_down(admin: &mut AdminQueue, deadline: Deadline) -> Result<(), DriverError> {
    let configuration = Configuration(get_property(admin, offset::CC, deadline)? as u32);
    let configuration = configuration.with_shutdown(Configuration::SHUTDOWN_NORMAL);
    set_property(admin, offset::CC, configuration.0.into(), deadline)?;
    let complete = |status: ControllerStatus| status.shutdown() == ControllerStatus::SHUTDOWN_COMPLETE;
    await_status(admin, deadline, "shutdown", complete)
}

fn await_status(
    admin: &mut AdminQueue,
    deadline: Deadline,
    what: &str,
    reached: impl Fn(ControllerStatus) -> bool,
) -> Result<(), DriverError> {
    loop {
        let status = ControllerStatus(get_property(admin, offset::CSTS, deadline)? as u32);
        if reached(status) {
            return Ok(());
        }
        if status.fatal() {
            return Err(admin.link().lost(format!("fatal controller status at {what}")));
        }
        if Instant::now() >= deadline.at {
            return Err(deadline.timed_out(admin.link().peer(), what));
        }
        std::thread::sleep(STATUS_INTERVAL);
    }
}

fn get_property(admin: &mut AdminQueue, offset: u32, deadline: Deadline) -> Result<u64, DriverError> {
    let what = format!("property get {offset:#x}");
    let done = admin.run_entry(PropertyGet::new(offset).entry(), CommandData::None, &mut [], &what, deadline)?;
    done.completion.success(admin.link().peer(), &what)
}

fn set_property(admin: &mut AdminQueue, offset: u32, value: u64, deadline: Deadline) -> Result<(), DriverError> {
    let what = format!("property set {offset:#x}");
    let done = admin.run_entry(PropertySet::new(offset, value).entry(), CommandData::None, &mut [], &what, deadline)?;
    done.completion.success(admin.link().peer(), &what).map(drop)
}
