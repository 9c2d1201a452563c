//! Read and Write of the NVM command set. NVM 1.1, sections "Read command" and "Write command".

use crate::bits;
use crate::entry::SubmissionEntry;

/// Blocks of a Read or Write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockRange {
    /// First logical block.
    pub lba: u64,
    /// Number of blocks, 0's based.
    pub blocks_z: u16,
    /// Force unit access.
    pub force_unit_access: bool,
    /// PRINFO, 4 bits: protection information, 0 for none.
    pub protection: u8,
}

impl BlockRange {
    /// Makes a range of `blocks` (1 to 65 536) from `lba` on; `None` for any other count.
    pub fn new(lba: u64, blocks: u32) -> Option<Self> {
        let blocks_z = u16::try_from(blocks.checked_sub(1)?).ok()?;
        Some(Self { lba, blocks_z, ..Self::default() })
    }

    /// Returns the number of blocks, at least 1.
    pub const fn blocks(&self) -> u32 {
        self.blocks_z as u32 + 1
    }

    /// Returns the block after the last one; `None` beyond the 64-bit space.
    pub const fn end(&self) -> Option<u64> {
        self.lba.checked_add(self.blocks() as u64)
    }

    /// Reads the dwords of a command.
    pub fn parse(entry: &SubmissionEntry) -> Self {
        let [cdw10, cdw11, cdw12, ..] = entry.dwords();
        Self {
            lba: bits::join(cdw10, cdw11),
            blocks_z: bits::get32(cdw12, 0, 16) as u16,
            force_unit_access: bits::get32(cdw12, 30, 1) == 1,
            protection: bits::get32(cdw12, 26, 4) as u8,
        }
    }

    /// Returns dwords 10 to 15.
    pub fn dwords(&self) -> [u32; 6] {
        let [cdw10, cdw11] = bits::split(self.lba);
        let cdw12 = bits::with32(self.blocks_z.into(), 30, 1, self.force_unit_access.into());
        [cdw10, cdw11, bits::with32(cdw12, 26, 4, self.protection.into()), 0, 0, 0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn counts_are_bounded() {
        assert_eq!(BlockRange::new(0, 0), None);
        assert_eq!(BlockRange::new(0, 65_537), None);
        assert_eq!(BlockRange::new(7, 65_536).map(|range| range.blocks()), Some(65_536));
        assert_eq!(BlockRange::new(u64::MAX, 1).and_then(|range| range.end()), None);
    }

    proptest! {
        #[test]
        fn round_trip(lba: u64, blocks_z: u16, force_unit_access: bool, protection in 0u8..16) {
            let range = BlockRange { lba, blocks_z, force_unit_access, protection };
            let entry = SubmissionEntry::default().with_dwords(range.dwords());
            prop_assert_eq!(BlockRange::parse(&entry), range);
        }
    }
}
