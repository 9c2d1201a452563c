//! Computational programs: load, activate, execute.

use crate::contract::{AdminData, Command, Completion, Controller};
use crate::error::DriverError;
use ddlp_nvme::cp::{ExecuteProgram, LoadProgram, ProgramActivation};
use ddlp_nvme::{AdminOpcode, CpOpcode, Status};
use std::time::{Duration, Instant};

/// Most bytes of one Load Program command: every controller takes them in the capsule of an admin command.
pub const LOAD_PIECE_BYTES: usize = 8192;

/// Interval between attempts to replace a program that is in use.
const IN_USE_LOOK: Duration = Duration::from_millis(20);

/// Place of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramSlot {
    /// Identifier of the Computational Programs namespace.
    pub nsid: u32,
    /// Program index (PIND).
    pub index: u16,
}

/// Loads a program of type `kind` (PTYPE) with unique identifier `id` (PUID), piece by piece; `timeout` applies to each
/// piece.
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

/// Loads and activates a program in place of any other there. If a program is being executed, for a host that has gone,
/// waits for it until `timeout` has passed; the error is then transient.
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
        // Load answers “do not retry” as long as the program is active, whether or not it is being executed.
        match select(controller, slot, ProgramActivation::DEACTIVATE, timeout) {
            Ok(()) if Instant::now() < until => {}
            Ok(()) => return Err(in_use),
            Err(error) if error.is_status(Status::PROGRAM_IN_USE) && Instant::now() < until => {
                std::thread::sleep(IN_USE_LOOK);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Activates a loaded program.
pub fn activate(controller: &dyn Controller, slot: ProgramSlot, timeout: Duration) -> Result<(), DriverError> {
    select(controller, slot, ProgramActivation::ACTIVATE, timeout)
}

/// Makes an Execute Program command, to be submitted on an I/O queue. Its data is the program's input, its result the
/// program's value.
pub fn execute(slot: ProgramSlot, parameter1: u64, parameter2: u64) -> Command {
    let request = ExecuteProgram { index: slot.index, parameter1, parameter2, ..ExecuteProgram::default() };
    Command {
        opcode: CpOpcode::EXECUTE_PROGRAM.0,
        nsid: slot.nsid,
        cdw2: request.cdw2(),
        cdw3: request.ranges,
        cdw10_15: request.dwords(),
        name: None,
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
    completion.success(controller.peer(), &command.admin_name())?;
    Ok(completion)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Queue;
    use std::sync::Mutex;

    const SLOT: ProgramSlot = ProgramSlot { nsid: 3, index: 0 };

    /// A controller that answers commands with these statuses in order, and then always with the last one.
    struct Answers(Mutex<Vec<Status>>);

    impl Controller for Answers {
        fn peer(&self) -> &str {
            "answers"
        }
        fn transfer_bytes_max(&self) -> usize {
            LOAD_PIECE_BYTES
        }
        fn admin(&self, _: &Command, _: AdminData<'_>, _: Duration) -> Result<Completion, DriverError> {
            let mut left = self.0.lock().unwrap();
            let status = if left.len() > 1 { left.remove(0) } else { left[0] };
            Ok(Completion { result: 0, status: status.0 })
        }
        fn open_queue(&self, _: usize) -> Result<Box<dyn Queue>, DriverError> {
            unreachable!("programs need no queue")
        }
        fn is_alive(&self) -> bool {
            true
        }
        fn close(&self) {}
    }

    fn replaced(statuses: &[Status]) -> Result<(), DriverError> {
        replace(&Answers(Mutex::new(statuses.to_vec())), SLOT, 1, 7, &[1; 10], Duration::from_millis(100))
    }

    #[test]
    fn a_program_that_is_executed_is_waited_for() {
        let (done, in_use) = (Status::SUCCESS, Status::PROGRAM_IN_USE);
        // Load, deactivate, load, activate.
        replaced(&[in_use.do_not_retry(), done, done, done]).unwrap();
        replaced(&[in_use.do_not_retry(), in_use, in_use.do_not_retry(), done, done, done]).unwrap();
    }

    #[test]
    fn one_that_is_executed_for_too_long_may_be_replaced_later() {
        let always = Answers(Mutex::new(Vec::new()));
        for _ in 0..10_000 {
            always.0.lock().unwrap().extend([Status::PROGRAM_IN_USE.do_not_retry(), Status::PROGRAM_IN_USE]);
        }
        let error = replace(&always, SLOT, 1, 7, &[1; 10], Duration::from_millis(50)).unwrap_err();
        assert!(error.is_status(Status::PROGRAM_IN_USE) && error.is_transient(), "{error}");
    }

    #[test]
    fn other_refusals_are_final() {
        let error = replaced(&[Status::INVALID_FIELD.do_not_retry()]).unwrap_err();
        assert!(error.is_status(Status::INVALID_FIELD) && !error.is_transient());
    }
}
