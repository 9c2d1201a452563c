//! I/O commands of the block namespaces: Read, Flush; Write is refused.
//!
//! Namespace 1 is the dataset, namespace 2 the result slots. Both are write protected for hosts: only workers write to
//! slots, so no host can damage a batch that another host waits for. No host can read such a batch either: a Read that
//! touches a slot of another host is refused (Access Denied).

use super::profile::TRANSFER_BYTES_MAX;
use super::profile::namespaces::command_set;
use super::{Answer, BlockNamespace, CommandResult, Payload, Subsystem};
use crate::host::ConnectedHost;
use ddlp_csd::{BLOCK_BYTES, DATASET_NSID, RESULTS_NSID};
use ddlp_nvme::io::BlockRange;
use ddlp_nvme::{Csi, IoOpcode, NSID_ALL, Status, SubmissionEntry};
use std::sync::Arc;

impl Subsystem {
    /// Returns the number of blocks of a block namespace, and 0 for any other NSID.
    pub(super) fn blocks(&self, nsid: u32) -> u64 {
        match nsid {
            DATASET_NSID => self.config.dataset_blocks,
            RESULTS_NSID => self.config.geometry.total_bytes() / BLOCK_BYTES as u64,
            _ => 0,
        }
    }

    pub(super) fn block(&mut self, host: Arc<ConnectedHost>, command: &SubmissionEntry) -> CommandResult {
        let nsid = command.nsid.get();
        let opcode = IoOpcode(command.opcode);
        if opcode == IoOpcode::FLUSH && nsid == NSID_ALL {
            return Answer::DONE;
        }
        if command_set(nsid) != Some(Csi::NVM) {
            return Err(Status::INVALID_NAMESPACE.do_not_retry());
        }
        match opcode {
            IoOpcode::READ => self.read(host, nsid, command),
            IoOpcode::FLUSH => Answer::DONE,
            // Write is the only writing command that every controller has; ONCS denies the others.
            IoOpcode::WRITE => Err(Status::WRITE_PROTECTED.do_not_retry()),
            _ => Err(Status::INVALID_OPCODE.do_not_retry()),
        }
    }

    fn read(&mut self, host: Arc<ConnectedHost>, nsid: u32, command: &SubmissionEntry) -> CommandResult {
        let range = BlockRange::parse(command);
        if range.protection != 0 {
            return Err(Status::INVALID_FIELD.do_not_retry());
        }
        if range.end().is_none_or(|end| end > self.blocks(nsid)) {
            return Err(Status::LBA_OUT_OF_RANGE.do_not_retry());
        }
        let bytes = range.blocks() as usize * BLOCK_BYTES;
        if bytes > TRANSFER_BYTES_MAX {
            return Err(Status::INVALID_FIELD.do_not_retry());
        }
        if command.data.length.get() as usize != bytes {
            return Err(Status::SGL_DATA_LENGTH.do_not_retry());
        }
        let offset = range.lba * BLOCK_BYTES as u64;
        let region = if nsid == DATASET_NSID {
            BlockNamespace::Dataset
        } else {
            self.check_owner(&host, offset, bytes)?;
            BlockNamespace::Results(host)
        };
        self.usage.reads += 1;
        self.usage.read_bytes += bytes as u64;
        Ok(Answer::Now(0, Payload::Blocks { region, offset, bytes }))
    }

    /// Fails if a range of namespace 2 touches a slot of another host. Access Denied (Base 2.1, «Media and Data
    /// Integrity Error Values») is the status for a lack of access rights.
    fn check_owner(&self, host: &ConnectedHost, offset: u64, bytes: usize) -> Result<(), Status> {
        let slot_of = |byte: u64| (byte / self.config.geometry.slot_bytes) as usize;
        let mut slots = slot_of(offset)..=slot_of(offset + bytes as u64 - 1);
        if slots.any(|slot| self.is_foreign(slot, host)) {
            return Err(Status::ACCESS_DENIED.do_not_retry());
        }
        Ok(())
    }
}
