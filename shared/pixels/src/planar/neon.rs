//! Cutting by NEON's table look-up, which gives 0 for an index outside the table.

use std::arch::aarch64::*;

use zerocopy::transmute;

use super::{PlanarColumns, Visible};
use crate::interleave::{LANES, NONE, PLACES};

/// Writes the rows of a window.
#[target_feature(enable = "neon")]
pub fn cut(visible: &Visible<'_>, out: &mut [u8]) {
    visible.columns().for_each(|columns| cut_columns(visible, &columns, out));
}

/// Writes sixteen columns of all rows.
#[inline]
#[target_feature(enable = "neon")]
fn cut_columns(visible: &Visible<'_>, columns: &PlanarColumns, out: &mut [u8]) {
    let shown: uint8x16_t = transmute!(columns.shown);
    let tables = PLACES.map(|tables| {
        tables.map(|table| {
            let table: uint8x16_t = transmute!(table);
            vorrq_u8(vqtbl1q_u8(shown, table), vandq_u8(table, vdupq_n_u8(NONE)))
        })
    });
    for (y, row) in out.chunks_exact_mut(visible.across * 3).enumerate() {
        let start = y * visible.width + columns.from;
        let neighbours = visible.planes.map(|plane| -> uint8x16_t {
            let neighbours: &[u8; LANES] = plane[start..].first_chunk().expect("sixteen columns of a row");
            transmute!(*neighbours)
        });
        let (parts, _) = row[columns.out..][..3 * LANES].as_chunks_mut::<LANES>();
        for (part, tables) in parts.iter_mut().zip(&tables) {
            let [red, green, blue] = [0, 1, 2].map(|channel| vqtbl1q_u8(neighbours[channel], tables[channel]));
            *part = transmute!(vorrq_u8(vorrq_u8(red, green), blue));
        }
    }
}
