//! Computational programs: load, activate, execute.

use crate::contract::{AdminData, Command, Completion, Controller};
use crate::error::DriverError;
use ddlp_nvme::cp::{ExecuteProgram, LoadProgram, ProgramActivation};
use ddlp_nvme::{AdminOpcode, CpOpcode, Status};
use std::time::{Duration, Instant};

/// Most bytes of one Load Program command: what every controller takes in the capsule of an admin command.
pub const LOAD_PIECE_BYTES: usize = 8192;

/// How often a program that is in use is looked at.
const IN_USE_LOOK: Duration = Duration::from_millis(20);

/// Where a program goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramSlot {
    /// Computational Programs namespace.
    pub nsid: u32,
    /// Program index (PIND).
    pub index: u16,
}

/// Loads a program of type `kind` (PTYPE) and unique identifier `id` (PUID) piece by piece; `timeout` is that of each piece.
pub fn load(
    controller: &dyn Controller,
    slot: ProgramSlot,
    kind: u8,
    id: u64,
    program: &[u8],
    timeout: Duration,
) -> Result<(), DriverError> {
    let Some(program_bytes) = u32::try_from(program.len()).ok().filter(|&bytes| bytes > 0) else {
        return Err(DriverError::Invalid(format!("a program of {} bytes cannot be loaded", program.len())));
    };
    let piece_bytes = controller.transfer_bytes_max().clamp(1, LOAD_PIECE_BYTES);
    let mut offset = 0;
    for piece in program.chunks(piece_bytes) {
        let bytes = piece.len() as u32;
        let request =
            LoadProgram { index: slot.index, kind, unload: false, id_kind: 1, program_bytes, id, bytes, offset };
        let command = admin(AdminOpcode::LOAD_PROGRAM, slot.nsid, request.dwords());
        run(controller, &command, AdminData::Write(piece), timeout)?;
        offset += bytes;
    }
    Ok(())
}

/// Loads and activates a program, in the place of whatever is there. A program that is being executed, by a host that has gone, is
/// waited for until `timeout` is over.
pub fn replace(
    controller: &dyn Controller,
    slot: ProgramSlot,
    kind: u8,
    id: u64,
    program: &[u8],
    timeout: Duration,
) -> Result<(), DriverError> {
    let until = Instant::now() + timeout;
    loop {
        let in_use = match load(controller, slot, kind, id, program, timeout) {
            Ok(()) => return activate(controller, slot, timeout),
            Err(error) if error.is_status(Status::PROGRAM_IN_USE) => error,
            Err(error) => return Err(error),
        };
        match select(controller, slot, ProgramActivation::DEACTIVATE, timeout) {
            Err(error) if !error.is_status(Status::PROGRAM_IN_USE) => return Err(error),
            _ if Instant::now() >= until => return Err(in_use),
            Ok(()) => {}
            Err(_) => std::thread::sleep(IN_USE_LOOK),
        }
    }
}

/// Activates a loaded program.
pub fn activate(controller: &dyn Controller, slot: ProgramSlot, timeout: Duration) -> Result<(), DriverError> {
    select(controller, slot, ProgramActivation::ACTIVATE, timeout)
}

/// Execute Program, to be submitted on an I/O queue. Its data is the program's input; its result the program's value.
pub fn execute(slot: ProgramSlot, parameter1: u64, parameter2: u64) -> Command {
    let request = ExecuteProgram { index: slot.index, parameter1, parameter2, ..ExecuteProgram::default() };
    Command {
        opcode: CpOpcode::EXECUTE_PROGRAM.0,
        nsid: slot.nsid,
        cdw2: request.cdw2(),
        cdw3: request.ranges,
        cdw10_15: request.dwords(),
    }
}

fn select(controller: &dyn Controller, slot: ProgramSlot, select: u8, timeout: Duration) -> Result<(), DriverError> {
    let request = ProgramActivation { index: slot.index, select };
    let command = admin(AdminOpcode::PROGRAM_ACTIVATION, slot.nsid, request.dwords());
    run(controller, &command, AdminData::None, timeout).map(drop)
}

fn admin(opcode: AdminOpcode, nsid: u32, cdw10_15: [u32; 6]) -> Command {
    Command { opcode: opcode.0, nsid, cdw10_15, ..Command::default() }
}

fn run(
    controller: &dyn Controller,
    command: &Command,
    data: AdminData<'_>,
    timeout: Duration,
) -> Result<Completion, DriverError> {
    let completion = controller.admin(command, data, timeout)?;
    completion.success(controller.peer(), &AdminOpcode(command.opcode).to_string())?;
    Ok(completion)
}
