//! The bytes of one patch, and how its pixels come back from them.

use crate::bits::{Fields, MAX_WIDTH};
use crate::color::Color;
use crate::planes::{Plane, Row};
use crate::predict::{self, Predictor};

/// Columns that share a width.
pub const GROUP: usize = 8;
/// Rows that share a width.
pub const ROWS: usize = 2;
/// Bytes before the widths: three predictors and the color transform.
pub const HEAD: usize = 4;
/// Each patch has a multiple of this many bytes.
pub const ALIGNMENT: usize = 4;
/// How many bytes must follow the bytes of a patch in memory, so that a decoder may load whole vectors.
pub const SLACK: usize = 72;

/// What the image's header and the patch's place in the image say about a patch.
#[derive(Clone, Copy, Debug)]
pub struct PatchShape {
    /// Columns of pixels.
    pub width: usize,
    /// Rows of pixels.
    pub height: usize,
    /// The side of a patch that no edge cuts: 32 or 64.
    pub side: usize,
    /// Planes: 1 or 3.
    pub channels: usize,
}

impl PatchShape {
    /// Returns the number of pairs of rows. The last pair of an odd height has one row.
    pub fn pairs(&self) -> usize {
        self.height.div_ceil(ROWS)
    }

    /// Returns the bytes that the widths of one pair of rows take, at four bits each.
    pub fn pair_widths(&self) -> usize {
        self.side / GROUP / 2
    }

    /// Returns the bytes that the widths of one plane take.
    pub fn plane_widths(&self) -> usize {
        self.pairs() * self.pair_widths()
    }

    /// Returns the bytes of a patch whose widths are all 0.
    pub fn least_bytes(&self) -> usize {
        (HEAD + self.channels * self.plane_widths()).next_multiple_of(ALIGNMENT)
    }

    /// Returns the bytes of a patch whose widths are all 8.
    pub fn most_bytes(&self) -> usize {
        let fixed = HEAD + self.channels * self.plane_widths();
        (fixed + self.channels * self.height * self.side).next_multiple_of(ALIGNMENT)
    }
}

/// The parts of a patch's bytes.
pub struct Parts<'a> {
    pub color: Color,
    pub planes: [PlaneParts<'a>; 3],
}

/// The parts of one plane. A gray patch uses the first.
pub struct PlaneParts<'a> {
    pub predictor: Predictor,
    /// The widths, two in each byte.
    pub widths: &'a [u8],
    /// The fields, and whatever follows them in memory: at least `SLACK` bytes.
    pub fields: &'a [u8],
}

impl<'a> Parts<'a> {
    /// Finds the parts of the patch that the first `length` bytes of `bytes` are. At least `SLACK` bytes follow them.
    ///
    /// # Errors
    ///
    /// Says what is wrong with the patch. A result is safe to decode: the fields have the bytes that the widths need.
    pub fn find(bytes: &'a [u8], length: usize, shape: &PatchShape) -> Result<Self, &'static str> {
        assert!(bytes.len() >= length + SLACK && length >= shape.least_bytes(), "the caller has checked the length");
        let (head, rest) = bytes.split_at(HEAD);
        let gray = shape.channels == 1;
        if gray && head[1..] != [0; 3] {
            return Err("a gray patch has the head of an RGB patch");
        }
        let color = Color::of_number(head[3]).ok_or("its color transform is unknown")?;
        let mut fields_begin = HEAD + shape.channels * shape.plane_widths();
        let mut planes = [const { PlaneParts { predictor: Predictor::Top, widths: &[], fields: &[] } }; 3];
        for (number, plane) in planes.iter_mut().enumerate().take(shape.channels) {
            let widths = &rest[number * shape.plane_widths()..][..shape.plane_widths()];
            let fields = fields_bytes(widths, shape).ok_or("a width exceeds eight bits")?;
            *plane = PlaneParts {
                predictor: Predictor::of_number(head[number]).ok_or("its predictor is unknown")?,
                widths,
                fields: bytes.get(fields_begin..).filter(|rest| rest.len() >= fields + SLACK).ok_or(TOO_LONG)?,
            };
            fields_begin += fields;
        }
        if fields_begin.next_multiple_of(ALIGNMENT) != length {
            return Err(TOO_LONG);
        }
        Ok(Self { color, planes })
    }
}

const TOO_LONG: &str = "its length differs from what its widths say";

/// Returns the bytes of a plane's fields, or nothing if a width is too large.
fn fields_bytes(widths: &[u8], shape: &PatchShape) -> Option<usize> {
    let (pairs, single) = widths.split_at(shape.height / ROWS * shape.pair_widths());
    Some(ROWS * sum(pairs)? + sum(single)?)
}

/// Returns the sum of widths, or nothing if one is too large.
fn sum(widths: &[u8]) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const FOUR_BITS: u64 = 0x0F * ONES;
    const HIGHEST_BITS: u64 = 0x80 * ONES;
    // Added to a width above 8, this sets the highest bit of its byte.
    const LIMIT: u64 = (0x7F - MAX_WIDTH as u64) * ONES;
    let (words, rest) = widths.as_chunks();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let (mut sum, mut too_large) = (0, 0);
    for word in words.iter().chain([&last]) {
        let word = u64::from_le_bytes(*word);
        let (even, odd) = (word & FOUR_BITS, word >> 4 & FOUR_BITS);
        // The highest byte of a product with ones is the sum of the bytes.
        sum += (even + odd).wrapping_mul(ONES) >> 56;
        too_large |= (even + LIMIT) | (odd + LIMIT);
    }
    (too_large & HIGHEST_BITS == 0).then_some(sum as usize)
}

/// Decodes the first `rows` rows of a plane.
#[inline(always)]
pub fn decode_plane<F: Fields>(parts: &PlaneParts<'_>, shape: &PatchShape, rows: usize, plane: &mut Plane) {
    let last = shape.width - 1;
    let mut fields = parts.fields;
    let mut above = None;
    let widths = parts.widths.chunks_exact(shape.pair_widths());
    for (pair, widths) in plane[..rows].chunks_mut(ROWS).zip(widths) {
        for row in pair {
            let differences = unpack::<F>(widths, &mut fields);
            *row = match above {
                None => predict::first_row(&differences),
                Some(above) => predict::row(&differences, &parts.predictor.below(&above)),
            };
            above = Some(predict::with_edges(row, last));
        }
    }
}

/// Takes the codes of one row from `fields`.
#[inline(always)]
fn unpack<F: Fields>(widths: &[u8], fields: &mut &[u8]) -> Row {
    let mut codes = [0; 64];
    for (codes, &two) in codes.chunks_exact_mut(2 * GROUP).zip(widths) {
        for (codes, width) in codes.chunks_exact_mut(GROUP).zip([two & 15, two >> 4]) {
            let packed = u64::from_le_bytes(fields[..8].try_into().expect("eight bytes"));
            codes.copy_from_slice(&F::spread(packed, width).to_le_bytes());
            *fields = &fields[usize::from(width)..];
        }
    }
    codes
}
