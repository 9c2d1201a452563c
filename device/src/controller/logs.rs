//! Log pages.
//!
//! `ddlp_csd::log` defines the vendor pages C0h and C1h. Public sources give only provisional layouts of the program
//! list (82h) and the program type list (83h); here each is a count (u16), 14 reserved bytes, and 16-byte entries.

use super::admin::{self, WARNING_TEMPERATURE};
use super::association::{Kind, QueuePair};
use super::features::WARNING_TEMPERATURE_K;
use super::identify::FIRMWARE;
use super::{Answer, Outcome, Subsystem, TRANSFER_BYTES_MAX, block, discovery};
use ddlp_csd::PROGRAM_TYPE;
use ddlp_csd::log::{COUNTERS_LOG, Counters, IDENTITY_LOG};
use ddlp_nvme::admin::GetLogPage;
use ddlp_nvme::log::{CommandEffects, EffectsLog, ErrorEntry, FirmwareSlotLog, SmartLog, window};
use ddlp_nvme::text::padded;
use ddlp_nvme::{CpOpcode, Csi, IDENTIFY_BYTES, LogId, NSID_ALL, Status, SubmissionEntry};
use std::collections::VecDeque;
use zerocopy::IntoBytes;

/// Entries of the error information log.
pub const ERROR_ENTRIES_MAX: usize = 64;
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

/// All log pages of an I/O controller, for the page that lists them.
const SUPPORTED: [u8; 10] = [
    LogId::SUPPORTED.0,
    LogId::ERROR.0,
    LogId::SMART.0,
    LogId::FIRMWARE_SLOT.0,
    LogId::CHANGED_NAMESPACES.0,
    LogId::EFFECTS.0,
    LogId::PROGRAM_LIST.0,
    LogId::PROGRAM_TYPES.0,
    COUNTERS_LOG,
    IDENTITY_LOG,
];

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
    pub(super) fn get_log_page(&self, queue: QueuePair, entry: &SubmissionEntry) -> Outcome {
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
            Kind::Io => self.page(queue, entry, &command)?,
            Kind::Discovery(reached) => discovery::page(command.log, &self.config.identity.nqn, reached)?,
        };
        let data = window(&page, command.offset, asked).ok_or(invalid)?;
        Answer::data(data.to_vec(), asked as usize - data.len())
    }

    fn page(&self, queue: QueuePair, entry: &SubmissionEntry, command: &GetLogPage) -> Result<Vec<u8>, Status> {
        Ok(match command.log {
            LogId::SUPPORTED => supported(&SUPPORTED),
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
                page.critical_warning = WARNING_TEMPERATURE;
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

/// Makes the page Supported Log Pages (00h): one dword per page, with bit 0 set if the page is supported.
pub fn supported(logs: &[u8]) -> Vec<u8> {
    let mut page = vec![0; 1024];
    for &log in logs {
        page[usize::from(log) * 4] = 1;
    }
    page
}

/// Makes the effects page of a command set.
///
/// Execute changes the content of the result namespace, which LBCC says; any other bit would make the command
/// privileged under Linux. Load and Activate put no restriction on other commands, since Linux would otherwise freeze
/// I/O.
///
/// For a command set that the controller does not have, the page says that no I/O command is supported (CSUPP). Base
/// 2.1 also has an error status for this case. But `nvme effects-log` (nvme-cli, `nvme.c`, `get_effects_log`) asks
/// every controller with CAP.CSS bit 6 for the zoned set, and prints nothing at all after an error. QEMU's controller
/// answers as this one does.
fn effects(csi: Csi) -> EffectsLog {
    let mut page = EffectsLog::zeroed();
    for opcode in admin::SUPPORTED {
        page.set_admin(opcode, CommandEffects::SUPPORTED);
    }
    match csi {
        Csi::NVM => block::SUPPORTED.into_iter().for_each(|opcode| page.set_io(opcode, CommandEffects::SUPPORTED)),
        Csi::COMPUTE => {
            page.set_io(CpOpcode::EXECUTE_PROGRAM.0, CommandEffects::SUPPORTED.with_content_change());
        }
        _ => {}
    }
    page
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
