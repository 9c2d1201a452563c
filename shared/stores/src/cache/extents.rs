//! Which bytes of a dataset are cached, and where.

use std::collections::BTreeMap;
use std::ops::Range;

/// Neighbouring bytes in a segment, with one checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Number by which this process knows the segment.
    pub segment: u32,
    /// First byte in the segment.
    pub position: u32,
    /// Number of bytes.
    pub length: u32,
    /// CRC32C of the bytes.
    pub crc32c: u32,
}

/// Bytes of the dataset that a record has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub record: Record,
    /// Bytes of the record in front of the piece.
    pub skip: u32,
    /// Number of bytes.
    length: u32,
}

/// The cached bytes of a dataset: pieces that do not overlap, by their first byte.
#[derive(Debug, Default)]
pub struct Extents {
    pieces: BTreeMap<u64, Piece>,
}

impl Extents {
    /// Adds the bytes of a record, which begin at `offset` in the dataset, as far as they are not cached yet.
    pub fn insert(&mut self, offset: u64, record: Record) {
        let whole = offset..offset.saturating_add(record.length.into());
        let mut free = Vec::new();
        let mut at = whole.start;
        for (extent, _) in self.overlapping(&whole) {
            if at < extent.start {
                free.push(at..extent.start);
            }
            at = extent.end;
        }
        if at < whole.end {
            free.push(at..whole.end);
        }
        for Range { start, end } in free {
            let piece = Piece { record, skip: (start - offset) as u32, length: (end - start) as u32 };
            self.pieces.insert(start, piece);
        }
    }

    /// Returns the pieces that have some of these bytes, in order, each with the bytes that it has.
    pub fn overlapping(&self, bytes: &Range<u64>) -> impl Iterator<Item = (Range<u64>, Piece)> {
        let before = self.pieces.range(..bytes.start).next_back();
        let from = if bytes.is_empty() { bytes.end..bytes.end } else { bytes.clone() };
        let extent = |(&start, &piece): (&u64, &Piece)| (start..start + u64::from(piece.length), piece);
        let start = bytes.start;
        before.into_iter().chain(self.pieces.range(from)).map(extent).filter(move |(extent, _)| extent.end > start)
    }

    /// Removes the pieces that have some of these bytes, and all other pieces of their records. Returns these records.
    pub fn remove(&mut self, bytes: &Range<u64>) -> Vec<Record> {
        let found: Vec<_> = self.overlapping(bytes).map(|(extent, piece)| (extent.start, piece)).collect();
        found.iter().for_each(|(start, piece)| self.remove_record(*start, *piece));
        let mut records: Vec<Record> = found.into_iter().map(|(_, piece)| piece.record).collect();
        records.dedup();
        records
    }

    /// Removes all pieces of the record of a piece, which begins at `start` in the dataset.
    pub fn remove_record(&mut self, start: u64, piece: Piece) {
        let first = start - u64::from(piece.skip);
        let whole = first..first + u64::from(piece.record.length);
        let own: Vec<u64> = self
            .overlapping(&whole)
            .filter(|(_, other)| other.record == piece.record)
            .map(|(extent, _)| extent.start)
            .collect();
        for start in own {
            self.pieces.remove(&start);
        }
    }

    /// Removes the pieces whose records are not to be used.
    pub fn retain(&mut self, is_used: impl Fn(Record) -> bool) {
        self.pieces.retain(|_, piece| is_used(piece.record));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(position: u32, length: u32) -> Record {
        Record { segment: 0, position, length, crc32c: 0 }
    }

    proptest! {
        /// Against one entry for each byte: the first record that has a byte keeps it until it is removed.
        #[test]
        fn each_byte_has_the_first_record_that_is_left(
            steps in proptest::collection::vec((0u64..60, 1u32..25, 0u8..4), 1..40),
        ) {
            let (mut extents, mut bytes) = (Extents::default(), [None; 100]);
            for (number, (offset, length, kind)) in steps.into_iter().enumerate() {
                let place = offset as usize..offset as usize + length as usize;
                if kind == 0 {
                    let removed = extents.remove(&(offset..offset + u64::from(length)));
                    let expected: Vec<u32> = bytes[place].iter().flatten().map(|(position, _)| *position).collect();
                    prop_assert!(expected.iter().all(|at| removed.iter().any(|record| record.position == *at)));
                    bytes.iter_mut().for_each(|byte| {
                        *byte = byte.filter(|(at, _)| !removed.iter().any(|record| record.position == *at));
                    });
                } else {
                    extents.insert(offset, record(number as u32, length));
                    for (at, byte) in bytes[place].iter_mut().enumerate() {
                        byte.get_or_insert((number as u32, at as u32));
                    }
                }
                for start in [0u64, 7, 30] {
                    let mut found = [None; 100];
                    for (extent, piece) in extents.overlapping(&(start..start + 40)) {
                        for at in extent.clone() {
                            prop_assert!(found[at as usize].is_none(), "pieces overlap");
                            let skip = piece.skip + (at - extent.start) as u32;
                            found[at as usize] = Some((piece.record.position, skip));
                        }
                    }
                    let asked = start as usize..start as usize + 40;
                    prop_assert_eq!(&found[asked.clone()], &bytes[asked]);
                }
            }
        }
    }
}
