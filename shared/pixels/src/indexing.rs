//! What a pack makes of an intact JPEG once, so that its samples are read faster: checkpoints, and one scan where there are several.

use std::fmt;

use crate::error::PixelError;
use crate::jpeg::baseline::{Checkpoints, Decoder};
use crate::jpeg::{self, exif, ffi::Object};
use crate::large;
use crate::source::{Format, JpegInfo, Limits};

/// MCUs between checkpoints, at the least. They are further apart where they would take too many bytes.
const EVERY_MIN: u32 = 4;
/// Checkpoints take at most this part of their file's bytes, or one a row of MCUs.
const SHARE: usize = 64;

/// Pixels of the shortest side of an MCU, and of the longest of a JPEG.
const MCU_SIDE_MIN: u32 = 8;
const JPEG_SIDE_MAX: u32 = 65_535;
/// Nine numbers of at most 5 bytes stand before the first checkpoint.
const HEAD_BYTES_MAX: u64 = 9 * 5;
/// Four numbers of at most 60 bits.
const CHECKPOINT_BYTES_MAX: u64 = 30;

/// Most bytes that checkpoints of a file of so many have, whose longer side has so many pixels.
pub fn checkpoint_bytes_max(file_bytes: u64, side: u32) -> u64 {
    let rows = side.min(JPEG_SIDE_MAX).div_ceil(MCU_SIDE_MIN);
    let one_a_row = HEAD_BYTES_MAX + u64::from(rows) * CHECKPOINT_BYTES_MAX;
    one_a_row.max(file_bytes / SHARE as u64)
}

/// A JPEG that can be entered in between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Indexed {
    /// A file of the same coefficients in one sequential scan, where the source's are spread over several.
    pub transcoded: Option<Vec<u8>>,
    /// Checkpoints of it, else of the source: places from which decoding can go on.
    pub checkpoints: Vec<u8>,
}

/// Why a file has no checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum NotIndexed {
    /// It is no JPEG.
    OtherFormat,
    /// It is arithmetically coded.
    Arithmetic,
    /// It has four components.
    FourComponents,
    /// Its sampling or its stream is none that the decoder for parts takes.
    Unusual,
}

impl fmt::Display for NotIndexed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OtherFormat => "no JPEG",
            Self::Arithmetic => "arithmetic coding",
            Self::FourComponents => "four components",
            Self::Unusual => "unusual sampling or stream",
        })
    }
}

pub(crate) fn index(
    object: &mut Object,
    decoder: &mut Decoder,
    file: &[u8],
    limits: Limits,
) -> Result<Indexed, NotIndexed> {
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
    // A file of the same coefficients must have the same colours and the same way up, too. Markers between its scans, which do not
    // count, would stand in front of the one scan.
    let has_colors = |found: JpegInfo| found.color == info.color && found.sampling == info.sampling;
    let is_alike = |object| {
        describe(object, indexed, limits).is_some_and(has_colors)
            && exif::orientation(indexed) == exif::orientation(file)
    };
    if transcoded.is_some() && !is_alike(object) {
        return Err(NotIndexed::Unusual);
    }
    let checkpoints = bounded(decoder, indexed).ok_or(NotIndexed::Unusual)?;
    Ok(Indexed { transcoded, checkpoints })
}

fn describe(object: &mut Object, file: &[u8], limits: Limits) -> Option<JpegInfo> {
    let opened = jpeg::open(object, file, limits, false).ok()?;
    jpeg::info(&opened, 1).jpeg
}

/// A file of the same coefficients in one scan, Huffman-coded with tables of its own.
fn transcode(object: &mut Object, file: &[u8], limits: Limits) -> Result<Vec<u8>, PixelError> {
    let opened = jpeg::open(object, file, limits, true)?;
    let bytes = opened.header.coefficient_bytes;
    limits.check_memory(bytes)?;
    let _turn = large::turn(bytes);
    opened.into_coefficients()?.rewrite(true)
}

/// Checkpoints as dense as their share of the file allows.
fn bounded(decoder: &mut Decoder, file: &[u8]) -> Option<Vec<u8>> {
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
