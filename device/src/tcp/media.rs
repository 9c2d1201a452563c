//! Bytes of the block namespaces.

use crate::controller::BlockNamespace;
use crate::slots::Slots;
use ddlp_csd::BLOCK_BYTES;
use ddlp_dataset::pack::BlocksRead;
use ddlp_dataset::{Dataset, Unavailable, errno};
use ddlp_nvme::Status;
use std::io;
use std::sync::Arc;

/// Contents of the block namespaces.
pub struct Media {
    dataset: Arc<dyn Dataset>,
    /// Contents of namespace 1 if the dataset has no bytes to export: one block, the identity page.
    substitute: [u8; BLOCK_BYTES],
    slots: Arc<Slots>,
}

/// A buffer that was to be filled. If the bytes cannot be read, the status is for the host.
pub type Filled = (Result<(), (Status, io::Error)>, Vec<u8>);

impl Media {
    /// Makes the media of a dataset and the result slots.
    pub fn new(dataset: Arc<dyn Dataset>, substitute: [u8; BLOCK_BYTES], slots: Arc<Slots>) -> Self {
        Self { dataset, substitute, slots }
    }

    /// Returns the number of blocks of namespace 1: those of the pack, which consists of whole blocks, or 1 without a
    /// pack.
    pub fn dataset_blocks(dataset: &dyn Dataset) -> u64 {
        let bytes = match (dataset.export(), dataset.export_blocks()) {
            (Some(pack), _) => pack.len_bytes(),
            (None, Some(blocks)) => blocks.len_bytes(),
            (None, None) => return 1,
        };
        bytes / BLOCK_BYTES as u64
    }

    /// Returns the result slots.
    pub fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Returns the status of a failed read. A host can tell apart: a pack that was cut short or replaced (Namespace Not
    /// Ready), damage (Unrecovered Read Error), and trouble of this machine that may pass (Internal Error).
    fn status_of(&self, region: &BlockNamespace, error: &io::Error) -> Status {
        match region {
            BlockNamespace::Dataset => status_of_dataset(error, || self.dataset.check_damage()),
            BlockNamespace::Results(_) => Status::UNRECOVERED_READ,
        }
    }

    /// Returns whether the blocks of the dataset come from a store.
    pub fn is_in_store(&self) -> bool {
        self.dataset.export_blocks().is_some()
    }

    /// Fills the buffer with bytes, and returns it. Waits for storage on another thread, and for a store on none.
    ///
    /// # Errors
    ///
    /// If the system refuses a thread, or the thread panics.
    pub async fn fill(self: Arc<Self>, region: BlockNamespace, offset: u64, mut buffer: Vec<u8>) -> io::Result<Filled> {
        if let (BlockNamespace::Dataset, Some(blocks)) = (&region, self.dataset.export_blocks()) {
            let read = loop {
                let place = 0..buffer.len();
                match blocks.start_reads(vec![BlocksRead { offset, memory: &mut buffer, place }]).await {
                    // Meant for the workers that wait for the store. This host has its own patience.
                    Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                    read => break read,
                }
            };
            return Ok((read.map_err(|error| (self.status_of(&region, &error), error)), buffer));
        }
        let read = move || {
            let read = self.read(&region, offset, &mut buffer);
            (read.map_err(|error| (self.status_of(&region, &error), error)), buffer)
        };
        tokio::task::spawn_blocking(read).await.map_err(io::Error::other)
    }

    /// Reads `buffer.len()` bytes, but not of a store. May wait for storage.
    fn read(&self, region: &BlockNamespace, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        match region {
            BlockNamespace::Results(reader) => self.slots.read(reader, offset, buffer),
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

/// Returns the status of a failed read of the dataset. A dataset that cannot be checked may be the one that was opened.
fn status_of_dataset(error: &io::Error, check: impl FnOnce() -> Result<(), Unavailable>) -> Status {
    let is_another = || matches!(check(), Err(Unavailable::Changed { .. } | Unavailable::Gone { .. }));
    if error.kind() == io::ErrorKind::UnexpectedEof || is_another() {
        Status::NAMESPACE_NOT_READY.do_not_retry()
    } else if errno::is_medium(error) {
        Status::UNRECOVERED_READ
    } else {
        Status::INTERNAL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_can_tell_another_pack_damage_and_passing_trouble_apart() {
        let error = io::Error::from_raw_os_error;
        let (path, replaced) = (|| "p.ddlp".into(), Status::NAMESPACE_NOT_READY.do_not_retry());
        let unchecked = || Err(Unavailable::Io { what: "pack".into(), path: path(), source: error(libc::EIO) });
        assert_eq!(status_of_dataset(&error(libc::EIO), || Ok(())), Status::UNRECOVERED_READ);
        assert_eq!(status_of_dataset(&error(libc::EIO), unchecked), Status::UNRECOVERED_READ);
        for passing in [libc::ETIMEDOUT, libc::ENOMEM, libc::ENFILE, libc::EACCES] {
            assert_eq!(status_of_dataset(&error(passing), || Ok(())), Status::INTERNAL, "{passing}");
            assert_eq!(status_of_dataset(&error(passing), unchecked), Status::INTERNAL, "{passing}");
        }
        assert!(!Status::INTERNAL.is_do_not_retry(), "hosts read again");
        let gone = || Err(Unavailable::Gone { path: path(), source: error(libc::ENOENT) });
        let changed = || Err(Unavailable::Changed { kind: "pack", file: path(), change: "x".to_owned() });
        assert_eq!(status_of_dataset(&error(libc::EIO), gone), replaced);
        assert_eq!(status_of_dataset(&error(libc::EIO), changed), replaced);
        let short = io::ErrorKind::UnexpectedEof.into();
        assert_eq!(status_of_dataset(&short, || Ok(())), replaced);
    }
}
