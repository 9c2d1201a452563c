//! Decoding and encoding with AVX2 and BMI2: a row of 64 columns is two vectors, and one instruction moves the eight
//! fields of a group.
#![allow(unsafe_code)]

use std::arch::x86_64::*;
use std::ops::Range;

use crate::bits::Shifts;
use crate::color::{self, Color, NEUTRAL};
use crate::encode;
use crate::level::Avx2;
use crate::patch::{PatchShape, PlaneParts, ROWS, SLACK};
use crate::planes::{Plane, Planes, Row};
use crate::predict::{BEFORE_FIRST, Predictor};

/// Decodes the first `rows` rows of a plane.
pub fn decode_plane(_: Avx2, parts: &PlaneParts<'_>, shape: &PatchShape, rows: usize, plane: &mut Plane) {
    let decode = match parts.predictor {
        Predictor::Top => decode_by::<{ Predictor::Top as u8 }>,
        Predictor::TopLeft => decode_by::<{ Predictor::TopLeft as u8 }>,
        Predictor::TopRight => decode_by::<{ Predictor::TopRight as u8 }>,
        Predictor::LeftMean => decode_by::<{ Predictor::LeftMean as u8 }>,
        Predictor::RightMean => decode_by::<{ Predictor::RightMean as u8 }>,
        Predictor::OuterMean => decode_by::<{ Predictor::OuterMean as u8 }>,
        Predictor::Smooth => decode_by::<{ Predictor::Smooth as u8 }>,
    };
    // SAFETY: the proof says that the processor has the instructions.
    unsafe { decode(parts, shape, rows, plane) }
}

/// Writes columns and rows of an RGB patch as pixels, whose rows are `stride` bytes apart.
pub fn write_rgb(
    _: Avx2,
    planes: &Planes,
    color: Color,
    columns: Range<usize>,
    rows: Range<usize>,
    target: &mut [u8],
    stride: usize,
) {
    // SAFETY: the proof says that the processor has the instructions.
    unsafe { write_rows(planes, color, columns, rows, target, stride) }
}

/// Asks the processor to bring bytes into its cache of the second level.
pub fn prefetch(_: Avx2, bytes: &[u8]) {
    for line in bytes.chunks(64) {
        // SAFETY: each processor with AVX2 has the instruction, and the pointer is that of the line.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast()) }
    }
}

/// Encodes a patch.
pub fn encode_patch(_: Avx2, planes: &Planes, shape: &PatchShape) -> Vec<u8> {
    #[target_feature(enable = "avx2,bmi2")]
    fn encode(planes: &Planes, shape: &PatchShape) -> Vec<u8> {
        encode::patch::encode::<Shifts>(planes, shape)
    }
    // SAFETY: the proof says that the processor has the instructions.
    unsafe { encode(planes, shape) }
}

#[target_feature(enable = "avx2,bmi2")]
fn decode_by<const PREDICTOR: u8>(parts: &PlaneParts<'_>, shape: &PatchShape, rows: usize, plane: &mut Plane) {
    // Codes first: to take the fields of a row in the loop below would make each row wait for its stores.
    unpack(parts, shape, rows, plane);
    let Some((first, rest)) = plane[..rows].split_first_mut() else { return };
    let neighbours = Neighbours::new(shape.width - 1);
    let mut above = first_row(differences(first));
    store(first, above);
    for row in rest {
        let prediction = neighbours.predict::<PREDICTOR>(above);
        let differences = differences(row);
        above = [_mm256_add_epi8(prediction[0], differences[0]), _mm256_add_epi8(prediction[1], differences[1])];
        store(row, above);
    }
}

/// Writes the codes of a plane to `plane`.
#[inline]
#[target_feature(enable = "avx2,bmi2")]
fn unpack(parts: &PlaneParts<'_>, shape: &PatchShape, rows: usize, plane: &mut Plane) {
    let mut fields = parts.fields;
    let widths = parts.widths.chunks_exact(shape.pair_widths());
    for (pair, widths) in plane[..rows].chunks_mut(ROWS).zip(widths) {
        let groups = Groups::new(widths);
        for row in pair {
            let loaded: &[u8; SLACK] = fields.first_chunk().expect("slack follows the fields");
            let groups_of_row = row.as_chunks_mut().0.iter_mut().zip(groups.begins).zip(&groups.masks);
            for ((codes, begin), &mask) in groups_of_row {
                // The groups before take at most 56 bytes; that they take less than 64 spares a check.
                let packed = loaded[usize::from(begin % 64)..].first_chunk().expect("eight bytes");
                *codes = _pdep_u64(u64::from_le_bytes(*packed), mask).to_le_bytes();
            }
            fields = &fields[groups.length..];
        }
    }
}

/// Where the fields of a row's groups lie.
struct Groups {
    /// The byte at which each group begins.
    begins: [u8; 8],
    /// For each group, eight bytes, each with a mask of `width` ones.
    masks: [u64; 8],
    /// Bytes of one row.
    length: usize,
}

impl Groups {
    #[inline]
    #[target_feature(enable = "avx2,bmi2")]
    fn new(widths: &[u8]) -> Self {
        let packed = match *widths {
            [a, b, c, d] => u32::from_le_bytes([a, b, c, d]),
            [a, b] => u16::from_le_bytes([a, b]).into(),
            _ => unreachable!("the widths of a pair of rows take two or four bytes"),
        };
        let widths = _pdep_u64(packed.into(), 0x0F * ONES);
        // Byte i of this product is the sum of the widths up to that of group i; no sum exceeds 64.
        let ends = widths.wrapping_mul(ONES);
        let mut masks = [0; 8];
        for (mask, width) in masks.iter_mut().zip(widths.to_le_bytes()) {
            *mask = MASKS[usize::from(width % 16)];
        }
        Self { begins: (ends << 8).to_le_bytes(), masks, length: (ends >> 56) as usize }
    }
}

/// A word whose bytes are 1.
const ONES: u64 = 0x0101_0101_0101_0101;

/// For each width, eight bytes, each with a mask of `width` ones. Widths above 8 do not occur; that the table has them
/// spares a check.
const MASKS: [u64; 16] = {
    let mut masks = [0; 16];
    let mut width = 0;
    while width <= 8 {
        masks[width] = ((1 << width) - 1) * ONES;
        width += 1;
    }
    masks
};

/// Returns the first row of a patch: each pixel is the sum of the differences up to its column.
#[inline]
#[target_feature(enable = "avx2,bmi2")]
fn first_row(differences: Halves) -> Halves {
    let sums = [sums_in_lanes(differences[0]), sums_in_lanes(differences[1])];
    // What each lane of 16 columns adds to those after it.
    let ends = _mm256_set1_epi8(15);
    let lanes = [_mm256_shuffle_epi8(sums[0], ends), _mm256_shuffle_epi8(sums[1], ends)];
    let start = _mm256_set1_epi8(BEFORE_FIRST as i8);
    let both = _mm256_add_epi8(start, _mm256_add_epi8(lanes[0], _mm256_permute2x128_si256::<0x01>(lanes[0], lanes[0])));
    let before = [
        _mm256_add_epi8(start, _mm256_permute2x128_si256::<0x08>(lanes[0], lanes[0])),
        _mm256_add_epi8(both, _mm256_permute2x128_si256::<0x08>(lanes[1], lanes[1])),
    ];
    [_mm256_add_epi8(sums[0], before[0]), _mm256_add_epi8(sums[1], before[1])]
}

/// Returns the sums of the bytes up to each byte, in each lane of 16 bytes.
#[inline]
#[target_feature(enable = "avx2,bmi2")]
fn sums_in_lanes(bytes: __m256i) -> __m256i {
    let sums = _mm256_add_epi8(bytes, _mm256_slli_si256::<1>(bytes));
    let sums = _mm256_add_epi8(sums, _mm256_slli_si256::<2>(sums));
    let sums = _mm256_add_epi8(sums, _mm256_slli_si256::<4>(sums));
    _mm256_add_epi8(sums, _mm256_slli_si256::<8>(sums))
}

/// The two halves of a row.
type Halves = [__m256i; 2];

/// Returns the differences that codes stand for.
#[inline]
#[target_feature(enable = "avx2,bmi2")]
fn signed(codes: __m256i) -> __m256i {
    let magnitudes = _mm256_and_si256(_mm256_srli_epi16::<1>(codes), _mm256_set1_epi8(0x7F));
    let signs = _mm256_sub_epi8(_mm256_setzero_si256(), _mm256_and_si256(codes, _mm256_set1_epi8(1)));
    _mm256_xor_si256(magnitudes, signs)
}

/// Returns the differences that the codes of a row stand for.
#[inline]
#[target_feature(enable = "avx2,bmi2")]
fn differences(codes: &Row) -> Halves {
    let codes = load(codes);
    [signed(codes[0]), signed(codes[1])]
}

/// Which columns have no neighbour on a side.
struct Neighbours {
    is_first: __m256i,
    is_last: Halves,
}

impl Neighbours {
    #[inline]
    #[target_feature(enable = "avx2,bmi2")]
    fn new(last: usize) -> Self {
        let only = |only: usize| -> Halves {
            let mut columns = [0; 64];
            columns[only] = u8::MAX;
            load(&columns)
        };
        Self { is_first: only(0)[0], is_last: only(last) }
    }

    #[inline]
    #[target_feature(enable = "avx2,bmi2")]
    fn predict<const PREDICTOR: u8>(&self, above: Halves) -> Halves {
        let mean = |a: Halves, b: Halves| [_mm256_avg_epu8(a[0], b[0]), _mm256_avg_epu8(a[1], b[1])];
        match Predictor::ALL[usize::from(PREDICTOR)] {
            Predictor::Top => above,
            Predictor::TopLeft => self.left(above),
            Predictor::TopRight => self.right(above),
            Predictor::LeftMean => mean(self.left(above), above),
            Predictor::RightMean => mean(above, self.right(above)),
            Predictor::OuterMean => mean(self.left(above), self.right(above)),
            Predictor::Smooth => mean(above, mean(self.left(above), self.right(above))),
        }
    }

    /// Returns the pixel to the left of each pixel.
    #[inline]
    #[target_feature(enable = "avx2,bmi2")]
    fn left(&self, [begin, end]: Halves) -> Halves {
        let before_begin = _mm256_permute2x128_si256::<0x08>(begin, begin);
        let middle = _mm256_permute2x128_si256::<0x21>(begin, end);
        let left = _mm256_alignr_epi8::<15>(begin, before_begin);
        [_mm256_blendv_epi8(left, begin, self.is_first), _mm256_alignr_epi8::<15>(end, middle)]
    }

    /// Returns the pixel to the right of each pixel.
    #[inline]
    #[target_feature(enable = "avx2,bmi2")]
    fn right(&self, [begin, end]: Halves) -> Halves {
        let middle = _mm256_permute2x128_si256::<0x21>(begin, end);
        let behind_end = _mm256_permute2x128_si256::<0x81>(end, end);
        let right = [_mm256_alignr_epi8::<1>(middle, begin), _mm256_alignr_epi8::<1>(behind_end, end)];
        [_mm256_blendv_epi8(right[0], begin, self.is_last[0]), _mm256_blendv_epi8(right[1], end, self.is_last[1])]
    }
}

#[inline]
#[target_feature(enable = "avx2,bmi2")]
fn load(row: &Row) -> Halves {
    [load_half(row, 0), load_half(row, 32)]
}

/// Loads 32 columns from column `begin` on.
#[inline]
#[target_feature(enable = "avx2,bmi2")]
fn load_half(row: &Row, begin: usize) -> __m256i {
    let half = &row[begin..begin + 32];
    // SAFETY: the slice has the 32 bytes of a vector.
    unsafe { _mm256_loadu_si256(half.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2,bmi2")]
fn store(row: &mut Row, halves: Halves) {
    for (row, half) in row.chunks_exact_mut(32).zip(halves) {
        // SAFETY: the chunk has the 32 bytes of a vector.
        unsafe { _mm256_storeu_si256(row.as_mut_ptr().cast(), half) }
    }
}

#[target_feature(enable = "avx2,bmi2")]
fn write_rows(
    planes: &Planes,
    color: Color,
    columns: Range<usize>,
    rows: Range<usize>,
    target: &mut [u8],
    stride: usize,
) {
    for (y, pixels) in rows.zip(target.chunks_mut(stride)) {
        let mut begin = columns.start;
        let mut blocks = pixels[..3 * columns.len()].chunks_exact_mut(3 * 32);
        for block in &mut blocks {
            let [red, green, blue] = planes.each_ref().map(|plane| &plane[y]);
            let channels = [load_half(red, begin), load_half(green, begin), load_half(blue, begin)];
            write_block(channels, color, block);
            begin += 32;
        }
        color::write_row(planes, color, y, begin, blocks.into_remainder());
    }
}

/// For each third of the 48 bytes of 16 pixels and each channel, the column that each byte shows, or 128 if the byte
/// belongs to another channel. Twice, for the two halves of a vector.
const PIXELS: [[[u8; 32]; 3]; 3] = {
    let mut pixels = [[[128; 32]; 3]; 3];
    let mut byte = 0;
    while byte < 48 {
        let column = (byte / 3) as u8;
        pixels[byte / 16][byte % 3][byte % 16] = column;
        pixels[byte / 16][byte % 3][byte % 16 + 16] = column;
        byte += 1;
    }
    pixels
};

/// Returns the bytes of one third of 16 pixels, in each half of a vector.
#[inline]
#[target_feature(enable = "avx2,bmi2")]
fn third([red, green, blue]: [__m256i; 3], columns: &[[u8; 32]; 3]) -> __m256i {
    let red = _mm256_shuffle_epi8(red, load_columns(&columns[0]));
    let green = _mm256_shuffle_epi8(green, load_columns(&columns[1]));
    let blue = _mm256_shuffle_epi8(blue, load_columns(&columns[2]));
    _mm256_or_si256(_mm256_or_si256(red, green), blue)
}

#[inline]
#[target_feature(enable = "avx2,bmi2")]
fn load_columns(columns: &[u8; 32]) -> __m256i {
    // SAFETY: the columns are the 32 bytes of a vector.
    unsafe { _mm256_loadu_si256(columns.as_ptr().cast()) }
}

/// Writes 32 pixels.
#[inline]
#[target_feature(enable = "avx2,bmi2")]
fn write_block([red, green, blue]: [__m256i; 3], color: Color, block: &mut [u8]) {
    let base = match color {
        Color::Plain => _mm256_setzero_si256(),
        Color::MinusGreen => _mm256_sub_epi8(green, _mm256_set1_epi8(NEUTRAL as i8)),
    };
    let channels = [_mm256_add_epi8(red, base), green, _mm256_add_epi8(blue, base)];
    // Each vector: a third of the first 16 pixels' bytes, and the same third of the other 16.
    let a = third(channels, &PIXELS[0]);
    let b = third(channels, &PIXELS[1]);
    let c = third(channels, &PIXELS[2]);
    let vectors = [
        _mm256_permute2x128_si256::<0x20>(a, b),
        _mm256_permute2x128_si256::<0x30>(c, a),
        _mm256_permute2x128_si256::<0x31>(b, c),
    ];
    for (pixels, vector) in block.chunks_exact_mut(32).zip(vectors) {
        // SAFETY: the chunk has the 32 bytes of a vector.
        unsafe { _mm256_storeu_si256(pixels.as_mut_ptr().cast(), vector) }
    }
}
