//! Reading a file past the page cache (`O_DIRECT`): the disk writes whole blocks straight into the reader's memory.
//!
//! Such a read costs less CPU time than one through the page cache and evicts nobody's pages; on the other hand,
//! nothing is cached or read ahead. Some file systems cannot do it, and a disk with blocks larger than [`BLOCK_BYTES`]
//! refuses reads of that length: [`Direct::open`] finds out.

use super::format::BLOCK_BYTES;
use crate::extent::resize;
use nix::fcntl::OFlag;
use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

thread_local! {
    /// Space for whole blocks, and for their first byte to lie at a multiple of a block's length.
    static BLOCKS: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A file that is read past the page cache. Many threads may read at once.
#[derive(Debug)]
pub(super) struct Direct(File);

impl Direct {
    /// Opens a file of whole blocks, at least two, a second time. Fails if the file cannot be read past the page cache.
    pub(super) fn open(file: &File) -> io::Result<Self> {
        // Opens the same file, even if its path names another file by now.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let direct = Self(OpenOptions::new().read(true).custom_flags(OFlag::O_DIRECT.bits()).open(path)?);
        // Reads the second block alone, which fails on a disk with larger blocks: none of them begins there.
        direct.read_at(BLOCK_BYTES, &mut [0])?;
        Ok(direct)
    }

    /// Fills `out` with the bytes from `offset` on. Fails for bytes past the end of the file.
    pub(super) fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let start = offset / BLOCK_BYTES * BLOCK_BYTES;
        let skipped = (offset - start) as usize;
        let bytes = (skipped + out.len()).next_multiple_of(BLOCK_BYTES as usize);
        BLOCKS.with_borrow_mut(|buf| {
            resize(buf, bytes + BLOCK_BYTES as usize)?;
            let aligned = buf.as_ptr().align_offset(BLOCK_BYTES as usize);
            let blocks = buf.get_mut(aligned..aligned + bytes).expect("there is a multiple within a block's length");
            self.0.read_exact_at(blocks, start)?;
            out.copy_from_slice(&blocks[skipped..skipped + out.len()]);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddlp_test_support::page_cache::can_pass_cache;
    use std::io::Write;

    #[test]
    fn any_piece_of_a_file_is_read() {
        let bytes: Vec<u8> =
            (0..5 * BLOCK_BYTES as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&bytes).unwrap();
        if !can_pass_cache(file.as_file()) {
            return;
        }
        let direct = Direct::open(file.as_file()).unwrap();
        let block = BLOCK_BYTES as usize;
        for (start, end) in
            [(0, 1), (1, block), (block - 1, block + 1), (7, 4 * block + 9), (block, 3 * block), (0, 5 * block)]
        {
            let mut out = vec![0; end - start];
            direct.read_at(start as u64, &mut out).unwrap();
            assert!(out == bytes[start..end], "{start}..{end}");
        }
        assert!(direct.read_at(bytes.len() as u64 - 1, &mut [0; 2]).is_err(), "past the end");
    }

    #[test]
    fn a_file_system_without_direct_reads_gives_an_error() {
        let error = Direct::open(&File::open("/proc/self/status").unwrap()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
    }
}
