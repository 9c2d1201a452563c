//! Form 4: a JPEG with an index of its rows, so that a crop reads only the rows of MCUs that it needs, and checks them.
//!
//! The row index lies in front of the file: one read gets the index and the file's header. If the index is damaged, the
//! file is read whole, which gives the same pixels.

use super::StoredForm;
use super::form::{Form, Holds, PackOption, Unusable, check_detail};
use crate::pack::storing::{NotStored, PackedSample, Workspace, reserve};
use crate::pack::{IndexRecord, StoredVerdict, WhyKept};
use crate::{Header, Reads};
use ddlp_pixels::{PartialJpeg, PixelError, RowIndex, SamplePlan, Source, examples, row_index_bytes_max};
use std::ops::Range;

/// Bytes of the file that are read together with its row index. They contain the header of most files.
const BEGINNING_BYTES: u64 = 1024;
/// Bytes of a block of a drive.
const BLOCK_BYTES: usize = 4096;

pub(super) struct Rows;

impl Form for Rows {
    /// The row index.
    type Notes = Option<RowIndex>;

    const OPTION: Option<PackOption> =
        Some(PackOption::Jpeg("with an index of their rows, so that a crop reads only its rows"));
    const DETAIL: Option<&'static str> = Some("row index");
    const REWRITTEN: &'static str = "rewritten into one scan, with a row index";
    const HOLDS: Holds = Holds::Files(store);
    const ALIGNMENT: u64 = BLOCK_BYTES as u64;

    fn examples(take: &mut dyn FnMut(Source<'_>)) {
        examples::rows(take);
    }

    fn detail_of(bytes: &Range<u64>, detail_length: u32) -> Range<u64> {
        bytes.start.saturating_sub(detail_length.into())..bytes.start
    }

    fn check(record: &IndexRecord) -> Result<(), String> {
        let &IndexRecord { length, detail_length, .. } = record;
        let most = row_index_bytes_max(length.into());
        if detail_length == 0 || u64::from(detail_length) > most {
            return Err(format!(
                "a row index of {detail_length} bytes for a file of {length}, at most {most} are made"
            ));
        }
        if record.verdict != StoredVerdict::Intact {
            return Err("its form is that of intact files".to_owned());
        }
        Ok(())
    }

    fn first_bytes(header: &Header) -> Range<u64> {
        header.detail.start..header.bytes.end.min(header.bytes.start + BEGINNING_BYTES)
    }

    fn next(
        header: &Header,
        read: &[u8],
        plan: &mut SamplePlan<'_>,
        notes: &mut Option<RowIndex>,
        more: &mut Reads,
    ) -> Result<(), Unusable> {
        let first = Self::first_bytes(header);
        if read.len() as u64 > first.end - first.start {
            return Ok(());
        }
        let row_index = &read[..header.detail_bytes()];
        let length = header.bytes.end - header.bytes.start;
        let is_of_the_file = |index: &RowIndex| index.file_bytes_min() <= length && index.size() == header.size;
        if check_detail(header, row_index).is_err() {
            return Err(Unusable::NeedsFile);
        }
        let index = match RowIndex::parse(row_index) {
            Ok(index) if is_of_the_file(&index) => notes.insert(index),
            _ => return Err(Unusable::NeedsFile),
        };
        let part = part_of(header, index, plan)?;
        more.add(header.bytes.start + part.start..header.bytes.start + part.end);
        Ok(())
    }

    fn source<'a>(
        header: &Header,
        read: &'a [u8],
        plan: &mut SamplePlan<'_>,
        notes: &'a Option<RowIndex>,
    ) -> Result<Source<'a>, PixelError> {
        let index = notes.as_ref().expect("a sample is rendered after its row index has been read");
        let first = Self::first_bytes(header);
        let (first, rows) = read.split_at((first.end - first.start) as usize);
        let beginning = &first[header.detail_bytes()..];
        let rows_offset = part_of(header, index, plan)?.start;
        let header_bytes = index.header_bytes() as usize;
        let header = beginning.get(..header_bytes).unwrap_or_else(|| &rows[..header_bytes]);
        Ok(Source::Rows(PartialJpeg { index, header, rows, rows_offset }))
    }
}

fn store(file: &[u8], workspace: &mut Workspace<'_>) -> Result<PackedSample, NotStored> {
    if workspace.is_repaired {
        return Err(NotStored::Kept(WhyKept::Repaired));
    }
    let indexed = workspace.preparer.index_rows(file).map_err(|why| NotStored::Kept(WhyKept::NotIndexed(why)))?;
    let bytes = indexed.transcoded.as_deref().unwrap_or(file);
    let first = indexed.row_index.len() + bytes.len().min(BEGINNING_BYTES as usize);
    let gap = gap_before(workspace.out.len(), first);
    reserve(workspace.out, gap + indexed.row_index.len() + bytes.len())?;
    workspace.out.resize(workspace.out.len() + gap, 0);
    workspace.out.extend_from_slice(&indexed.row_index);
    let stored = PackedSample::appended(workspace.out, bytes, StoredForm::Rows, workspace.size)?;
    let stored = stored.with_detail(&indexed.row_index);
    Ok(stored.noting(|note| note.is_rewritten = indexed.transcoded.is_some()))
}

/// Returns the bytes to leave free at `at`, so that the bytes that are read first lie in one block, if they fit: a
/// drive reads whole blocks.
fn gap_before(at: usize, first: usize) -> usize {
    let in_block = at % BLOCK_BYTES;
    if first <= BLOCK_BYTES && in_block + first > BLOCK_BYTES { BLOCK_BYTES - in_block } else { 0 }
}

/// Returns the bytes of the file that are read after its beginning: the rows that a plan needs, and all of a header
/// that is longer than the beginning.
fn part_of(header: &Header, index: &RowIndex, plan: &mut SamplePlan<'_>) -> Result<Range<u64>, PixelError> {
    let rows = plan.bytes_of_jpeg(index)?;
    let beginning = BEGINNING_BYTES.min(header.bytes.end - header.bytes.start);
    Ok(if index.header_bytes() <= beginning { rows } else { 0..rows.end.max(index.header_bytes()) })
}
