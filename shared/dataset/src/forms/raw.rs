//! Form 3: rows of 8-bit RGB. The detail has a CRC32C for every group of rows, so that a crop reads only the groups
//! that it touches, and checks them.

use super::StoredForm;
use super::form::{DetailCheck, Form, FormNotes, Next, PackOption, Unusable, check_detail};
use crate::SAMPLE_BYTES_MAX;
use crate::pack::storing::{NotStored, StoredSample, Workspace, reserve};
use crate::pack::{IndexRecord, StoredVerdict, WhyKept};
use crate::{Header, Reads};
use ddlp_pixels::{Decoded, Decoder, PixelError, RawImage, SamplePlan, Source};
use std::ops::Range;

/// Rows that share a checksum.
pub(crate) const GROUP_ROWS: u32 = 16;
/// Alignment of a sample: a line of a processor's cache.
const ALIGNMENT_BYTES: u64 = 64;

pub(super) struct Raw;

impl Form for Raw {
    const DECODER: Option<Decoder> = Some(Decoder::Raw);
    const OPTION: Option<PackOption> = Some(PackOption::Format("their pixels (8-bit RGB)"));
    const DETAIL: Option<&'static str> = Some("checksums");
    const IS_DECODED: bool = true;
    const ALIGNMENT: u64 = ALIGNMENT_BYTES;

    fn check(record: &IndexRecord) -> Result<(), String> {
        let &IndexRecord { length, width, height, detail_length, .. } = record;
        if length == 0 || record.pixel_bytes() != Some(length.into()) {
            return Err(format!("{length} bytes are not rows of pixels of {width} x {height}"));
        }
        if u64::from(detail_length) != 4 * u64::from(height.div_ceil(GROUP_ROWS)) {
            return Err(format!("{detail_length} bytes of checksums for {height} rows"));
        }
        if matches!(record.verdict, StoredVerdict::Rejected(_)) {
            return Err("its form is that of decoded samples".to_owned());
        }
        Ok(())
    }

    fn first_bytes(header: &Header) -> Range<u64> {
        header.detail.clone()
    }

    fn reads(header: &Header, plan: &mut SamplePlan<'_>, reads: &mut Reads) -> Result<(), PixelError> {
        let rows = rows(header, plan)?;
        let row_bytes = u64::from(header.size.0) * 3;
        let at = |row: u32| header.bytes.start + u64::from(row) * row_bytes;
        reads.add(Self::first_bytes(header));
        reads.add(at(rows.start)..at(rows.end));
        Ok(())
    }

    fn next(
        header: &Header,
        read: &[u8],
        _: &mut SamplePlan<'_>,
        _: &mut FormNotes,
        _: &mut Reads,
    ) -> Result<Next, Unusable> {
        check_detail(header, &read[..header.detail_bytes()])?;
        Ok(Next::Render)
    }

    fn source<'a>(
        header: &Header,
        read: &'a [u8],
        plan: &mut SamplePlan<'_>,
        _: &'a FormNotes,
    ) -> Result<Source<'a>, PixelError> {
        let &Header { size: (width, height), orientation, was_shrunk, .. } = header;
        let (checksums, pixels) = read.split_at(header.detail_bytes());
        let (group_rows, first_row) = (GROUP_ROWS, rows(header, plan)?.start);
        Ok(Source::Raw(RawImage { width, height, orientation, was_shrunk, group_rows, checksums, first_row, pixels }))
    }

    fn store(source: Source<'_>, workspace: &mut Workspace<'_>) -> Result<StoredSample, NotStored> {
        let max_side = workspace.format.max_side;
        match source {
            // Only packs have raw samples.
            Source::Raw(image) => {
                let (size, length) = ((image.width, image.height), bytes_of((image.width, image.height), None));
                let stored = store_pixels(source, workspace)?;
                let is_smaller = (stored.record.width, stored.record.height) != size;
                Ok(stored.noting(|note| (note.source_bytes, note.is_smaller) = (length, is_smaller)))
            }
            Source::Encoded(_) => {
                (workspace.admit)(bytes_of(workspace.size, max_side));
                let stored = store_pixels(source, workspace).map_err(|error| match error.is_of_the_image() {
                    true => NotStored::Kept(WhyKept::NotDecoded(error.reason())),
                    false => NotStored::Failed(error),
                })?;
                let was_shrunk = stored.record.was_shrunk;
                Ok(stored.noting(|note| note.is_smaller = was_shrunk))
            }
            _ => Err(NotStored::Kept(WhyKept::AskedFor)),
        }
    }

    fn detail_check(record: &IndexRecord) -> Option<Box<dyn DetailCheck>> {
        let group_bytes = u64::from(record.width) * 3 * u64::from(GROUP_ROWS);
        Some(Box::new(GroupChecksums::new(group_bytes, record.detail_crc32c)))
    }
}

/// Returns the rows that a plan needs, in whole groups.
fn rows(header: &Header, plan: &mut SamplePlan<'_>) -> Result<Range<u32>, PixelError> {
    let rows = plan.rows(header.size, header.orientation)?;
    Ok(RawImage::groups_of(rows, header.size.1, GROUP_ROWS))
}

/// Decodes a sample and appends its pixels and their checksums.
fn store_pixels(source: Source<'_>, workspace: &mut Workspace<'_>) -> Result<StoredSample, PixelError> {
    let out = &mut *workspace.out;
    let before = out.len();
    let start = before.next_multiple_of(ALIGNMENT_BYTES as usize);
    reserve(out, start - before)?;
    out.resize(start, 0);
    let decoded = workspace.preparer.decode(source, workspace.format.max_side, out);
    let length = (out.len() - start) as u64;
    let decoded = match decoded {
        Ok(decoded) if length <= SAMPLE_BYTES_MAX => decoded,
        outcome => {
            out.truncate(before);
            let Decoded { width, height, .. } = outcome?;
            return Err(PixelError::TooManyPixels { width, height, limit: SAMPLE_BYTES_MAX / 3 });
        }
    };
    let Decoded { width, height, orientation, was_shrunk, .. } = decoded;
    let pixels = &out[start..];
    let checksums = RawImage::checksums_of(pixels, width, GROUP_ROWS);
    let stored = StoredSample::of(start, pixels, StoredForm::Raw, (width, height));
    let mut stored = stored.with_detail(&checksums);
    reserve(out, checksums.len())?;
    out.extend_from_slice(&checksums);
    (stored.record.orientation, stored.record.was_shrunk) = (orientation, was_shrunk);
    Ok(stored)
}

/// Returns an upper bound for the bytes of an image as raw pixels.
fn bytes_of((width, height): (u32, u32), max_side: Option<u32>) -> u64 {
    let most = max_side.map_or(u64::MAX, |side| u64::from(side) * u64::from(side));
    (u64::from(width) * u64::from(height)).min(most).saturating_mul(3)
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
