//! Blocks by SSE2, which every x86-64 has: a row per register. By AVX2, a register holds a row of two blocks. The
//! compiler does not vectorise the portable code.

use std::arch::x86_64::*;

use zerocopy::transmute;

use super::{DOUBLE_ROUNDS, State};

/// See [`blocks`](super::blocks()).
#[target_feature(enable = "sse2")]
pub fn blocks<const N: usize>(starts: [State; N]) -> [State; N] {
    let starts: [[__m128i; 4]; N] = starts.map(|start| transmute!(start));
    let mut states = starts;
    for _ in 0..DOUBLE_ROUNDS {
        quarter_rounds(&mut states);
        // Rotate the diagonals into columns, and back.
        for [_, b, c, d] in &mut states {
            *b = _mm_shuffle_epi32::<0b00_11_10_01>(*b);
            *c = _mm_shuffle_epi32::<0b01_00_11_10>(*c);
            *d = _mm_shuffle_epi32::<0b10_01_00_11>(*d);
        }
        quarter_rounds(&mut states);
        for [_, b, c, d] in &mut states {
            *b = _mm_shuffle_epi32::<0b10_01_00_11>(*b);
            *c = _mm_shuffle_epi32::<0b01_00_11_10>(*c);
            *d = _mm_shuffle_epi32::<0b00_11_10_01>(*d);
        }
    }
    for (state, start) in states.iter_mut().zip(starts) {
        for (row, start) in state.iter_mut().zip(start) {
            *row = _mm_add_epi32(*row, start);
        }
    }
    states.map(|state| transmute!(state))
}

/// Does a quarter round of each column.
#[inline]
#[target_feature(enable = "sse2")]
fn quarter_rounds<const N: usize>(states: &mut [[__m128i; 4]; N]) {
    for [a, b, c, d] in states {
        *a = _mm_add_epi32(*a, *b);
        *d = rotated::<16, 16>(_mm_xor_si128(*d, *a));
        *c = _mm_add_epi32(*c, *d);
        *b = rotated::<12, 20>(_mm_xor_si128(*b, *c));
        *a = _mm_add_epi32(*a, *b);
        *d = rotated::<8, 24>(_mm_xor_si128(*d, *a));
        *c = _mm_add_epi32(*c, *d);
        *b = rotated::<7, 25>(_mm_xor_si128(*b, *c));
    }
}

/// Rotates each word to the left.
#[inline]
#[target_feature(enable = "sse2")]
fn rotated<const LEFT: i32, const RIGHT: i32>(row: __m128i) -> __m128i {
    _mm_or_si128(_mm_slli_epi32::<LEFT>(row), _mm_srli_epi32::<RIGHT>(row))
}

/// Makes two blocks.
#[target_feature(enable = "avx2")]
pub fn two_blocks([first, second]: [State; 2]) -> [State; 2] {
    let (first, second): ([__m128i; 4], [__m128i; 4]) = (transmute!(first), transmute!(second));
    let start: [__m256i; 4] = std::array::from_fn(|row| _mm256_set_m128i(second[row], first[row]));
    let [mut a, mut b, mut c, mut d] = start;
    for _ in 0..DOUBLE_ROUNDS {
        [a, b, c, d] = two_quarter_rounds([a, b, c, d]);
        // Rotate the diagonals into columns, and back.
        b = _mm256_shuffle_epi32::<0b00_11_10_01>(b);
        c = _mm256_shuffle_epi32::<0b01_00_11_10>(c);
        d = _mm256_shuffle_epi32::<0b10_01_00_11>(d);
        [a, b, c, d] = two_quarter_rounds([a, b, c, d]);
        b = _mm256_shuffle_epi32::<0b10_01_00_11>(b);
        c = _mm256_shuffle_epi32::<0b01_00_11_10>(c);
        d = _mm256_shuffle_epi32::<0b00_11_10_01>(d);
    }
    let rows = [a, b, c, d];
    let rows: [__m256i; 4] = std::array::from_fn(|row| _mm256_add_epi32(rows[row], start[row]));
    [
        transmute!(rows.map(|row| _mm256_castsi256_si128(row))),
        transmute!(rows.map(|row| _mm256_extracti128_si256::<1>(row))),
    ]
}

/// Does a quarter round of each column of two blocks.
#[inline]
#[target_feature(enable = "avx2")]
fn two_quarter_rounds([mut a, mut b, mut c, mut d]: [__m256i; 4]) -> [__m256i; 4] {
    let by_16 =
        _mm256_set_epi64x(0x0d0c_0f0e_0908_0b0a, 0x0504_0706_0100_0302, 0x0d0c_0f0e_0908_0b0a, 0x0504_0706_0100_0302);
    let by_8 =
        _mm256_set_epi64x(0x0e0d_0c0f_0a09_080b, 0x0605_0407_0201_0003, 0x0e0d_0c0f_0a09_080b, 0x0605_0407_0201_0003);
    a = _mm256_add_epi32(a, b);
    d = _mm256_shuffle_epi8(_mm256_xor_si256(d, a), by_16);
    c = _mm256_add_epi32(c, d);
    b = two_rotated::<12, 20>(_mm256_xor_si256(b, c));
    a = _mm256_add_epi32(a, b);
    d = _mm256_shuffle_epi8(_mm256_xor_si256(d, a), by_8);
    c = _mm256_add_epi32(c, d);
    b = two_rotated::<7, 25>(_mm256_xor_si256(b, c));
    [a, b, c, d]
}

/// Rotates each word to the left.
#[inline]
#[target_feature(enable = "avx2")]
fn two_rotated<const LEFT: i32, const RIGHT: i32>(row: __m256i) -> __m256i {
    _mm256_or_si256(_mm256_slli_epi32::<LEFT>(row), _mm256_srli_epi32::<RIGHT>(row))
}
