//! A folder that gets its name only when it is complete. Until then it is called `.NAME.partial`.
//!
//! Dropping the folder removes it. If a killed process left one, the next process that makes the same folder removes
//! it; a lock tells whether its owner is still at work.

use crate::output;
use anyhow::{Context, bail};
use nix::fcntl::{Flock, FlockArg, OFlag, open};
use nix::sys::stat::Mode;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A folder that has not got its name yet.
pub struct Partial {
    path: PathBuf,
    target: PathBuf,
    is_moved: bool,
    _lock: Flock<File>,
}

impl Partial {
    /// Makes an empty folder beside `target`.
    pub fn create(target: &Path) -> anyhow::Result<Self> {
        // An existing folder is empty here. It may be given as `.`, and still has a name.
        let target = fs::canonicalize(target).unwrap_or_else(|_| target.to_owned());
        let Some(name) = target.file_name() else { bail!("{} does not name a folder", target.display()) };
        let mut partial = std::ffi::OsString::from(".");
        partial.push(name);
        partial.push(".partial");
        let path = target.with_file_name(partial);
        let lock = claim(&path).map_err(|error| {
            let why = refusal(&path, &error);
            anyhow::Error::new(error).context(why)
        })?;
        let Some(lock) = lock else { bail!("another process is making {}", target.display()) };
        Ok(Self { path, target, is_moved: false, _lock: lock })
    }

    /// Returns where the folder is now.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the folder its name.
    pub fn commit(mut self) -> anyhow::Result<()> {
        fs::rename(&self.path, &self.target).with_context(|| format!("cannot make {}", self.target.display()))?;
        self.is_moved = true;
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.is_moved {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Explains why a folder cannot be made, and what to do.
fn refusal(path: &Path, error: &io::Error) -> String {
    let (shown, folder) = (path.display(), output::folder(path).display());
    if fs::symlink_metadata(path).is_ok() {
        return format!("cannot make the folder {shown}: something of that name is there; remove it");
    }
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            format!("you may not write in {folder}: name another folder")
        }
        _ => format!("cannot make the folder {shown}"),
    }
}

/// Creates, locks and empties the folder. Returns `None` while another process holds it. Fails if the name belongs to
/// something other than a folder.
fn claim(path: &Path) -> io::Result<Option<Flock<File>>> {
    loop {
        match fs::create_dir(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let folder = File::from(open(path, OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())?);
        let lock = match Flock::lock(folder, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => lock,
            Err((_, nix::Error::EWOULDBLOCK)) => return Ok(None),
            Err((_, errno)) => return Err(errno.into()),
        };
        let own = lock.metadata()?;
        // Between opening and locking, the former owner may have moved or removed the folder.
        if fs::symlink_metadata(path).is_ok_and(|now| (now.dev(), now.ino()) == (own.dev(), own.ino())) {
            for entry in fs::read_dir(path)? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    fs::remove_dir_all(entry.path())?
                } else {
                    fs::remove_file(entry.path())?
                }
            }
            return Ok(Some(lock));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_killed_processs_folder_is_taken_over_and_a_folder_in_use_is_not() {
        let home = tempfile::tempdir().unwrap();
        let target = home.path().join("photos");
        fs::create_dir_all(home.path().join(".photos.partial/class_000")).unwrap();
        fs::write(home.path().join(".photos.partial/class_000/000001.jpg"), "half").unwrap();
        let partial = Partial::create(&target).unwrap();
        assert_eq!(fs::read_dir(partial.path()).unwrap().count(), 0);
        assert!(Partial::create(&target).err().unwrap().to_string().contains("another process"));
        fs::write(partial.path().join("new"), "whole").unwrap();
        partial.commit().unwrap();
        assert_eq!(fs::read(target.join("new")).unwrap(), b"whole");
        drop(Partial::create(&home.path().join("other")).unwrap());
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_link_or_a_file_in_the_folders_place_is_an_error() {
        let home = tempfile::tempdir().unwrap();
        let (target, partial) = (home.path().join("photos"), home.path().join(".photos.partial"));
        fs::create_dir(home.path().join("elsewhere")).unwrap();
        fs::write(home.path().join("elsewhere/kept"), "kept").unwrap();
        for place in ["elsewhere", "nowhere", ".photos.partial"] {
            symlink(place, &partial).unwrap();
            let error = format!("{:#}", Partial::create(&target).err().unwrap());
            assert!(error.contains(".photos.partial") && error.contains("remove it"), "{place}: {error}");
            fs::remove_file(&partial).unwrap();
        }
        fs::write(&partial, "a file").unwrap();
        assert!(Partial::create(&target).is_err());
        assert_eq!(fs::read(home.path().join("elsewhere/kept")).unwrap(), b"kept");
    }

    #[test]
    fn only_what_is_there_is_to_be_removed() {
        let home = tempfile::tempdir().unwrap();
        let (path, folder) = (home.path().join(".photos.partial"), home.path().display());
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        assert_eq!(refusal(&path, &denied), format!("you may not write in {folder}: name another folder"));
        assert_eq!(refusal(Path::new(".none.partial"), &denied), "you may not write in .: name another folder");
        let full = io::Error::from(io::ErrorKind::StorageFull);
        assert_eq!(refusal(&path, &full), format!("cannot make the folder {}", path.display()));
        fs::write(&path, "a file").unwrap();
        assert!(refusal(&path, &denied).ends_with("remove it"));
    }
}
