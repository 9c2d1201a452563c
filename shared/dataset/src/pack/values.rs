//! The values of a pack, for stores that keep one value for each sample instead of one file.
//!
//! The value of a sample is its bytes with its detail, or its pieces one after the other. [`ValueMap`] finds the values
//! that have the bytes at a place of the pack. Bytes of the sample region that belong to no value are zeros.

use super::bundles::BundleIndex;
use super::format::{FormatError, IndexPart};
use super::index::Index;
use super::reader::Pack;
use super::record::{IndexRecord, RecordProblem};
use super::store::{Blocks, Store};
use crate::{Dataset, ReadError};
use std::io;
use std::ops::Range;
use std::path::Path;

impl Pack {
    /// Returns the extents whose bytes, joined, are the value of a sample.
    ///
    /// # Errors
    ///
    /// If the sample's record cannot be read.
    pub fn value_extents(&self, index: u64) -> Result<Vec<Range<u64>>, ReadError> {
        let record = self.record(index)?;
        Ok(match &self.bundles {
            Some(bundles) => bundles.pieces(index).map(|piece| piece.extent).collect(),
            None => vec![record.extent()],
        })
    }

    /// Replaces the content of `value` by the value of a sample. The bytes are not checked: see
    /// [`verify_sample`](super::verify_sample).
    ///
    /// # Errors
    ///
    /// If the value cannot be read, or the system refuses memory.
    pub fn read_value(&self, index: u64, value: &mut Vec<u8>) -> Result<(), ReadError> {
        value.clear();
        for extent in self.value_extents(index)? {
            let (start, length) = (value.len(), (extent.end - extent.start) as usize);
            let read = value.try_reserve(length).map_err(|_| io::ErrorKind::OutOfMemory.into()).and_then(|()| {
                value.resize(start + length, 0);
                self.index.file.read(extent.start, &mut value[start..])
            });
            read.map_err(|source| ReadError::of_sample(self.name(index), self.location(index), source))?;
        }
        Ok(())
    }

    /// Fills `out` with the pack's bytes from `offset` on, as they are stored.
    ///
    /// # Errors
    ///
    /// If the bytes cannot be read.
    pub fn read_bytes(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.index.file.read(offset, out)
    }
}

/// A part of a value, at one place of the pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValuePart {
    /// The sample.
    pub sample: u64,
    /// Where in the value the part begins.
    pub start: u64,
    /// The pack's bytes.
    pub extent: Range<u64>,
}

/// Where the values lie in a pack. Takes 16 bytes of memory for each sample, or 48 in a pack of pieces with four
/// groups.
#[derive(Debug)]
pub struct ValueMap {
    places: Places,
}

enum Places {
    /// The value of each sample, in the order of the pack.
    Whole(Vec<Range<u64>>),
    Pieces {
        bundles: BundleIndex,
        /// The sample at each position.
        samples: Vec<u32>,
    },
}

impl std::fmt::Debug for Places {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Whole(values) => write!(f, "{} values", values.len()),
            Self::Pieces { samples, .. } => write!(f, "{} values of pieces", samples.len()),
        }
    }
}

impl ValueMap {
    /// Reads the map from the index of a pack; messages call the pack `place`. Of `blocks`, only the bytes in front of
    /// the sample region are read.
    ///
    /// # Errors
    ///
    /// If the index cannot be read, or is not that of a pack.
    pub fn read(blocks: Box<dyn Blocks>, place: &Path) -> Result<Self, FormatError> {
        let index = Index::read(Store::of_blocks(blocks, place.to_owned()))?;
        let path = place.to_owned();
        let places = if index.has_bundles() {
            let bundles = BundleIndex::read(&index)?;
            let in_order = bundles.in_order().map_err(|source| FormatError::Io { path, source })?;
            Places::Pieces { bundles, samples: in_order.indices.unwrap_or_default() }
        } else {
            Places::Whole(read_values(&index)?)
        };
        Ok(Self { places })
    }

    /// Calls `take` with each part of a value that lies in an extent of the pack, in the order of the pack.
    ///
    /// # Errors
    ///
    /// The first error of `take`.
    pub fn parts<E>(&self, extent: Range<u64>, mut take: impl FnMut(ValuePart) -> Result<(), E>) -> Result<(), E> {
        let mut at = extent.start;
        while at < extent.end {
            match self.part_at(at) {
                Ok(whole) => {
                    let end = whole.extent.end.min(extent.end);
                    take(ValuePart {
                        sample: whole.sample,
                        start: whole.start + (at - whole.extent.start),
                        extent: at..end,
                    })?;
                    at = end;
                }
                Err(next) => at = next.unwrap_or(extent.end),
            }
        }
        Ok(())
    }

    /// Returns the part with the byte at `offset`, or else where the next byte of a value may lie.
    fn part_at(&self, offset: u64) -> Result<ValuePart, Option<u64>> {
        match &self.places {
            Places::Whole(values) => {
                let number = values.partition_point(|value| value.end <= offset);
                let value = values.get(number).ok_or(None)?;
                if offset < value.start {
                    return Err(Some(value.start));
                }
                Ok(ValuePart { sample: number as u64, start: 0, extent: value.clone() })
            }
            Places::Pieces { bundles, samples } => {
                let (position, number) = bundles.piece_at(offset)?;
                let sample = u64::from(samples[position]);
                let (mut start, mut extent) = (0, 0..0);
                for piece in bundles.pieces(sample).take(number + 1) {
                    start += extent.end - extent.start;
                    extent = piece.extent;
                }
                Ok(ValuePart { sample, start, extent })
            }
        }
    }
}

/// Reads where the values of samples that are not in pieces lie. Checks that they are sorted.
fn read_values(index: &Index) -> Result<Vec<Range<u64>>, FormatError> {
    let (samples, part) = (index.layout.samples as usize, IndexPart::Records);
    let new = || (Vec::new(), None);
    let (values, problem) = index.read_section(part, new, |(values, problem): &mut (Vec<Range<u64>>, _), piece| {
        values.try_reserve_exact(samples - values.len())?;
        for bytes in piece.as_chunks().0 {
            match IndexRecord::parse(bytes, &index.layout) {
                Ok(record) if values.last().is_none_or(|last| last.end <= record.extent().start) => {
                    values.push(record.extent());
                }
                Ok(_) => *problem = Some("its bytes overlap those of the sample before".to_owned().into()),
                Err(found) => *problem = Some(found),
            }
            if problem.is_some() {
                break;
            }
        }
        Ok(())
    })?;
    let sample = values.len() as u64;
    match problem {
        None => Ok(values),
        Some(RecordProblem::UnknownForm(form)) => {
            Err(FormatError::UnknownForm { path: index.file.path().to_owned(), sample, form })
        }
        Some(problem) => Err(index.malformed(part, format!("sample {sample}: {problem}"))),
    }
}
