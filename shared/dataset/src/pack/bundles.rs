//! Bundles of a pack whose samples lie in pieces: the sections 5 to 7, from which each piece's place follows.
//!
//! A bundle has the pieces of its samples, sorted by scan group. All three sections stay in memory: with four groups
//! and the markers, 44 bytes a sample.

mod reading;

use super::format::IndexPart;
use super::index::Index;
use super::record::IndexRecord;
use super::superblock::PackLayout;
use crate::Piece;
use ddlp_pixels::{Fidelity, ScanGroups};
use std::io;
use std::ops::Range;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Largest number of samples of a bundle.
pub(super) const BUNDLE_SAMPLES_MAX: u32 = 1 << 16;
/// Largest number of samples of a pack of pieces, whose places stay in memory: 740 MB with four groups.
pub(super) const SAMPLES_MAX: u64 = 1 << 24;
/// Most scan groups.
const GROUPS_MAX: usize = 10;

/// The beginning of section 5.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct DiskHead {
    groups: u8,
    numbers: [u8; GROUPS_MAX],
    reserved: u8,
    bundle_samples: U32,
}
const _: () = assert!(size_of::<DiskHead>() == 16);

/// A bundle's entry in section 5.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct DiskBundle {
    offset: U64,
    bytes: U64,
    samples: U32,
    reserved: U32,
    first_position: U64,
}
const _: () = assert!(size_of::<DiskBundle>() == 32);

/// Number and size of bundles, and their scan groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BundleShape {
    pub(super) groups: ScanGroups,
    /// Samples of a bundle, except for the last one.
    pub(super) bundle_samples: u32,
    /// Samples of the pack.
    pub(super) samples: u64,
}

impl BundleShape {
    /// Returns the number of bundles.
    pub(super) fn bundles(&self) -> u64 {
        self.samples.div_ceil(self.bundle_samples.into())
    }

    /// Returns the number of samples of a bundle.
    pub(super) fn samples_of(&self, bundle: u64) -> u32 {
        let first = bundle * u64::from(self.bundle_samples);
        (self.samples - first).min(self.bundle_samples.into()) as u32
    }

    /// Returns the number of a bundle's tables: one for each group, and one for the markers.
    pub(super) fn tables(&self) -> usize {
        self.groups.numbers().len() + 1
    }

    /// Returns the lengths of the sections.
    pub(super) fn sections(&self) -> [(IndexPart, u64); 3] {
        let whole = self.samples / u64::from(self.bundle_samples);
        let last = (self.samples % u64::from(self.bundle_samples)) as u32;
        let of_last = if last > 0 { table_bytes(last) } else { 0 };
        let tables = self.tables() as u64 * (whole * table_bytes(self.bundle_samples) as u64 + of_last as u64);
        let bundles = size_of::<DiskHead>() as u64 + self.bundles() * size_of::<DiskBundle>() as u64;
        [(IndexPart::Bundles, bundles), (IndexPart::Pieces, tables), (IndexPart::Positions, self.samples * 4)]
    }

    /// Serialises the beginning of section 5.
    pub(super) fn to_bytes(&self) -> [u8; 16] {
        let mut numbers = [0; GROUPS_MAX];
        let groups = self.groups.numbers();
        numbers[..groups.len()].copy_from_slice(groups);
        let bundle_samples = self.bundle_samples.into();
        zerocopy::transmute!(DiskHead { groups: groups.len() as u8, numbers, reserved: 0, bundle_samples })
    }

    /// Parses the beginning of section 5.
    fn parse(bytes: [u8; 16], samples: u64) -> Result<Self, String> {
        let DiskHead { groups, numbers, reserved, bundle_samples } = zerocopy::transmute!(bytes);
        let (used, unused) = numbers.split_at_checked(groups.into()).ok_or(format!("it has {groups} scan groups"))?;
        let groups = ScanGroups::new(used).map_err(|error| error.to_string())?;
        if reserved != 0 || unused.iter().any(|&number| number != 0) {
            return Err("bytes that must be 0 are not".to_owned());
        }
        let bundle_samples = bundle_samples.get();
        if !(1..=BUNDLE_SAMPLES_MAX).contains(&bundle_samples) {
            return Err(format!("its bundles have {bundle_samples} samples, 1 to {BUNDLE_SAMPLES_MAX} are possible"));
        }
        Ok(Self { groups, bundle_samples, samples })
    }

    /// Serialises a bundle's entry in section 5. The bundle has these bytes of the file.
    pub(super) fn entry(&self, bundle: u64, place: &Range<u64>) -> [u8; 32] {
        zerocopy::transmute!(DiskBundle {
            offset: place.start.into(),
            bytes: (place.end - place.start).into(),
            samples: self.samples_of(bundle).into(),
            reserved: 0.into(),
            first_position: (bundle * u64::from(self.bundle_samples)).into(),
        })
    }
}

/// Returns the bytes of a table for this number of samples.
fn table_bytes(samples: u32) -> usize {
    4 * (samples as usize + 1) + 4 * samples as usize + 4
}

/// Serialises a table: the places where pieces begin, counted from the first one, the end of the last, and checksums.
pub(super) fn table(starts: &[u32], end: u32, checksums: &[u32]) -> Vec<u8> {
    let numbers = starts.iter().chain([&end]).chain(checksums);
    let mut bytes: Vec<u8> = numbers.flat_map(|number| number.to_le_bytes()).collect();
    bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

/// Returns a number of a table.
fn number(table: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(table.as_chunks().0[at])
}

/// The bundles of an open pack.
pub(super) struct BundleIndex {
    shape: BundleShape,
    /// The bytes of each bundle.
    places: Vec<Range<u64>>,
    /// Section 6 as it is stored.
    tables: Vec<u8>,
    /// The position of each sample, by index.
    positions: Vec<u32>,
    /// For each scan group, the most bytes that a bundle has up to that group.
    largest: Vec<u64>,
}

impl BundleIndex {
    /// Returns the scan groups.
    pub(super) fn groups(&self) -> &ScanGroups {
        &self.shape.groups
    }

    /// Returns how the samples lie in bundles. Fails if the system refuses memory.
    pub(super) fn in_order(&self) -> io::Result<crate::Bundles> {
        let mut indices = Vec::new();
        indices.try_reserve_exact(self.positions.len()).map_err(|_| io::ErrorKind::OutOfMemory)?;
        indices.resize(self.positions.len(), 0);
        for (index, &position) in (0..).zip(&self.positions) {
            indices[position as usize] = index;
        }
        let bytes = self.largest.last().copied().unwrap_or_default();
        Ok(crate::Bundles { samples: self.shape.bundle_samples.into(), indices: Some(indices), bytes })
    }

    /// Returns how many scan groups a fidelity has: at least the first one.
    pub(super) fn groups_of(&self, fidelity: Fidelity) -> usize {
        self.groups().numbers().iter().filter(|&&group| group <= fidelity.number()).count().max(1)
    }

    /// Returns the most bytes that a bundle has of the first `groups` scan groups.
    pub(super) fn largest(&self, groups: usize) -> u64 {
        self.largest[groups - 1]
    }

    /// Returns the tables of a bundle, each with the place where its first piece begins.
    fn tables(&self, bundle: u32) -> impl Iterator<Item = (u64, &[u8])> {
        let samples = self.shape.samples_of(bundle.into());
        let first = bundle as usize * self.shape.tables() * table_bytes(self.shape.bundle_samples);
        let mut begin = self.places[bundle as usize].start;
        let tables = self.tables[first..].chunks_exact(table_bytes(samples)).take(self.shape.tables());
        tables.map(move |table| {
            let end = begin + u64::from(number(table, samples as usize));
            (std::mem::replace(&mut begin, end), table)
        })
    }

    /// Returns the bundle of a sample, and the sample's number within it.
    fn place_of(&self, index: u64) -> (u32, usize) {
        let position = self.positions[index as usize];
        (position / self.shape.bundle_samples, (position % self.shape.bundle_samples) as usize)
    }

    /// Returns the pieces of a sample: one for each group, then the markers. Some may be empty.
    pub(super) fn pieces(&self, index: u64) -> impl Iterator<Item = Piece> {
        let (bundle, within) = self.place_of(index);
        let samples = self.shape.samples_of(bundle.into()) as usize;
        self.tables(bundle).map(move |(begin, table)| {
            let place = |at: usize| begin + u64::from(number(table, at));
            Piece { extent: place(within)..place(within + 1), crc32c: number(table, samples + 1 + within) }
        })
    }

    /// Returns the bytes of a sample's bundle that belong to the first `groups` scan groups.
    pub(super) fn prefix(&self, index: u64, groups: usize) -> Range<u64> {
        let (bundle, _) = self.place_of(index);
        let start = self.places[bundle as usize].start;
        start..self.prefix_end(bundle, groups)
    }

    /// Returns where the first `groups` scan groups of a bundle end.
    fn prefix_end(&self, bundle: u32, groups: usize) -> u64 {
        // The markers have a table, too.
        self.tables(bundle).nth(groups).map_or(0, |(begin, _)| begin)
    }

    /// Finds how large bundles are.
    fn measure(&mut self) {
        let bytes = |bundle: u32, groups| self.prefix_end(bundle, groups) - self.places[bundle as usize].start;
        let bundles = self.places.len() as u32;
        let largest = |groups| (0..bundles).map(|bundle| bytes(bundle, groups)).max().unwrap_or_default();
        self.largest = (1..self.shape.tables()).map(largest).collect();
    }

    /// Returns the position of the sample whose piece has the byte at `offset`, and the piece's number; if no piece has
    /// it, where the next bundle begins.
    pub(super) fn piece_at(&self, offset: u64) -> Result<(usize, usize), Option<u64>> {
        let bundle = self.places.partition_point(|place| place.end <= offset);
        let next = |number: usize| self.places.get(number).map(|place| place.start);
        let begin = next(bundle).ok_or(None)?;
        if offset < begin {
            return Err(Some(begin));
        }
        let samples = self.shape.samples_of(bundle as u64) as usize;
        for (piece, (begin, table)) in self.tables(bundle as u32).enumerate() {
            let end = |within: usize| begin + u64::from(number(table, within + 1));
            if offset < end(samples - 1) {
                let (mut least, mut most) = (0, samples - 1);
                while least < most {
                    let middle = (least + most) / 2;
                    if offset < end(middle) { most = middle } else { least = middle + 1 }
                }
                return Ok((bundle * self.shape.bundle_samples as usize + least, piece));
            }
        }
        Err(next(bundle + 1))
    }

    /// Returns the number of bytes of a sample.
    pub(super) fn sample_bytes(&self, index: u64) -> u64 {
        self.pieces(index).map(|piece| piece.extent.end - piece.extent.start).sum()
    }

    /// Checks that a sample's record names its first piece, and that a sample that is not cut has no other.
    pub(super) fn check(&self, index: u64, record: &IndexRecord) -> Result<(), String> {
        let mut pieces = self.pieces(index);
        let first = pieces.next().ok_or("it has no piece")?;
        let (is_in_pieces, extent) = (record.form.is_in_pieces(), record.extent());
        if first.extent != extent {
            let Range { start, end } = first.extent;
            return Err(format!(
                "its bytes at {} to {}, its first piece at {start} to {end}",
                extent.start, extent.end
            ));
        }
        if record.detail_length == 0 && first.crc32c != record.crc32c {
            let (of_piece, of_record) = (first.crc32c, record.crc32c);
            return Err(format!("its checksum is {of_record:08x}, that of its first piece {of_piece:08x}"));
        }
        if !is_in_pieces && pieces.any(|piece| !piece.extent.is_empty()) {
            return Err("it is stored whole, but has more than one piece".to_owned());
        }
        Ok(())
    }

    /// Returns the extents of the sample region between the bundles.
    pub(super) fn gaps(&self, layout: &PackLayout) -> Vec<Range<u64>> {
        let ends = [layout.data_offset].into_iter().chain(self.places.iter().map(|place| place.end));
        let starts = self.places.iter().map(|place| place.start).chain([layout.data_offset + layout.data_bytes]);
        ends.zip(starts).map(|(end, start)| end..start).collect()
    }
}

/// Checks a sample's record against the bundles: a form of pieces needs bundles.
pub(super) fn check_record(bundles: Option<&BundleIndex>, index: u64, record: &IndexRecord) -> Result<(), String> {
    match bundles {
        Some(bundles) => bundles.check(index, record),
        None if record.form.is_in_pieces() => Err("it is in pieces, but the pack has no bundles".to_owned()),
        None => Ok(()),
    }
}

impl Index {
    /// Returns whether the pack has bundles.
    pub(super) fn has_bundles(&self) -> bool {
        self.layout.sections.iter().any(|section| section.part == IndexPart::Bundles)
    }
}
