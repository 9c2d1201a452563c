//! Bytes of the block namespaces.

use crate::controller::BlockNamespace;
use crate::slots::Slots;
use ddlp_csd::BLOCK_BYTES;
use ddlp_dataset::{Dataset, Unavailable};
use ddlp_nvme::Status;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Contents of the block namespaces.
pub struct Media {
    dataset: Arc<dyn Dataset>,
    /// Contents of namespace 1 if the dataset has no bytes to export: one block, the identity page.
    substitute: [u8; BLOCK_BYTES],
    slots: Arc<Slots>,
}

impl Media {
    /// Makes the media of a dataset and the result slots.
    pub fn new(dataset: Arc<dyn Dataset>, substitute: [u8; BLOCK_BYTES], slots: Arc<Slots>) -> Self {
        Self { dataset, substitute, slots }
    }

    /// Returns the number of blocks of namespace 1: those of the pack, which consists of whole blocks, or 1 without a
    /// pack.
    pub fn dataset_blocks(dataset: &dyn Dataset) -> u64 {
        dataset.export().map_or(1, |pack| pack.len_bytes() / BLOCK_BYTES as u64)
    }

    /// Returns the result slots.
    pub fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Returns the status of a failed read: Namespace Not Ready if the pack is no longer the one that was opened,
    /// otherwise Unrecovered Read Error. So a host can tell damage from a pack that was cut short or replaced.
    pub fn status_of(&self, region: BlockNamespace, error: &io::Error) -> Status {
        let is_changed = || error.kind() == io::ErrorKind::UnexpectedEof || is_another(self.dataset.check_damage());
        match region {
            BlockNamespace::Dataset if is_changed() => Status::NAMESPACE_NOT_READY.do_not_retry(),
            BlockNamespace::Dataset | BlockNamespace::Results => Status::UNRECOVERED_READ,
        }
    }

    /// Reads `buffer.len()` bytes. May wait for storage.
    pub fn read(&self, region: BlockNamespace, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        match region {
            BlockNamespace::Results => self.slots.file().read_exact_at(buffer, offset),
            BlockNamespace::Dataset => match self.dataset.export() {
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

/// Returns whether a dataset is no longer the one that was opened. A dataset that cannot be checked may be that one.
fn is_another(checked: Result<(), Unavailable>) -> bool {
    matches!(checked, Err(Unavailable::Changed { .. } | Unavailable::Gone { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dataset_that_cannot_be_checked_is_not_called_another_one() {
        let source = || io::Error::from_raw_os_error(libc::EIO);
        let (what, path) = ("pack p.ddlp".to_owned(), || "p.ddlp".into());
        assert!(!is_another(Ok(())));
        assert!(!is_another(Err(Unavailable::Io { what, path: path(), source: source() })));
        assert!(is_another(Err(Unavailable::Gone { path: path(), source: source() })));
        assert!(is_another(Err(Unavailable::Changed { kind: "pack", file: path(), change: "x".to_owned() })));
    }
}
