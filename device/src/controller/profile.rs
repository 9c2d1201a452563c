//! What the controllers can do, whichever host asks: limits, commands, log pages, and the pages that say so. Nothing
//! here depends on what a host has done; the handlers beside this file keep that.
//!
//! - [`namespaces`]: the namespaces, and what Identify says about them.

pub(super) mod namespaces;

use crate::identity::AgentIdentity;
use ddlp_csd::log::{COUNTERS_LOG, IDENTITY_LOG};
use ddlp_csd::program::PROGRAM_BYTES_MAX;
use ddlp_csd::{CANCEL_OPCODE, MODEL};
use ddlp_nvme::event::AsyncEventConfiguration;
use ddlp_nvme::identify::IdentifyController;
use ddlp_nvme::log::{CommandEffects, EffectsLog};
use ddlp_nvme::property::{Capabilities, VERSION_2_1};
use ddlp_nvme::text::{DISCOVERY_NQN, nqn_field, padded};
use ddlp_nvme::{AdminOpcode, CpOpcode, Csi, IoOpcode, LogId};
use ddlp_pixels::Limits;
use std::net::SocketAddr;

/// Most associations with the namespaces at once; each is a controller.
pub const ASSOCIATIONS_MAX: usize = 32;
/// Most discovery controllers at once, counted apart, so that discovery keeps no host from its namespaces.
pub const DISCOVERY_ASSOCIATIONS_MAX: usize = 32;
/// Most queues at once, admin and I/O, of all associations with the namespaces. Each queue is a connection.
pub const QUEUES_MAX: usize = 128;
/// I/O queues of one association.
pub const IO_QUEUES_MAX: u16 = 16;
/// Entries of a queue.
pub const QUEUE_ENTRIES_MAX: u16 = 128;
/// Most asynchronous event requests outstanding on one controller.
pub const ASYNC_EVENTS_MAX: usize = 4;
/// Largest transfer as a power of two of 4 KiB pages (MDTS): 1 MiB.
pub const MDTS: u8 = 8;
/// Largest transfer in bytes.
pub const TRANSFER_BYTES_MAX: usize = 4096 << MDTS;
/// Most in-capsule data of a command, on every queue.
pub const IN_CAPSULE_BYTES_MAX: usize = 16 * 1024;

/// Firmware revision.
pub(super) const FIRMWARE: &str = env!("CARGO_PKG_VERSION");
/// Entries of the error information log.
pub(super) const ERROR_ENTRIES_MAX: usize = 64;
/// Unit to which keep alive time-outs are rounded up (KAS × 100 ms).
pub(super) const KEEP_ALIVE_GRANULARITY_MS: u32 = 1000;
/// Composite temperature for a warning, in kelvin (85 °C): Identify's WCTEMP and the default threshold.
pub(super) const WARNING_TEMPERATURE_K: u16 = 358;
/// Critical composite temperature (CCTEMP) in kelvin, 100 °C.
const CRITICAL_TEMPERATURE_K: u16 = 373;
/// Most Abort commands at once, 0's based.
const ABORT_LIMIT_Z: u8 = 3;
/// CAP.TO, the longest wait for readiness in units of 500 ms. The agent is ready at once.
const READY_TIMEOUT: u8 = 20;

/// Number of program indices of a host.
pub(super) const PROGRAMS_MAX: usize = 32;
/// Most bytes of all programs together, in MiB (MAXPB).
const PROGRAM_MIB_MAX: u64 = 2;
const _: () = assert!(PROGRAMS_MAX * PROGRAM_BYTES_MAX <= (PROGRAM_MIB_MAX as usize) << 20);

/// Highest limits per sample that a program may have. Every worker may use this much memory once for decoding and once
/// between the operations, and a cancelled batch may have to wait for a sample of this cost.
pub(super) const PROGRAM_LIMITS_MAX: Limits = Limits { pixels: 1 << 28, scans: 1000, memory_bytes: 1 << 30 };

/// Admin commands of an I/O controller.
const ADMIN_COMMANDS: [u8; 10] = [
    AdminOpcode::GET_LOG_PAGE.0,
    AdminOpcode::IDENTIFY.0,
    AdminOpcode::ABORT.0,
    AdminOpcode::SET_FEATURES.0,
    AdminOpcode::GET_FEATURES.0,
    AdminOpcode::ASYNC_EVENT.0,
    AdminOpcode::KEEP_ALIVE.0,
    AdminOpcode::LOAD_PROGRAM.0,
    AdminOpcode::PROGRAM_ACTIVATION.0,
    CANCEL_OPCODE,
];
/// I/O commands of the block namespaces.
const BLOCK_COMMANDS: [u8; 2] = [IoOpcode::FLUSH.0, IoOpcode::READ.0];

/// Log pages of an I/O controller.
const IO_LOGS: [u8; 10] = [
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
/// Log pages of a discovery controller.
const DISCOVERY_LOGS: [u8; 2] = [LogId::SUPPORTED.0, LogId::DISCOVERY.0];

/// CMIC bit 1: the subsystem may have several controllers.
const SEVERAL_CONTROLLERS: u8 = 1 << 1;
/// CTRATT bit 0: host identifiers have 128 bits.
const WIDE_HOST_ID: u32 = 1;
/// LPA bit 1: effects log.
const EFFECTS_LOG: u8 = 1 << 1;
/// LPA bit 2: offsets and long lengths.
const LONG_LOGS: u8 = 1 << 2;
/// SGLS: supported (1), in-capsule offsets (bit 20).
const SGL_SUPPORT: u32 = 1 | 1 << 20;
/// OFCS bit 0: Disconnect.
const DISCONNECT: u16 = 1;
/// OAES bit 8: namespace attribute notices. If it is set, Linux arms asynchronous events.
const EVENTS: u32 = 1 << 8;
/// Bytes of a submission queue entry, as part of a command capsule.
const SUBMISSION_ENTRY_BYTES: usize = 64;

/// Kind of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ControllerKind {
    /// An I/O controller, with the namespaces.
    Io,
    /// A discovery controller, which tells the host that the NVM subsystem is at this address.
    Discovery(SocketAddr),
}

impl ControllerKind {
    /// Returns whether this is a discovery controller.
    pub(super) fn is_discovery(self) -> bool {
        matches!(self, Self::Discovery(_))
    }
}

/// Returns CAP of a controller.
pub(super) fn capabilities(is_discovery: bool) -> Capabilities {
    Capabilities::default()
        .with_queue_entries_max_z(QUEUE_ENTRIES_MAX - 1)
        .with_contiguous_queues(true)
        .with_timeout(READY_TIMEOUT)
        // A discovery controller sets it for hosts that do not know the bit for “no I/O command set” yet.
        .with_nvm_command_set(true)
        .with_io_command_sets(!is_discovery)
        .with_no_io_command_set(is_discovery)
}

/// Makes the Identify page of an I/O controller.
pub(super) fn io_controller(identity: &AgentIdentity, controller_id: u16) -> IdentifyController {
    let mut page = any_controller(identity, controller_id);
    page.multipath = SEVERAL_CONTROLLERS;
    page.async_events = EVENTS.into();
    page.controller_type = IdentifyController::TYPE_IO;
    page.abort_limit_z = ABORT_LIMIT_Z;
    page.log_attributes |= EFFECTS_LOG;
    page.firmware_updates = IdentifyController::FIRMWARE_FIXED;
    page.error_entries_z = ERROR_ENTRIES_MAX as u8 - 1;
    page.warning_temperature_k = WARNING_TEMPERATURE_K.into();
    page.critical_temperature_k = CRITICAL_TEMPERATURE_K.into();
    page.submission_entry = IdentifyController::SUBMISSION_ENTRY_64;
    page.completion_entry = IdentifyController::COMPLETION_ENTRY_16;
    page.namespaces = (namespaces::NSIDS.len() as u32).into();
    page.namespaces_max = (namespaces::NSIDS.len() as u32).into();
    // An NQN from the identity was checked when it was read or made.
    page.subsystem_nqn = nqn_field(&identity.nqn).unwrap_or([0; 256]);
    page.optional_fabrics = DISCONNECT.into();
    page
}

/// Makes the Identify page of a discovery controller.
pub(super) fn discovery_controller(identity: &AgentIdentity, controller_id: u16) -> IdentifyController {
    let mut page = any_controller(identity, controller_id);
    page.controller_type = IdentifyController::TYPE_DISCOVERY;
    page.async_events = AsyncEventConfiguration::default().with_discovery_changed().0.into();
    page.subsystem_nqn = nqn_field(DISCOVERY_NQN).expect("the well-known name is a name");
    page
}

/// Returns an Identify page with the fields that I/O and discovery controllers share.
fn any_controller(identity: &AgentIdentity, controller_id: u16) -> IdentifyController {
    let mut page = IdentifyController::zeroed();
    page.serial = padded(&identity.serial);
    page.model = padded(MODEL);
    page.firmware = padded(FIRMWARE);
    page.mdts = MDTS;
    page.controller_id = controller_id.into();
    page.version = VERSION_2_1.into();
    page.attributes = WIDE_HOST_ID.into();
    page.async_event_limit_z = ASYNC_EVENTS_MAX as u8 - 1;
    page.log_attributes = LONG_LOGS;
    page.keep_alive_granularity = (KEEP_ALIVE_GRANULARITY_MS as u16 / 100).into();
    page.commands_max = QUEUE_ENTRIES_MAX.into();
    page.sgl = SGL_SUPPORT.into();
    // Some versions of Linux require this even of a discovery controller, which has no I/O queues.
    let capsule = SUBMISSION_ENTRY_BYTES + IN_CAPSULE_BYTES_MAX;
    page.command_capsule = ((capsule / IdentifyController::CAPSULE_UNIT) as u32).into();
    page.response_capsule = 1.into();
    page.sgl_descriptors_max = 1;
    page
}

/// Makes the page Supported Log Pages (00h): one dword per page, with bit 0 set if the page is supported.
pub(super) fn supported_logs(is_discovery: bool) -> Vec<u8> {
    let logs: &[u8] = if is_discovery { &DISCOVERY_LOGS } else { &IO_LOGS };
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
pub(super) fn effects(csi: Csi) -> EffectsLog {
    let mut page = EffectsLog::zeroed();
    for opcode in ADMIN_COMMANDS {
        page.set_admin(opcode, CommandEffects::SUPPORTED);
    }
    match csi {
        Csi::NVM => BLOCK_COMMANDS.into_iter().for_each(|opcode| page.set_io(opcode, CommandEffects::SUPPORTED)),
        Csi::COMPUTE => {
            page.set_io(CpOpcode::EXECUTE_PROGRAM.0, CommandEffects::SUPPORTED.with_content_change());
        }
        _ => {}
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_what_linux_needs_for_a_compute_namespace() {
        let cap = capabilities(false);
        assert!(cap.io_command_sets() && cap.nvm_command_set() && cap.contiguous_queues() && !cap.no_io_command_set());
        assert_eq!((cap.page_min(), cap.ready_modes()), (0, 0));
    }

    #[test]
    fn a_discovery_controller_has_no_io_command_sets() {
        let cap = capabilities(true);
        assert!(cap.no_io_command_set() && !cap.io_command_sets());
    }
}
