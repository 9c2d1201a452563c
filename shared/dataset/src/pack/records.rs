//! The records of a pack in memory, in a short form: 36 bytes instead of 64, without the samples' names.

use super::bundles::{BundleIndex, check_record};
use super::format::{FormatError, IndexPart, RECORD_BYTES};
use super::index::Index;
use super::record::{IndexRecord, RecordProblem, StoredVerdict};
use crate::Header;
use crate::forms::StoredForm;
use std::ops::Range;
use zerocopy::little_endian::U64;

/// What a sample's record says, except about the sample's name.
#[derive(Clone, Copy)]
pub(super) struct ShortRecord {
    /// Unaligned, so that a short record has no unused bytes.
    offset: U64,
    length: u32,
    crc32c: u32,
    width: u32,
    height: u32,
    detail_length: u32,
    detail_crc32c: u32,
    pub(super) form: StoredForm,
    pub(super) verdict: StoredVerdict,
    orientation: u8,
    was_shrunk: bool,
}
const _: () = assert!(size_of::<ShortRecord>() == 36);

impl ShortRecord {
    pub(super) fn of(record: &IndexRecord) -> Self {
        let &IndexRecord { offset, length, crc32c, width, height, detail_length, detail_crc32c, .. } = record;
        let &IndexRecord { form, verdict, orientation, was_shrunk, .. } = record;
        let offset = U64::new(offset);
        Self {
            offset,
            length,
            crc32c,
            width,
            height,
            detail_length,
            detail_crc32c,
            form,
            verdict,
            orientation,
            was_shrunk,
        }
    }

    /// Returns the extent of the sample's bytes.
    pub(super) fn bytes(&self) -> Range<u64> {
        self.offset.get()..self.offset.get() + u64::from(self.length)
    }

    /// Returns what is known of the sample before its bytes are read.
    pub(super) fn header(&self) -> Header {
        let bytes = self.bytes();
        let detail = self.form.detail_of(&bytes, self.detail_length);
        Header {
            form: self.form,
            size: (self.width, self.height),
            orientation: self.orientation,
            was_shrunk: self.was_shrunk,
            bytes,
            crc32c: Some(self.crc32c),
            detail,
            detail_crc32c: self.detail_crc32c,
        }
    }
}

/// The records of all samples.
pub(super) struct Records(Vec<ShortRecord>);

impl Records {
    /// Reads all records. Checks each of them, and that samples lie in the order of their indices and do not overlap,
    /// or lie where the bundles say.
    pub(super) fn read(index: &Index, bundles: Option<&BundleIndex>) -> Result<Self, FormatError> {
        let new =
            || RecordsReading { index, bundles, records: Vec::new(), free: index.layout.data_offset, problem: None };
        let reading = index.read_section(IndexPart::Records, new, |reading, piece| {
            reading.records.try_reserve_exact(index.layout.samples as usize - reading.records.len())?;
            piece.as_chunks().0.iter().for_each(|record| reading.take(record));
            Ok(())
        })?;
        match reading.problem {
            None => Ok(Self(reading.records)),
            Some(problem) => Err(problem),
        }
    }

    /// Returns the number of samples that were rejected when they were packed.
    pub(super) fn rejected(&self) -> u64 {
        self.0.iter().filter(|record| matches!(record.verdict, StoredVerdict::Rejected(_))).count() as u64
    }

    /// # Panics
    /// When there is no such record.
    pub(super) fn get(&self, index: u64) -> &ShortRecord {
        &self.0[index as usize]
    }
}

/// Records that are being read.
struct RecordsReading<'i> {
    index: &'i Index,
    bundles: Option<&'i BundleIndex>,
    records: Vec<ShortRecord>,
    /// End of the sample before.
    free: u64,
    /// The first problem; no record is taken after it.
    problem: Option<FormatError>,
}

impl RecordsReading<'_> {
    fn take(&mut self, bytes: &[u8; RECORD_BYTES]) {
        if self.problem.is_some() {
            return;
        }
        match self.checked(bytes) {
            Ok(record) => self.records.push(record),
            Err(problem) => self.problem = Some(problem),
        }
    }

    fn checked(&mut self, bytes: &[u8; RECORD_BYTES]) -> Result<ShortRecord, FormatError> {
        let (sample, path) = (self.records.len() as u64, || self.index.file.path().to_owned());
        let malformed = |problem| self.index.malformed(IndexPart::Records, format!("sample {sample}: {problem}"));
        let record = IndexRecord::parse(bytes, &self.index.layout).map_err(|problem| match problem {
            RecordProblem::UnknownForm(form) => FormatError::UnknownForm { path: path(), sample, form },
            RecordProblem::Damaged(problem) => malformed(problem),
            RecordProblem::Unreadable(source) => FormatError::Io { path: path(), source },
        })?;
        check_record(self.bundles, sample, &record).map_err(malformed)?;
        let extent = record.extent();
        if self.bundles.is_none() && extent.start < self.free {
            return Err(malformed(format!("its bytes at {} overlap what ends at {}", extent.start, self.free)));
        }
        self.free = extent.end;
        Ok(ShortRecord::of(&record))
    }
}
