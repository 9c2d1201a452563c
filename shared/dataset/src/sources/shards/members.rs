//! Going through the members of a tar archive, header by header, without reading their contents.
//!
//! The `tar` crate parses headers and extended headers. This module takes the steps between them, since an archive may
//! lie about every length: nothing is read that a limit does not allow, and an archive that ends early is an error.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use tar::{EntryType, Header, PaxExtensions};

const BLOCK: u64 = 512;
/// Most bytes of a long name or an extended header.
pub(super) const EXTENDED_BYTES_MAX: u64 = 1 << 20;
/// Bytes after the end of the archive that are read at a time.
const PIECE_BYTES: u64 = 64 << 10;

/// A regular file in an archive.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) path: Vec<u8>,
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// Problem with an archive.
#[derive(Debug, thiserror::Error)]
pub(super) enum MemberError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the archive ends at byte {0} without an end marker: it was cut short")]
    Truncated(u64),
    #[error("the header at byte {at} is malformed: {problem}")]
    Header { at: u64, problem: String },
    #[error("something follows the end marker at byte {0}: were archives concatenated?")]
    Trailing(u64),
}

/// The members of an archive, in order.
pub(super) struct Members<'f> {
    file: &'f File,
    bytes: u64,
    at: u64,
    /// Path and size of the next member, from extended headers.
    long_path: Option<Vec<u8>>,
    long_size: Option<u64>,
}

impl<'f> Members<'f> {
    pub(super) fn new(file: &'f File, bytes: u64) -> Self {
        Self { file, bytes, at: 0, long_path: None, long_size: None }
    }

    /// Returns the next regular file, or `None` at the end marker.
    pub(super) fn next(&mut self) -> Result<Option<Member>, MemberError> {
        loop {
            let at = self.at;
            let malformed = |problem: String| MemberError::Header { at, problem };
            let block = self.block(at)?;
            if block == [0; BLOCK as usize] {
                self.check_end()?;
                return Ok(None);
            }
            let header = Header::from_byte_slice(&block);
            check_sum(header).map_err(malformed)?;
            let kind = header.entry_type();
            let size = match (self.long_size, is_extension(kind)) {
                (Some(size), false) => size,
                _ => header.entry_size().map_err(|error| malformed(error.to_string()))?,
            };
            let size = if has_data(kind) { size } else { 0 };
            let offset = at + BLOCK;
            let end =
                offset.checked_add(size).filter(|&end| end <= self.bytes).ok_or(MemberError::Truncated(self.bytes))?;
            self.at = end.next_multiple_of(BLOCK);
            match kind {
                EntryType::GNULongName => self.long_path = Some(self.long_name(offset, size).map_err(malformed)?),
                EntryType::XHeader => self.extended(offset, size).map_err(malformed)?,
                EntryType::XGlobalHeader | EntryType::GNULongLink => {}
                EntryType::GNUSparse => return Err(malformed("sparse files are not supported".to_owned())),
                EntryType::Regular | EntryType::Continuous => {
                    let path = self.long_path.take().unwrap_or_else(|| header.path_bytes().into_owned());
                    self.long_size = None;
                    return Ok(Some(Member { path, offset, length: size }));
                }
                _ => (self.long_path, self.long_size) = (None, None),
            }
        }
    }

    fn block(&self, at: u64) -> Result<[u8; BLOCK as usize], MemberError> {
        if at.checked_add(BLOCK).is_none_or(|end| end > self.bytes) {
            return Err(MemberError::Truncated(self.bytes));
        }
        let mut block = [0; BLOCK as usize];
        self.file.read_exact_at(&mut block, at)?;
        Ok(block)
    }

    /// Checks that only zeros follow the end marker.
    fn check_end(&self) -> Result<(), MemberError> {
        let mut piece = Vec::new();
        let mut at = self.at;
        while at < self.bytes {
            let length = (self.bytes - at).min(PIECE_BYTES);
            crate::extent::read_extent(self.file, at, length as usize, &mut piece)?;
            if let Some(position) = piece.iter().position(|&byte| byte != 0) {
                return Err(MemberError::Trailing(at + position as u64));
            }
            at += length;
        }
        Ok(())
    }

    fn extension_bytes(&self, offset: u64, size: u64) -> Result<Vec<u8>, String> {
        if size > EXTENDED_BYTES_MAX {
            return Err(format!("an extended header of {size} bytes, more than the limit of {EXTENDED_BYTES_MAX}"));
        }
        let mut bytes = vec![0; size as usize];
        self.file.read_exact_at(&mut bytes, offset).map_err(|error| error.to_string())?;
        Ok(bytes)
    }

    /// Reads a GNU long name, without the zero that ends it.
    fn long_name(&self, offset: u64, size: u64) -> Result<Vec<u8>, String> {
        let mut bytes = self.extension_bytes(offset, size)?;
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        bytes.truncate(end);
        Ok(bytes)
    }

    fn extended(&mut self, offset: u64, size: u64) -> Result<(), String> {
        let bytes = self.extension_bytes(offset, size)?;
        for extension in PaxExtensions::new(&bytes) {
            let extension = extension.map_err(|error| error.to_string())?;
            match extension.key_bytes() {
                b"path" => self.long_path = Some(extension.value_bytes().to_vec()),
                b"size" => {
                    let size = extension.value().ok().and_then(|value| value.parse().ok());
                    self.long_size = Some(size.ok_or("an extended header has a size that is not a number")?);
                }
                key if key.starts_with(b"GNU.sparse") => return Err("sparse files are not supported".to_owned()),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Returns whether a header describes the next member rather than being one.
fn is_extension(kind: EntryType) -> bool {
    matches!(kind, EntryType::GNULongName | EntryType::GNULongLink | EntryType::XHeader | EntryType::XGlobalHeader)
}

/// Returns whether a member has data: links, folders and devices have only a header, whatever size it gives.
fn has_data(kind: EntryType) -> bool {
    !matches!(
        kind,
        EntryType::Link
            | EntryType::Symlink
            | EntryType::Char
            | EntryType::Block
            | EntryType::Directory
            | EntryType::Fifo
    )
}

/// Checks the sum over the header, in which the checksum field itself counts as spaces.
fn check_sum(header: &Header) -> Result<(), String> {
    let stored = header.cksum().map_err(|error| error.to_string())?;
    let bytes = header.as_bytes();
    let computed: u32 =
        bytes.iter().enumerate().map(|(at, &byte)| u32::from(if (148..156).contains(&at) { b' ' } else { byte })).sum();
    if stored == computed {
        Ok(())
    } else {
        Err(format!("its checksum is {stored}, {computed} computed: is this a tar file?"))
    }
}
