//! A file that stays open as long as its dataset does.
//!
//! A file server that restarts may forget its open files (ESTALE). Each read then opens the file again by its path, if
//! the path still leads to the file that was opened.

use crate::extent::read_exact;
use crate::stamp::Stamp;
use nix::errno::Errno;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// An open file, with its path and its state when it was opened. Many threads may read it at once.
#[derive(Debug)]
pub(crate) struct HeldFile {
    file: File,
    path: PathBuf,
    stamp: Stamp,
}

impl HeldFile {
    pub(crate) fn new(file: File, path: PathBuf, stamp: Stamp) -> Self {
        Self { file, path, stamp }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the file's state when it was opened.
    pub(crate) fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// Reads the file's state now.
    pub(crate) fn stamp_now(&self) -> io::Result<Stamp> {
        self.with(|file| Stamp::of(file))
    }

    /// Fills `out` with the bytes from `offset` on.
    pub(crate) fn read_exact(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.with(|file| read_exact(file, offset, out))
    }

    fn with<T>(&self, mut act: impl FnMut(&File) -> io::Result<T>) -> io::Result<T> {
        match act(&self.file) {
            Err(error) if is_stale(&error) => self.with_reopened(error, &mut act),
            done => done,
        }
    }

    /// Opens the file again after `error`. Returns `error` if the file cannot be opened or the path leads to another
    /// file.
    #[cold]
    fn with_reopened<T>(&self, error: io::Error, act: &mut dyn FnMut(&File) -> io::Result<T>) -> io::Result<T> {
        match File::open(&self.path) {
            Ok(file) if Stamp::of(&file).is_ok_and(|now| now.is_of(&self.stamp)) => act(&file),
            _ => Err(error),
        }
    }
}

/// Returns whether the server has forgotten the open file.
pub(crate) fn is_stale(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::ESTALE as i32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::silently;
    use std::fs;
    use std::os::unix::fs::FileExt;

    /// Reads a file whose first handle is stale.
    fn read(held: &HeldFile) -> io::Result<[u8; 4]> {
        let mut is_first = true;
        held.with(|file| {
            if std::mem::take(&mut is_first) {
                return Err(io::Error::from_raw_os_error(libc::ESTALE));
            }
            let mut out = [0; 4];
            file.read_exact_at(&mut out, 1).map(|()| out)
        })
    }

    #[test]
    fn a_stale_file_is_opened_again_only_if_it_is_the_same() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("x.bin");
        fs::write(&path, "012345").unwrap();
        let file = File::open(&path).unwrap();
        let stamp = Stamp::of(&file).unwrap();
        let held = HeldFile::new(file, path.clone(), stamp);
        silently(&path, |file| file.write_all_at(b"abcdef", 0).unwrap());
        assert_eq!(read(&held).unwrap(), *b"bcde");
        fs::write(&path, "another").unwrap();
        assert_eq!(read(&held).unwrap_err().raw_os_error(), Some(libc::ESTALE));
        fs::remove_file(&path).unwrap();
        assert_eq!(read(&held).unwrap_err().raw_os_error(), Some(libc::ESTALE));
    }

    #[test]
    fn other_errors_open_nothing() {
        let held =
            HeldFile::new(tempfile::tempfile().unwrap(), "x".into(), Stamp::of(tempfile::tempfile().unwrap()).unwrap());
        let mut calls = 0;
        let failed = held.with(|_| {
            calls += 1;
            Err::<(), _>(io::Error::from_raw_os_error(libc::EACCES))
        });
        assert_eq!((failed.unwrap_err().raw_os_error(), calls), (Some(libc::EACCES), 1));
    }
}
