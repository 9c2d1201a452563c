//! Going through the members of a tar archive, header by header, without reading their contents.
//!
//! The `tar` crate parses headers and extended headers. This module takes the steps between them, since an archive may
//! lie about every length: nothing is read that a limit does not allow, and an archive that ends early is an error.
//!
//! A hard link has the content of an earlier member. Contents of members are only remembered once an archive has a hard
//! link: the headers before it are then read again.

use crate::sources::compressed::compression_of;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use tar::{EntryType, Header, PaxExtensions};

const BLOCK: u64 = 512;
/// Most bytes of a long name or an extended header.
pub(super) const EXTENDED_BYTES_MAX: u64 = 1 << 20;
/// Bytes after the end of the archive that are read at a time.
const PIECE_BYTES: u64 = 64 << 10;

/// A member of an archive that is no folder.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) path: Vec<u8>,
    /// The bytes of the archive that are the member's content, or what the member is instead of a file.
    pub(super) content: Result<Range<u64>, String>,
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
    #[error("the archive is compressed with {0}")]
    Compressed(&'static str),
    #[error("something follows the end marker at byte {0}: were archives concatenated?")]
    Trailing(u64),
}

/// The members of an archive, in order.
pub(super) struct Members<'f> {
    file: &'f File,
    bytes: u64,
    at: u64,
    /// Path, size and link's target of the next member, from extended headers.
    long_path: Option<Vec<u8>>,
    long_size: Option<u64>,
    long_target: Option<Vec<u8>>,
    /// Contents of the members so far, by path; only if there was a hard link.
    earlier: Option<HashMap<Vec<u8>, Range<u64>>>,
}

impl<'f> Members<'f> {
    pub(super) fn new(file: &'f File, bytes: u64) -> Self {
        Self { file, bytes, at: 0, long_path: None, long_size: None, long_target: None, earlier: None }
    }

    /// Returns the next member that is no folder, or `None` at the end marker.
    pub(super) fn next(&mut self) -> Result<Option<Member>, MemberError> {
        loop {
            let at = self.at;
            let malformed = |problem: String| MemberError::Header { at, problem };
            let block = self.block(at).map_err(|error| self.unless_compressed(error))?;
            if block == [0; BLOCK as usize] {
                self.check_end()?;
                return Ok(None);
            }
            let header = Header::from_byte_slice(&block);
            check_sum(header).map_err(|problem| self.unless_compressed(malformed(problem)))?;
            let kind = header.entry_type();
            let size = match (self.long_size, is_extension(kind)) {
                (Some(size), false) => size,
                _ => header.entry_size().map_err(|_| malformed("its size is not a number".to_owned()))?,
            };
            let size = if has_data(kind) { size } else { 0 };
            let offset = at + BLOCK;
            let end =
                offset.checked_add(size).filter(|&end| end <= self.bytes).ok_or(MemberError::Truncated(self.bytes))?;
            self.at = end.next_multiple_of(BLOCK);
            match kind {
                EntryType::GNULongName => self.long_path = Some(self.long_name(offset, size).map_err(malformed)?),
                EntryType::GNULongLink => self.long_target = Some(self.long_name(offset, size).map_err(malformed)?),
                EntryType::XHeader => self.extended(offset, size).map_err(malformed)?,
                EntryType::XGlobalHeader => {}
                EntryType::GNUSparse => return Err(malformed("sparse files are not supported".to_owned())),
                _ => {
                    let member = self.member(header, at, offset..end)?;
                    // Old archives tell a folder by the end of its path.
                    if kind != EntryType::Directory && !member.path.ends_with(b"/") {
                        return Ok(Some(member));
                    }
                }
            }
        }
    }

    /// Returns the member of a header at `at`, whose own content is `bytes`.
    fn member(&mut self, header: &Header, at: u64, bytes: Range<u64>) -> Result<Member, MemberError> {
        let path = self.long_path.take().unwrap_or_else(|| header.path_bytes().into_owned());
        let long_target = self.long_target.take();
        let target = || long_target.or_else(|| Some(header.link_name_bytes()?.into_owned())).unwrap_or_default();
        self.long_size = None;
        let content = match header.entry_type() {
            EntryType::Regular | EntryType::Continuous => Ok(bytes),
            EntryType::Link => self.linked(&target(), at)?,
            EntryType::Symlink => Err(format!(
                "a symbolic link to {}: store the file itself, as `tar --dereference` does",
                String::from_utf8_lossy(&target())
            )),
            kind => Err(format!("not a file (type '{}')", char::from(kind.as_byte()).escape_default())),
        };
        if let (Some(earlier), Ok(bytes)) = (&mut self.earlier, &content) {
            remember(earlier, &path, bytes.clone())?;
        }
        Ok(Member { path, content })
    }

    /// Returns the content of the earlier member to which a hard link at `at` leads.
    fn linked(&mut self, target: &[u8], at: u64) -> Result<Result<Range<u64>, String>, MemberError> {
        if self.earlier.is_none() {
            let mut before = Members { earlier: Some(HashMap::new()), ..Members::new(self.file, self.bytes) };
            while before.at < at {
                before.next()?;
            }
            self.earlier = before.earlier;
        }
        let content = self.earlier.as_ref().and_then(|earlier| earlier.get(plain(target)));
        Ok(content.cloned().ok_or_else(|| {
            format!(
                "a hard link to {}, which is no file before it in the archive: store the file itself, as \
                 `tar --hard-dereference` does",
                String::from_utf8_lossy(target)
            )
        }))
    }

    /// Replaces an error about the first header if the archive is compressed.
    fn unless_compressed(&self, error: MemberError) -> MemberError {
        let mut head = [0; 8];
        let length = self.bytes.min(head.len() as u64) as usize;
        let is_read = self.at == 0 && self.file.read_exact_at(&mut head[..length], 0).is_ok();
        let compression = if is_read { compression_of(&head[..length]) } else { None };
        compression.map_or(error, MemberError::Compressed)
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
                b"linkpath" => self.long_target = Some(extension.value_bytes().to_vec()),
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

/// Returns a path without the prefixes that mean nothing, in which a link's target may differ from a member's path.
fn plain(mut path: &[u8]) -> &[u8] {
    while let Some(rest) = path.strip_prefix(b"./").or_else(|| path.strip_prefix(b"/")) {
        path = rest;
    }
    path
}

fn remember(earlier: &mut HashMap<Vec<u8>, Range<u64>>, path: &[u8], content: Range<u64>) -> io::Result<()> {
    earlier.try_reserve(1).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    earlier.insert(plain(path).to_vec(), content);
    Ok(())
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
    let stored = header.cksum().map_err(|_| "its checksum is not a number: is this a tar file?".to_owned())?;
    let bytes = header.as_bytes();
    let computed: u32 =
        bytes.iter().enumerate().map(|(at, &byte)| u32::from(if (148..156).contains(&at) { b' ' } else { byte })).sum();
    if stored == computed {
        Ok(())
    } else {
        Err(format!("its checksum is {stored}, {computed} computed: is this a tar file?"))
    }
}
