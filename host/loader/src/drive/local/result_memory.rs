//! The memory or the file in which a local drive's results lie.

use ddlp_csd::slot::{MAGIC, MAGIC_FREE};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
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

/// Opens a file of slots, to be mapped, and locks it against other runs ([`spare`]). The lock lasts until the file is
/// closed and no longer mapped: a mapping keeps an open file.
pub(super) fn open_locked(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).write(true).open(path)?;
    lock(&file)?;
    Ok(file)
}

/// Removes a file of slots that is still mapped by an earlier run, because somebody holds a batch or a field in it. The
/// agent then makes a new file, and the earlier one lasts as long as its mapping. Leaves all other files alone, which
/// the agent judges: among them a file that another agent uses.
pub(super) fn spare(path: &Path) -> io::Result<()> {
    let Ok(file) = File::options().read(true).write(true).open(path) else { return Ok(()) };
    let mut start = [0; MAGIC.len()];
    let is_ours = file.metadata()?.is_file()
        && file.read_exact_at(&mut start, 0).is_ok()
        && (start == MAGIC || start == MAGIC_FREE);
    // An agent holds this other kind of lock for as long as it runs.
    if !is_ours || file.try_lock().is_err() || lock(&file) != Err(Errno::EAGAIN) {
        return Ok(());
    }
    tracing::debug!(path = %path.display(), "a batch of an earlier run still lies there: the drive gets a new file");
    std::fs::remove_file(path.canonicalize()?)
}

/// Locks a whole file for as long as it is open, without waiting.
fn lock(file: &File) -> nix::Result<()> {
    let whole =
        libc::flock { l_type: libc::F_WRLCK as i16, l_whence: libc::SEEK_SET as i16, l_start: 0, l_len: 0, l_pid: 0 };
    fcntl(file, FcntlArg::F_OFD_SETLK(&whole)).map(|_| ())
}
