//! The blocks of a pack in a drive, store or server, with a cache on a disk of this machine in front of them.

use crate::cache::{Cache, CacheOptions};
use ddlp_dataset::pack::{BLOCK_BYTES, Blocks, BlocksRead};
use ddlp_dataset::{CacheUse, FetchDepth, Reading, Requests, Silences};
use std::io;
use std::ops::Range;
use std::path::Path;

/// Blocks with a cache: bytes that were read once come from it.
///
/// The superblock alone is always read from where it is stored: it says which pack that is. All other bytes follow from
/// it, by checksums, so bytes are cached under its digest.
#[derive(Debug)]
pub struct CachedBlocks {
    blocks: Box<dyn Blocks>,
    cache: Cache,
}

impl CachedBlocks {
    /// Puts a cache in front of blocks.
    ///
    /// # Errors
    ///
    /// If the superblock cannot be read, or the cache's folder cannot be used.
    pub fn new(blocks: Box<dyn Blocks>, options: &CacheOptions) -> Result<Self, CacheError> {
        let mut superblock = [0; BLOCK_BYTES as usize];
        let length = blocks.len_bytes().min(BLOCK_BYTES) as usize;
        blocks.read(0, &mut superblock[..length]).map_err(CacheError::Unread)?;
        let cache = open_cache(options, &superblock[..length])?;
        Ok(Self { blocks, cache })
    }

    /// Puts an open cache in front of blocks.
    pub(super) fn of(blocks: Box<dyn Blocks>, cache: Cache) -> Self {
        Self { blocks, cache }
    }

    /// Fills what is cached of these reads. Returns the part of each that is not.
    fn fill(&self, reads: &mut [BlocksRead<'_>]) -> Vec<Range<usize>> {
        let fill = |read: &mut BlocksRead<'_>| match read.offset {
            ..BLOCK_BYTES => 0..read.place.len(),
            offset => self.cache.fill(offset, &mut read.memory[read.place.clone()]),
        };
        reads.iter_mut().map(fill).collect()
    }

    /// Keeps the parts of these reads that were not cached.
    fn keep(&self, reads: &[BlocksRead<'_>], missing: &[Range<usize>]) {
        for (read, missing) in reads.iter().zip(missing) {
            if read.offset >= BLOCK_BYTES {
                let bytes = &read.memory[read.place.clone()][missing.clone()];
                self.cache.keep(read.offset + missing.start as u64, bytes);
            }
        }
    }
}

/// Why there is no cache in front of a pack.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The beginning of the pack cannot be read.
    #[error(transparent)]
    Unread(io::Error),
    /// The folder cannot be used. The text says what to do.
    #[error("{0}")]
    Folder(String),
}

/// Opens the cache of the pack that begins with these bytes, its superblock.
pub(super) fn open_cache(options: &CacheOptions, superblock: &[u8]) -> Result<Cache, CacheError> {
    let key = blake3::Hasher::new().update(b"ddlp cache 1").update(superblock).finalize();
    Cache::open(options, *key.as_bytes()).map_err(|error| unusable(&options.folder, &error))
}

/// Returns the error for the folder of a cache that cannot be used.
pub(super) fn unusable(folder: &Path, error: &io::Error) -> CacheError {
    let help = match error.kind() {
        io::ErrorKind::PermissionDenied => "; if it has another user's files, name a folder of your own",
        _ => "",
    };
    CacheError::Folder(format!("`cache`: {} cannot be used: {error}{help}", folder.display()))
}

/// Returns the reads of the parts that are missing. Only a read that is missing as a whole may write behind its place.
fn missing_reads<'m>(reads: &'m mut [BlocksRead<'_>], missing: &[Range<usize>]) -> Vec<BlocksRead<'m>> {
    let parts = reads.iter_mut().zip(missing).filter(|(_, missing)| !missing.is_empty());
    let parts = parts.map(|(BlocksRead { offset, memory, place }, missing)| {
        if missing.len() == place.len() {
            return BlocksRead { offset: *offset, memory, place: place.clone() };
        }
        let (offset, place) = (*offset + missing.start as u64, place.start + missing.start..place.start + missing.end);
        BlocksRead { offset, place: 0..place.len(), memory: &mut memory[place] }
    });
    parts.collect()
}

impl Blocks for CachedBlocks {
    fn len_bytes(&self) -> u64 {
        self.blocks.len_bytes()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let place = 0..out.len();
        self.read_many(&mut [BlocksRead { offset, memory: out, place }])
    }

    fn read_within(&self, offset: u64, memory: &mut [u8], place: Range<usize>) -> io::Result<()> {
        self.read_many(&mut [BlocksRead { offset, memory, place }])
    }

    fn read_many(&self, reads: &mut [BlocksRead<'_>]) -> io::Result<()> {
        let missing = self.fill(reads);
        let mut asked = missing_reads(reads, &missing);
        if !asked.is_empty() {
            self.blocks.read_many(&mut asked)?;
            self.keep(reads, &missing);
        }
        Ok(())
    }

    fn start_reads<'r>(&'r self, mut reads: Vec<BlocksRead<'r>>) -> Reading<'r, io::Error> {
        Box::pin(async move {
            let missing = self.fill(&mut reads);
            let asked = missing_reads(&mut reads, &missing);
            if !asked.is_empty() {
                self.blocks.start_reads(asked).await?;
                self.keep(&reads, &missing);
            }
            Ok(())
        })
    }

    fn requests(&self) -> Option<Requests> {
        self.blocks.requests()
    }

    fn fetch_depth(&self) -> FetchDepth {
        self.blocks.fetch_depth()
    }

    fn session(&self) -> u64 {
        self.blocks.session()
    }

    fn interrupt(&self) {
        self.blocks.interrupt();
    }

    fn silences(&self) -> Silences {
        self.blocks.silences()
    }

    fn forget(&self, extent: Range<u64>) {
        self.blocks.forget(extent.clone());
        self.cache.forget(extent);
    }

    fn cache_use(&self) -> Option<CacheUse> {
        Some(self.cache.usage())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_another_user_is_an_error_that_says_what_to_do() {
        let said = |kind: io::ErrorKind| unusable(Path::new("/c"), &kind.into()).to_string();
        let denied = said(io::ErrorKind::PermissionDenied);
        assert!(denied.contains("`cache`: /c cannot be used: permission denied; ") && denied.ends_with("of your own"));
        assert!(!said(io::ErrorKind::NotADirectory).contains("user"));
    }
}
