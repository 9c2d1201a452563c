//! Reading a piece of a file into a buffer that is used again and again.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Replaces the content of `buf` by `length` bytes of `file` from `offset` on. The end of the file before that is an error.
///
/// Only the part by which this piece is longer than the one before it gets zeroed first, so equal pieces cost nothing.
pub(crate) fn read_extent(file: &File, offset: u64, length: usize, buf: &mut Vec<u8>) -> io::Result<()> {
    resize(buf, length)?;
    file.read_exact_at(buf, offset)
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
}
