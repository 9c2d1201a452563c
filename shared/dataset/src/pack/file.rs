//! The file of a pack as a drive exports it: numbered bytes, read-only.

use super::direct::Direct;
use crate::held::HeldFile;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Length of a read-ahead hint. Linux ignores what exceeds the disk's readahead, which is this long by default.
const READAHEAD_BYTES: u64 = 128 << 10;

/// Longest read past the page cache: mostly a whole crop, since each of these reads waits for the disk.
const DIRECT_BYTES: usize = 1 << 20;

/// An open pack as a sequence of bytes. Many threads may read at once.
#[derive(Debug)]
pub struct PackFile {
    held: HeldFile,
    /// The same file, opened for reading pixels past the page cache.
    direct: OnceLock<Direct>,
    /// Whether a read past the page cache failed where one through it succeeded. All later reads then go through it.
    has_direct_failed: AtomicBool,
}

impl PackFile {
    pub(super) fn new(held: HeldFile) -> Self {
        Self { held, direct: OnceLock::new(), has_direct_failed: AtomicBool::new(false) }
    }

    /// Returns the length of the file, a multiple of [`BLOCK_BYTES`](super::BLOCK_BYTES).
    pub fn len_bytes(&self) -> u64 {
        self.held.stamp().bytes
    }

    /// Returns the path where the file was opened.
    pub fn path(&self) -> &Path {
        self.held.path()
    }

    /// Fills `out` with the bytes from `offset` on, through the page cache. Fails for bytes past the end of the file.
    pub fn read_cached(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.held.read_exact(offset, out)
    }

    /// Tells the kernel that reads are long and at random places. Otherwise the kernel would take two reads of
    /// neighbouring samples for the start of a sequential read, and fetch megabytes that nobody asked for.
    pub(super) fn expect_random(&self) {
        let _ = posix_fadvise(self.held.file(), 0, 0, PosixFadviseAdvice::POSIX_FADV_RANDOM);
    }

    /// Reads pixels past the page cache from now on. Fails if that is not possible; pixels are then read as before.
    pub(super) fn pass_cache(&self) -> io::Result<()> {
        let direct = Direct::open(self.held.file())?;
        // A thread that was faster has opened the same file.
        let _ = self.direct.set(direct);
        Ok(())
    }

    /// Asks the kernel to read ahead; it may ignore the request.
    pub(super) fn will_need(&self, offset: u64, bytes: u64) {
        for start in (offset..offset.saturating_add(bytes)).step_by(READAHEAD_BYTES as usize) {
            let length = (offset + bytes - start).min(READAHEAD_BYTES);
            if let (Ok(start), Ok(length)) = (start.try_into(), length.try_into()) {
                let _ = posix_fadvise(self.held.file(), start, length, PosixFadviseAdvice::POSIX_FADV_WILLNEED);
            }
        }
    }

    /// Fills `out` with pixels from `offset` on: past the page cache if the pack's `fit_memory` has decided so,
    /// otherwise through it. Fails for bytes past the end of the file.
    pub(super) fn read_pixels(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let Some(direct) = self.direct() else { return self.read_cached(offset, out) };
        // Longer reads would take as much memory again for blocks.
        let mut pieces = (offset..).step_by(DIRECT_BYTES).zip(out.chunks_mut(DIRECT_BYTES));
        if pieces.try_for_each(|(start, piece)| direct.read_at(start, piece)).is_ok() {
            return Ok(());
        }
        // Whatever failed past the page cache, the result of reading through it counts.
        self.read_cached(offset, out)?;
        self.has_direct_failed.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn direct(&self) -> Option<&Direct> {
        self.direct.get().filter(|_| !self.has_direct_failed.load(Ordering::Relaxed))
    }

    pub(super) fn held(&self) -> &HeldFile {
        &self.held
    }
}

impl AsFd for PackFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.held.file().as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::BLOCK_BYTES;
    use super::*;
    use crate::stamp::Stamp;
    use ddlp_test_support::page_cache::can_pass_cache;
    use std::fs::File;
    use std::io::Write;

    /// Returns a file of `count` blocks, filled with `byte`.
    fn blocks(count: usize, byte: u8) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![byte; count * BLOCK_BYTES as usize]).unwrap();
        file
    }

    fn pack(file: File, path: &str) -> PackFile {
        let stamp = Stamp::of(&file).unwrap();
        PackFile::new(HeldFile::new(file, path.into(), stamp))
    }

    fn pixels(file: &PackFile, offset: u64) -> io::Result<[u8; 9]> {
        let mut out = [0; 9];
        file.read_pixels(offset, &mut out).map(|()| out)
    }

    #[test]
    fn failed_reads_past_the_page_cache_go_through_it() {
        let file = pack(blocks(3, 5), "x.ddlp");
        let shorter = blocks(2, 6);
        if !can_pass_cache(&shorter) {
            return;
        }
        file.direct.set(Direct::open(&shorter).unwrap()).unwrap();
        assert_eq!(pixels(&file, 10).unwrap(), [6; 9]);
        assert!(pixels(&file, 3 * BLOCK_BYTES).is_err());
        assert_eq!(pixels(&file, 10).unwrap(), [6; 9], "a read that fails either way is no reason to give up");
        assert_eq!(pixels(&file, 2 * BLOCK_BYTES).unwrap(), [5; 9]);
        assert_eq!(pixels(&file, 10).unwrap(), [5; 9], "not tried again");
    }

    #[test]
    fn many_pixels_are_read_in_pieces_that_take_little_memory_for_blocks() {
        let count = 2 * DIRECT_BYTES / BLOCK_BYTES as usize + 1;
        let file = pack(blocks(count, 5), "x.ddlp");
        let other = blocks(count, 6);
        if !can_pass_cache(&other) {
            return;
        }
        file.direct.set(Direct::open(&other).unwrap()).unwrap();
        for bytes in [DIRECT_BYTES, DIRECT_BYTES + 1, 2 * DIRECT_BYTES + 9] {
            let mut out = vec![0; bytes];
            file.read_pixels(1, &mut out).unwrap();
            assert!(out.iter().all(|&byte| byte == 6), "{bytes} bytes");
        }
    }

    #[test]
    fn a_file_without_direct_reads_is_read_through_the_page_cache() {
        let status = pack(File::open("/proc/self/status").unwrap(), "status");
        assert!(status.pass_cache().is_err());
        assert_eq!(&pixels(&status, 0).unwrap()[..5], b"Name:");
    }
}
