//! What the cache changes on its disk. Tests let the disk be full, or the process end, at any byte.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Creates a file that is not there yet.
pub fn create(path: &Path) -> io::Result<File> {
    #[cfg(test)]
    faults::before_change()?;
    File::create_new(path)
}

/// Writes bytes at a place of a file.
pub fn write(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    #[cfg(test)]
    faults::before_write(file, bytes, at)?;
    file.write_all_at(bytes, at)
}

/// Changes the length of a file.
pub fn set_len(file: &File, bytes: u64) -> io::Result<()> {
    #[cfg(test)]
    faults::before_change()?;
    file.set_len(bytes)
}

/// Gives a file another name.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    #[cfg(test)]
    faults::before_change()?;
    fs::rename(from, to)
}

/// Removes a file.
pub fn remove_file(path: &Path) -> io::Result<()> {
    #[cfg(test)]
    faults::before_change()?;
    fs::remove_file(path)
}

/// Removes a folder.
pub fn remove_folder(path: &Path) -> io::Result<()> {
    #[cfg(test)]
    faults::before_change()?;
    fs::remove_dir(path)
}

/// Faults of this thread's changes.
#[cfg(test)]
pub mod faults {
    use super::{File, FileExt, io};
    use std::cell::Cell;

    /// What happens after a number of bytes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Fault {
        /// Nothing: the bytes are counted.
        None,
        /// Nothing is changed any more, as if the process was killed. Other changes than bytes count as one byte each.
        Killed,
        /// No byte is written any more; anything else is possible.
        Full,
    }

    thread_local! {
        static FAULT: Cell<(Fault, u64)> = const { Cell::new((Fault::None, u64::MAX)) };
    }

    /// Lets a fault happen after `bytes` bytes.
    pub fn set(fault: Fault, bytes: u64) {
        FAULT.set((fault, bytes));
    }

    /// Returns how many bytes are left until the fault.
    pub fn remaining() -> u64 {
        FAULT.get().1
    }

    fn error(fault: Fault) -> io::Error {
        let kind = if fault == Fault::Full { io::ErrorKind::StorageFull } else { io::ErrorKind::Interrupted };
        io::Error::new(kind, format!("{fault:?}"))
    }

    pub fn before_change() -> io::Result<()> {
        match FAULT.get() {
            (Fault::Full, _) => Ok(()),
            (fault, 0) => Err(error(fault)),
            (fault, left) => {
                FAULT.set((fault, left - 1));
                Ok(())
            }
        }
    }

    /// Writes the bytes in front of the fault, if it happens within these bytes.
    pub fn before_write(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
        let (fault, left) = FAULT.get();
        if bytes.len() as u64 <= left {
            FAULT.set((fault, left - bytes.len() as u64));
            return Ok(());
        }
        FAULT.set((fault, 0));
        file.write_all_at(&bytes[..left as usize], at)?;
        Err(error(fault))
    }
}
