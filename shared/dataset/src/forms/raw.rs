//! Form 3: rows of 8-bit RGB. The detail has a CRC32C for every group of rows, so that a crop reads only the groups
//! that it touches, and checks them.

use super::StoredForm;
use super::form::{DetailCheck, Form, Holds, PackOption, Unusable, check_detail};
use crate::pack::storing::{PackedSample, PixelsToStore, reserve};
use crate::pack::{IndexRecord, StoredVerdict};
use crate::{Header, Reads};
use ddlp_pixels::{PixelError, RawRows, SamplePlan, Source, examples};
use std::ops::Range;

/// Groups of rows that share a checksum.
pub(crate) const GROUPS: RawRows = RawRows { group_rows: 16 };

pub(super) struct Raw;

impl Form for Raw {
    type Notes = ();

    const OPTION: Option<PackOption> = Some(PackOption::Format("their pixels (8-bit RGB)"));
    const DETAIL: Option<&'static str> = Some("checksums");
    const HOLDS: Holds = Holds::Pixels(store);
    /// A line of a processor's cache.
    const ALIGNMENT: u64 = 64;

    fn examples(take: &mut dyn FnMut(Source<'_>)) {
        examples::raw(StoredForm::Raw as u8, 1, take);
    }

    fn check(record: &IndexRecord) -> Result<(), String> {
        let &IndexRecord { length, width, height, detail_length, .. } = record;
        if length == 0 || record.pixel_bytes() != Some(length.into()) {
            return Err(format!("{length} bytes are not rows of pixels of {width} x {height}"));
        }
        if u64::from(detail_length) != 4 * u64::from(height.div_ceil(GROUPS.group_rows)) {
            return Err(format!("{detail_length} bytes of checksums for {height} rows"));
        }
        if matches!(record.verdict, StoredVerdict::Rejected(_)) {
            return Err("it was rejected, but its form stores only decoded samples".to_owned());
        }
        Ok(())
    }

    fn first_bytes(header: &Header) -> Range<u64> {
        header.detail.clone()
    }

    fn add_reads(header: &Header, plan: &mut SamplePlan<'_>, reads: &mut Reads) -> Result<(), PixelError> {
        let part = part_of(header, plan)?;
        reads.add(Self::first_bytes(header));
        reads.add(header.bytes.start + part.start..header.bytes.start + part.end);
        Ok(())
    }

    fn next(header: &Header, read: &[u8], _: &mut SamplePlan<'_>, (): &mut (), _: &mut Reads) -> Result<(), Unusable> {
        check_detail(header, &read[..header.detail_bytes()])
    }

    fn source<'a>(
        header: &Header,
        read: &'a [u8],
        plan: &mut SamplePlan<'_>,
        (): &'a (),
    ) -> Result<Source<'a>, PixelError> {
        let (checksums, pixels) = read.split_at(header.detail_bytes());
        Ok(header.image(&GROUPS, checksums, part_of(header, plan)?.start, pixels))
    }

    fn detail_check(record: &IndexRecord) -> Option<Box<dyn DetailCheck>> {
        let group_bytes = u64::from(record.width) * 3 * u64::from(GROUPS.group_rows);
        Some(Box::new(GroupChecksums::new(group_bytes, record.detail_crc32c)))
    }
}

/// Returns the bytes of the sample that a plan needs: rows, in whole groups.
fn part_of(header: &Header, plan: &mut SamplePlan<'_>) -> Result<Range<u64>, PixelError> {
    let rows = GROUPS.groups_of(plan.rows(header.size, header.orientation)?, header.size.1);
    let row_bytes = u64::from(header.size.0) * 3;
    Ok(u64::from(rows.start) * row_bytes..u64::from(rows.end) * row_bytes)
}

/// Appends the pixels of a sample, and then their checksums.
fn store(pixels: &mut PixelsToStore<'_>, out: &mut Vec<u8>) -> Result<PackedSample, PixelError> {
    let start = out.len();
    let decoded = pixels.decode(out)?;
    let checksums = GROUPS.checksums_of(&out[start..], decoded.width);
    let stored = PackedSample::of_pixels(start, &out[start..], StoredForm::Raw, decoded).with_detail(&checksums);
    reserve(out, checksums.len())?;
    out.extend_from_slice(&checksums);
    Ok(stored)
}

/// Checksum over the checksums of groups of bytes that come in pieces of any length.
struct GroupChecksums {
    /// The expected checksum over all checksums.
    stored: u32,
    group_bytes: u64,
    /// Bytes that the present group still lacks, and its checksum so far.
    missing: u64,
    group: u32,
    all: u32,
}

impl GroupChecksums {
    fn new(group_bytes: u64, stored: u32) -> Self {
        Self { stored, group_bytes, missing: group_bytes, group: 0, all: 0 }
    }

    fn end_group(&mut self) {
        self.all = crc32c::crc32c_append(self.all, &self.group.to_le_bytes());
        (self.missing, self.group) = (self.group_bytes, 0);
    }
}

impl DetailCheck for GroupChecksums {
    fn take(&mut self, mut piece: &[u8]) {
        while !piece.is_empty() {
            let (part, behind) = piece.split_at(self.missing.min(piece.len() as u64) as usize);
            self.group = crc32c::crc32c_append(self.group, part);
            self.missing -= part.len() as u64;
            if self.missing == 0 {
                self.end_group();
            }
            piece = behind;
        }
    }

    fn finish(mut self: Box<Self>) -> Result<(), String> {
        // The last group may be shorter.
        if self.missing < self.group_bytes {
            self.end_group();
        }
        if self.all == self.stored { Ok(()) } else { Err("its checksums are not those of its rows".to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn checksums_of_groups_do_not_depend_on_the_pieces(
            bytes in prop::collection::vec(any::<u8>(), 1..400),
            group in 1usize..100,
            piece in 1usize..100,
        ) {
            let checksums: Vec<u8> =
                bytes.chunks(group).flat_map(|group| crc32c::crc32c(group).to_le_bytes()).collect();
            let stored = crc32c::crc32c(&checksums);
            let finish = |stored| {
                let mut groups = Box::new(GroupChecksums::new(group as u64, stored));
                bytes.chunks(piece).for_each(|piece| groups.take(piece));
                groups.finish()
            };
            prop_assert_eq!(finish(stored), Ok(()));
            prop_assert!(finish(!stored).is_err());
        }
    }
}
