//! The memory or the file in which a local drive's results lie.

use ddlp_csd::slot::{MAGIC, MAGIC_FREE};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Creates the memory that host and agent share, without pages: the agent allocates each slot before it uses the slot.
/// The seal keeps anyone from shrinking the memory under its mappings.
pub(super) fn create(bytes: u64) -> io::Result<File> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let file = File::from(memfd_create(c"ddlp-results", flags)?);
    file.set_len(bytes)?;
    fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK))?;
    Ok(file)
}

/// Opens a file of slots, to be mapped, and locks it against other runs ([`spare`]), if its file system has locks. The
/// lock lasts until the file is closed and no longer mapped: a mapping keeps an open file.
pub(super) fn open_locked(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).write(true).open(path)?;
    hold(&file, path)?;
    Ok(file)
}

/// Locks a file of slots. Fails only if somebody else has locked it.
fn hold(file: &File, path: &Path) -> io::Result<()> {
    match lock(file) {
        Ok(true) => {}
        Ok(false) => return Err(Errno::EAGAIN.into()),
        Err(error) => tracing::warn!(
            path = %path.display(),
            %error,
            "the file of slots cannot be locked: a later run may overwrite batches in it that the program still holds"
        ),
    }
    Ok(())
}

/// Removes a file of slots that is still mapped by an earlier run, because somebody holds a batch or a field in it. The
/// agent then makes a new file, and the earlier one lasts as long as its mapping. Leaves all other files to the agent,
/// including a file that another agent uses.
pub(super) fn spare(path: &Path) -> io::Result<()> {
    let Ok(file) = File::options().read(true).write(true).open(path) else { return Ok(()) };
    // An agent holds this other kind of lock for as long as it runs.
    if !file.metadata()?.is_file() || !begins_like_a_slot(&file) || file.try_lock().is_err() || lock(&file) != Ok(false)
    {
        return Ok(());
    }
    tracing::debug!(path = %path.display(), "a batch of an earlier run still lies there: the drive gets a new file");
    std::fs::remove_file(path.canonicalize()?)
}

/// Returns whether a file is empty or holds slots, and no agent and no run uses it.
pub(super) fn is_unused(path: &Path) -> bool {
    let Ok(file) = File::options().read(true).write(true).open(path) else { return false };
    let is_of_slots = file.metadata().is_ok_and(|file| file.is_file() && file.len() == 0) || begins_like_a_slot(&file);
    is_of_slots && file.try_lock().is_ok() && lock(&file) != Ok(false)
}

fn begins_like_a_slot(file: &File) -> bool {
    let mut start = [0; MAGIC.len()];
    file.read_exact_at(&mut start, 0).is_ok() && (start == MAGIC || start == MAGIC_FREE)
}

/// Returns whether the path leads to this open file. The path may lead to a later run's file ([`spare`]).
pub(super) fn is_at(file: &impl AsFd, path: &Path) -> bool {
    let inode = |of: io::Result<Metadata>| of.ok().map(|of| (of.dev(), of.ino()));
    let own = file.as_fd().try_clone_to_owned().and_then(|own| File::from(own).metadata());
    inode(own).is_some_and(|own| inode(std::fs::metadata(path)) == Some(own))
}

/// Locks a whole file for as long as it is open, without waiting. Returns whether it did, or an error if the file
/// cannot be locked at all, such as on a file system without locks.
fn lock(file: &File) -> nix::Result<bool> {
    let whole =
        libc::flock { l_type: libc::F_WRLCK as i16, l_whence: libc::SEEK_SET as i16, l_start: 0, l_len: 0, l_pid: 0 };
    match fcntl(file, FcntlArg::F_OFD_SETLK(&whole)) {
        Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
        locked => locked.map(|_| true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lock_that_somebody_holds_ends_the_run() {
        let named = tempfile::NamedTempFile::new().unwrap();
        let held = open_locked(named.path()).unwrap();
        assert_eq!(open_locked(named.path()).unwrap_err().raw_os_error(), Some(libc::EAGAIN));
        drop(held);
        // A process that another test starts has the file open, too, until it executes its program.
        while open_locked(named.path()).is_err() {
            std::thread::yield_now();
        }
        // Such a lock needs a file that is open for writing: here it fails as on a file system without locks.
        hold(&File::open(named.path()).unwrap(), named.path()).unwrap();
    }
}
