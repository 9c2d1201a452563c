//! The file of a pack as a drive exports it: numbered bytes, read-only.

use super::format::BLOCK_BYTES;
use ddlp_pixels::ReadAt;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Linux leaves out what is beyond a device's readahead, which is this long unless somebody has set it.
const READAHEAD_BYTES: u64 = 128 << 10;

/// An open pack as a run of bytes. Many threads may read at once.
#[derive(Debug)]
pub struct PackFile {
    file: File,
    path: PathBuf,
    bytes: u64,
}

impl PackFile {
    pub(super) fn new(file: File, path: PathBuf, bytes: u64) -> Self {
        assert!(bytes.is_multiple_of(BLOCK_BYTES), "a pack consists of whole blocks");
        Self { file, path, bytes }
    }

    /// Length of the file, a multiple of [`BLOCK_BYTES`].
    pub fn len_bytes(&self) -> u64 {
        self.bytes
    }

    /// Where the file was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Fills `out` from `offset` on. Bytes past the end of the file are an error.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, offset)
    }

    /// Asks the kernel to read ahead; one that does not is none the worse.
    pub(super) fn will_need(&self, offset: u64, bytes: u64) {
        for start in (offset..offset.saturating_add(bytes)).step_by(READAHEAD_BYTES as usize) {
            let length = (offset + bytes - start).min(READAHEAD_BYTES);
            if let (Ok(start), Ok(length)) = (start.try_into(), length.try_into()) {
                let _ = posix_fadvise(&self.file, start, length, PosixFadviseAdvice::POSIX_FADV_WILLNEED);
            }
        }
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

impl ReadAt for PackFile {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, offset)
    }
}

impl AsFd for PackFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
