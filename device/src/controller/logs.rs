//! Log pages.
//!
//! `ddlp_csd::log` defines the vendor pages C0h and C1h. Public sources give only provisional layouts of the program
//! list (82h) and the program type list (83h); here each is a count (u16), 14 reserved bytes, and 16-byte entries.

use super::profile::{
    ControllerKind, ERROR_ENTRIES_MAX, FIRMWARE, TRANSFER_BYTES_MAX, WARNING_TEMPERATURE_K, effects, supported_logs,
};
use super::queue_pair::QueuePair;
use super::{Answer, CommandResult, Subsystem, discovery};
use ddlp_csd::PROGRAM_TYPE;
use ddlp_csd::log::{COUNTERS_LOG, Counters, IDENTITY_LOG};
use ddlp_nvme::admin::GetLogPage;
use ddlp_nvme::log::{ErrorEntry, FirmwareSlotLog, SmartLog, window};
use ddlp_nvme::text::padded;
use ddlp_nvme::{IDENTIFY_BYTES, LogId, NSID_ALL, Status, SubmissionEntry};
use std::collections::VecDeque;
use zerocopy::IntoBytes;

/// Location of an error that no single field causes.
const LOCATION_NONE: u16 = 0xFFFF;
/// Transport type of an error log entry: TCP.
const TRANSPORT_TCP: u8 = 3;

/// Entry of the program type list: the type in its first byte.
const PROGRAM_TYPE_ENTRY: [u8; 16] = {
    let mut entry = [0; 16];
    entry[0] = PROGRAM_TYPE;
    entry
};

/// The latest failed commands, newest first.
#[derive(Debug, Default)]
pub(super) struct ErrorLog {
    entries: VecDeque<ErrorEntry>,
    count: u64,
}

impl ErrorLog {
    pub(super) fn record(&mut self, queue_id: u16, command: &SubmissionEntry, status: Status) {
        self.count += 1;
        self.entries.truncate(ERROR_ENTRIES_MAX - 1);
        self.entries.push_front(ErrorEntry {
            count: self.count.into(),
            queue_id: queue_id.into(),
            command_id: command.command_id,
            status_field: status.to_wire().into(),
            location: LOCATION_NONE.into(),
            nsid: command.nsid,
            transport: TRANSPORT_TCP,
            opcode: command.opcode,
            ..ErrorEntry::default()
        });
    }

    fn page(&self) -> Vec<u8> {
        let mut page: Vec<u8> = self.entries.iter().flat_map(|entry| entry.as_bytes().to_vec()).collect();
        page.resize(ERROR_ENTRIES_MAX * size_of::<ErrorEntry>(), 0);
        page
    }
}

impl Subsystem {
    pub(super) fn get_log_page(&self, queue: QueuePair, entry: &SubmissionEntry) -> CommandResult {
        let invalid = Status::INVALID_FIELD.do_not_retry();
        let command = GetLogPage::parse(entry);
        let asked = command.bytes();
        if asked > TRANSFER_BYTES_MAX as u64 || !command.offset.is_multiple_of(4) || command.offset_is_index {
            return Err(invalid);
        }
        if u64::from(entry.data.length.get()) < asked {
            return Err(Status::SGL_DATA_LENGTH.do_not_retry());
        }
        let association = self.associations.get(&queue.controller_id).ok_or(Status::COMMAND_SEQUENCE)?;
        let page = match association.kind {
            ControllerKind::Io => self.page(queue, entry, &command)?,
            ControllerKind::Discovery(reached) => discovery::page(command.log, &self.config.identity.nqn, reached)?,
        };
        let data = window(&page, command.offset, asked).ok_or(invalid)?;
        Answer::data(data.to_vec(), asked as usize - data.len())
    }

    fn page(&self, queue: QueuePair, entry: &SubmissionEntry, command: &GetLogPage) -> Result<Vec<u8>, Status> {
        Ok(match command.log {
            LogId::SUPPORTED => supported_logs(false),
            LogId::ERROR => self.errors.page(),
            // There is a SMART log of the controller only (LPA bit 0 is clear).
            LogId::SMART if ![0, NSID_ALL].contains(&entry.nsid.get()) => {
                return Err(Status::INVALID_FIELD.do_not_retry());
            }
            LogId::SMART => self.smart().as_bytes().to_vec(),
            LogId::FIRMWARE_SLOT => FirmwareSlotLog::single(padded(FIRMWARE)).as_bytes().to_vec(),
            // The namespaces never change while the agent runs.
            LogId::CHANGED_NAMESPACES => vec![0; IDENTIFY_BYTES],
            LogId::EFFECTS => effects(command.csi).as_bytes().to_vec(),
            LogId::PROGRAM_LIST => self.program_list(queue),
            LogId::PROGRAM_TYPES => list([PROGRAM_TYPE_ENTRY]),
            LogId(COUNTERS_LOG) => self.counters().to_page().to_vec(),
            LogId(IDENTITY_LOG) => self.config.drive.to_page().to_vec(),
            _ => return Err(Status::INVALID_LOG_PAGE.do_not_retry()),
        })
    }

    /// Returns the counters of log page C0h.
    pub fn counters(&self) -> Counters {
        Counters {
            cancelled: self.usage.cancelled,
            errors: self.usage.errors,
            outstanding: self.executes.outstanding() as u32,
            ..self.config.gauges.counters()
        }
    }

    fn smart(&self) -> SmartLog {
        let counters = self.config.gauges.counters();
        let mut page = SmartLog::zeroed();
        page.spare_percent = 100;
        page.data_units_read = SmartLog::data_units(self.usage.read_bytes).into();
        page.host_reads = u128::from(self.usage.reads).into();
        page.power_cycles = 1.into();
        page.power_on_hours = u128::from(counters.uptime_s / 3600).into();
        page.error_entries = u128::from(self.errors.count).into();
        if let Some(kelvin) = self.temperature_k() {
            page.temperature_k = kelvin.into();
            if kelvin >= WARNING_TEMPERATURE_K {
                page.critical_warning = SmartLog::TEMPERATURE_WARNING;
            }
        }
        page
    }

    fn program_list(&self, queue: QueuePair) -> Vec<u8> {
        list(self.listed_programs(queue).into_iter().map(|program| {
            let mut entry = [0; 16];
            entry[..2].copy_from_slice(&program.index.to_le_bytes());
            entry[2] = PROGRAM_TYPE;
            entry[3] = program.active.into();
            entry[4..8].copy_from_slice(&program.bytes.to_le_bytes());
            entry[8..].copy_from_slice(&program.id.to_le_bytes());
            entry
        }))
    }
}

fn list(entries: impl IntoIterator<Item = [u8; 16]>) -> Vec<u8> {
    let mut page = vec![0; 16];
    let mut count = 0u16;
    for entry in entries {
        page.extend_from_slice(&entry);
        count += 1;
    }
    page[..2].copy_from_slice(&count.to_le_bytes());
    page.resize(page.len().max(512), 0);
    page
}
