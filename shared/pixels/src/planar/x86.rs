//! Cutting by SSSE3's shuffle, which both levels above the base have.

use std::arch::x86_64::*;

use zerocopy::transmute;

use super::{Columns, Visible};
use crate::interleave::{LANES, NONE, PLACES};

/// Writes the rows of a window.
#[target_feature(enable = "ssse3")]
pub fn cut(visible: &Visible<'_>, out: &mut [u8]) {
    visible.columns().for_each(|columns| cut_columns(visible, &columns, out));
}

/// Sixteen columns of all rows.
#[inline]
#[target_feature(enable = "ssse3")]
fn cut_columns(visible: &Visible<'_>, columns: &Columns, out: &mut [u8]) {
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
