//! Decoding with AVX-512, VBMI and GFNI: a row of 64 columns is one vector.
#![allow(unsafe_code)]

use std::arch::x86_64::*;
use std::ops::Range;

use crate::color::{Color, NEUTRAL};
use crate::level::Avx512;
use crate::patch::{GROUP, PatchShape, PlaneParts, ROWS};
use crate::planes::{MAX_SIDE, Plane, Planes, Row};
use crate::predict::{BEFORE_FIRST, Predictor};

/// A word whose bytes are 0 to 7.
const ASCENDING: u64 = 0x0706_0504_0302_0100;
/// A word whose bytes are 1.
const ONES: u64 = 0x0101_0101_0101_0101;

/// Decodes the first `rows` rows of a plane.
pub fn decode_plane(_: Avx512, parts: &PlaneParts<'_>, shape: &PatchShape, rows: usize, plane: &mut Plane) {
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
    _: Avx512,
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

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,gfni,bmi2")]
fn decode_by<const PREDICTOR: u8>(parts: &PlaneParts<'_>, shape: &PatchShape, rows: usize, plane: &mut Plane) {
    let neighbours = Neighbours::new(shape.width - 1);
    let mut fields = parts.fields;
    let mut above = None;
    let widths = parts.widths.chunks_exact(shape.pair_widths());
    for (pair, widths) in plane[..rows].chunks_mut(ROWS).zip(widths) {
        let unpacker = Unpacker::new(widths);
        for row in pair {
            let differences = unpacker.take(&mut fields);
            let pixels = match above {
                None => first_row(differences),
                Some(above) => _mm512_add_epi8(differences, neighbours.predict::<PREDICTOR>(above)),
            };
            store(row, pixels);
            above = Some(pixels);
        }
    }
}

/// Takes the differences of rows that share their widths from packed fields.
struct Unpacker {
    /// For each byte of the row, which byte of the fields goes there: all bytes of a group go to its eight bytes.
    bytes: __m512i,
    /// For each byte, the bit of its group at which its field begins.
    shifts: __m512i,
    /// For each byte, a mask of as many ones as its field is wide.
    masks: __m512i,
    /// Bytes of one row.
    length: usize,
}

impl Unpacker {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,gfni,bmi2")]
    fn new(widths: &[u8]) -> Self {
        let packed = match *widths {
            [a, b, c, d] => u32::from_le_bytes([a, b, c, d]),
            [a, b] => u16::from_le_bytes([a, b]).into(),
            _ => unreachable!("the widths of a pair of rows take two or four bytes"),
        };
        let widths = _pdep_u64(packed.into(), 0x0F * ONES);
        // Byte i of this product is the sum of the widths up to that of group i; no sum exceeds 64.
        let ends = widths.wrapping_mul(ONES);
        let ascending = _mm512_set1_epi64(ASCENDING as i64);
        let begins = _mm512_permutexvar_epi8(group_of_byte(), _mm512_set1_epi64((ends << 8) as i64));
        let width = _mm512_cvtepu8_epi64(_mm_cvtsi64_si128(widths as i64));
        Self {
            bytes: _mm512_add_epi8(begins, ascending),
            shifts: by_width(width, ASCENDING),
            masks: _mm512_permutex2var_epi64(masks(0), width, masks(8)),
            length: (ends >> 56) as usize,
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,gfni,bmi2")]
    fn take(&self, fields: &mut &[u8]) -> __m512i {
        let loaded = load(fields.first_chunk().expect("slack follows the fields"));
        *fields = &fields[self.length..];
        let groups = _mm512_permutexvar_epi8(self.bytes, loaded);
        let codes = _mm512_and_si512(_mm512_multishift_epi64_epi8(self.shifts, groups), self.masks);
        // Bit i of a difference is bit i + 1 of its code, exclusive or bit 0: a product of matrices of bits.
        _mm512_gf2p8affine_epi64_epi8::<0>(codes, _mm512_set1_epi64(0x0305_0911_2141_8101))
    }
}

/// Returns in each word `word` times the width, which is 1 to 8. A width of 0 gives any word.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,gfni,bmi2")]
fn by_width(width: __m512i, word: u64) -> __m512i {
    let times = |width: u64| (word * (width)) as i64;
    let table = _mm512_setr_epi64(times(8), times(1), times(2), times(3), times(4), times(5), times(6), times(7));
    _mm512_permutexvar_epi64(width, table)
}

/// Returns, for each of the eight widths from `first` on, eight bytes, each with a mask of `width` ones.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,gfni,bmi2")]
fn masks(first: u32) -> __m512i {
    let mask = |width: u32| (((1_u64 << width.min(8)) - 1) * ONES) as i64;
    _mm512_setr_epi64(
        mask(first),
        mask(first + 1),
        mask(first + 2),
        mask(first + 3),
        mask(first + 4),
        mask(first + 5),
        mask(first + 6),
        mask(first + 7),
    )
}

/// The columns next to each column.
struct Neighbours {
    left: __m512i,
    right: __m512i,
}

impl Neighbours {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,gfni,bmi2")]
    fn new(last: usize) -> Self {
        let columns = load(&COLUMNS);
        let one = _mm512_set1_epi8(1);
        let last = _mm512_set1_epi8(last as i8);
        Self { left: _mm512_subs_epu8(columns, one), right: _mm512_min_epu8(_mm512_add_epi8(columns, one), last) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,gfni,bmi2")]
    fn predict<const PREDICTOR: u8>(&self, above: __m512i) -> __m512i {
        let left = _mm512_permutexvar_epi8(self.left, above);
        let right = _mm512_permutexvar_epi8(self.right, above);
        match Predictor::ALL[usize::from(PREDICTOR)] {
            Predictor::Top => above,
            Predictor::TopLeft => left,
            Predictor::TopRight => right,
            Predictor::LeftMean => _mm512_avg_epu8(left, above),
            Predictor::RightMean => _mm512_avg_epu8(above, right),
            Predictor::OuterMean => _mm512_avg_epu8(left, right),
            Predictor::Smooth => _mm512_avg_epu8(above, _mm512_avg_epu8(left, right)),
        }
    }
}

/// Returns the first row of a patch: each pixel is the sum of the differences up to its column.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,gfni,bmi2")]
fn first_row(differences: __m512i) -> __m512i {
    let columns = load(&COLUMNS);
    let mut sums = differences;
    for distance in [1, 2, 4, 8, 16, 32] {
        let from = _mm512_sub_epi8(columns, _mm512_set1_epi8(distance));
        sums = _mm512_add_epi8(sums, _mm512_maskz_permutexvar_epi8(u64::MAX << distance, from, sums));
    }
    _mm512_add_epi8(sums, _mm512_set1_epi8(BEFORE_FIRST as i8))
}

const COLUMNS: Row = {
    let mut columns = [0; 64];
    let mut column = 0;
    while column < 64 {
        columns[column] = column as u8;
        column += 1;
    }
    columns
};

/// Returns in each byte the number of its group.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,gfni,bmi2")]
fn group_of_byte() -> __m512i {
    const GROUPS: Row = {
        let mut groups = COLUMNS;
        let mut column = 0;
        while column < 64 {
            groups[column] /= GROUP as u8;
            column += 1;
        }
        groups
    };
    load(&GROUPS)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(row: &Row) -> __m512i {
    // SAFETY: a row has the 64 bytes of a vector.
    unsafe { _mm512_loadu_si512(row.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(row: &mut Row, pixels: __m512i) {
    // SAFETY: a row has the 64 bytes of a vector.
    unsafe { _mm512_storeu_si512(row.as_mut_ptr().cast(), pixels) }
}

/// For each byte of 64 pixels of three channels: the byte among the first two channels, one after the other, from which
/// it comes, and its column, from which it comes in the third channel.
const PIXELS: [(Row, Row, u64); 3] = {
    let mut pixels = [([0; 64], [0; 64], 0); 3];
    let mut byte = 0;
    while byte < 192 {
        let (from_two, column, is_third) = &mut pixels[byte / 64];
        from_two[byte % 64] = (byte / 3 + byte % 3 % 2 * 64) as u8;
        column[byte % 64] = (byte / 3) as u8;
        *is_third |= ((byte % 3 == 2) as u64) << (byte % 64);
        byte += 1;
    }
    pixels
};

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,gfni,bmi2")]
fn write_rows(
    planes: &Planes,
    color: Color,
    columns: Range<usize>,
    rows: Range<usize>,
    target: &mut [u8],
    stride: usize,
) {
    let base_mask = match color {
        Color::Plain => 0,
        Color::MinusGreen => u64::MAX,
    };
    let shift = _mm512_add_epi8(load(&COLUMNS), _mm512_set1_epi8(columns.start as i8));
    for (y, pixels) in rows.zip(target.chunks_mut(stride)) {
        let mut channels = [load(&planes[0][y]), load(&planes[1][y]), load(&planes[2][y])];
        let base = _mm512_maskz_sub_epi8(base_mask, channels[1], _mm512_set1_epi8(NEUTRAL as i8));
        channels[0] = _mm512_add_epi8(channels[0], base);
        channels[2] = _mm512_add_epi8(channels[2], base);
        if columns.len() == MAX_SIDE {
            let (thirds, _) = pixels.as_chunks_mut();
            store(&mut thirds[0], third(channels, &PIXELS[0]));
            store(&mut thirds[1], third(channels, &PIXELS[1]));
            store(&mut thirds[2], third(channels, &PIXELS[2]));
            continue;
        }
        for channel in &mut channels {
            *channel = _mm512_permutexvar_epi8(shift, *channel);
        }
        for (pixels, indices) in pixels[..3 * columns.len()].chunks_mut(64).zip(&PIXELS) {
            store_begin(pixels, third(channels, indices));
        }
    }
}

/// Returns 64 of the 192 bytes of 64 pixels.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,gfni,bmi2")]
fn third([red, green, blue]: [__m512i; 3], (from_two, column, is_third): &(Row, Row, u64)) -> __m512i {
    let two = _mm512_permutex2var_epi8(red, load(from_two), green);
    _mm512_mask_permutexvar_epi8(two, *is_third, load(column), blue)
}

/// Stores as many bytes as `bytes` has: 1 to 64.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,gfni,bmi2")]
fn store_begin(bytes: &mut [u8], vector: __m512i) {
    let mask = u64::MAX >> (64 - bytes.len());
    // SAFETY: the mask selects as many bytes as there are.
    unsafe { _mm512_mask_storeu_epi8(bytes.as_mut_ptr().cast(), mask, vector) }
}
