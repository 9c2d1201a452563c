//! Load Program and Program Activation Management. CP 1.1.
//!
//! An index goes from empty to loading (in pieces, in order), loaded and active, and back by deactivating and
//! unloading. A job keeps the program with which it started.

use super::association::Association;
use super::profile::{PROGRAM_LIMITS_MAX, PROGRAMS_MAX};
use super::queue_pair::QueuePair;
use super::{Answer, CommandResult, Subsystem};
use crate::host::ConnectedHost;
use crate::job::LoadedProgram;
use ddlp_csd::abilities::Disagreement;
use ddlp_csd::log::DriveIdentity;
use ddlp_csd::program::{DriveProgram, PROGRAM_BYTES_MAX, program_id};
use ddlp_csd::{COMPUTE_NSID, PROGRAM_TYPE};
use ddlp_dataset::ability_name;
use ddlp_nvme::cp::{LoadProgram, ProgramActivation};
use ddlp_nvme::{Status, SubmissionEntry};
use std::sync::Arc;

/// Value of PIT for a program unique identifier. The value below it, 0, says that there is no identifier.
const UNIQUE_ID: u8 = 1;

/// One index.
#[derive(Clone, Debug, Default)]
enum ProgramEntry {
    #[default]
    Empty,
    Loading {
        total: usize,
        /// Identifier that the host gave, if it gave one.
        id: Option<u64>,
        bytes: Vec<u8>,
    },
    Loaded {
        program: Arc<LoadedProgram>,
        bytes: usize,
        active: bool,
    },
}

/// One loaded program, for the program list log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedProgram {
    /// Program index.
    pub index: u16,
    /// Size in bytes.
    pub bytes: u32,
    /// Identifier, as [`program_id`] computes it.
    pub id: u64,
    /// Whether the program is active, so that the host may execute it.
    pub active: bool,
}

/// The programs of one host.
#[derive(Clone, Debug, Default)]
pub struct ProgramTable {
    entries: [ProgramEntry; PROGRAMS_MAX],
}

impl ProgramTable {
    fn entry(&mut self, index: u16) -> Result<&mut ProgramEntry, Status> {
        self.entries.get_mut(usize::from(index)).ok_or(Status::INVALID_PROGRAM_INDEX)
    }

    /// Returns the active program at an index.
    pub fn active(&self, index: u16) -> Result<Arc<LoadedProgram>, Status> {
        match self.entries.get(usize::from(index)).ok_or(Status::INVALID_PROGRAM_INDEX)? {
            ProgramEntry::Loaded { program, active: true, .. } => Ok(program.clone()),
            ProgramEntry::Loaded { .. } => Err(Status::PROGRAM_NOT_ACTIVATED),
            ProgramEntry::Loading { .. } | ProgramEntry::Empty => Err(Status::NO_PROGRAM),
        }
    }

    /// Returns all loaded programs.
    pub fn listed(&self) -> Vec<ListedProgram> {
        let listed = |(index, entry): (usize, &ProgramEntry)| match entry {
            ProgramEntry::Loaded { program, bytes, active } => {
                Some(ListedProgram { index: index as u16, bytes: *bytes as u32, id: program.id, active: *active })
            }
            _ => None,
        };
        self.entries.iter().enumerate().filter_map(listed).collect()
    }

    /// Takes one piece of a program for this drive. The last piece completes the program.
    fn load(&mut self, command: &LoadProgram, data: &[u8], drive: &DriveIdentity) -> Result<(), Status> {
        let entry = self.entry(command.index)?;
        if matches!(entry, ProgramEntry::Loaded { active: true, .. }) {
            return Err(Status::PROGRAM_IN_USE);
        }
        if command.kind != PROGRAM_TYPE {
            return Err(Status::INVALID_PROGRAM_TYPE);
        }
        let total = command.program_bytes as usize;
        if total > PROGRAM_BYTES_MAX {
            return Err(Status::PROGRAM_TOO_BIG);
        }
        let (offset, length) = (command.offset as usize, command.bytes as usize);
        let within = offset.checked_add(length).is_some_and(|end| end <= total);
        if command.id_kind > UNIQUE_ID || length == 0 || length != data.len() || !within {
            return Err(Status::INVALID_FIELD);
        }
        if offset == 0 {
            let id = (command.id_kind == UNIQUE_ID).then_some(command.id);
            *entry = ProgramEntry::Loading { total, id, bytes: Vec::with_capacity(total) };
        }
        let ProgramEntry::Loading { total: expected, id, bytes } = entry else { return Err(Status::INVALID_FIELD) };
        if *expected != total || bytes.len() != offset {
            return Err(Status::INVALID_FIELD);
        }
        bytes.extend_from_slice(data);
        if bytes.len() < total {
            return Ok(());
        }
        match complete(bytes, *id, drive) {
            Ok(program) => {
                *entry = ProgramEntry::Loaded { program: Arc::new(program), bytes: total, active: false };
                Ok(())
            }
            Err(reason) => {
                tracing::debug!(reason, index = command.index, "program refused");
                *entry = ProgramEntry::Empty;
                Err(Status::INVALID_PROGRAM_DATA)
            }
        }
    }

    fn unload(&mut self, index: u16) -> Result<(), Status> {
        let entry = self.entry(index)?;
        match entry {
            ProgramEntry::Empty => Err(Status::NO_PROGRAM),
            ProgramEntry::Loaded { active: true, .. } => Err(Status::PROGRAM_IN_USE),
            ProgramEntry::Loaded { .. } | ProgramEntry::Loading { .. } => {
                *entry = ProgramEntry::Empty;
                Ok(())
            }
        }
    }

    fn set_active(&mut self, index: u16, activate: bool) -> Result<(), Status> {
        match self.entry(index)? {
            ProgramEntry::Loaded { active, .. } => {
                *active = activate;
                Ok(())
            }
            ProgramEntry::Empty | ProgramEntry::Loading { .. } => Err(Status::NO_PROGRAM),
        }
    }
}

/// Checks a whole program, which the host identified by `given`, for this drive. Returns the reason if the drive cannot
/// run the program.
fn complete(bytes: &[u8], given: Option<u64>, drive: &DriveIdentity) -> Result<LoadedProgram, String> {
    let id = program_id(&drive.dataset, bytes);
    if given.is_some_and(|given| given != id) {
        return Err("its identifier is that of another program or dataset".into());
    }
    let wire = DriveProgram::from_bytes(bytes).map_err(|error| error.to_string())?;
    let agreed = wire.agree(&drive.abilities).map_err(|Disagreement { needed, found }| match found {
        Some(_) => {
            format!("the host needs {}, whose digest differs from this drive's", ability_name(needed.number))
        }
        None => format!("the host needs {}, which this drive lacks", ability_name(needed.number)),
    })?;
    let program = wire.program;
    if !program.limits.is_within(&PROGRAM_LIMITS_MAX) {
        return Err(format!("its limits are too high: {:?}", program.limits));
    }
    Ok(LoadedProgram { program, agreed, id })
}

impl Subsystem {
    pub(super) fn load_program(&mut self, queue: QueuePair, entry: &SubmissionEntry, data: &[u8]) -> CommandResult {
        let command = LoadProgram::parse(entry);
        let drive = self.config.drive.clone();
        let table = self.programs_of(queue, entry)?;
        let done = if command.unload { table.unload(command.index) } else { table.load(&command, data, &drive) };
        done.map_err(Status::do_not_retry)?;
        Answer::DONE
    }

    pub(super) fn activate_program(&mut self, queue: QueuePair, entry: &SubmissionEntry) -> CommandResult {
        let command = ProgramActivation::parse(entry);
        let activate = match command.select {
            ProgramActivation::ACTIVATE => true,
            ProgramActivation::DEACTIVATE => false,
            _ => return Err(Status::INVALID_FIELD.do_not_retry()),
        };
        if !activate && self.uses_program(queue, command.index) {
            return Err(Status::PROGRAM_IN_USE);
        }
        self.programs_of(queue, entry)?.set_active(command.index, activate).map_err(Status::do_not_retry)?;
        Answer::DONE
    }

    fn programs_of(&mut self, queue: QueuePair, entry: &SubmissionEntry) -> Result<&mut ProgramTable, Status> {
        if entry.nsid.get() != COMPUTE_NSID {
            return Err(Status::INVALID_NAMESPACE.do_not_retry());
        }
        let association = self.associations.get(&queue.controller_id).ok_or(Status::COMMAND_SEQUENCE)?;
        Ok(self.programs.entry(association.host.clone()).or_default())
    }

    /// Returns the active program at an index.
    pub(super) fn program(&self, queue: QueuePair, index: u16) -> Result<Arc<LoadedProgram>, Status> {
        let association = self.associations.get(&queue.controller_id).ok_or(Status::COMMAND_SEQUENCE)?;
        self.programs.get(&association.host).ok_or(Status::NO_PROGRAM)?.active(index)
    }

    /// Returns the loaded programs of a queue's host.
    pub(super) fn listed_programs(&self, queue: QueuePair) -> Vec<ListedProgram> {
        let host = self.associations.get(&queue.controller_id).map(|association| &association.host);
        host.and_then(|host| self.programs.get(host)).map(ProgramTable::listed).unwrap_or_default()
    }

    /// Drops a host's programs when the association `controller_id` ends or is reset, unless the host has another one.
    pub(super) fn forget_programs(&mut self, host: &ConnectedHost, controller_id: u16) {
        let is_other = |other: &Association| *other.host == *host && other.controller_id != controller_id;
        if !self.io_associations().any(is_other) {
            self.programs.remove(host);
        }
    }

    /// Returns whether the queue's host waits for a batch of this program.
    fn uses_program(&self, queue: QueuePair, index: u16) -> bool {
        let Some(own) = self.associations.get(&queue.controller_id) else { return false };
        let same_host = self.associations.values().filter(|other| other.host == own.host);
        let controllers: Vec<u16> = same_host.map(|association| association.controller_id).collect();
        self.executes.uses_program(&controllers, index)
    }
}

#[cfg(test)]
mod tests;
