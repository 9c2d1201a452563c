//! Telling whether an open file is still as it was when the dataset was opened.

use nix::sys::stat::{FileStat, fstat};
use std::io;
use std::os::fd::AsFd;

/// The part of a file's status that depends on its content. Writing to the file changes it; renaming it or changing its
/// permissions does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) bytes: u64,
    modified_s: i64,
    modified_ns: i64,
}

impl Stamp {
    /// Reads the stamp of an open file.
    pub(crate) fn of(file: impl AsFd) -> io::Result<Self> {
        Ok(Self::from(&fstat(file)?))
    }

    /// Describes how a file with this stamp has changed into one with another stamp, as a phrase that follows its name.
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
