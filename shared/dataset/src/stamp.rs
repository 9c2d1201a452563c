//! Whether an open file is still what it was when the dataset was opened.

use nix::sys::stat::{FileStat, fstat};
use std::io;
use std::os::fd::AsFd;

/// What a file's status says of its content. Whoever writes into the file changes it; renaming and new permissions do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) bytes: u64,
    modified_s: i64,
    modified_ns: i64,
}

impl Stamp {
    /// Looks at an open file.
    pub(crate) fn of(file: impl AsFd) -> io::Result<Self> {
        Ok(Self::from(&fstat(file)?))
    }

    /// Says how a file of this stamp has come to be one of another, as a phrase behind its name.
    pub(crate) fn change(&self, now: &Self) -> String {
        if self.bytes == now.bytes {
            "has been written to".to_owned()
        } else {
            format!("had {} bytes, and has {} now", self.bytes, now.bytes)
        }
    }
}

impl From<&FileStat> for Stamp {
    fn from(status: &FileStat) -> Self {
        Self { bytes: status.st_size.unsigned_abs(), modified_s: status.st_mtime, modified_ns: status.st_mtime_nsec }
    }
}
