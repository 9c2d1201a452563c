//! Preparation of an intact JPEG by `ddlp pack`, so that a crop costs less later: checkpoints or a row index, and one
//! scan in place of several.

use std::fmt;

use crate::error::PixelError;
use crate::info::{Format, JpegInfo};
use crate::jpeg;
use crate::jpeg::baseline::{BaselineDecoder, Checkpoints};
use crate::jpeg::ffi::{Extent, Object, Script};
use crate::large;
use crate::limits::Limits;
use crate::orientation;
use crate::row_index::RowIndex;

/// Smallest number of MCUs between checkpoints. The number grows until the checkpoints are small enough.
const EVERY_MIN: u32 = 4;
/// A file's checkpoints take at most its bytes divided by this number, unless there is only one for each row of MCUs.
/// A file whose row index would take more has no row index.
const SHARE: usize = 64;

/// Pixels of the shortest side of an MCU, and of the longest side of a JPEG.
const MCU_SIDE_MIN: u32 = 8;
const JPEG_SIDE_MAX: u32 = 65_535;
/// Bytes before the first checkpoint: nine numbers of at most 5 bytes.
const HEAD_BYTES_MAX: u64 = 9 * 5;
/// Bytes of one checkpoint: four numbers of at most 60 bits.
const CHECKPOINT_BYTES_MAX: u64 = 30;

/// Returns the largest number of bytes that a file's checkpoints take, given the file's bytes and its longer side in
/// pixels.
pub fn checkpoint_bytes_max(file_bytes: u64, side: u32) -> u64 {
    let rows = side.min(JPEG_SIDE_MAX).div_ceil(MCU_SIDE_MIN);
    let one_a_row = HEAD_BYTES_MAX + u64::from(rows) * CHECKPOINT_BYTES_MAX;
    one_a_row.max(file_bytes / SHARE as u64)
}

/// Returns the most bytes that the row index of a file has, given the file's bytes.
pub fn row_index_bytes_max(file_bytes: u64) -> u64 {
    file_bytes / SHARE as u64
}

/// A JPEG with checkpoints, at which decoding can start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexedJpeg {
    /// A file with the same coefficients in one sequential scan, if the source spreads them over several.
    pub transcoded: Option<Vec<u8>>,
    /// Checkpoints of `transcoded`, or of the source if that is `None`.
    pub checkpoints: Vec<u8>,
}

/// A JPEG with a row index; a crop needs only some of its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexedRows {
    /// A file with the same coefficients in one sequential scan, if the source spreads them over several.
    pub transcoded: Option<Vec<u8>>,
    /// Row index of `transcoded`, or of the source if that is `None`. [`RowIndex::parse`] reads it.
    pub row_index: Vec<u8>,
}

/// Reason why a file has no checkpoints or no row index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum NotIndexed {
    /// The file is not a JPEG.
    OtherFormat,
    /// The file is arithmetically coded.
    Arithmetic,
    /// The file has four components.
    FourComponents,
    /// The file has a sampling or a stream that our decoder does not take.
    Unusual,
    /// The file is so small that a row index would take too large a share of its bytes.
    Small,
}

impl fmt::Display for NotIndexed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OtherFormat => "no JPEG",
            Self::Arithmetic => "arithmetic coding",
            Self::FourComponents => "four components",
            Self::Unusual => "unusual sampling or stream",
            Self::Small => "too small to be read in part",
        })
    }
}

pub(crate) fn index(
    object: &mut Object,
    decoder: &mut BaselineDecoder,
    file: &[u8],
    limits: Limits,
) -> Result<IndexedJpeg, NotIndexed> {
    let transcoded = in_one_scan(object, file, limits)?;
    let checkpoints = bounded(decoder, transcoded.as_deref().unwrap_or(file)).ok_or(NotIndexed::Unusual)?;
    Ok(IndexedJpeg { transcoded, checkpoints })
}

pub(crate) fn index_rows(
    object: &mut Object,
    decoder: &mut BaselineDecoder,
    band: &mut Vec<u8>,
    file: &[u8],
    limits: Limits,
) -> Result<IndexedRows, NotIndexed> {
    let transcoded = in_one_scan(object, file, limits)?;
    let indexed = transcoded.as_deref().unwrap_or(file);
    let row_index = RowIndex::of(decoder, band, indexed).map_err(|_| NotIndexed::Unusual)?.to_bytes();
    if row_index.len() as u64 > row_index_bytes_max(indexed.len() as u64) {
        return Err(NotIndexed::Small);
    }
    Ok(IndexedRows { transcoded, row_index })
}

/// Returns a file with the same coefficients in one sequential scan, or `None` if the file itself is one.
fn in_one_scan(object: &mut Object, file: &[u8], limits: Limits) -> Result<Option<Vec<u8>>, NotIndexed> {
    if Format::of(file) != Ok(Format::Jpeg) {
        return Err(NotIndexed::OtherFormat);
    }
    let info = describe(object, file, limits).ok_or(NotIndexed::Unusual)?;
    if info.arithmetic {
        return Err(NotIndexed::Arithmetic);
    }
    if info.sampling.len() > 3 {
        return Err(NotIndexed::FourComponents);
    }
    let transcoded = match info.progressive || info.multiple_scans {
        true => Some(transcode(object, file, limits).map_err(|_| NotIndexed::Unusual)?),
        false => None,
    };
    let indexed = transcoded.as_deref().unwrap_or(file);
    // The file with the same coefficients must also have the same colours and the same orientation. Markers between the
    // source's scans have no effect there, but in the new file they precede its only scan.
    let has_colors = |found: JpegInfo| found.color == info.color && found.sampling == info.sampling;
    let is_alike = |object| {
        describe(object, indexed, limits).is_some_and(has_colors) && orientation::of(indexed) == orientation::of(file)
    };
    if transcoded.is_some() && !is_alike(object) {
        return Err(NotIndexed::Unusual);
    }
    Ok(transcoded)
}

fn describe(object: &mut Object, file: &[u8], limits: Limits) -> Option<JpegInfo> {
    let opened = jpeg::open(object, file, limits, false).ok()?;
    jpeg::info(&opened, 1).jpeg
}

/// Returns a file with the same coefficients in one scan, Huffman-coded with tables of its own.
fn transcode(object: &mut Object, file: &[u8], limits: Limits) -> Result<Vec<u8>, PixelError> {
    let opened = jpeg::open(object, file, limits, true)?;
    let bytes = opened.header.coefficient_bytes;
    limits.check_memory(bytes)?;
    let _turn = large::turn(bytes);
    opened.into_coefficients(Extent::Whole)?.rewrite(Script::Sequential)
}

/// Returns checkpoints as dense as their share of the file allows.
fn bounded(decoder: &mut BaselineDecoder, file: &[u8]) -> Option<Vec<u8>> {
    let mut checkpoints = Checkpoints::make(decoder, file, EVERY_MIN).ok()?;
    loop {
        let bytes = checkpoints.to_bytes();
        if bytes.len() <= file.len() / SHARE || !checkpoints.thin_out() {
            return Some(bytes);
        }
    }
}

#[cfg(test)]
mod tests;
