//! Space on disk for a pack: the check at the start, and the error for a disk that fills up while writing.

use super::report::{PackError, PackProgress};
use super::staging::directory;
use nix::sys::statvfs::statvfs;
use std::io;
use std::path::Path;

/// Refuses a pack that cannot fit, before hours are spent on it.
pub(super) fn check_room(out: &Path, needed: u64) -> Result<(), PackError> {
    match available(out) {
        Some(available) if available < needed => Err(PackError::NoSpace { path: out.to_owned(), needed, available }),
        _ => Ok(()),
    }
}

/// Returns the bytes that this user can still write in the folder of `out`.
fn available(out: &Path) -> Option<u64> {
    let status = statvfs(directory(out)).ok()?;
    status.blocks_available().checked_mul(status.fragment_size())
}

/// How far a pack has been written.
#[derive(Clone, Copy)]
pub(super) struct Reached {
    pub(super) state: PackProgress,
    /// Where the samples begin.
    pub(super) data_offset: u64,
    /// Where the samples written so far end.
    pub(super) data_end: u64,
}

impl Reached {
    /// Estimates the bytes of the whole pack, as if the rest of the source took as much space as its beginning did.
    /// Unknown before the first sample.
    fn whole_bytes(&self) -> Option<u64> {
        let PackProgress { bytes, bytes_total, .. } = self.state;
        let written = u128::from(self.data_end - self.data_offset);
        let samples = (written * u128::from(bytes_total)).checked_div(bytes.into())?;
        u64::try_from(samples + u128::from(self.data_offset)).ok()
    }

    /// Returns the error for a write that failed at this point.
    pub(super) fn error(&self, out: &Path, source: io::Error) -> PackError {
        let path = out.to_owned();
        let PackProgress { samples, samples_total, .. } = self.state;
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                let (written, needed) = (self.data_end, self.whole_bytes());
                PackError::Full { path, samples, samples_total, written, needed, source }
            }
            _ => PackError::Write { path, source },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::Phase;
    use super::*;

    fn reached(bytes: u64, bytes_total: u64, data_end: u64) -> Reached {
        let state = PackProgress {
            unreadable: 0,
            phase: Phase::Packing,
            samples: 3,
            samples_total: 12,
            bytes,
            bytes_total,
            repaired: 0,
            rejected: 0,
        };
        Reached { state, data_offset: 4096, data_end }
    }

    #[test]
    fn the_size_of_the_whole_is_estimated_from_its_beginning() {
        assert_eq!(reached(100, 400, 4096 + 700).whole_bytes(), Some(4096 + 2800));
        assert_eq!(reached(400, 400, 4096 + 2800).whole_bytes(), Some(4096 + 2800));
        assert_eq!(reached(0, 400, 4096).whole_bytes(), None);
        assert_eq!(reached(1, u64::MAX, u64::MAX).whole_bytes(), None);
    }

    #[test]
    fn a_full_disk_and_a_failing_disk_give_different_errors() {
        let said = |kind: io::ErrorKind| reached(100, 400, 4796).error(Path::new("p.ddlp"), kind.into()).to_string();
        let full = "no space for p.ddlp after 3 of 12 samples, at byte 4796 of about 6896: free some space or choose \
                    another disk";
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded, io::ErrorKind::FileTooLarge] {
            assert_eq!(said(kind), full);
        }
        assert_eq!(said(io::ErrorKind::Other), "cannot write p.ddlp");
    }
}
