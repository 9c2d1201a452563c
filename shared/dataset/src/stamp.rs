//! Whether an open file is still as it was when the dataset was opened.
//!
//! A file counts as unchanged if its size is the same, and so is the time of its last change as far as the file system
//! keeps it. The inode's number is not compared, since some file systems make one up each time. A pack has checksums as
//! well; a file of a folder, a shard and CIFAR's files have nothing else.

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

    /// Returns whether a file with this stamp is the one that had the stamp `before`, unchanged.
    ///
    /// A time may lose its last digits in between: a file server remembers a new file's time to the nanosecond, and
    /// once it has forgotten the file, only as precisely as its disk holds the time, which may be to the second. A
    /// changed file of the same size would count as unchanged only if one of the two times were the other one with its
    /// last digits zero, which a clock practically never gives.
    pub(crate) fn is_of(&self, before: &Self) -> bool {
        let (one, other) = (self.modified_ns, before.modified_ns);
        self.bytes == before.bytes && (one == other || is_cut(one, other) || is_cut(other, one))
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

/// Returns whether the time `rough` is the time `fine` without its last digits, at most those below a second.
fn is_cut(rough: i64, fine: i64) -> bool {
    const SECOND_NS: i64 = 1_000_000_000;
    let mut unit = 1;
    while unit < SECOND_NS && rough % (unit * 10) == 0 {
        unit *= 10;
    }
    fine.div_euclid(unit) == rough.div_euclid(unit)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn is_same(one: (u64, i64, i64), other: (u64, i64, i64)) -> bool {
        let [one, other] = [one, other].map(|(bytes, s, ns)| Stamp::new(bytes, s, ns));
        assert_eq!(one.is_of(&other), other.is_of(&one), "{one:?} {other:?}");
        one.is_of(&other)
    }

    #[test]
    fn a_time_that_lost_its_last_digits_is_the_same() {
        for rough in [0, 100_000_000, 123_000_000, 123_456_700, 123_456_789] {
            assert!(is_same((5, 1_700_000_000, 123_456_789), (5, 1_700_000_000, rough)), "{rough}");
        }
        assert!(is_same((5, -7, 123_456_789), (5, -7, 0)));
    }

    #[test]
    fn another_time_or_size_is_a_change() {
        let before = (5, 1_700_000_000, 123_456_789);
        for now in [
            (6, 1_700_000_000, 123_456_789),
            (5, 1_700_000_001, 123_456_789),
            (5, 1_700_000_001, 0),
            (5, 1_699_999_999, 0),
            (5, 1_700_000_000, 123_456_788),
            (5, 1_700_000_000, 124_000_000),
            (5, 1_700_000_000, 200_000_000),
        ] {
            assert!(!is_same(before, now), "{now:?}");
        }
        assert!(!is_same((5, 1_700_000_000, 0), (5, 1_700_000_010, 0)));
    }
}
