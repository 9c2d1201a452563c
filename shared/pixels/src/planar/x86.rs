//! Cutting by SSSE3's shuffle, which both levels above the base have, and by AVX2's, two rows at once.

use std::arch::x86_64::*;

use zerocopy::transmute;

use super::{PlanarColumns, Visible};
use crate::interleave::{LANES, NONE, PLACES};

/// Writes the rows of a window.
#[target_feature(enable = "ssse3")]
pub fn cut(visible: &Visible<'_>, out: &mut [u8]) {
    visible.columns().for_each(|columns| cut_columns(visible, &columns, out));
}

/// Writes the rows of a window, faster.
#[target_feature(enable = "avx2")]
pub fn cut_by_two_rows(visible: &Visible<'_>, out: &mut [u8]) {
    let row_bytes = visible.across * 3;
    let rows = out.len() / row_bytes;
    if rows < 2 {
        return cut(visible, out);
    }
    for columns in visible.columns() {
        let tables = tables(&columns);
        for pair in 0..rows.div_ceil(2) {
            // If the number of rows is odd, the last row is made together with the one before it, which is made twice.
            let y = (2 * pair).min(rows - 2);
            let start = y * visible.width + columns.from;
            let [red, green, blue] = visible.planes;
            let neighbours = [
                two_rows(red, start, visible.width),
                two_rows(green, start, visible.width),
                two_rows(blue, start, visible.width),
            ];
            let (upper, lower) = out[y * row_bytes..(y + 2) * row_bytes].split_at_mut(row_bytes);
            let (upper, _) = upper[columns.out..][..3 * LANES].as_chunks_mut::<LANES>();
            let (lower, _) = lower[columns.out..][..3 * LANES].as_chunks_mut::<LANES>();
            for (part, tables) in tables.iter().enumerate() {
                let red = _mm256_shuffle_epi8(neighbours[0], tables[0]);
                let green = _mm256_shuffle_epi8(neighbours[1], tables[1]);
                let blue = _mm256_shuffle_epi8(neighbours[2], tables[2]);
                let both = _mm256_or_si256(_mm256_or_si256(red, green), blue);
                upper[part] = transmute!(_mm256_castsi256_si128(both));
                lower[part] = transmute!(_mm256_extracti128_si256::<1>(both));
            }
        }
    }
}

/// Returns the tables of sixteen columns, the same for both rows.
#[inline]
#[target_feature(enable = "avx2")]
fn tables(columns: &PlanarColumns) -> [[__m256i; 3]; 3] {
    let shown = _mm256_broadcastsi128_si256(transmute!(columns.shown));
    let mut tables = [[_mm256_setzero_si256(); 3]; 3];
    for (tables, places) in tables.iter_mut().zip(PLACES) {
        for (table, places) in tables.iter_mut().zip(places) {
            let places = _mm256_broadcastsi128_si256(transmute!(places));
            let nothing = _mm256_and_si256(places, _mm256_set1_epi8(NONE as i8));
            *table = _mm256_or_si256(_mm256_shuffle_epi8(shown, places), nothing);
        }
    }
    tables
}

/// Loads sixteen columns of a row and of the row below it.
#[inline]
#[target_feature(enable = "avx2")]
fn two_rows(plane: &[u8], start: usize, width: usize) -> __m256i {
    let row = |start: usize| -> __m128i {
        let columns: &[u8; LANES] = plane[start..start + LANES].try_into().expect("sixteen columns");
        transmute!(*columns)
    };
    _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(row(start)), row(start + width))
}

/// Writes sixteen columns of all rows.
#[inline]
#[target_feature(enable = "ssse3")]
fn cut_columns(visible: &Visible<'_>, columns: &PlanarColumns, out: &mut [u8]) {
    let shown: __m128i = transmute!(columns.shown);
    let tables = PLACES.map(|tables| {
        tables.map(|table| {
            let table: __m128i = transmute!(table);
            _mm_or_si128(_mm_shuffle_epi8(shown, table), _mm_and_si128(table, _mm_set1_epi8(NONE as i8)))
        })
    });
    for (y, row) in out.chunks_exact_mut(visible.across * 3).enumerate() {
        let start = y * visible.width + columns.from;
        let neighbours = visible.planes.map(|plane| -> __m128i {
            let neighbours: &[u8; LANES] = plane[start..].first_chunk().expect("sixteen columns of a row");
            transmute!(*neighbours)
        });
        let (parts, _) = row[columns.out..][..3 * LANES].as_chunks_mut::<LANES>();
        for (part, tables) in parts.iter_mut().zip(&tables) {
            let [red, green, blue] = [0, 1, 2].map(|channel| _mm_shuffle_epi8(neighbours[channel], tables[channel]));
            *part = transmute!(_mm_or_si128(_mm_or_si128(red, green), blue));
        }
    }
}
