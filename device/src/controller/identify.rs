//! Identify: chooses the page that a host asks for.

use super::profile::{ControllerKind, discovery_controller, io_controller, namespaces};
use super::queue_pair::QueuePair;
use super::{Answer, CommandResult, Subsystem};
use ddlp_nvme::admin::Identify;
use ddlp_nvme::identify::{IdentifyController, command_set_vector};
use ddlp_nvme::{Cns, Csi, IDENTIFY_BYTES, Status, SubmissionEntry};
use zerocopy::IntoBytes;

impl Subsystem {
    pub(super) fn identify(&self, queue: QueuePair, command: &SubmissionEntry) -> CommandResult {
        if (command.data.length.get() as usize) < IDENTIFY_BYTES {
            return Err(Status::SGL_DATA_LENGTH.do_not_retry());
        }
        let identify = Identify::parse(command);
        let (nsid, identity) = (command.nsid.get(), &self.config.identity);
        let page = match identify.cns {
            Cns::NAMESPACE => namespaces::nvm(nsid, self.blocks(nsid), identity)?,
            Cns::CONTROLLER => self.controller(queue)?.as_bytes().to_vec(),
            Cns::ACTIVE_NAMESPACES => namespaces::after(nsid, |_| true)?,
            Cns::NAMESPACE_DESCRIPTORS => namespaces::descriptors(nsid, identity)?,
            Cns::CSI_NAMESPACE => namespaces::of_command_set(nsid, identify.csi)?,
            Cns::CSI_CONTROLLER if is_supported(identify.csi) => vec![0; IDENTIFY_BYTES],
            Cns::CSI_ACTIVE_NAMESPACES if is_supported(identify.csi) => {
                namespaces::after(nsid, |nsid| namespaces::command_set(nsid) == Some(identify.csi))?
            }
            Cns::CSI_CONTROLLER | Cns::CSI_ACTIVE_NAMESPACES => {
                return Err(Status::IO_COMMAND_SET_UNSUPPORTED.do_not_retry());
            }
            Cns::INDEPENDENT_NAMESPACE => namespaces::independent(nsid)?,
            Cns::IO_COMMAND_SETS => command_set_vector(&namespaces::COMMAND_SETS).to_vec(),
            _ => return Err(Status::INVALID_FIELD.do_not_retry()),
        };
        Answer::data(page, 0)
    }

    fn controller(&self, queue: QueuePair) -> Result<IdentifyController, Status> {
        let association = self.associations.get(&queue.controller_id).ok_or(Status::COMMAND_SEQUENCE)?;
        let page = match association.kind {
            ControllerKind::Io => io_controller,
            ControllerKind::Discovery(_) => discovery_controller,
        };
        Ok(page(&self.config.identity, queue.controller_id))
    }
}

fn is_supported(csi: Csi) -> bool {
    namespaces::COMMAND_SETS.contains(&csi)
}
