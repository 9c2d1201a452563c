//! Reading a piece of a file into a buffer that is reused.

use crate::errno::Class;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

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

/// Repeats a read at once while it fails on the disk or is interrupted, at most [`TRIES`] times. Callers that have time
/// to wait repeat momentary failures with [`Patience`](crate::Patience).
pub(crate) fn persistently<T>(mut read: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    match read() {
        Err(error) => again(error, &mut read),
        done => done,
    }
}

#[cold]
fn again<T>(mut error: io::Error, read: &mut dyn FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 1..TRIES {
        if Class::of(&error) != Class::Medium && error.kind() != io::ErrorKind::Interrupted {
            break;
        }
        match read() {
            Err(next) => error = next,
            done => return done,
        }
    }
    Err(error)
}

/// Returns whether a path leads to a regular file. Whatever keeps that from being known is an error with the path: a
/// source must not open without a file that is out of reach.
pub(crate) fn is_file(path: &Path) -> io::Result<bool> {
    match fs::metadata(path) {
        Ok(status) => Ok(status.is_file()),
        Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
    }
}

/// Makes `buf` exactly `length` bytes long, with unspecified content.
pub(crate) fn resize(buf: &mut Vec<u8>, length: usize) -> io::Result<()> {
    let missing = length.saturating_sub(buf.len());
    buf.try_reserve(missing).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    buf.resize(length, 0);
    Ok(())
}

/// Makes room for `more` items in a list that grows with the dataset. The error says what the memory is for.
pub(crate) fn make_room<T>(list: &mut Vec<T>, more: usize, what: &str) -> io::Result<()> {
    list.try_reserve(more).map_err(|_| {
        let bytes = list.len().saturating_add(more).saturating_mul(size_of::<T>());
        let message = format!(
            "the system refuses {bytes} bytes of memory for {what}: free some memory, raise the limit of this process \
             (ulimit -v, the control group), or split the dataset"
        );
        io::Error::new(io::ErrorKind::OutOfMemory, message)
    })
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
    fn a_list_that_does_not_fit_into_memory_says_so() {
        let mut list = vec![0u64; 3];
        let error = make_room(&mut list, usize::MAX / 16, "the names of the samples").unwrap_err();
        assert_eq!((error.kind(), list.len()), (io::ErrorKind::OutOfMemory, 3));
        let text = error.to_string();
        let bytes = (usize::MAX / 16 + 3) * 8;
        assert!(text.contains(&format!("{bytes} bytes of memory for the names of the samples")), "{text}");
        make_room(&mut list, 100, "x").unwrap();
        assert!(list.capacity() >= 103);
    }

    #[test]
    fn only_reads_that_fail_on_the_disk_or_are_interrupted_are_repeated_at_once() {
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
        assert_eq!(tried(libc::EINTR, 1), (true, 2));
        assert_eq!(tried(libc::ESTALE, 1), (false, 1));
    }
}
