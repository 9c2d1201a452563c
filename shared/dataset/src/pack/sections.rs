//! Writing the index of a pack section by section, while the samples are written elsewhere in the file.

use super::format::IndexPart;
use super::superblock::Section;
use crate::Identity;
use crate::sample::IdentityHasher;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes gathered before a write.
const GATHERED_BYTES: usize = 256 << 10;

/// Writer for an extent of known place and length, from front to back.
pub(super) struct SectionWriter<'f> {
    file: &'f File,
    part: IndexPart,
    offset: u64,
    length: u64,
    written: u64,
    gathered: Vec<u8>,
    crc32c: u32,
    digest: blake3::Hasher,
}

/// A written section, and the digest of its bytes for the pack's identity.
pub(super) struct WrittenSection {
    pub(super) section: Section,
    pub(super) digest: [u8; 32],
}

impl<'f> SectionWriter<'f> {
    pub(super) fn new(file: &'f File, part: IndexPart, offset: u64, length: u64) -> Self {
        let (gathered, digest) = (Vec::with_capacity(GATHERED_BYTES.min(length as usize)), blake3::Hasher::new());
        Self { file, part, offset, length, written: 0, gathered, crc32c: 0, digest }
    }

    /// Returns the number of bytes taken so far.
    pub(super) fn position(&self) -> u64 {
        self.written + self.gathered.len() as u64
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        assert!(self.position() + bytes.len() as u64 <= self.length, "the {} would be longer than planned", self.part);
        self.gathered.extend_from_slice(bytes);
        if self.gathered.len() >= GATHERED_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.gathered, self.offset + self.written)?;
        self.crc32c = crc32c::crc32c_append(self.crc32c, &self.gathered);
        self.digest.update(&self.gathered);
        self.written += self.gathered.len() as u64;
        self.gathered.clear();
        Ok(())
    }

    pub(super) fn finish(mut self) -> io::Result<WrittenSection> {
        self.flush()?;
        assert_eq!(self.written, self.length, "the {} is complete", self.part);
        let section = Section { part: self.part, offset: self.offset, length: self.length, crc32c: self.crc32c };
        Ok(WrittenSection { section, digest: *self.digest.finalize().as_bytes() })
    }
}

/// Returns the identity of a pack: a digest over the digests of its sections, in the order of their numbers.
pub(super) fn pack_identity(digests: impl IntoIterator<Item = [u8; 32]>) -> Identity {
    let mut hasher = IdentityHasher::new("ddlp pack 1");
    digests.into_iter().for_each(|digest| hasher.field(&digest));
    hasher.finish()
}
