//! Reading a piece of a file into a buffer that is reused.

use crate::error::is_medium_error;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Number of reads after which an error of the disk counts as permanent.
const TRIES: u32 = 3;

/// Replaces the content of `buf` by the `length` bytes of `file` from `offset` on. Fails if the file ends before that.
///
/// Only the part by which this piece is longer than the one before it is zeroed first, so pieces of equal length cost
/// nothing.
pub(crate) fn read_extent(file: &File, offset: u64, length: usize, buf: &mut Vec<u8>) -> io::Result<()> {
    resize(buf, length)?;
    read_exact(file, offset, buf)
}

/// Fills `out` with the bytes from `offset` on; repeats a read that fails on the disk.
pub(crate) fn read_exact(file: &File, offset: u64, out: &mut [u8]) -> io::Result<()> {
    persistently(|| file.read_exact_at(out, offset))
}

/// Repeats a read while it fails on the disk, at most [`TRIES`] times.
pub(crate) fn persistently<T>(mut read: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 1..TRIES {
        match read() {
            Err(error) if is_medium_error(&error) => {}
            done => return done,
        }
    }
    read()
}

/// Makes `buf` exactly `length` bytes long, with unspecified content.
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
    fn only_reads_that_fail_on_the_disk_are_repeated() {
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
