//! What the operating system's errors say about the bytes that were to be read.

use crate::pack::BlocksError;
use nix::errno::Errno;
use std::io;

/// What an error says about the bytes that were to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// The disk, or the file system on it, is broken at this place.
    Medium,
    /// The system cannot read now, and may be able to soon. Says nothing about the bytes.
    Momentary,
    /// The system cannot read, and trying again soon will not help. Says nothing about the bytes.
    Lasting,
}

/// Returns whether the system says that the disk, or the file system on it, is broken where it was to read. Any other
/// error says nothing about the bytes.
pub fn is_medium(error: &io::Error) -> bool {
    Class::of(error) == Class::Medium
}

impl Class {
    /// Classifies an error.
    pub(crate) fn of(error: &io::Error) -> Self {
        if let Some(error) = error.get_ref().and_then(|error| error.downcast_ref::<BlocksError>()) {
            return match error {
                BlocksError::Damaged(_) => Self::Medium,
                BlocksError::Momentary(_) => Self::Momentary,
                BlocksError::Lasting(_) => Self::Lasting,
            };
        }
        match error.raw_os_error().map(Errno::from_raw) {
            Some(errno) if MEDIUM.contains(&errno) => Self::Medium,
            Some(errno) if MOMENTARY.contains(&errno) => Self::Momentary,
            // An allocation that failed has no error number.
            None if error.kind() == io::ErrorKind::OutOfMemory => Self::Momentary,
            _ => Self::Lasting,
        }
    }
}

/// EIO, and Linux's codes for medium and protection errors of a disk and for damaged file systems (EUCLEAN, EBADMSG).
///
/// Linux's code for a target error, EREMOTEIO, is not in the list: it says that the disk as a whole refuses or is not
/// ready, not that these bytes are lost. From a network file system it says that the server has a fault or lacks
/// resources.
const MEDIUM: [Errno; 5] = [Errno::EIO, Errno::ENODATA, Errno::EILSEQ, Errno::EUCLEAN, Errno::EBADMSG];

/// Lack of memory or file descriptors, interruptions, and a server or disk that cannot be reached, has restarted or has
/// a fault of its own.
const MOMENTARY: [Errno; 18] = [
    Errno::EINTR,
    Errno::EAGAIN,
    Errno::ENOMEM,
    Errno::EBUSY,
    Errno::ENFILE,
    Errno::EMFILE,
    Errno::ENETDOWN,
    Errno::ENETUNREACH,
    Errno::ECONNABORTED,
    Errno::ECONNRESET,
    Errno::ENOBUFS,
    Errno::ENOTCONN,
    Errno::ETIMEDOUT,
    Errno::ECONNREFUSED,
    Errno::EHOSTDOWN,
    Errno::EHOSTUNREACH,
    Errno::ESTALE,
    Errno::EREMOTEIO,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Location, ReadError, Unavailable};

    /// Lists the class of every error number of Linux. Numbers that are not listed are lasting.
    #[test]
    fn every_error_number_has_its_class() {
        let medium = [libc::EIO, libc::EBADMSG, libc::ENODATA, libc::EILSEQ, libc::EUCLEAN];
        let resources =
            [libc::EINTR, libc::EAGAIN, libc::ENOMEM, libc::EBUSY, libc::ENFILE, libc::EMFILE, libc::ENOBUFS];
        let server = [
            libc::ENETDOWN,
            libc::ENETUNREACH,
            libc::ECONNABORTED,
            libc::ECONNRESET,
            libc::ENOTCONN,
            libc::ETIMEDOUT,
            libc::ECONNREFUSED,
            libc::EHOSTDOWN,
            libc::EHOSTUNREACH,
            libc::ESTALE,
            libc::EREMOTEIO,
        ];
        for errno in 1..=133 {
            let expected = match errno {
                _ if medium.contains(&errno) => Class::Medium,
                _ if resources.contains(&errno) || server.contains(&errno) => Class::Momentary,
                _ => Class::Lasting,
            };
            let error = io::Error::from_raw_os_error(errno);
            assert_eq!(Class::of(&error), expected, "{error}");
            let location = Location { file: "x".into(), offset: 0, length: 1 };
            let of_sample = ReadError::of_sample("x".into(), location, error);
            match (&of_sample, expected) {
                (ReadError::Corrupt(_), Class::Medium) => {}
                (ReadError::Unavailable(error @ Unavailable::Io { .. }), class) if class != Class::Medium => {
                    assert_eq!(error.is_momentary(), class == Class::Momentary, "{errno}");
                }
                _ => panic!("{errno}: {of_sample:?}"),
            }
        }
    }

    #[test]
    fn errors_without_a_number_are_lasting_except_lack_of_memory() {
        assert_eq!(Class::of(&io::ErrorKind::OutOfMemory.into()), Class::Momentary);
        assert_eq!(Class::of(&io::ErrorKind::UnexpectedEof.into()), Class::Lasting);
        assert_eq!(Class::of(&io::Error::other("x")), Class::Lasting);
    }
}
