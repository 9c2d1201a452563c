//! The index of a pack on disk: the superblock's layout, and access to records and names through it.

use super::format::{BLOCK_BYTES, FormatError, IndexPart, RECORD_BYTES, pieces};
use super::record::{IndexRecord, RecordProblem};
use super::store::Store;
use super::superblock::{PackLayout, SuperblockProblem};
use crate::{Location, Unavailable, beginnings};
use std::io;
use std::ops::Range;
use std::path::Path;

/// A pack of which only the superblock has been read.
pub(super) struct Index {
    pub(super) file: Store,
    pub(super) layout: PackLayout,
}

impl Index {
    pub(super) fn read(file: Store) -> Result<Self, FormatError> {
        let path = file.path();
        let layout = read_superblock(&file, file.len_bytes())
            .map_err(|source| FormatError::Io { path: path.to_owned(), source })?
            .map_err(|problem| superblock_error(path, file.len_bytes(), problem))?;
        Ok(Self { file, layout })
    }

    /// Checks whether the bytes are still the pack that was opened. A pack that was written to but has kept its
    /// superblock passes, since each sample has a checksum. If a sample's checksum `has_failed`, the pack does not
    /// pass.
    pub(super) fn check(&self, has_failed: bool) -> Result<(), Unavailable> {
        let path = self.file.path();
        let unreadable = |source| self.unread(source);
        let changed = |change| Unavailable::Changed { kind: "pack", file: path.to_owned(), change };
        let state = self.file.state().map_err(unreadable)?;
        match &state.change {
            _ if state.is_same && !has_failed => return Ok(()),
            Some(change) if state.bytes != self.file.len_bytes() => return Err(changed(change.clone())),
            _ => {}
        }
        match (read_superblock(&self.file, state.bytes).map_err(unreadable)?, &state.change) {
            (Err(problem), _) => Err(changed(self.replaced_by(&problem))),
            (Ok(layout), _) if layout != self.layout => {
                let [now, opened] = beginnings([&layout.identity, &self.layout.identity]);
                let differs = match now == opened {
                    true => "its superblock differs from that of the opened pack".to_owned(),
                    false => format!("its identity begins with {now}, that of the opened pack with {opened}"),
                };
                Err(changed(format!("is another pack now: {differs}")))
            }
            (Ok(_), Some(change)) if has_failed => Err(changed(change.clone())),
            (Ok(_), _) => {
                self.file.confirm(&state);
                Ok(())
            }
        }
    }

    /// Returns the error for bytes of the pack that cannot be read.
    pub(super) fn unread(&self, source: io::Error) -> Unavailable {
        let path = self.file.path();
        Unavailable::Io { what: format!("pack {}", path.display()), path: path.to_owned(), source }
    }

    /// Says what lies in the place of the pack, as a phrase that follows the pack's name.
    fn replaced_by(&self, problem: &SuperblockProblem) -> String {
        match problem {
            SuperblockProblem::Length { expected } => {
                let opened = self.layout.file_bytes;
                format!("is another pack now: it has {expected} bytes, the opened pack had {opened}")
            }
            SuperblockProblem::Version(version) => format!("is another pack now, of version {version}"),
            SuperblockProblem::NotAPack | SuperblockProblem::Checksum { .. } | SuperblockProblem::Malformed(_) => {
                "is no longer a pack".to_owned()
            }
        }
    }

    /// Reads the bytes of a record. `index` must exist.
    pub(super) fn record_bytes(&self, index: u64) -> io::Result<[u8; RECORD_BYTES]> {
        assert!(index < self.layout.samples, "sample {index} of {}", self.layout.samples);
        let mut bytes = [0; RECORD_BYTES];
        self.file.read(self.record_extent(index).start, &mut bytes)?;
        Ok(bytes)
    }

    /// Returns where a record lies.
    pub(super) fn record_extent(&self, index: u64) -> Range<u64> {
        let start = self.layout.section(IndexPart::Records).offset + index * RECORD_BYTES as u64;
        start..start + RECORD_BYTES as u64
    }

    /// Returns a record, or the problem with it. `index` must exist.
    pub(super) fn record(&self, index: u64) -> Result<IndexRecord, RecordProblem> {
        let judged = self.file.read_judged(self.record_extent(index), || {
            let bytes = self.record_bytes(index)?;
            Ok((crc32c::crc32c(&bytes), IndexRecord::parse(&bytes, &self.layout)))
        });
        judged.map_err(RecordProblem::Unreadable)?
    }

    /// Passes a section piece by piece to `take`, which adds each piece to what `new` returned. Fails at the end if the
    /// section's checksum is wrong: only then is it known.
    pub(super) fn read_section<T>(
        &self,
        part: IndexPart,
        new: impl Fn() -> T,
        mut take: impl FnMut(&mut T, &[u8]) -> io::Result<()>,
    ) -> Result<T, FormatError> {
        let path = || self.file.path().to_owned();
        let section = self.layout.section(part);
        let (mut piece, stored) = (Vec::new(), section.crc32c);
        let judged = self.file.read_judged(section.extent(), || {
            let (mut taken, mut computed) = (new(), 0);
            for (offset, length) in pieces(section.extent()) {
                self.file.read_extent(offset, length, &mut piece)?;
                take(&mut taken, &piece)?;
                computed = crc32c::crc32c_append(computed, &piece);
            }
            let damaged = || FormatError::Checksum { path: path(), part, stored, computed };
            Ok((computed, if stored == computed { Ok(taken) } else { Err(damaged()) }))
        });
        judged.map_err(|source| FormatError::Io { path: path(), source })?
    }

    /// Returns the name of a sample, or the problem with it. Fails if it cannot be read.
    pub(super) fn name(&self, record: &IndexRecord) -> io::Result<Result<String, String>> {
        let start = self.layout.section(IndexPart::Names).offset + record.name_offset;
        let (stored, mut bytes) = (record.name_crc32c, vec![0; record.name_length as usize]);
        let extent = start..start.saturating_add(record.name_length.into());
        let judged = self.file.read_judged(extent, || {
            self.file.read(start, &mut bytes)?;
            let computed = crc32c::crc32c(&bytes);
            let damaged = || format!("its name's checksum is {stored:08x}, {computed:08x} computed");
            Ok((computed, if stored == computed { Ok(()) } else { Err(damaged()) }))
        });
        Ok(judged?.map(|()| String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Returns the name of a sample for messages, or its number if the name is damaged.
    pub(super) fn name_or_number(&self, index: u64, record: &IndexRecord) -> String {
        self.name(record).ok().and_then(Result::ok).unwrap_or_else(|| damaged_name(index))
    }

    /// Returns the error for a part whose contents are wrong though its checksum fits.
    pub(super) fn malformed(&self, part: IndexPart, problem: String) -> FormatError {
        FormatError::Malformed { path: self.file.path().to_owned(), part, problem }
    }

    /// Returns where bytes of the pack lie, for messages.
    pub(super) fn location(&self, bytes: Range<u64>) -> Location {
        Location { file: self.file.path().to_owned(), offset: bytes.start, length: bytes.end - bytes.start }
    }
}

/// Returns what stands for the name of a sample whose name is damaged.
pub(super) fn damaged_name(index: u64) -> String {
    format!("#{index} (its name is damaged)")
}

fn read_superblock(file: &Store, file_bytes: u64) -> io::Result<Result<PackLayout, SuperblockProblem>> {
    let mut block = Vec::new();
    file.read_judged(0..BLOCK_BYTES, || {
        file.read_extent(0, file_bytes.min(BLOCK_BYTES) as usize, &mut block)?;
        Ok((crc32c::crc32c(&block), PackLayout::parse(&block, file_bytes)))
    })
}

fn superblock_error(path: &Path, found: u64, problem: SuperblockProblem) -> FormatError {
    let path = path.to_owned();
    match problem {
        SuperblockProblem::NotAPack => FormatError::NotAPack { path },
        SuperblockProblem::Version(found) => FormatError::Version { path, found },
        SuperblockProblem::Length { expected } => FormatError::Length { path, expected, found },
        SuperblockProblem::Checksum { stored, computed } => {
            FormatError::Checksum { path, part: IndexPart::Superblock, stored, computed }
        }
        SuperblockProblem::Malformed(problem) => FormatError::Malformed { path, part: IndexPart::Superblock, problem },
    }
}
