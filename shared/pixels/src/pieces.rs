//! Progressive JPEGs in pieces, so that a part of the bytes gives the whole image at a lower fidelity.
//!
//! - `fidelity`: how many groups are read.
//! - `groups`: scan groups, and the group of a scan.
//! - `scans`: cuts the bytes of a progressive file.
//!
//! A *piece* is the bytes of one sample in one scan group. The first piece begins with everything that decoding needs:
//! start marker, JFIF and Adobe markers, tables and frame. All other application markers and comments are in a piece of
//! their own, behind the last group, because no decoder needs them for pixels; the orientation, which they may contain,
//! is kept beside the pieces. End markers are not stored. [`join`] makes files of pieces.
//!
//! Cutting loses no image data: the coefficients of the joined file are compared with the source's. It drops what a
//! file has behind its end marker, and the order of markers.

mod fidelity;
mod groups;
mod scans;

pub use fidelity::Fidelity;
pub use groups::{BadScanGroups, ScanGroups};

use crate::error::PixelError;
use crate::info::{Format, JpegColor, JpegInfo};
use crate::jpeg;
use crate::jpeg::ffi::{Coefficients, Extent, Object, Script};
use crate::large;
use crate::limits::Limits;
use crate::orientation;
use scans::Cut;
use std::fmt;
use zerocopy::IntoBytes;

/// Marker that ends a JPEG.
const END: [u8; 2] = [0xFF, 0xD9];

/// A JPEG, cut into pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// The pieces of all groups, then the markers.
    bytes: Vec<u8>,
    /// Where each group's piece ends in `bytes`.
    ends: Vec<usize>,
    /// EXIF orientation of the source, 1 to 8; 1 is upright.
    pub orientation: u8,
    /// Whether the source was not progressive, and was rewritten from its coefficients.
    pub is_rewritten: bool,
}

impl Pieces {
    /// Returns the number of scan groups.
    pub fn groups(&self) -> usize {
        self.ends.len()
    }

    /// Returns the piece of a group, counted from 0.
    ///
    /// # Panics
    ///
    /// If there is no such group.
    pub fn piece(&self, group: usize) -> &[u8] {
        let start = group.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[group]]
    }

    /// Returns the markers that no decoder needs for pixels.
    pub fn markers(&self) -> &[u8] {
        &self.bytes[self.up_to(self.groups()).len()..]
    }

    /// Returns a file of the first `groups` groups, without the markers.
    ///
    /// # Panics
    ///
    /// If there are fewer groups, or `groups` is 0.
    pub fn prefix(&self, groups: usize) -> Vec<u8> {
        assert!(groups > 0, "a file needs the first group");
        join(self.up_to(groups), &[])
    }

    /// Returns a file of all groups, with the markers in front.
    pub fn whole(&self) -> Vec<u8> {
        join(self.up_to(self.groups()), self.markers())
    }

    fn up_to(&self, groups: usize) -> &[u8] {
        &self.bytes[..self.ends[groups - 1]]
    }
}

/// Joins the pieces of the first groups, which follow each other in `groups`, to a file. Puts `markers` behind the
/// start marker and the JFIF and Adobe markers. Takes any bytes: damaged pieces give a damaged file.
pub fn join(groups: &[u8], markers: &[u8]) -> Vec<u8> {
    let (head, rest) = groups.split_at(if markers.is_empty() { 0 } else { end_of_color_markers(groups) });
    [head, markers, rest, &END].concat()
}

/// Bytes that [`join_in_place`] adds to the pieces.
pub const JOINING_BYTES: usize = END.len();

/// Joins pieces to a file, as [`join`] does, in the memory where they lie: `groups` bytes of the first groups, then
/// `markers` bytes of markers, then [`JOINING_BYTES`] of room. Returns the file's length.
///
/// # Panics
///
/// If the memory is too short.
pub fn join_in_place(memory: &mut [u8], groups: usize, markers: usize) -> usize {
    let (end, head) = (groups + markers, end_of_color_markers(&memory[..groups]));
    memory[head..end].rotate_right(markers);
    memory[end..end + JOINING_BYTES].copy_from_slice(&END);
    end + JOINING_BYTES
}

/// Returns where the segments APP0 and APP14 end that follow the start marker.
fn end_of_color_markers(bytes: &[u8]) -> usize {
    let mut at = 2;
    while let Some(&[0xFF, 0xE0 | 0xEE, high, low]) = bytes.get(at..at + 4) {
        at += 2 + usize::from(u16::from_be_bytes([high, low]));
    }
    at.min(bytes.len())
}

/// Reason why a file is not cut into pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum NotCut {
    /// The file is not a JPEG.
    OtherFormat,
    /// The file is arithmetically coded.
    Arithmetic,
    /// The file does not decode, decodes only with warnings, or exceeds a limit.
    NotDecoded,
    /// The file has a sampling or a stream that cannot be cut without a change of the image.
    Unusual,
    /// The system refuses memory, which says nothing about the file.
    NoMemory,
}

impl fmt::Display for NotCut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OtherFormat => "no JPEG",
            Self::Arithmetic => "arithmetic coding",
            Self::NotDecoded => "does not decode without a warning",
            Self::Unusual => "unusual sampling or stream",
            Self::NoMemory => "no memory",
        })
    }
}

impl From<PixelError> for NotCut {
    fn from(error: PixelError) -> Self {
        if error.is_of_the_image() { Self::NotDecoded } else { Self::NoMemory }
    }
}

/// Cuts a file into pieces: a progressive one as it is, any other after rewriting it from its coefficients.
pub(crate) fn cut(object: &mut Object, file: &[u8], groups: &ScanGroups, limits: Limits) -> Result<Pieces, NotCut> {
    if Format::of(file) != Ok(Format::Jpeg) {
        return Err(NotCut::OtherFormat);
    }
    let info = describe(object, file, limits)?;
    if info.arithmetic {
        return Err(NotCut::Arithmetic);
    }
    let (digest, rewritten) = read_whole(object, file, limits, !info.progressive)?;
    let progressive = rewritten.as_deref().unwrap_or(file);
    let Cut { pieces, markers } =
        scans::cut(progressive, groups, info.color == JpegColor::YCbCr).ok_or(NotCut::Unusual)?;
    let ends = pieces.iter().scan(0, |end, piece| {
        *end += piece.len();
        Some(*end)
    });
    let pieces = Pieces {
        ends: ends.collect(),
        bytes: [pieces.concat(), markers].concat(),
        orientation: orientation::of(file),
        is_rewritten: rewritten.is_some(),
    };
    // Markers between the source's scans have no effect there, but in the joined file they precede all scans.
    let whole = pieces.whole();
    let joined = describe(object, &whole, limits)?;
    let looks_alike = joined.color == info.color && joined.sampling == info.sampling;
    if !looks_alike || orientation::of(&whole) != pieces.orientation {
        return Err(NotCut::Unusual);
    }
    match read_whole(object, &whole, limits, false)?.0 == digest {
        true => Ok(pieces),
        false => Err(NotCut::Unusual),
    }
}

fn describe(object: &mut Object, file: &[u8], limits: Limits) -> Result<JpegInfo, NotCut> {
    let opened = jpeg::open(object, file, limits, false)?;
    jpeg::info(&opened, 1).jpeg.ok_or(NotCut::OtherFormat)
}

/// Reads all coefficients and returns their digest and, if asked to, a progressive file of them.
fn read_whole(
    object: &mut Object,
    file: &[u8],
    limits: Limits,
    is_rewritten: bool,
) -> Result<(blake3::Hash, Option<Vec<u8>>), NotCut> {
    let opened = jpeg::open(object, file, limits, true)?;
    let bytes = opened.header.coefficient_bytes;
    limits.check_memory(bytes)?;
    let _turn = large::turn(bytes);
    let mut coefficients = opened.into_coefficients(Extent::Whole)?;
    let digest = digest_of(&mut coefficients)?;
    if coefficients.opened.warnings() > 0 {
        return Err(NotCut::NotDecoded);
    }
    let rewritten = is_rewritten.then(|| coefficients.rewrite(Script::Progressive)).transpose()?;
    Ok((digest, rewritten))
}

/// Returns a digest of the image's size, and of all coefficients and quantisation tables.
fn digest_of(coefficients: &mut Coefficients<'_>) -> Result<blake3::Hash, PixelError> {
    let header = coefficients.opened.header;
    let mut hasher = blake3::Hasher::new();
    hasher.update([header.width, header.height, header.components].as_bytes());
    for component in 0..header.components.min(4) as usize {
        for row in 0..header.blocks_high[component] {
            let row = coefficients.block_row(component, row)?;
            hasher.update(row.quant.map_or(&[][..], |quant| quant.as_bytes()));
            hasher.update(row.blocks.as_bytes());
        }
    }
    Ok(hasher.finalize())
}

#[cfg(test)]
mod tests;
