//! Both passes for AVX2. One instruction multiplies 16-bit numbers and adds two of the products, so inputs are taken in
//! pairs.

#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::groups::{Groups, STEP, VALUES_AT_ONCE};
use crate::level::Avx2;

/// Makes a row of outputs of each row of pixels, `stride` apart.
pub fn columns<const ROWS: usize>(
    _: Avx2,
    groups: &Groups,
    bits: u32,
    rows: [&[u8]; ROWS],
    out: &mut [u8],
    stride: usize,
) {
    assert!(groups.fit(&rows, out, stride), "rows have the width that the weights are for");
    // SAFETY: an `Avx2` is made only where the processor has AVX2. The rows are as long as the groups need.
    unsafe {
        match (groups.steps, groups.dense) {
            (1, true) => columns_avx2::<ROWS, 1, true>(groups, bits, rows, out, stride),
            (2, true) => columns_avx2::<ROWS, 2, true>(groups, bits, rows, out, stride),
            (3, true) => columns_avx2::<ROWS, 3, true>(groups, bits, rows, out, stride),
            (_, true) => columns_avx2::<ROWS, 0, true>(groups, bits, rows, out, stride),
            (_, false) => columns_avx2::<ROWS, 0, false>(groups, bits, rows, out, stride),
        }
    }
}

/// Does the work of [`columns`]. `STEPS` is 0 if the number of steps is known only at run time.
///
/// # Safety
/// Rows and outputs [`fit`](Groups::fit).
#[target_feature(enable = "avx2")]
unsafe fn columns_avx2<const ROWS: usize, const STEPS: usize, const DENSE: bool>(
    groups: &Groups,
    bits: u32,
    rows: [&[u8]; ROWS],
    out: &mut [u8],
    stride: usize,
) {
    let steps = if STEPS == 0 { groups.steps } else { STEPS };
    let round = _mm256_set1_epi32(1 << (bits - 1));
    let bits = _mm256_set1_epi32(bits as i32);
    let rows = rows.map(<[u8]>::as_ptr);
    let out = out.as_mut_ptr();
    let mut at = 0;
    for (two, weights) in groups.twos.iter().zip(groups.weights.chunks_exact(steps)) {
        // SAFETY: 32 bytes each; `Groups::make` has placed every step of 16 bytes within the rows of inputs, and rows
        // of outputs have room for all groups.
        unsafe {
            let bytes = _mm256_loadu_si256(two.bytes.as_ptr().cast());
            let [left, right] = two.offsets.map(|offset| offset as usize);
            let mut sums = [round; ROWS];
            for (step, weights) in weights.iter().enumerate() {
                let weights = _mm256_loadu_si256(weights.as_ptr().cast());
                for (sum, row) in sums.iter_mut().zip(rows) {
                    let left = _mm_loadu_si128(row.add(left + STEP * step).cast());
                    let right = _mm_loadu_si128(row.add(right + STEP * step).cast());
                    let inputs = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(left), right);
                    let pairs = _mm256_shuffle_epi8(inputs, bytes);
                    *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pairs, weights));
                }
            }
            let sums = sums.map(|sum| _mm256_srav_epi32(sum, bits));
            store::<ROWS, DENSE>(sums, out.add(at), stride);
        }
        at += if DENSE { 8 } else { 6 };
    }
}

/// Clamps two groups of each row to bytes and writes them.
///
/// # Safety
/// There are 8 bytes for each row, or 7 if groups are not dense.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn store<const ROWS: usize, const DENSE: bool>(sums: [__m256i; ROWS], out: *mut u8, stride: usize) {
    let sum = |row: usize| sums[row % ROWS];
    let values = _mm256_packus_epi16(_mm256_packs_epi32(sum(0), sum(1)), _mm256_packs_epi32(sum(2), sum(3)));
    // Each half holds 4 bytes of each row.
    if DENSE {
        let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        let values = _mm256_permutevar8x32_epi32(values, order);
        let rows = [_mm256_castsi256_si128(values), _mm256_extracti128_si256::<1>(values)];
        for row in 0..ROWS {
            // SAFETY: the row has 8 more bytes.
            unsafe {
                let out = out.add(row * stride);
                if row % 2 == 0 {
                    _mm_storel_epi64(out.cast(), rows[row / 2]);
                } else {
                    _mm_storeh_pd(out.cast(), _mm_castsi128_pd(rows[row / 2]));
                }
            }
        }
        return;
    }
    let (left, right) = (_mm256_castsi256_si128(values), _mm256_extracti128_si256::<1>(values));
    for row in 0..ROWS {
        let four = |group| match row {
            0 => _mm_extract_epi32::<0>(group),
            1 => _mm_extract_epi32::<1>(group),
            2 => _mm_extract_epi32::<2>(group),
            _ => _mm_extract_epi32::<3>(group),
        };
        // SAFETY: the row has 7 more bytes: 4, and 4 that overlap the last of them.
        unsafe {
            let out = out.add(row * stride);
            out.cast::<i32>().write_unaligned(four(left));
            out.add(3).cast::<i32>().write_unaligned(four(right));
        }
    }
}

/// See [`super::rows::make_row`].
pub fn rows(_: Avx2, rows: &[u8], stride: usize, weights: &[i16], bits: u32, out: &mut [u8]) {
    assert!(weights.len().is_multiple_of(2) && rows.len() >= weights.len() * stride, "a row for each weight");
    assert!(stride >= out.len().next_multiple_of(VALUES_AT_ONCE), "rows have room behind their pixels");
    let pairs = weights.as_chunks::<2>().0;
    // SAFETY: an `Avx2` is made only where the processor has AVX2. The assertions check the number and length of the
    // rows.
    unsafe {
        match pairs {
            [a] => rows_avx2(rows, stride, [*a], bits, out),
            [a, b] => rows_avx2(rows, stride, [*a, *b], bits, out),
            [a, b, c] => rows_avx2(rows, stride, [*a, *b, *c], bits, out),
            pairs => rows_avx2(rows, stride, pairs, bits, out),
        }
    }
}

/// # Safety
/// There are two rows for each pair, of a multiple of [`VALUES_AT_ONCE`] bytes that holds `out`.
#[target_feature(enable = "avx2")]
unsafe fn rows_avx2(rows: &[u8], stride: usize, pairs: impl AsRef<[[i16; 2]]>, bits: u32, out: &mut [u8]) {
    let round = _mm256_set1_epi32(1 << (bits - 1));
    let bits = _mm256_set1_epi32(bits as i32);
    let zero = _mm256_setzero_si256();
    let pairs = pairs.as_ref();
    // SAFETY: each row has 32 more bytes from the column on.
    let make = |column: usize| unsafe {
        let mut sums = [round; 4];
        let mut row = rows.as_ptr().add(column);
        for &[first, second] in pairs {
            let weights = _mm256_set1_epi32(i32::from(first as u16) | i32::from(second) << 16);
            let (upper, lower) = (_mm256_loadu_si256(row.cast()), _mm256_loadu_si256(row.add(stride).cast()));
            row = row.add(2 * stride);
            let (low, high) = (_mm256_unpacklo_epi8(upper, lower), _mm256_unpackhi_epi8(upper, lower));
            let quarters = [
                _mm256_unpacklo_epi8(low, zero),
                _mm256_unpackhi_epi8(low, zero),
                _mm256_unpacklo_epi8(high, zero),
                _mm256_unpackhi_epi8(high, zero),
            ];
            for (sum, quarter) in sums.iter_mut().zip(quarters) {
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(quarter, weights));
            }
        }
        let [a, b, c, d] = sums.map(|sum| _mm256_srav_epi32(sum, bits));
        _mm256_packus_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d))
    };
    let whole = out.len() / VALUES_AT_ONCE * VALUES_AT_ONCE;
    let (chunks, rest) = out.as_chunks_mut::<VALUES_AT_ONCE>();
    for (number, chunk) in chunks.iter_mut().enumerate() {
        // SAFETY: the chunk has 32 bytes.
        unsafe { _mm256_storeu_si256(chunk.as_mut_ptr().cast(), make(number * VALUES_AT_ONCE)) };
    }
    if !rest.is_empty() {
        let last: [u8; VALUES_AT_ONCE] = zerocopy::transmute!(make(whole));
        rest.copy_from_slice(&last[..rest.len()]);
    }
}
