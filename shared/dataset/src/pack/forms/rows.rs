//! Form 4: a JPEG with an index of its rows, so that a crop reads only the rows of MCUs that it needs, and checks them.
//!
//! The row index lies in front of the file: one read gets the index and the file's header. If the index is damaged, the
//! file is read whole, which gives the same pixels.

use super::{Damage, Form, NotStored, PackOption, check_detail};
use crate::pack::StoredForm;
use crate::pack::record::{IndexRecord, StoredVerdict};
use crate::pack::report::WhyKept;
use crate::pack::store::Store;
use crate::pack::storing::{StoredSample, Workspace, reserve};
use ddlp_pixels::{JpegInRows, Source, row_index_bytes_max};
use std::ops::Range;

/// Bytes of the file that are read together with its row index. They contain the header of most files.
const BEGINNING_BYTES: u32 = 1024;

pub(super) struct Rows;

impl Form for Rows {
    const OPTION: Option<PackOption> =
        Some(PackOption::Jpeg("with an index of their rows, so that a crop reads only its rows"));
    const DETAIL: Option<&'static str> = Some("row index");
    const REWRITTEN: &'static str = "rewritten into one scan and indexed";
    const IS_FILE: bool = true;

    fn detail_offset(record: &IndexRecord) -> u64 {
        record.offset.saturating_sub(record.detail_length.into())
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

    fn opening(record: &IndexRecord) -> Range<u64> {
        let beginning = record.length.min(BEGINNING_BYTES);
        record.detail().start..record.offset + u64::from(beginning)
    }

    fn check_opening(record: &IndexRecord, read: &[u8]) -> Result<(), Damage> {
        check_detail(record, &read[..record.detail_length as usize])
    }

    fn open<'a>(record: &IndexRecord, read: &'a [u8], file: &'a Store) -> Source<'a> {
        let (row_index, beginning) = read.split_at(record.detail_length as usize);
        let &IndexRecord { offset, length, crc32c, .. } = record;
        Source::Rows(JpegInRows { row_index, beginning, file, offset, length, crc32c })
    }

    fn store(source: Source<'_>, workspace: &mut Workspace<'_>) -> Result<StoredSample, NotStored> {
        let Source::Encoded(file) = source else { return Err(NotStored::Kept(WhyKept::AskedFor)) };
        if workspace.is_repaired {
            return Err(NotStored::Kept(WhyKept::Repaired));
        }
        let indexed = workspace.preparer.index_rows(file).map_err(|why| NotStored::Kept(WhyKept::NotIndexed(why)))?;
        let bytes = indexed.transcoded.as_deref().unwrap_or(file);
        reserve(workspace.out, indexed.row_index.len() + bytes.len())?;
        workspace.out.extend_from_slice(&indexed.row_index);
        let stored = StoredSample::appended(workspace.out, bytes, StoredForm::Rows, workspace.size)?;
        let stored = stored.with_detail(&indexed.row_index);
        Ok(stored.noting(|note| note.is_rewritten = indexed.transcoded.is_some()))
    }
}
