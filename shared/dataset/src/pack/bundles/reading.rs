//! Reading the sections of bundles. Each section is checked while it is read, so that memory is spent only on valid
//! contents.

use super::{BundleIndex, BundleShape, DiskBundle, number, table_bytes};
use crate::pack::format::{BLOCK_BYTES, FormatError, IndexPart};
use crate::pack::index::Index;
use std::io;
use std::ops::Range;
use zerocopy::FromBytes;

impl BundleIndex {
    /// Reads the sections of a pack that has bundles.
    pub(in crate::pack) fn read(index: &Index) -> Result<Self, FormatError> {
        let layout = &index.layout;
        let data = layout.data_offset..layout.data_offset + layout.data_bytes;
        let malformed = |part, problem| index.malformed(part, problem);
        let samples = layout.samples;
        if samples > super::SAMPLES_MAX {
            let problem = format!("it has {samples} samples, at most {} can be in pieces", super::SAMPLES_MAX);
            return Err(malformed(IndexPart::Bundles, problem));
        }
        let part = IndexPart::Bundles;
        let new =
            || PlacesReading { samples, shape: None, places: Vec::new(), pending: Vec::new(), data: data.clone() };
        let mut places = read_checked(index, part, new, PlacesReading::take)?;
        let (Some(shape), true) = (places.shape.take(), places.pending.is_empty()) else {
            return Err(malformed(part, "it is cut short".to_owned()));
        };
        for (part, expected) in shape.sections() {
            let found = layout.section(part).length;
            if found != expected {
                return Err(malformed(part, format!("it has {found} bytes, expected {expected}")));
            }
        }
        let new = || TablesReading {
            shape: &shape,
            places: &places.places,
            tables: Vec::new(),
            checked: 0,
            next: (0, 0),
            begin: 0,
        };
        let tables = read_checked(index, IndexPart::Pieces, new, TablesReading::take)?.tables;
        let new = || PositionsReading { samples, positions: Vec::new(), seen: vec![0; samples.div_ceil(64) as usize] };
        let positions = read_checked(index, IndexPart::Positions, new, PositionsReading::take)?.positions;
        let places = places.places;
        let mut read = Self { shape, places, tables, positions, largest: Vec::new() };
        read.measure();
        Ok(read)
    }
}

/// Reason why a piece of a section is not taken.
enum Refused {
    Memory(io::Error),
    Malformed(String),
}

impl From<String> for Refused {
    fn from(problem: String) -> Self {
        Self::Malformed(problem)
    }
}

impl From<std::collections::TryReserveError> for Refused {
    fn from(error: std::collections::TryReserveError) -> Self {
        Self::Memory(error.into())
    }
}

/// Passes a section piece by piece to `take`, until it finds a problem.
fn read_checked<T>(
    index: &Index,
    part: IndexPart,
    new: impl Fn() -> T,
    mut take: impl FnMut(&mut T, &[u8]) -> Result<(), Refused>,
) -> Result<T, FormatError> {
    let (reading, problem) = index.read_section(
        part,
        || (new(), None),
        |(reading, problem), piece| {
            if problem.is_none() {
                match take(reading, piece) {
                    Ok(()) => {}
                    Err(Refused::Memory(error)) => return Err(error),
                    Err(Refused::Malformed(found)) => *problem = Some(found),
                }
            }
            Ok(())
        },
    )?;
    problem.map_or(Ok(reading), |problem| Err(index.malformed(part, problem)))
}

struct PlacesReading {
    samples: u64,
    shape: Option<BundleShape>,
    places: Vec<Range<u64>>,
    /// Bytes that are no whole entry yet.
    pending: Vec<u8>,
    data: Range<u64>,
}

impl PlacesReading {
    fn take(&mut self, piece: &[u8]) -> Result<(), Refused> {
        self.pending.extend_from_slice(piece);
        let pending = std::mem::take(&mut self.pending);
        let mut rest = &pending[..];
        if self.shape.is_none() {
            let (head, entries) = rest.split_first_chunk().ok_or("it is cut short".to_owned())?;
            self.shape = Some(BundleShape::parse(*head, self.samples)?);
            rest = entries;
        }
        while let Ok((entry, behind)) = DiskBundle::read_from_prefix(rest) {
            self.entry(entry)?;
            rest = behind;
        }
        self.pending = rest.to_vec();
        Ok(())
    }

    fn entry(&mut self, entry: DiskBundle) -> Result<(), Refused> {
        let Some(shape) = &self.shape else { return Ok(()) };
        let bundle = self.places.len() as u64;
        if bundle >= shape.bundles() {
            return Err(format!("it lists more than {} bundles", shape.bundles()).into());
        }
        let (offset, bytes) = (entry.offset.get(), entry.bytes.get());
        let free = self.places.last().map_or(self.data.start, |place| place.end);
        let end = offset.checked_add(bytes).filter(|&end| end <= self.data.end);
        let first_position = bundle * u64::from(shape.bundle_samples);
        let expected = (shape.samples_of(bundle), 0, first_position);
        let found = (entry.samples.get(), entry.reserved.get(), entry.first_position.get());
        if found != expected {
            return Err(format!("bundle {bundle} has samples, reserved field and position {found:?}").into());
        }
        match end {
            Some(end) if offset >= free && offset.is_multiple_of(BLOCK_BYTES) => {
                self.places.try_reserve(1)?;
                self.places.push(offset..end);
                Ok(())
            }
            _ => Err(format!("bundle {bundle}, {bytes} bytes at {offset}, is not where it can be").into()),
        }
    }
}

struct TablesReading<'s> {
    shape: &'s BundleShape,
    places: &'s [Range<u64>],
    tables: Vec<u8>,
    /// Bytes of the tables that have been checked.
    checked: usize,
    /// Bundle and number of the next table.
    next: (usize, usize),
    /// Where the next table's pieces begin in the bundle.
    begin: u64,
}

impl TablesReading<'_> {
    fn take(&mut self, piece: &[u8]) -> Result<(), Refused> {
        self.tables.try_reserve(piece.len())?;
        self.tables.extend_from_slice(piece);
        while let (bundle, table) = self.next
            && let Some(place) = self.places.get(bundle)
            && let samples = self.shape.samples_of(bundle as u64)
            && let Some(bytes) = self.tables.get(self.checked..self.checked + table_bytes(samples))
        {
            let end = check_table(bytes, samples as usize)
                .map_err(|problem| format!("table {table} of bundle {bundle}: {problem}"))?;
            self.begin += u64::from(end);
            self.checked += bytes.len();
            self.next.1 += 1;
            if self.next.1 == self.shape.tables() {
                let expected = place.end - place.start;
                if self.begin != expected {
                    let found = self.begin;
                    return Err(format!("the pieces of bundle {bundle} have {found} bytes, it has {expected}").into());
                }
                (self.next, self.begin) = ((bundle + 1, 0), 0);
            }
        }
        Ok(())
    }
}

/// Checks a table, and returns where its last piece ends.
fn check_table(table: &[u8], samples: usize) -> Result<u32, String> {
    let (body, stored) = table.split_at(table.len() - 4);
    let (stored, computed) = (number(stored, 0), crc32c::crc32c(body));
    if stored != computed {
        return Err(format!("its checksum is {stored:08x}, {computed:08x} computed"));
    }
    let places = || (0..=samples).map(|at| number(table, at));
    if number(table, 0) != 0 || !places().is_sorted() {
        return Err("its pieces do not follow each other".to_owned());
    }
    Ok(number(table, samples))
}

struct PositionsReading {
    samples: u64,
    positions: Vec<u32>,
    /// A bit for each position.
    seen: Vec<u64>,
}

impl PositionsReading {
    fn take(&mut self, piece: &[u8]) -> Result<(), Refused> {
        let positions = piece.as_chunks().0.iter().map(|&position| u32::from_le_bytes(position));
        self.positions.try_reserve(positions.len())?;
        for position in positions {
            let (word, bit) = (position as usize / 64, 1 << (position % 64));
            let sample = self.positions.len();
            match self.seen.get_mut(word) {
                Some(word) if u64::from(position) < self.samples && *word & bit == 0 => *word |= bit,
                _ => return Err(format!("sample {sample} has position {position}, which is taken or too large").into()),
            }
            self.positions.push(position);
        }
        Ok(())
    }
}
