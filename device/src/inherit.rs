//! File descriptors inherited from the parent process, named by number.
#![allow(unsafe_code)]

use nix::errno::Errno;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::Mutex;

/// Held while a descriptor changes from inherited to owned.
static TAKING: Mutex<()> = Mutex::new(());

/// Takes ownership of an inherited descriptor and marks it close-on-exec.
///
/// Refuses a descriptor that is already close-on-exec: it did not come through exec, or was taken before, so something
/// else in this process owns it.
pub fn take(fd: RawFd) -> io::Result<OwnedFd> {
    let _taking = TAKING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    // SAFETY: F_GETFD reads the flags of any number; a number that is not open gives EBADF.
    let flags = Errno::result(unsafe { libc::fcntl(fd, libc::F_GETFD) })?;
    if flags & libc::FD_CLOEXEC != 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it was not inherited, or is named for two purposes"));
    }
    // SAFETY: the number is open, as just seen; setting a descriptor flag touches no memory.
    Errno::result(unsafe { libc::fcntl(fd, libc::F_SETFD, flags | libc::FD_CLOEXEC) })?;
    // SAFETY: the descriptor is open, and nothing in this process owns it: everything that Rust opens is close-on-exec,
    // and the line above makes every taken descriptor so. The lock keeps two calls from both seeing it free.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsRawFd, IntoRawFd};

    #[test]
    fn a_number_that_is_not_open_or_not_inherited_is_refused() {
        assert_eq!(take(987_654).unwrap_err().raw_os_error(), Some(libc::EBADF));
        let own = std::fs::File::open("/dev/null").unwrap();
        assert!(take(own.as_raw_fd()).unwrap_err().to_string().contains("not inherited"));
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
