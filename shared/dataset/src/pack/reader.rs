//! Reading samples from a pack.

use super::file::PackFile;
use super::format::{FormatError, Part, RECORD_BYTES, classes_from_bytes};
use super::index::Index;
use super::record::{IndexRecord, StoredForm, StoredVerdict};
use super::superblock::{Layout, Section};
use crate::extent::read_extent;
use crate::{Dataset, Form, Identity, Location, ReadError};
use std::fs::File;
use std::path::Path;

/// A records section up to this size is kept in memory; of a larger one, each read fetches its own record. So a pack of
/// any length opens at once and costs 4 bytes of memory a sample.
pub const RESIDENT_RECORD_BYTES_MAX: u64 = 8 << 20;

/// Bytes of the labels section that are read at a time: a multiple of a label's.
const PIECE_BYTES: u64 = 1 << 20;

/// An open pack.
///
/// Opening reads superblock, labels and class names, and the records where they are few, and checks all that it reads. The
/// rest is checked when it is used; [`verify`](super::verify) checks everything.
pub struct Pack {
    index: Index,
    labels: Vec<u32>,
    classes: Vec<String>,
    /// The records section, where it is small enough to stay.
    resident: Option<Vec<u8>>,
}

impl Pack {
    /// Opens a pack.
    pub fn open(path: &Path) -> Result<Self, FormatError> {
        let file = File::open(path).map_err(|source| FormatError::Io { path: path.to_owned(), source })?;
        Self::from_file(file, path)
    }

    /// Reads a pack from an open file; `path` is what messages call it.
    pub fn from_file(file: File, path: &Path) -> Result<Self, FormatError> {
        let index = Index::read(file, path)?;
        let labels = read_labels(&index)?;
        let classes = read_classes(&index)?;
        let mut pack = Self { index, labels, classes, resident: None };
        let records = pack.layout().section(Part::Records);
        if records.length <= RESIDENT_RECORD_BYTES_MAX {
            pack.resident = Some(section_bytes(&pack.index.file, records)?);
            pack.check_order()?;
        }
        Ok(pack)
    }

    /// What the superblock says.
    pub fn layout(&self) -> &Layout {
        &self.index.layout
    }

    /// A sample's entry in the index.
    pub fn record(&self, index: u64) -> Result<IndexRecord, ReadError> {
        let samples = self.layout().samples;
        if index >= samples {
            return Err(ReadError::OutOfRange { index, samples });
        }
        self.parsed(index).map_err(|problem| ReadError::Record {
            index,
            file: self.index.file.path().to_owned(),
            problem,
        })
    }

    fn parsed(&self, index: u64) -> Result<IndexRecord, String> {
        match &self.resident {
            Some(records) => IndexRecord::parse(&records.as_chunks::<RECORD_BYTES>().0[index as usize], self.layout()),
            None => self.index.record(index),
        }
    }

    /// Samples lie in the order of their indices and do not overlap.
    fn check_order(&self) -> Result<(), FormatError> {
        let malformed = |index, problem| FormatError::Malformed {
            path: self.index.file.path().to_owned(),
            part: Part::Records,
            problem: format!("sample {index}: {problem}"),
        };
        let mut free = self.layout().data_offset;
        for index in 0..self.layout().samples {
            let record = self.parsed(index).map_err(|problem| malformed(index, problem))?;
            if record.offset < free {
                return Err(malformed(index, format!("its bytes at {} overlap what ends at {free}", record.offset)));
            }
            free = record.end();
        }
        Ok(())
    }
}

impl Dataset for Pack {
    fn len(&self) -> u64 {
        self.layout().samples
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn label(&self, index: u64) -> u32 {
        self.labels[index as usize]
    }

    fn name(&self, index: u64) -> String {
        assert!(index < self.len(), "sample {index} of {}", self.len());
        match self.record(index) {
            Ok(record) => self.index.name_or_number(index, &record),
            Err(_) => format!("#{index} (its record is damaged)"),
        }
    }

    fn location(&self, index: u64) -> Location {
        assert!(index < self.len(), "sample {index} of {}", self.len());
        match self.record(index) {
            Ok(record) => self.index.location(&record),
            Err(_) => Location { file: self.index.file.path().to_owned(), offset: 0, length: 0 },
        }
    }

    fn read(&self, index: u64, buf: &mut Vec<u8>) -> Result<Form, ReadError> {
        let record = self.record(index)?;
        let location = || self.index.location(&record);
        if let StoredVerdict::Rejected(reason) = record.verdict {
            return Err(ReadError::Rejected { name: self.name(index), location: location(), reason });
        }
        read_extent(self.index.file.file(), record.offset, record.length as usize, buf)
            .map_err(|source| ReadError::Io { name: self.name(index), location: location(), source })?;
        let (stored, computed) = (record.crc32c, crc32c::crc32c(buf));
        if stored != computed {
            return Err(ReadError::Checksum { name: self.name(index), location: location(), stored, computed });
        }
        Ok(match record.form {
            StoredForm::Kept => Form::Encoded,
            StoredForm::Planar => Form::Planar { width: record.width, height: record.height },
        })
    }

    fn identity(&self) -> Identity {
        self.layout().identity
    }

    fn kind(&self) -> &'static str {
        "pack"
    }

    fn export(&self) -> Option<&PackFile> {
        Some(&self.index.file)
    }
}

/// Reads a whole section and checks it. The superblock's check has bounded its length by the file's.
fn section_bytes(file: &PackFile, section: Section) -> Result<Vec<u8>, FormatError> {
    let path = || file.path().to_owned();
    let mut bytes = Vec::new();
    read_extent(file.file(), section.offset, section.length as usize, &mut bytes)
        .map_err(|source| FormatError::Io { path: path(), source })?;
    let (stored, computed) = (section.crc32c, crc32c::crc32c(&bytes));
    if stored != computed {
        return Err(FormatError::Checksum { path: path(), part: section.part, stored, computed });
    }
    Ok(bytes)
}

/// The labels, read piece by piece: there is never a second copy of all of them.
pub(super) fn read_labels(index: &Index) -> Result<Vec<u32>, FormatError> {
    let (layout, path) = (&index.layout, || index.file.path().to_owned());
    let section = layout.section(Part::Labels);
    let (mut labels, mut piece) = (Vec::with_capacity(layout.samples as usize), Vec::new());
    let (mut at, mut computed) = (0, 0);
    while at < section.length {
        let bytes = (section.length - at).min(PIECE_BYTES);
        read_extent(index.file.file(), section.offset + at, bytes as usize, &mut piece)
            .map_err(|source| FormatError::Io { path: path(), source })?;
        computed = crc32c::crc32c_append(computed, &piece);
        labels.extend(piece.as_chunks().0.iter().map(|&label| u32::from_le_bytes(label)));
        at += bytes;
    }
    if section.crc32c != computed {
        return Err(FormatError::Checksum { path: path(), part: Part::Labels, stored: section.crc32c, computed });
    }
    let wrong = labels.iter().position(|&label| label >= layout.classes);
    let Some(wrong) = wrong else { return Ok(labels) };
    let problem = format!("sample {wrong} has label {}, and there are {} classes", labels[wrong], layout.classes);
    Err(FormatError::Malformed { path: path(), part: Part::Labels, problem })
}

pub(super) fn read_classes(index: &Index) -> Result<Vec<String>, FormatError> {
    let bytes = section_bytes(&index.file, index.layout.section(Part::Classes))?;
    let malformed =
        |problem| FormatError::Malformed { path: index.file.path().to_owned(), part: Part::Classes, problem };
    classes_from_bytes(&bytes, index.layout.classes).map_err(malformed)
}
