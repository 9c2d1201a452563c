//! Blocks by SSE2, which every x86-64 has: a row per register. The compiler does not vectorise the portable code.

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
