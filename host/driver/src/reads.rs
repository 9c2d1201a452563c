//! Splits one read of many blocks into several commands.

use crate::contract::Command;
use crate::error::DriverError;
use crate::namespace::BlockGeometry;
use ddlp_nvme::IoOpcode;
use ddlp_nvme::io::BlockRange;
use std::ops::Range;

/// Reads in flight for one [`crate::Queue::read_blocks`].
pub const READS_IN_FLIGHT: usize = 4;
/// Bytes of one read, if the controller's largest transfer allows it.
pub const READ_PIECE_BYTES: usize = 512 << 10;

/// The commands of one [`crate::Queue::read_blocks`] in order, each with its range of the buffer.
pub(crate) struct ReadPlan {
    nsid: u32,
    lba: u64,
    block_bytes: usize,
    piece_bytes: usize,
    offset: usize,
    bytes: usize,
}

impl ReadPlan {
    /// Plans reads of `bytes` bytes from block `lba` on, each of at most `transfer_bytes_max`. Returns an error unless
    /// the bytes are whole blocks within the namespace.
    pub(crate) fn new(
        nsid: u32,
        geometry: BlockGeometry,
        lba: u64,
        bytes: usize,
        transfer_bytes_max: usize,
    ) -> Result<Self, DriverError> {
        geometry.blocks_of(lba, bytes)?;
        let block_bytes = geometry.block_bytes as usize;
        let piece_bytes = (transfer_bytes_max.min(READ_PIECE_BYTES) / block_bytes).max(1) * block_bytes;
        Ok(Self { nsid, lba, block_bytes, piece_bytes, offset: 0, bytes })
    }

    /// Returns the name of the read in messages.
    pub(crate) fn what(&self) -> String {
        format!("read of {} bytes at block {} of namespace {}", self.bytes, self.lba, self.nsid)
    }

    /// Returns the most bytes of one command.
    pub(crate) fn piece_bytes(&self) -> usize {
        self.piece_bytes
    }
}

impl Iterator for ReadPlan {
    type Item = (Command, Range<usize>);

    fn next(&mut self) -> Option<Self::Item> {
        let end = self.bytes.min(self.offset + self.piece_bytes);
        let blocks = (end - self.offset) / self.block_bytes;
        let range = BlockRange::new(self.lba, u32::try_from(blocks).ok()?)?;
        let command =
            Command { opcode: IoOpcode::READ.0, nsid: self.nsid, cdw10_15: range.dwords(), ..Command::default() };
        let place = self.offset..end;
        self.lba += u64::from(range.blocks());
        self.offset = end;
        Some((command, place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_a_read_once_and_in_order() {
        let geometry = BlockGeometry { block_bytes: 4096, blocks: 1000 };
        let plan = ReadPlan::new(2, geometry, 5, 10 * 4096, 3 * 4096 + 1).unwrap();
        let pieces: Vec<_> = plan.map(|(command, place)| (command.cdw10_15[0], command.cdw10_15[2], place)).collect();
        let block = |from: usize, to: usize| from * 4096..to * 4096;
        assert_eq!(pieces, [(5, 2, block(0, 3)), (8, 2, block(3, 6)), (11, 2, block(6, 9)), (14, 0, block(9, 10))]);
        assert!(ReadPlan::new(2, geometry, 999, 8192, 4096).is_err(), "behind the end");
        assert_eq!(ReadPlan::new(2, geometry, 0, 0, 4096).unwrap().count(), 0);
    }
}
