//! The transform by AVX2: two blocks at once, one in each half of a register.
//!
//! One instruction multiplies 16-bit numbers and adds two of the products, so inputs are interleaved in pairs.

#![allow(unsafe_code)]

use std::arch::x86_64::*;

use zerocopy::transmute;

use super::{
    COLUMN_SHIFT, CORNER_LAST, EVEN_INNER, EVEN_OUTER, ODD, ONE, ROW_SHIFT, ROW_SUM_MAX, Strip, flat, portable,
};
use crate::level::{Avx2, Sse41};

/// Eight rows of eight numbers, for two blocks.
type EightRows = [__m256i; 8];

/// See [`super::transform`].
pub fn transform(_: Avx2, strip: &Strip<'_>, out: &mut [u8], stride: usize) -> bool {
    // SAFETY: an `Avx2` is made only where the processor has AVX2.
    unsafe { transform_avx2(strip, out, stride) }
}

/// Does the portable transform, vectorised for SSE4.1, which can multiply 32-bit numbers.
pub fn transform_by_compiler(_: Sse41, strip: &Strip<'_>, out: &mut [u8], stride: usize) -> bool {
    // SAFETY: an `Sse41` is made only where the processor has SSE4.1.
    unsafe { transform_sse41(strip, out, stride) }
}

#[target_feature(enable = "sse4.1")]
fn transform_sse41(strip: &Strip<'_>, out: &mut [u8], stride: usize) -> bool {
    portable::transform(strip, out, stride)
}

#[target_feature(enable = "avx2")]
fn transform_avx2(strip: &Strip<'_>, out: &mut [u8], stride: usize) -> bool {
    let quant: EightRows = twice(strip.quant);
    let mut sums = _mm256_setzero_si256();
    for number in (0..strip.blocks).step_by(2) {
        let ((left, left_last), (right, right_last)) = (strip.block(number), strip.block(number + 1));
        let out = &mut out[8 * number..];
        let last = left_last.max(right_last);
        if last == 0 {
            let sample = |block: &[i16; 64]| u64::from(flat(block[0] * strip.quant[0])) * 0x0101_0101_0101_0101;
            let row: [u8; 16] = transmute!([sample(left), sample(right)]);
            for y in 0..8 {
                out[y * stride..y * stride + 16].copy_from_slice(&row);
            }
            continue;
        }
        let (between, rows) = if last <= CORNER_LAST {
            let input = std::array::from_fn(|y| _mm256_mullo_epi16(both(left, right, y), quant[y]));
            let between = corner_columns(&input);
            (sum_of_magnitudes(&between), corner_rows(&between))
        } else {
            let input = std::array::from_fn(|y| _mm256_mullo_epi16(both(left, right, y), quant[y]));
            let between = transposed(pass::<COLUMN_SHIFT>(&input));
            (sum_of_magnitudes(&between), pass::<ROW_SHIFT>(&between))
        };
        sums = _mm256_max_epu16(sums, between);
        store(samples(&rows), out, stride);
    }
    let sums: [u16; 16] = transmute!(sums);
    sums.into_iter().all(|sum| sum <= ROW_SUM_MAX)
}

/// Returns a block's rows in both halves.
#[inline]
#[target_feature(enable = "avx2")]
fn twice(block: &[i16; 64]) -> EightRows {
    std::array::from_fn(|y| both(block, block, y))
}

/// Returns a row of two blocks.
#[inline]
#[target_feature(enable = "avx2")]
fn both(left: &[i16; 64], right: &[i16; 64], y: usize) -> __m256i {
    let row = |block: &[i16; 64]| -> __m128i { transmute!(block.as_chunks::<8>().0[y]) };
    _mm256_set_m128i(row(right), row(left))
}

/// Returns the weights for the two numbers of a pair, in every pair.
#[inline]
#[target_feature(enable = "avx2")]
fn weights(first: i16, second: i16) -> __m256i {
    _mm256_set1_epi32(i32::from(first as u16) | i32::from(second) << 16)
}

/// Combines even and odd parts into outputs 0 to 7, rounded and shifted.
#[inline]
#[target_feature(enable = "avx2")]
fn butterfly<const SHIFT: i32>(even: [__m256i; 4], odd: [__m256i; 4]) -> EightRows {
    std::array::from_fn(|i| {
        let sum = if i < 4 { _mm256_add_epi32(even[i], odd[i]) } else { _mm256_sub_epi32(even[7 - i], odd[7 - i]) };
        _mm256_srai_epi32::<SHIFT>(sum)
    })
}

/// Transforms half of the lanes in one direction, in 32 bits. Inputs come in pairs: 0 and 4, 2 and 6, 1 and 3, 5 and 7.
#[inline]
#[target_feature(enable = "avx2")]
fn half<const SHIFT: i32>(even04: __m256i, even26: __m256i, odd13: __m256i, odd57: __m256i) -> EightRows {
    let round = _mm256_set1_epi32(1 << (SHIFT - 1));
    let sum = _mm256_add_epi32(_mm256_madd_epi16(even04, weights(ONE, ONE)), round);
    let difference = _mm256_add_epi32(_mm256_madd_epi16(even04, weights(ONE, -ONE)), round);
    let outer = _mm256_madd_epi16(even26, weights(EVEN_OUTER[0], EVEN_OUTER[1]));
    let inner = _mm256_madd_epi16(even26, weights(EVEN_INNER[0], EVEN_INNER[1]));
    let even = [
        _mm256_add_epi32(sum, outer),
        _mm256_add_epi32(difference, inner),
        _mm256_sub_epi32(difference, inner),
        _mm256_sub_epi32(sum, outer),
    ];
    let odd = ODD.map(|[a, b, c, d]| {
        _mm256_add_epi32(_mm256_madd_epi16(odd13, weights(a, b)), _mm256_madd_epi16(odd57, weights(c, d)))
    });
    butterfly::<SHIFT>(even, odd)
}

/// Transforms all lanes in one direction.
#[inline]
#[target_feature(enable = "avx2")]
fn pass<const SHIFT: i32>(input: &EightRows) -> EightRows {
    let low = |i: usize, j: usize| _mm256_unpacklo_epi16(input[i], input[j]);
    let high = |i: usize, j: usize| _mm256_unpackhi_epi16(input[i], input[j]);
    let low = half::<SHIFT>(low(0, 4), low(2, 6), low(1, 3), low(5, 7));
    let high = half::<SHIFT>(high(0, 4), high(2, 6), high(1, 3), high(5, 7));
    std::array::from_fn(|i| _mm256_packs_epi32(low[i], high[i]))
}

/// Transforms half of the lanes when inputs 4 to 7 are zero. Inputs come in pairs: 0 and 2, 1 and 3.
#[inline]
#[target_feature(enable = "avx2")]
fn corner_half<const SHIFT: i32>(even02: __m256i, odd13: __m256i) -> EightRows {
    let round = _mm256_set1_epi32(1 << (SHIFT - 1));
    let (outer, inner) = (EVEN_OUTER[0], EVEN_INNER[0]);
    let even = [outer, inner, -inner, -outer]
        .map(|second| _mm256_add_epi32(_mm256_madd_epi16(even02, weights(ONE, second)), round));
    butterfly::<SHIFT>(even, ODD.map(|[a, b, ..]| _mm256_madd_epi16(odd13, weights(a, b))))
}

/// Transforms the columns of blocks whose coefficients lie in the first four rows and columns; returns four registers
/// of one column each.
#[inline]
#[target_feature(enable = "avx2")]
fn corner_columns(input: &[__m256i; 4]) -> [__m256i; 4] {
    let rows = corner_half::<COLUMN_SHIFT>(
        _mm256_unpacklo_epi16(input[0], input[2]),
        _mm256_unpacklo_epi16(input[1], input[3]),
    );
    let [a, b, c, d] = std::array::from_fn(|i| _mm256_packs_epi32(rows[i], rows[i + 4]));
    let (first, second) = (_mm256_unpacklo_epi16(a, b), _mm256_unpacklo_epi16(c, d));
    let (third, fourth) = (_mm256_unpackhi_epi16(a, b), _mm256_unpackhi_epi16(c, d));
    let (top01, top23) = (_mm256_unpacklo_epi32(first, second), _mm256_unpackhi_epi32(first, second));
    let (bottom01, bottom23) = (_mm256_unpacklo_epi32(third, fourth), _mm256_unpackhi_epi32(third, fourth));
    [
        _mm256_unpacklo_epi64(top01, bottom01),
        _mm256_unpackhi_epi64(top01, bottom01),
        _mm256_unpacklo_epi64(top23, bottom23),
        _mm256_unpackhi_epi64(top23, bottom23),
    ]
}

#[inline]
#[target_feature(enable = "avx2")]
fn corner_rows(input: &[__m256i; 4]) -> EightRows {
    let low =
        corner_half::<ROW_SHIFT>(_mm256_unpacklo_epi16(input[0], input[2]), _mm256_unpacklo_epi16(input[1], input[3]));
    let high =
        corner_half::<ROW_SHIFT>(_mm256_unpackhi_epi16(input[0], input[2]), _mm256_unpackhi_epi16(input[1], input[3]));
    std::array::from_fn(|i| _mm256_packs_epi32(low[i], high[i]))
}

#[inline]
#[target_feature(enable = "avx2")]
fn sum_of_magnitudes(columns: &[__m256i]) -> __m256i {
    let zero = _mm256_setzero_si256();
    columns.iter().fold(zero, |sum, &column| _mm256_adds_epu16(sum, _mm256_abs_epi16(column)))
}

/// Swaps rows and columns.
#[inline]
#[target_feature(enable = "avx2")]
fn transposed(rows: EightRows) -> EightRows {
    let [a, b, c, d, e, f, g, h] = rows;
    let pairs = [(a, b), (c, d), (e, f), (g, h)];
    let low = pairs.map(|(a, b)| _mm256_unpacklo_epi16(a, b));
    let high = pairs.map(|(a, b)| _mm256_unpackhi_epi16(a, b));
    let quarters = |[a, b, c, d]: [__m256i; 4]| {
        let (ab_low, ab_high) = (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
        let (cd_low, cd_high) = (_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
        [
            _mm256_unpacklo_epi64(ab_low, cd_low),
            _mm256_unpackhi_epi64(ab_low, cd_low),
            _mm256_unpacklo_epi64(ab_high, cd_high),
            _mm256_unpackhi_epi64(ab_high, cd_high),
        ]
    };
    let ([a, b, c, d], [e, f, g, h]) = (quarters(low), quarters(high));
    [a, b, c, d, e, f, g, h]
}

/// Clamps eight columns to samples and turns them into rows of 16 samples, those of the left block first.
#[inline]
#[target_feature(enable = "avx2")]
fn samples(columns: &EightRows) -> [__m256i; 4] {
    let packed = [(0, 2), (1, 3), (4, 6), (5, 7)].map(|(i, j)| _mm256_packs_epi16(columns[i], columns[j]));
    let [even, odd, more_even, more_odd] = packed;
    let (x01, x23) = (_mm256_unpacklo_epi8(even, odd), _mm256_unpackhi_epi8(even, odd));
    let (x45, x67) = (_mm256_unpacklo_epi8(more_even, more_odd), _mm256_unpackhi_epi8(more_even, more_odd));
    let (top03, bottom03) = (_mm256_unpacklo_epi16(x01, x23), _mm256_unpackhi_epi16(x01, x23));
    let (top47, bottom47) = (_mm256_unpacklo_epi16(x45, x67), _mm256_unpackhi_epi16(x45, x67));
    let rows = [
        _mm256_unpacklo_epi32(top03, top47),
        _mm256_unpackhi_epi32(top03, top47),
        _mm256_unpacklo_epi32(bottom03, bottom47),
        _mm256_unpackhi_epi32(bottom03, bottom47),
    ];
    rows.map(|two| {
        let unsigned = _mm256_xor_si256(two, _mm256_set1_epi8(i8::MIN));
        _mm256_permute4x64_epi64::<0b11_01_10_00>(unsigned)
    })
}

#[inline]
#[target_feature(enable = "avx2")]
fn store(rows: [__m256i; 4], out: &mut [u8], stride: usize) {
    for (pair, rows) in rows.into_iter().enumerate() {
        let rows: [[u8; 16]; 2] = transmute!(rows);
        for (y, row) in (2 * pair..).zip(rows) {
            out[y * stride..y * stride + 16].copy_from_slice(&row);
        }
    }
}
