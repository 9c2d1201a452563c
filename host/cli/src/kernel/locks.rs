//! Processes that hold files by `flock`, from `/proc/locks`. Reading that list opens no file and takes no lock, so it
//! cannot disturb a run that starts.
//!
//! A holder in another container is not seen.

use nix::sys::stat::{major, minor};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// All locks at one moment.
pub struct Locks(Vec<Lock>);

#[derive(Debug, PartialEq, Eq)]
struct Lock {
    process: u32,
    /// Major and minor number of the file system, and inode.
    file: (u64, u64, u64),
}

impl Locks {
    /// Reads the kernel's list; without a list, nobody holds anything.
    pub fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap_or_default();
        Self(text.lines().filter_map(lock).collect())
    }

    /// Returns the process that locked a file.
    pub fn holder(&self, path: &Path) -> Option<u32> {
        let found = fs::metadata(path).ok()?;
        let file = (major(found.dev()), minor(found.dev()), found.ino());
        self.0.iter().find(|lock| lock.file == file).map(|lock| lock.process)
    }
}

/// Parses a line such as `1: FLOCK ADVISORY WRITE 4711 00:05:345 0 EOF`; a waiting process has an arrow after the
/// number.
fn lock(line: &str) -> Option<Lock> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, "FLOCK", _, _, process, file, ..] = words[..] else { return None };
    let [major, minor, inode] = file.split(':').collect::<Vec<_>>()[..] else { return None };
    let device = |number| u64::from_str_radix(number, 16).ok();
    Some(Lock { process: process.parse().ok()?, file: (device(major)?, device(minor)?, inode.parse().ok()?) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::planted::locked;

    #[test]
    fn locks_are_read_and_waiters_and_others_left_out() {
        let held = "1: FLOCK  ADVISORY  WRITE 4711 00:1a:345 0 EOF";
        assert_eq!(lock(held), Some(Lock { process: 4711, file: (0, 0x1a, 345) }));
        for other in [
            "",
            "1: -> FLOCK  ADVISORY  WRITE 4712 00:1a:345 0 EOF",
            "2: POSIX  ADVISORY  WRITE 4711 00:1a:345 0 EOF",
            "2: OFDLCK ADVISORY  READ -1 00:1a:345 0 EOF",
            "3: FLOCK  ADVISORY  WRITE -1 00:1a:345 0 EOF",
            "3: FLOCK  ADVISORY  WRITE 1 00:1a 0 EOF",
            "3: FLOCK  ADVISORY  WRITE 1 <none>:0 0 EOF",
        ] {
            assert_eq!(lock(other), None, "{other}");
        }
    }

    #[test]
    fn holders_are_found_by_the_file() {
        let root = tempfile::tempdir().unwrap();
        let [node, other, list] = ["node", "other", "locks"].map(|name| root.path().join(name));
        fs::write(&node, "").unwrap();
        fs::write(&other, "").unwrap();
        fs::write(&list, locked(&node, 4711)).unwrap();
        let locks = Locks::read(&list);
        assert_eq!((locks.holder(&node), locks.holder(&other)), (Some(4711), None));
        assert_eq!(locks.holder(&root.path().join("none")), None);
        assert_eq!(Locks::read(&root.path().join("none")).holder(&node), None);
    }
}
