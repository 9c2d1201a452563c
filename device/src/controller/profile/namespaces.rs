//! The namespaces: which there are, and the pages of Identify about them, as an unmodified Linux needs them for block
//! and Computational Programs namespaces.

use super::{PROGRAM_MIB_MAX, PROGRAMS_MAX};
use crate::identity::AgentIdentity;
use ddlp_csd::{BLOCK_BYTES, COMPUTE_NSID, DATASET_NSID, RESULTS_NSID};
use ddlp_nvme::cp::CpIdentifyNamespace;
use ddlp_nvme::identify::{Descriptor, IdentifyNamespace, IndependentIdentifyNamespace, LbaFormat, namespace_list};
use ddlp_nvme::{Csi, IDENTIFY_BYTES, NSID_ALL, Status};
use zerocopy::{FromZeros, IntoBytes};

/// All namespaces, ascending.
pub(in crate::controller) const NSIDS: [u32; 3] = [DATASET_NSID, RESULTS_NSID, COMPUTE_NSID];
/// The command sets of the namespaces.
pub(in crate::controller) const COMMAND_SETS: [Csi; 2] = [Csi::NVM, Csi::COMPUTE];

/// NMIC bit 0: the namespace may be attached to several controllers.
const SHARED: u8 = 1;
/// Block size of the block namespaces, as a power of two.
const BLOCK_LOG2: u8 = BLOCK_BYTES.trailing_zeros() as u8;

/// Returns the command set of a namespace; `None` for an NSID that does not exist.
pub(in crate::controller) fn command_set(nsid: u32) -> Option<Csi> {
    match nsid {
        DATASET_NSID | RESULTS_NSID => Some(Csi::NVM),
        COMPUTE_NSID => Some(Csi::COMPUTE),
        _ => None,
    }
}

/// Returns the list of the wanted namespaces after `nsid` (CNS 02h and 07h).
pub(in crate::controller) fn after(nsid: u32, wanted: impl Fn(u32) -> bool) -> Result<Vec<u8>, Status> {
    if nsid >= NSID_ALL - 1 {
        return Err(Status::INVALID_NAMESPACE.do_not_retry());
    }
    let nsids: Vec<u32> = NSIDS.into_iter().filter(|&nsid| wanted(nsid)).collect();
    Ok(namespace_list(&nsids, nsid).to_vec())
}

/// Returns the page of a namespace of `blocks` blocks for the NVM command set (CNS 00h). NVM Command Set 1.1, section
/// 4.1.5.1.
///
/// NSID FFFFFFFFh is refused: it asks for what all namespaces have in common, which needs Namespace Management (OACS
/// bit 3).
///
/// For the compute namespace the answer is a structure of zeros, which that section gives for an inactive NSID. To the
/// NVM command set the compute namespace is inactive: that set's list of active namespaces (CNS 07h, CSI 0) does not
/// contain it. The section's other answer, Invalid I/O Command Set, disturbs hosts that ask about every NSID of CNS
/// 02h. SPDK then does not attach (`lib/nvme/nvme_ctrlr.c`, `nvme_ctrlr_identify_ns_async_done`), and Linux 6.12 logs
/// an error whenever somebody reads `nuse` in sysfs (`drivers/nvme/host/core.c`, `nvme_identify_ns`). Both take zeros
/// for a namespace without blocks.
pub(in crate::controller) fn nvm(nsid: u32, blocks: u64, identity: &AgentIdentity) -> Result<Vec<u8>, Status> {
    let mut page = IdentifyNamespace::zeroed();
    match command_set(nsid) {
        Some(Csi::NVM) => {}
        Some(_) => return Ok(page.as_bytes().to_vec()),
        None => return Err(Status::INVALID_NAMESPACE.do_not_retry()),
    }
    page.formats[0] = LbaFormat { data_size_log2: BLOCK_LOG2, ..LbaFormat::default() };
    page.blocks = blocks.into();
    page.capacity = blocks.into();
    page.utilization = blocks.into();
    page.sharing = SHARED;
    page.attributes = IdentifyNamespace::WRITE_PROTECTED;
    page.nguid = identity.namespaces[nsid as usize - 1].nguid;
    Ok(page.as_bytes().to_vec())
}

/// Returns the list of a namespace's identifiers (CNS 03h).
pub(in crate::controller) fn descriptors(nsid: u32, identity: &AgentIdentity) -> Result<Vec<u8>, Status> {
    let csi = command_set(nsid).ok_or(Status::INVALID_NAMESPACE.do_not_retry())?;
    let identity = identity.namespaces[nsid as usize - 1];
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

/// Returns the page of a namespace for the command set that it has (CNS 05h).
pub(in crate::controller) fn of_command_set(nsid: u32, csi: Csi) -> Result<Vec<u8>, Status> {
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

/// Returns the page of a namespace that is the same for every command set (CNS 08h).
pub(in crate::controller) fn independent(nsid: u32) -> Result<Vec<u8>, Status> {
    let csi = command_set(nsid).ok_or(Status::INVALID_NAMESPACE.do_not_retry())?;
    let mut page = IndependentIdentifyNamespace::zeroed();
    page.sharing = SHARED;
    if csi == Csi::NVM {
        page.attributes = IdentifyNamespace::WRITE_PROTECTED;
    }
    page.status = IndependentIdentifyNamespace::READY;
    Ok(page.as_bytes().to_vec())
}
