//! Identify, with the answers that an unmodified Linux needs for block and Computational Programs namespaces.

use super::association::{KEEP_ALIVE_GRANULARITY_MS, Kind, QueuePair};
use super::features::WARNING_TEMPERATURE_K;
use super::programs::{PROGRAM_MIB_MAX, PROGRAMS_MAX};
use super::{
    ASYNC_EVENTS_MAX, Answer, IN_CAPSULE_BYTES_MAX, MDTS, Outcome, QUEUE_ENTRIES_MAX, Subsystem, discovery, logs,
};
use ddlp_csd::{BLOCK_BYTES, COMPUTE_NSID, DATASET_NSID, MODEL, RESULTS_NSID};
use ddlp_nvme::admin::Identify;
use ddlp_nvme::cp::CpIdentifyNamespace;
use ddlp_nvme::identify::{
    Descriptor, IdentifyController, IdentifyNamespace, IndependentIdentifyNamespace, LbaFormat, command_set_vector,
    namespace_list,
};
use ddlp_nvme::property::VERSION_2_1;
use ddlp_nvme::text::{nqn_field, padded};
use ddlp_nvme::{Cns, Csi, IDENTIFY_BYTES, NSID_ALL, Status, SubmissionEntry};
use zerocopy::{FromZeros, IntoBytes};

/// Firmware revision.
pub const FIRMWARE: &str = env!("CARGO_PKG_VERSION");
/// All namespaces, ascending.
pub const NSIDS: [u32; 3] = [DATASET_NSID, RESULTS_NSID, COMPUTE_NSID];

/// CMIC bit 1: the subsystem may have several controllers.
const SEVERAL_CONTROLLERS: u8 = 1 << 1;
/// NMIC bit 0: the namespace may be attached to several controllers.
const SHARED: u8 = 1;
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
/// Block size of the block namespaces, as a power of two.
const BLOCK_LOG2: u8 = BLOCK_BYTES.trailing_zeros() as u8;
/// Critical composite temperature (CCTEMP) in kelvin, 100 °C.
const CRITICAL_TEMPERATURE_K: u16 = 373;
/// Bytes of a submission queue entry, as part of a command capsule.
const SUBMISSION_ENTRY_BYTES: usize = 64;
/// Most Abort commands at once, 0's based.
const ABORT_LIMIT_Z: u8 = 3;

/// Returns the command set of a namespace; `None` for an NSID that does not exist.
pub fn command_set(nsid: u32) -> Option<Csi> {
    match nsid {
        DATASET_NSID | RESULTS_NSID => Some(Csi::NVM),
        COMPUTE_NSID => Some(Csi::COMPUTE),
        _ => None,
    }
}

impl Subsystem {
    pub(super) fn identify(&self, queue: QueuePair, command: &SubmissionEntry) -> Outcome {
        if (command.data.length.get() as usize) < IDENTIFY_BYTES {
            return Err(Status::SGL_DATA_LENGTH.do_not_retry());
        }
        let identify = Identify::parse(command);
        let nsid = command.nsid.get();
        let page = match identify.cns {
            Cns::NAMESPACE => self.nvm_namespace(nsid)?,
            Cns::CONTROLLER => self.controller(queue)?.as_bytes().to_vec(),
            Cns::ACTIVE_NAMESPACES => namespaces_after(nsid, |_| true)?,
            Cns::NAMESPACE_DESCRIPTORS => self.descriptors(nsid)?,
            Cns::CSI_NAMESPACE => csi_namespace(nsid, identify.csi)?,
            Cns::CSI_CONTROLLER if is_supported(identify.csi) => vec![0; IDENTIFY_BYTES],
            Cns::CSI_ACTIVE_NAMESPACES if is_supported(identify.csi) => {
                namespaces_after(nsid, |nsid| command_set(nsid) == Some(identify.csi))?
            }
            Cns::CSI_CONTROLLER | Cns::CSI_ACTIVE_NAMESPACES => {
                return Err(Status::IO_COMMAND_SET_UNSUPPORTED.do_not_retry());
            }
            Cns::INDEPENDENT_NAMESPACE => independent_namespace(nsid)?,
            Cns::IO_COMMAND_SETS => command_set_vector(&[Csi::NVM, Csi::COMPUTE]).to_vec(),
            _ => return Err(Status::INVALID_FIELD.do_not_retry()),
        };
        Answer::data(page, 0)
    }

    fn controller(&self, queue: QueuePair) -> Result<IdentifyController, Status> {
        let association = self.associations.get(&queue.controller_id).ok_or(Status::COMMAND_SEQUENCE)?;
        let page = self.any_controller(queue.controller_id);
        Ok(match association.kind {
            Kind::Io => self.io_controller(page),
            Kind::Discovery(_) => discovery::controller(page),
        })
    }

    /// Returns the fields that I/O and discovery controllers share.
    fn any_controller(&self, controller_id: u16) -> IdentifyController {
        let mut page = IdentifyController::zeroed();
        page.serial = padded(&self.config.identity.serial);
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

    fn io_controller(&self, mut page: IdentifyController) -> IdentifyController {
        page.multipath = SEVERAL_CONTROLLERS;
        page.async_events = EVENTS.into();
        page.controller_type = IdentifyController::TYPE_IO;
        page.abort_limit_z = ABORT_LIMIT_Z;
        page.log_attributes |= EFFECTS_LOG;
        page.firmware_updates = IdentifyController::FIRMWARE_FIXED;
        page.error_entries_z = logs::ERROR_ENTRIES_MAX as u8 - 1;
        page.warning_temperature_k = WARNING_TEMPERATURE_K.into();
        page.critical_temperature_k = CRITICAL_TEMPERATURE_K.into();
        page.submission_entry = IdentifyController::SUBMISSION_ENTRY_64;
        page.completion_entry = IdentifyController::COMPLETION_ENTRY_16;
        page.namespaces = (NSIDS.len() as u32).into();
        page.namespaces_max = (NSIDS.len() as u32).into();
        // An NQN from the identity was checked when it was read or made.
        page.subsystem_nqn = nqn_field(&self.config.identity.nqn).unwrap_or([0; 256]);
        page.optional_fabrics = DISCONNECT.into();
        page
    }

    /// Answers CNS 00h. NVM Command Set 1.1, section 4.1.5.1.
    ///
    /// NSID FFFFFFFFh is refused: it asks for what all namespaces have in common, which needs Namespace Management
    /// (OACS bit 3).
    ///
    /// For the compute namespace the answer is a structure of zeros, which that section gives for an inactive NSID. To
    /// the NVM command set the compute namespace is inactive: that set's list of active namespaces (CNS 07h, CSI 0)
    /// does not contain it. The section's other answer, Invalid I/O Command Set, disturbs hosts that ask about every
    /// NSID of CNS 02h. SPDK then does not attach (`lib/nvme/nvme_ctrlr.c`, `nvme_ctrlr_identify_ns_async_done`), and
    /// Linux 6.12 logs an error whenever somebody reads `nuse` in sysfs (`drivers/nvme/host/core.c`,
    /// `nvme_identify_ns`). Both take zeros for a namespace without blocks.
    fn nvm_namespace(&self, nsid: u32) -> Result<Vec<u8>, Status> {
        let mut page = IdentifyNamespace::zeroed();
        match command_set(nsid) {
            Some(Csi::NVM) => {}
            Some(_) => return Ok(page.as_bytes().to_vec()),
            None => return Err(Status::INVALID_NAMESPACE.do_not_retry()),
        }
        page.formats[0] = LbaFormat { data_size_log2: BLOCK_LOG2, ..LbaFormat::default() };
        let blocks = self.blocks(nsid);
        page.blocks = blocks.into();
        page.capacity = blocks.into();
        page.utilization = blocks.into();
        page.sharing = SHARED;
        page.attributes = IdentifyNamespace::WRITE_PROTECTED;
        page.nguid = self.config.identity.namespaces[nsid as usize - 1].nguid;
        Ok(page.as_bytes().to_vec())
    }

    fn descriptors(&self, nsid: u32) -> Result<Vec<u8>, Status> {
        let csi = command_set(nsid).ok_or(Status::INVALID_NAMESPACE.do_not_retry())?;
        let identity = self.config.identity.namespaces[nsid as usize - 1];
        let list = [
            Descriptor::Nguid(identity.nguid),
            Descriptor::Uuid(identity.uuid),
            // Without this descriptor, Linux would take the namespace for one of the NVM command set.
            Descriptor::CommandSet(csi),
        ];
        let mut page = vec![0; IDENTIFY_BYTES];
        Descriptor::encode(&list, &mut page).map_err(|_| Status::INTERNAL)?;
        Ok(page)
    }
}

fn is_supported(csi: Csi) -> bool {
    [Csi::NVM, Csi::COMPUTE].contains(&csi)
}

fn namespaces_after(nsid: u32, wanted: impl Fn(u32) -> bool) -> Result<Vec<u8>, Status> {
    if nsid >= NSID_ALL - 1 {
        return Err(Status::INVALID_NAMESPACE.do_not_retry());
    }
    let nsids: Vec<u32> = NSIDS.into_iter().filter(|&nsid| wanted(nsid)).collect();
    Ok(namespace_list(&nsids, nsid).to_vec())
}

fn csi_namespace(nsid: u32, csi: Csi) -> Result<Vec<u8>, Status> {
    let own = command_set(nsid).ok_or(Status::INVALID_NAMESPACE.do_not_retry())?;
    if own != csi {
        return Err(Status::IO_COMMAND_SET_UNSUPPORTED.do_not_retry());
    }
    if csi != Csi::COMPUTE {
        return Ok(vec![0; IDENTIFY_BYTES]);
    }
    let mut page = CpIdentifyNamespace::new_zeroed();
    page.programs_active_max = (PROGRAMS_MAX as u16).into();
    page.program_mib_max = PROGRAM_MIB_MAX.into();
    Ok(page.as_bytes().to_vec())
}

fn independent_namespace(nsid: u32) -> Result<Vec<u8>, Status> {
    let csi = command_set(nsid).ok_or(Status::INVALID_NAMESPACE.do_not_retry())?;
    let mut page = IndependentIdentifyNamespace::zeroed();
    page.sharing = SHARED;
    if csi == Csi::NVM {
        page.attributes = IdentifyNamespace::WRITE_PROTECTED;
    }
    page.status = IndependentIdentifyNamespace::READY;
    Ok(page.as_bytes().to_vec())
}
