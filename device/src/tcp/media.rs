//! Bytes of the block namespaces.

use crate::controller::Region;
use crate::slots::Slots;
use ddlp_csd::BLOCK_BYTES;
use ddlp_dataset::Dataset;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// What the block namespaces hold.
pub struct Media {
    dataset: Arc<dyn Dataset>,
    /// Stands for a dataset that has no bytes to export: one block, the identity page.
    substitute: [u8; BLOCK_BYTES],
    slots: Arc<Slots>,
}

impl Media {
    /// Media of a dataset and the result slots.
    pub fn new(dataset: Arc<dyn Dataset>, substitute: [u8; BLOCK_BYTES], slots: Arc<Slots>) -> Self {
        Self { dataset, substitute, slots }
    }

    /// Blocks of namespace 1: the pack's (it consists of whole blocks); one where there is no pack.
    pub fn dataset_blocks(dataset: &dyn Dataset) -> u64 {
        dataset.export().map_or(1, |pack| pack.len_bytes() / BLOCK_BYTES as u64)
    }

    /// The result slots.
    pub fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Reads `buffer.len()` bytes. Waits for the storage device.
    pub fn read(&self, region: Region, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        match region {
            Region::Results => self.slots.file().read_exact_at(buffer, offset),
            Region::Dataset => match self.dataset.export() {
                Some(pack) => pack.read_cached(offset, buffer),
                None => {
                    let start = usize::try_from(offset).unwrap_or(usize::MAX);
                    let end = start.saturating_add(buffer.len());
                    let bytes = self.substitute.get(start..end).ok_or(io::ErrorKind::UnexpectedEof)?;
                    buffer.copy_from_slice(bytes);
                    Ok(())
                }
            },
        }
    }
}
