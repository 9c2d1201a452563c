//! JPEGs of which only some rows are in memory: which bytes a crop needs, and the crop from these bytes.

use std::fmt;
use std::ops::Range;

use crate::draw::Draw;
use crate::error::PixelError;
use crate::jpeg::baseline::{BaselineRows, Coded, Decoder};
use crate::limits::Limits;
use crate::orient::{stored_rect, upright_size};
use crate::passes::Plan;
use crate::pipeline::Pipeline;
use crate::preparer::Prepared;
use crate::raw::ReadAt;
use crate::row_index::RowIndex;
use crate::rows::Rows;

/// A JPEG that lies in a file together with its row index. The beginning of the JPEG is in memory.
#[derive(Clone, Copy)]
pub struct JpegInRows<'a> {
    /// Bytes of the JPEG's row index, which [`RowIndex::parse`] reads. If they are damaged, the JPEG is read whole.
    pub row_index: &'a [u8],
    /// The JPEG's first bytes. If its header is longer, the rest of the header is read as well.
    pub beginning: &'a [u8],
    /// File that holds the JPEG.
    pub file: &'a dyn ReadAt,
    /// Offset of the JPEG's first byte in the file.
    pub offset: u64,
    /// Bytes of the JPEG.
    pub length: u32,
    /// CRC32C of the JPEG, which is checked if the JPEG is read whole.
    pub crc32c: u32,
}

impl JpegInRows<'_> {
    /// Returns the EXIF orientation that the row index has; 1 if the index is damaged.
    pub(crate) fn orientation(&self) -> u8 {
        RowIndex::parse(self.row_index).map_or(1, |index| index.orientation())
    }

    /// Replaces the content of `buf` by these bytes of the JPEG.
    pub(crate) fn read(&self, range: Range<u64>, buf: &mut Vec<u8>, limits: Limits) -> Result<(), PixelError> {
        let bytes = limits.resize(buf, range.end - range.start)?;
        self.file
            .read_at(self.offset + range.start, bytes)
            .map_err(|error| PixelError::Io { message: error.to_string(), os_error: error.raw_os_error() })
    }

    /// Replaces the content of `buf` by the whole JPEG, and checks its checksum.
    pub(crate) fn read_whole(&self, buf: &mut Vec<u8>, limits: Limits) -> Result<(), PixelError> {
        self.read(0..self.length.into(), buf, limits)?;
        let (stored, computed) = (self.crc32c, crc32c::crc32c(buf));
        if stored == computed {
            return Ok(());
        }
        let message = format!("the file has the checksum {computed:08x}, {stored:08x} is stored");
        Err(PixelError::Checksum { message })
    }
}

impl fmt::Debug for JpegInRows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JpegInRows {{ {} bytes at byte {} }}", self.length, self.offset)
    }
}

/// A part of an intact JPEG: its header, and the bytes that a crop needs.
#[derive(Clone, Copy, Debug)]
pub struct PartialJpeg<'a> {
    /// The file's row index.
    pub index: &'a RowIndex,
    /// The file's first [`header_bytes`](RowIndex::header_bytes).
    pub header: &'a [u8],
    /// Bytes of the file that contain those of [`ReadPlanner::reads`].
    pub rows: &'a [u8],
    /// Offset in the file of the first of `rows`.
    pub rows_offset: u64,
}

/// Result of rendering a part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Rendered {
    /// The pixels are those of the whole file.
    Done(Prepared),
    /// The part is damaged, or not that of the index: only the whole file can give the pixels, or the reason why it
    /// has none.
    NeedsFile,
}

/// Planner of the bytes that crops need. Does not read anything, and reuses its memory.
#[derive(Default)]
pub struct ReadPlanner {
    plan: Plan,
}

impl ReadPlanner {
    /// Returns the bytes of the file that a pipeline needs for this draw besides the header; an empty range if it needs
    /// none.
    ///
    /// # Errors
    ///
    /// If the pipeline cannot take an image of this size. Preparing the whole file fails in the same way.
    ///
    /// # Panics
    ///
    /// If the pipeline is invalid.
    pub fn reads(&mut self, index: &RowIndex, pipeline: &Pipeline, draw: Draw) -> Result<Range<u64>, PixelError> {
        let nothing = index.header_bytes()..index.header_bytes();
        Ok(self.rows(index, pipeline, draw)?.map_or(nothing, |rows| index.in_file(rows)))
    }

    /// Returns the rows of MCUs that a pipeline needs for this draw, if it needs any.
    pub(crate) fn rows(
        &mut self,
        index: &RowIndex,
        pipeline: &Pipeline,
        draw: Draw,
    ) -> Result<Option<Range<u32>>, PixelError> {
        let orientation = orientation_of(index, pipeline);
        let size = upright_size(index.size(), orientation);
        self.plan.draw(pipeline, size, draw)?;
        Ok(self.plan.reads(size).map(|rect| index.rows_of(stored_rect(rect, index.size(), orientation))))
    }
}

impl<'a> PartialJpeg<'a> {
    /// Opens the rows of MCUs that a pipeline needs. Returns `None` if they are not there or not those of the index.
    pub(crate) fn open(
        &self,
        rows: Option<Range<u32>>,
        decoder: &'a mut Decoder,
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

    /// Returns the orientation that a pipeline turns upright.
    pub(crate) fn orientation(&self, pipeline: &Pipeline) -> u8 {
        orientation_of(self.index, pipeline)
    }
}

fn orientation_of(index: &RowIndex, pipeline: &Pipeline) -> u8 {
    if pipeline.exif_orientation { index.orientation() } else { 1 }
}

#[cfg(test)]
mod tests;
