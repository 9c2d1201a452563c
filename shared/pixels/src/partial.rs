//! A JPEG that has only some of its rows in memory.

use std::ops::Range;

use crate::jpeg::baseline::{BaselineDecoder, BaselineRows, Coded};
use crate::row_index::RowIndex;
use crate::rows::ImageRows;

/// A part of an intact JPEG: its header, and the bytes that a crop needs.
#[derive(Clone, Copy, Debug)]
pub struct PartialJpeg<'a> {
    /// The file's row index.
    pub index: &'a RowIndex,
    /// The file's first [`header_bytes`](RowIndex::header_bytes).
    pub header: &'a [u8],
    /// Bytes of the file that contain those of [`SamplePlan::bytes_of_jpeg`](crate::SamplePlan::bytes_of_jpeg).
    pub rows: &'a [u8],
    /// Offset in the file of the first of `rows`.
    pub rows_offset: u64,
}

impl<'a> PartialJpeg<'a> {
    /// Opens the rows of MCUs that a plan needs. Returns `None` if the rows are not there, or do not fit the index.
    pub(crate) fn open(
        &self,
        rows: Option<Range<u32>>,
        decoder: &'a mut BaselineDecoder,
        band: &'a mut Vec<u8>,
    ) -> Option<BaselineRows<'a>> {
        let Self { index, header, rows: bytes, rows_offset } = *self;
        let coded = match rows {
            Some(rows) => index.checked(rows, bytes, rows_offset)?,
            None => Coded { bytes: &[], part_from: Some(0) },
        };
        if !index.has_header(header) {
            return None;
        }
        let rows = decoder.open_part(header, coded, index.checkpoints(), band).ok()?;
        (rows.size() == index.size()).then_some(rows)
    }
}

#[cfg(test)]
mod tests;
