//! Records and names of neighbouring samples, in few reads: each read of a pack elsewhere may be a request.

use super::format::{IndexPart, NAME_BYTES_MAX, PIECE_BYTES, RECORD_BYTES};
use super::index::damaged_name;
use super::reader::Pack;
use super::record::{IndexRecord, RecordProblem};
use crate::{ReadError, Unavailable};
use std::io;
use std::ops::Range;

/// Samples whose records are read at once: a piece of their section.
const SAMPLES_AT_ONCE: u64 = PIECE_BYTES / RECORD_BYTES as u64;
/// Most bytes of names that are read at once.
const NAMES_BYTES_MAX: u64 = 4 << 20;
const _: () = assert!(NAMES_BYTES_MAX >= NAME_BYTES_MAX as u64);

impl Pack {
    /// Passes the records of neighbouring samples to `take`, in order, as [`record`](Self::record) returns them.
    pub(super) fn each_record(
        &self,
        samples: Range<u64>,
        mut take: impl FnMut(u64, Result<IndexRecord, ReadError>) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        let mut bytes = Vec::new();
        for first in samples.clone().step_by(SAMPLES_AT_ONCE as usize) {
            let end = samples.end.min(first + SAMPLES_AT_ONCE);
            bytes.resize((end - first) as usize * RECORD_BYTES, 0);
            if self.index.file.read(self.index.record_extent(first).start, &mut bytes).is_err() {
                // One of them may lie where the disk cannot read.
                (first..end).try_for_each(|index| take(index, self.record(index)))?;
                continue;
            }
            for (index, record) in (first..end).zip(bytes.as_chunks().0) {
                let record = IndexRecord::parse(record, self.layout());
                // A damaged one may have been damaged on its way.
                take(index, record.map_or_else(|_| self.record(index), Ok))?;
            }
        }
        Ok(())
    }

    /// Returns the names of neighbouring samples, as [`Dataset::names`](crate::Dataset::names) does.
    pub(super) fn names_of(&self, samples: Range<u64>) -> Result<Vec<String>, ReadError> {
        let mut records = Vec::with_capacity((samples.end - samples.start) as usize);
        self.each_record(samples.clone(), |index, record| {
            records.push(match record {
                Err(ReadError::Unavailable(problem)) if !matches!(problem, Unavailable::UnknownForm { .. }) => {
                    return Err(problem.into());
                }
                record => record.map_err(|problem| text_for(index, &problem)),
            });
            Ok(())
        })?;
        let mut names = Vec::with_capacity(records.len());
        let mut read = NamesRead { first: 0, bytes: Vec::new() };
        for (number, (index, record)) in samples.zip(&records).enumerate() {
            let record = match record {
                Ok(record) => record,
                Err(text) => {
                    names.push(text.clone());
                    continue;
                }
            };
            if read.find(record).is_none() {
                let ahead = records[number..].iter().flatten();
                if self.read_names(ahead, &mut read).is_err() {
                    read.bytes.clear();
                }
            }
            let name = read.find(record).filter(|name| crc32c::crc32c(name) == record.name_crc32c);
            names.push(match name {
                Some(name) => String::from_utf8_lossy(name).into_owned(),
                None => self.lone_name(index, record)?,
            });
        }
        Ok(names)
    }

    /// Reads the names of these records up to the first that does not follow, or is too far away.
    fn read_names<'r>(&self, records: impl Iterator<Item = &'r IndexRecord>, read: &mut NamesRead) -> io::Result<()> {
        let mut extent = None::<Range<u64>>;
        for IndexRecord { name_offset, name_length, .. } in records {
            let end = name_offset.saturating_add((*name_length).into());
            let begun = extent.get_or_insert(*name_offset..*name_offset);
            if *name_offset < begun.start || end.saturating_sub(begun.start) > NAMES_BYTES_MAX {
                break;
            }
            begun.end = begun.end.max(end);
        }
        let extent = extent.unwrap_or_default();
        (read.first, read.bytes) = (extent.start, vec![0; (extent.end - extent.start) as usize]);
        self.index.file.read(self.layout().section(IndexPart::Names).offset + extent.start, &mut read.bytes)
    }

    /// Returns the name of a sample that did not come intact with others.
    fn lone_name(&self, index: u64, record: &IndexRecord) -> Result<String, ReadError> {
        let name = self.index.name(record).map_err(|error| self.unread_name(index, error))?;
        Ok(name.unwrap_or_else(|_| damaged_name(index)))
    }

    fn unread_name(&self, index: u64, error: io::Error) -> ReadError {
        self.bad_record(index, RecordProblem::Unreadable(error))
    }
}

/// Returns what stands for the name of a sample whose record cannot be used.
pub(super) fn text_for(index: u64, problem: &ReadError) -> String {
    match problem {
        ReadError::Unavailable(Unavailable::UnknownForm { .. }) => format!("#{index} (its form is unknown)"),
        ReadError::Corrupt(_) => format!("#{index} (its record is damaged)"),
        ReadError::Unavailable(_) => format!("#{index} (its name cannot be read)"),
    }
}

/// Neighbouring bytes of the section of names.
struct NamesRead {
    /// Place of the first one in the section.
    first: u64,
    bytes: Vec<u8>,
}

impl NamesRead {
    /// Returns the name of a record, if it was read.
    fn find(&self, record: &IndexRecord) -> Option<&[u8]> {
        let at = usize::try_from(record.name_offset.checked_sub(self.first)?).ok()?;
        self.bytes.get(at..)?.get(..record.name_length as usize)
    }
}
