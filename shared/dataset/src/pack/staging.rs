//! A file that gets its name only when it is complete.
//!
//! If the file system has files without names (`O_TMPFILE`), a killed process leaves nothing behind. Otherwise the file
//! is called `.NAME.partial` until it is complete: dropping it removes it, and the next process takes over a file that
//! a killed one left.

use nix::fcntl::{AT_FDCWD, AtFlags, Flock, FlockArg, OFlag, RenameFlags, openat, renameat2};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, linkat, unlinkat};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A file that has not got its name yet.
pub(super) struct Staging {
    target: PathBuf,
    handle: Handle,
}

enum Handle {
    Unnamed(File),
    Partial { file: Flock<File>, path: PathBuf },
}

/// Whether to use files without a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unnamed {
    WherePossible,
    #[cfg(test)]
    Never,
}

impl Staging {
    /// Creates a file for `target`, in its folder.
    pub(super) fn create(target: &Path, unnamed: Unnamed) -> io::Result<Self> {
        let handle = match unnamed {
            Unnamed::WherePossible => create_unnamed(target).map(Handle::Unnamed),
            #[cfg(test)]
            Unnamed::Never => None,
        };
        let handle = match handle {
            Some(handle) => handle,
            None => create_partial(target)?,
        };
        Ok(Self { target: target.to_owned(), handle })
    }

    pub(super) fn file(&self) -> &File {
        match &self.handle {
            Handle::Unnamed(file) => file,
            Handle::Partial { file, .. } => file.deref(),
        }
    }

    /// Gives the file its name, on disk too. With `overwrite`, it replaces a file of that name.
    pub(super) fn commit(self, overwrite: bool) -> Result<(), NotNamed> {
        self.file().sync_all()?;
        check_name(&self.target, overwrite)?;
        match &self.handle {
            Handle::Unnamed(file) => link(file, &self.target, overwrite)?,
            Handle::Partial { path, .. } => rename(path, &self.target, overwrite)?,
        }
        Ok(File::open(directory(&self.target))?.sync_all()?)
    }
}

/// Reason why a file does not get its name.
#[derive(Debug)]
pub(super) enum NotNamed {
    /// A file of that name exists.
    Exists,
    /// Something else than a regular file has that name; the text says what. Replacing a device would remove it;
    /// replacing a link would not write to its target.
    NoFile(&'static str),
    Io(io::Error),
}

impl From<io::Error> for NotNamed {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::AlreadyExists => Self::Exists,
            _ => Self::Io(error),
        }
    }
}

/// Refuses a name that a file cannot get, as far as that can be known now.
pub(super) fn check_name(target: &Path, overwrite: bool) -> Result<(), NotNamed> {
    let Ok(there) = fs::symlink_metadata(target) else { return Ok(()) };
    let kind = there.file_type();
    if kind.is_file() {
        return if overwrite { Ok(()) } else { Err(NotNamed::Exists) };
    }
    Err(NotNamed::NoFile(if kind.is_dir() {
        "a folder"
    } else if kind.is_symlink() {
        "a symbolic link"
    } else if kind.is_block_device() || kind.is_char_device() {
        "a device"
    } else {
        "a pipe or a socket"
    }))
}

impl Drop for Staging {
    fn drop(&mut self) {
        // After a commit the partial file has gone, and nobody else makes one while this process holds the lock.
        if let Handle::Partial { path, .. } = &self.handle {
            let _ = fs::remove_file(path);
        }
    }
}

/// Returns the folder of `target`.
pub(super) fn directory(target: &Path) -> &Path {
    match target.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

fn descriptor_path(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Creates a file without a name, if the file system has such files and `/proc` is there for naming it later.
fn create_unnamed(target: &Path) -> Option<File> {
    let flags = OFlag::O_TMPFILE | OFlag::O_RDWR | OFlag::O_CLOEXEC;
    let mode = Mode::from_bits_truncate(0o666);
    let file = File::from(openat(AT_FDCWD, directory(target), flags, mode).ok()?);
    fs::metadata(descriptor_path(&file)).ok()?;
    Some(file)
}

fn link(file: &File, target: &Path, overwrite: bool) -> io::Result<()> {
    let from = descriptor_path(file);
    let link_as = |name: &Path| linkat(AT_FDCWD, &from, AT_FDCWD, name, AtFlags::AT_SYMLINK_FOLLOW);
    if !overwrite {
        return Ok(link_as(target)?);
    }
    // A link cannot replace a file, but a rename can.
    let interim = partial_path(target)?;
    match link_as(&interim) {
        Err(nix::Error::EEXIST) => {
            fs::remove_file(&interim)?;
            link_as(&interim)?;
        }
        other => other?,
    }
    fs::rename(&interim, target).inspect_err(|_| {
        let _ = fs::remove_file(&interim);
    })
}

fn rename(from: &Path, target: &Path, overwrite: bool) -> io::Result<()> {
    if overwrite {
        return fs::rename(from, target);
    }
    match renameat2(AT_FDCWD, from, AT_FDCWD, target, RenameFlags::RENAME_NOREPLACE) {
        // File systems without this flag can make links.
        Err(nix::Error::EINVAL | nix::Error::ENOSYS) => {
            fs::hard_link(from, target)?;
            Ok(unlinkat(AT_FDCWD, from, UnlinkatFlags::NoRemoveDir)?)
        }
        other => Ok(other?),
    }
}

fn partial_path(target: &Path) -> io::Result<PathBuf> {
    let name =
        target.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "it does not name a file"))?;
    let mut partial = OsString::from(".");
    partial.push(name);
    partial.push(OsStr::new(".partial"));
    Ok(target.with_file_name(partial))
}

/// Opens and locks the partial file. A locked one belongs to a running process.
fn create_partial(target: &Path) -> io::Result<Handle> {
    let path = partial_path(target)?;
    loop {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
        let file = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| io::Error::from(errno))?;
        // Between opening and locking, the former owner may have renamed or removed the file.
        let current = fs::symlink_metadata(&path).ok();
        let own = file.metadata()?;
        if current.is_some_and(|current| (current.dev(), current.ino()) == (own.dev(), own.ino())) {
            file.set_len(0)?;
            return Ok(Handle::Partial { file, path });
        }
    }
}

#[cfg(test)]
mod tests;
