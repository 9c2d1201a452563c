//! Descriptors that the parent process handed down by number.
#![allow(unsafe_code)]

use nix::errno::Errno;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::Mutex;

static TAKEN: Mutex<BTreeSet<RawFd>> = Mutex::new(BTreeSet::new());

/// Takes ownership of an inherited descriptor and marks it close-on-exec.
///
/// A number can be taken once. A descriptor that is already close-on-exec did not come through exec and is refused: it
/// belongs to somebody else in this process.
pub fn take(fd: RawFd) -> io::Result<OwnedFd> {
    let mut taken = TAKEN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if taken.contains(&fd) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is named for two purposes"));
    }
    // SAFETY: F_GETFD reads the flags of any number; a number that is not open gives EBADF.
    let flags = Errno::result(unsafe { libc::fcntl(fd, libc::F_GETFD) })?;
    if flags & libc::FD_CLOEXEC != 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it was not inherited"));
    }
    // SAFETY: the number is open, as just seen; setting a descriptor flag touches no memory.
    Errno::result(unsafe { libc::fcntl(fd, libc::F_SETFD, flags | libc::FD_CLOEXEC) })?;
    taken.insert(fd);
    // SAFETY: the descriptor is open. It came through exec (everything Rust opens is close-on-exec), so nothing in this
    // process owns it, and the set above keeps a second owner from being made.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::IntoRawFd;

    #[test]
    fn a_number_that_is_not_open_or_not_inherited_is_refused() {
        assert_eq!(take(987_654).unwrap_err().raw_os_error(), Some(libc::EBADF));
        let own = std::fs::File::open("/dev/null").unwrap();
        assert!(take(std::os::fd::AsRawFd::as_raw_fd(&own)).unwrap_err().to_string().contains("not inherited"));
    }

    #[test]
    fn a_number_is_taken_once() {
        // `dup` gives a descriptor without close-on-exec, as one that came through exec.
        let fd = nix::unistd::dup(std::fs::File::open("/dev/null").unwrap()).unwrap().into_raw_fd();
        let owned = take(fd).unwrap();
        assert!(take(fd).unwrap_err().to_string().contains("two purposes"));
        drop(owned);
    }
}
