//! Files of text that people write: in UTF-8, maybe with a byte order mark, which is no part of the text.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

const UTF_8_MARK: &[u8] = b"\xef\xbb\xbf";
/// What a file in UTF-16 begins with.
const UTF_16_MARKS: [&[u8]; 2] = [b"\xff\xfe", b"\xfe\xff"];

/// Reads a text.
///
/// # Errors
///
/// The system's error, or that the file is not UTF-8.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    let bytes = fs::read(path)?;
    let text = std::str::from_utf8(without_mark(&bytes)?);
    Ok(text.map_err(|_| invalid("it is not UTF-8: save it as UTF-8"))?.to_owned())
}

/// Returns the bytes of a text without the byte order mark.
///
/// # Errors
///
/// If the text is UTF-16.
pub(crate) fn without_mark(bytes: &[u8]) -> io::Result<&[u8]> {
    if UTF_16_MARKS.iter().any(|mark| bytes.starts_with(mark)) {
        return Err(invalid("it is UTF-16: save it as UTF-8"));
    }
    Ok(bytes.strip_prefix(UTF_8_MARK).unwrap_or(bytes))
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}
