//! A file that gets its name only when it is complete. Until then it is called `.NAME.partial`.
//!
//! A killed process leaves this file behind, and the next process that writes the same output removes it. A lock shows
//! whether the file's writer is still at work: a second writer waits for the first. On a file system without locks, any
//! such file counts as left behind.

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::libc::{O_NOFOLLOW, O_NONBLOCK};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait for another writer, and the interval between attempts.
const HELD_WITHIN: Duration = Duration::from_secs(10);
const HELD_LOOK: Duration = Duration::from_millis(20);

/// Most bytes of the output's name that the partial file's name contains: file systems allow 255 bytes in all.
const NAME_BYTES_MAX: usize = 240;

/// Writes `bytes` to a file beside `path`, which must not be a link, and then replaces `path` with that file.
pub fn write(path: &Path, bytes: &[u8], permissions: Option<Permissions>) -> io::Result<()> {
    let partial = name(path)?;
    let held = create(&partial)?;
    let is_ours = || is_same(held.file(), &partial);
    let written = fill(held.file(), bytes, permissions).and_then(|()| match is_ours()? {
        true => fs::rename(&partial, path),
        // Without locks, two writers cannot wait for one another.
        false => Err(io::Error::other(format!("another process has taken the place of {}", partial.display()))),
    });
    if written.is_err() && is_ours().unwrap_or(false) {
        let _ = fs::remove_file(&partial);
    }
    written
}

fn fill(mut file: &File, bytes: &[u8], permissions: Option<Permissions>) -> io::Result<()> {
    if let Some(permissions) = permissions {
        file.set_permissions(permissions)?;
    }
    file.write_all(bytes)?;
    file.sync_all()
}

/// Returns the path of the partial file.
fn name(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.as_bytes();
    let kept = &name[..name.len().min(NAME_BYTES_MAX)];
    Ok(path.with_file_name(OsString::from_vec([b".", kept, b".partial"].concat())))
}

/// Creates and locks the partial file. Removes one that a killed writer left; waits for a writer that is still at work.
fn create(partial: &Path) -> io::Result<LockedFile> {
    let until = Instant::now() + HELD_WITHIN;
    loop {
        let made = match OpenOptions::new().write(true).create_new(true).mode(0o666).open(partial) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
            made => Some(made?),
        };
        let is_new = made.is_some();
        let file = match made.map_or_else(|| open(partial), Ok) {
            Err(error) if error.raw_os_error() == Some(Errno::ELOOP as i32) && Instant::now() < until => {
                fs::remove_file(partial)?;
                continue;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && Instant::now() < until => continue,
            file => file?,
        };
        match LockedFile::of(file)? {
            // Another process may have renamed or removed the file before it was locked.
            Some(held) if !is_same(held.file(), partial)? && Instant::now() < until => {}
            Some(held) if is_new => return Ok(held),
            Some(_) => fs::remove_file(partial)?,
            None if Instant::now() < until => thread::sleep(HELD_LOOK),
            None => return Err(io::Error::other(format!("another process holds {}", partial.display()))),
        }
    }
}

/// Opens an existing partial file, to lock it. NFS locks only files that are open for writing.
fn open(partial: &Path) -> io::Result<File> {
    let open = |writes| OpenOptions::new().read(true).write(writes).custom_flags(O_NOFOLLOW | O_NONBLOCK).open(partial);
    match open(true) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => open(false),
        opened => opened,
    }
}

fn is_same(file: &File, path: &Path) -> io::Result<bool> {
    let own = file.metadata()?;
    Ok(fs::symlink_metadata(path).is_ok_and(|there| (there.dev(), there.ino()) == (own.dev(), own.ino())))
}

/// A file, locked if the file system has locks.
enum LockedFile {
    Locked(Flock<File>),
    WithoutLocks(File),
}

impl LockedFile {
    /// Locks the file. Returns `None` while another process holds it.
    fn of(file: File) -> io::Result<Option<Self>> {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Some(Self::Locked(lock))),
            Err((_, Errno::EWOULDBLOCK)) => Ok(None),
            Err((file, Errno::ENOSYS | Errno::ENOLCK | Errno::EOPNOTSUPP | Errno::EBADF)) => {
                Ok(Some(Self::WithoutLocks(file)))
            }
            Err((_, errno)) => Err(errno.into()),
        }
    }

    fn file(&self) -> &File {
        match self {
            Self::Locked(lock) => lock,
            Self::WithoutLocks(file) => file,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_a_killed_writer_left_is_replaced_and_a_link_in_its_place_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, partial) = (folder.path().join("at.json"), folder.path().join(".at.json.partial"));
        fs::write(&partial, "half of a longer state").unwrap();
        write(&path, b"whole", None).unwrap();
        let other = folder.path().join("other");
        fs::write(&other, "kept").unwrap();
        symlink(&other, &partial).unwrap();
        write(&path, b"again", None).unwrap();
        assert_eq!((fs::read(&path).unwrap(), fs::read(&other).unwrap()), (b"again".to_vec(), b"kept".to_vec()));
        fs::hard_link(&other, &partial).unwrap();
        write(&path, b"third", None).unwrap();
        assert_eq!((fs::read(&path).unwrap(), fs::read(&other).unwrap()), (b"third".to_vec(), b"kept".to_vec()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn writers_of_one_file_take_turns() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x".repeat(255));
        let texts: Vec<Vec<u8>> = (b'a'..=b'd').map(|letter| vec![letter; 100_000]).collect();
        thread::scope(|scope| {
            for text in &texts {
                scope.spawn(|| (0..20).for_each(|_| write(&path, text, None).unwrap()));
            }
            for _ in 0..200 {
                let there = fs::read(&path).unwrap_or_default();
                assert!(there.is_empty() || texts.contains(&there), "{} bytes", there.len());
            }
        });
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_cannot_be_written_whole_leaves_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("folder");
        fs::create_dir(&path).unwrap();
        assert!(write(&path, b"text", None).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
