//! Reading a piece of a file into a buffer that is used again and again.

use crate::error::is_medium_error;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// How often a piece is read before an error of the storage device is taken for one that stays.
const TRIES: u32 = 3;

/// Replaces the content of `buf` by `length` bytes of `file` from `offset` on. The end of the file before that is an error.
///
/// Only the part by which this piece is longer than the one before it gets zeroed first, so equal pieces cost nothing.
pub(crate) fn read_extent(file: &File, offset: u64, length: usize, buf: &mut Vec<u8>) -> io::Result<()> {
    resize(buf, length)?;
    read_exact(file, offset, buf)
}

/// Fills `out` from `offset` on, and asks a storage device that fails again.
pub(crate) fn read_exact(file: &File, offset: u64, out: &mut [u8]) -> io::Result<()> {
    persistently(|| file.read_exact_at(out, offset))
}

/// Repeats a read as long as the storage device fails, [`TRIES`] times at most.
pub(crate) fn persistently<T>(mut read: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 1..TRIES {
        match read() {
            Err(error) if is_medium_error(&error) => {}
            done => return done,
        }
    }
    read()
}

/// Makes `buf` exactly `length` bytes long, of unspecified content.
pub(crate) fn resize(buf: &mut Vec<u8>, length: usize) -> io::Result<()> {
    let missing = length.saturating_sub(buf.len());
    buf.try_reserve(missing).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    buf.resize(length, 0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn replaces_what_was_there_and_keeps_the_capacity() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123456789").unwrap();
        let mut buf = b"something longer than that".to_vec();
        let capacity = buf.capacity();
        read_extent(&file, 2, 5, &mut buf).unwrap();
        assert_eq!(buf, b"23456");
        read_extent(&file, 0, 10, &mut buf).unwrap();
        assert_eq!((buf.as_slice(), buf.capacity()), (&b"0123456789"[..], capacity));
        let error = read_extent(&file, 8, 3, &mut buf).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_device_that_fails_is_asked_again_and_others_are_not() {
        let tried = |errno: i32, failures: u32| {
            let mut calls = 0;
            let read = || {
                calls += 1;
                if calls <= failures { Err(io::Error::from_raw_os_error(errno)) } else { Ok(()) }
            };
            let is_read = persistently(read).is_ok();
            (is_read, calls)
        };
        assert_eq!(tried(libc::EIO, TRIES - 1), (true, TRIES));
        assert_eq!(tried(libc::EIO, TRIES), (false, TRIES));
        assert_eq!(tried(libc::ESTALE, 1), (false, 1));
    }
}
