//! Whether an open file is still as it was when the dataset was opened.

use nix::sys::stat::{FileStat, fstat};
use std::fs::Metadata;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

/// The part of a file's status that depends on its content. Writing to the file changes it; renaming it or changing its
/// permissions does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) bytes: u64,
    /// Nanoseconds since 1970.
    modified_ns: i64,
}

impl Stamp {
    /// Stands for the stamp of a file that is not there.
    pub(crate) const ABSENT: Self = Self { bytes: u64::MAX, modified_ns: 0 };

    /// Returns the stamp, or `None` for [`ABSENT`](Self::ABSENT).
    pub(crate) fn present(self) -> Option<Self> {
        Some(self).filter(|stamp| *stamp != Self::ABSENT)
    }

    /// Makes a stamp. A time out of range becomes the nearest one in range.
    fn new(bytes: u64, modified_s: i64, modified_ns: i64) -> Self {
        Self { bytes, modified_ns: modified_s.saturating_mul(1_000_000_000).saturating_add(modified_ns) }
    }

    /// Reads the stamp of an open file.
    pub(crate) fn of(file: impl AsFd) -> io::Result<Self> {
        Ok(Self::from(&fstat(file)?))
    }

    /// Describes how a file has changed from this stamp to `now`, as a phrase that follows the file's name.
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
        Self::new(status.st_size.unsigned_abs(), status.st_mtime, status.st_mtime_nsec)
    }
}

impl From<&Metadata> for Stamp {
    fn from(status: &Metadata) -> Self {
        Self::new(status.len(), status.mtime(), status.mtime_nsec())
    }
}
