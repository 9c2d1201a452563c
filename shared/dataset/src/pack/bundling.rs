//! Writing bundles: gathers the pieces of a bundle's samples by scan group, and writes them group by group.

use super::bundles::{BundleShape, table};
use super::dealt::Dealt;
use super::format::BLOCK_BYTES;
use super::record::IndexRecord;
use super::sections::SectionWriter;
use super::storing::PackedSample;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Writer of bundles. Holds one bundle in memory, and the records of all samples, which are written in another order.
pub(super) struct Bundling<'a> {
    pub(super) dealt: &'a Dealt<'a>,
    shape: &'a BundleShape,
    file: &'a File,
    /// The sections of bundles, pieces and positions.
    pub(super) sections: [SectionWriter<'a>; 3],
    /// Number of the bundle that is gathered.
    bundle: u64,
    /// What is gathered for each group, and for the markers.
    gathered: Vec<Gathered>,
    /// Bytes of samples that are not yet written, or not completely.
    pub(super) unwritten: u64,
    /// Index and record of each sample of the bundle.
    held: Vec<(u64, IndexRecord)>,
    /// Records by index.
    records: Vec<Option<IndexRecord>>,
}

/// The pieces of one group of a bundle.
#[derive(Default)]
struct Gathered {
    bytes: Vec<u8>,
    starts: Vec<u32>,
    checksums: Vec<u32>,
}

/// Reason why a sample is not taken.
pub(super) enum Untaken {
    /// The pieces of this scan group would need 4 GiB or more. The number is 0 for the markers.
    TooLarge(u8),
    Io(io::Error),
}

impl From<io::Error> for Untaken {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl<'a> Bundling<'a> {
    pub(super) fn new(
        dealt: &'a Dealt<'a>,
        shape: &'a BundleShape,
        file: &'a File,
        mut sections: [SectionWriter<'a>; 3],
    ) -> io::Result<Self> {
        sections[0].append(&shape.to_bytes())?;
        let gathered = (0..shape.tables()).map(|_| Gathered::default()).collect();
        let records = vec![None; shape.samples as usize];
        Ok(Self { dealt, shape, file, sections, bundle: 0, gathered, unwritten: 0, held: Vec::new(), records })
    }

    /// Takes the sample at the next position, whose record counts within the bytes `chunk`. Writes the bundle behind
    /// `data_end` if it is complete. Returns the end of what has been written.
    pub(super) fn take(
        &mut self,
        position: u64,
        sample: &PackedSample,
        chunk: &[u8],
        data_end: u64,
    ) -> Result<u64, Untaken> {
        let record = sample.record;
        let (mut start, whole) = (record.extent().start as usize, [record.total_bytes() as u32]);
        let lengths = if sample.pieces.is_empty() { &whole[..] } else { &sample.pieces };
        let mut inside = 0;
        for (group, gathered) in self.gathered.iter_mut().enumerate() {
            let length = lengths.get(group).copied().unwrap_or_default();
            let begin = gathered.bytes.len() as u32;
            if begin.checked_add(length).is_none() {
                let number = self.shape.groups.numbers().get(group).copied();
                return Err(Untaken::TooLarge(number.unwrap_or_default()));
            }
            let piece = &chunk[start..start + length as usize];
            start += length as usize;
            gathered.starts.push(begin);
            gathered.checksums.push(crc32c::crc32c(piece));
            gathered.bytes.try_reserve(piece.len()).map_err(io::Error::from)?;
            gathered.bytes.extend_from_slice(piece);
            self.unwritten += u64::from(length);
            if group == 0 {
                // A detail may lie in front of the sample's bytes.
                inside = u64::from(begin) + record.offset - record.extent().start;
            }
        }
        self.held.push((self.dealt.index(position), IndexRecord { offset: inside, ..record }));
        match self.held.len() < self.shape.samples_of(self.bundle) as usize {
            true => Ok(data_end),
            false => Ok(self.write(data_end.next_multiple_of(BLOCK_BYTES))?),
        }
    }

    /// Writes the bundle and its tables; returns the end of the bundle.
    fn write(&mut self, begin: u64) -> io::Result<u64> {
        let [bundles, pieces, _] = &mut self.sections;
        let mut end = begin;
        for Gathered { bytes, starts, checksums } in &mut self.gathered {
            self.file.write_all_at(bytes, end)?;
            pieces.append(&table(starts, bytes.len() as u32, checksums))?;
            end += bytes.len() as u64;
            bytes.clear();
            starts.clear();
            checksums.clear();
        }
        bundles.append(&self.shape.entry(self.bundle, &(begin..end)))?;
        for (index, record) in self.held.drain(..) {
            self.records[index as usize] = Some(IndexRecord { offset: begin + record.offset, ..record });
        }
        (self.bundle, self.unwritten) = (self.bundle + 1, 0);
        Ok(end)
    }

    /// Writes the positions, and returns the records in the order of indices.
    pub(super) fn finish(&mut self) -> io::Result<Vec<IndexRecord>> {
        let records = std::mem::take(&mut self.records);
        let mut positions = vec![0u32; records.len()];
        for position in 0..records.len() {
            positions[self.dealt.index(position as u64) as usize] = position as u32;
        }
        positions.iter().try_for_each(|position| self.sections[2].append(&position.to_le_bytes()))?;
        Ok(records.into_iter().map(|record| record.expect("every bundle is written")).collect())
    }
}
