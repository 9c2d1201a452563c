//! The sums of a blur: rows first, then columns.

#![allow(unsafe_code)]

use super::WEIGHT_BITS;
use crate::level::{Level, for_levels};

/// Bits behind the binary point of a value between the two passes.
const BETWEEN_BITS: u32 = 8;
/// Values that are summed together, in the first-level cache.
const BLOCK: usize = 256;

for_levels! {
    /// Blurs a row. The first weight belongs to the middle. `padded` has the row's values and, on either side, one
    /// pixel for each further weight.
    across = across_values(padded: &[u16], weights: &[u32], blurred: &mut [u16])
}
for_levels! {
    /// Blurs columns: makes a row from the blurred rows around it, from the uppermost to the lowest one.
    down = down_values(around: &[&[u16]], weights: &[u32], out: &mut [u8])
}

#[inline(always)]
fn across_values(padded: &[u16], weights: &[u32], blurred: &mut [u16]) {
    const SHIFT: u32 = WEIGHT_BITS - BETWEEN_BITS;
    let radius = weights.len() - 1;
    for (number, part) in blurred.chunks_mut(BLOCK).enumerate() {
        let start = number * BLOCK;
        // Pixels have three values.
        let pixels_at = |pixel: usize| &padded[start + 3 * pixel..][..part.len()];
        let pair = |distance: usize| [pixels_at(radius - distance), pixels_at(radius + distance)];
        let sums = weighted(pixels_at(radius), weights, pair, 1 << (SHIFT - 1));
        for (value, sum) in part.iter_mut().zip(sums) {
            *value = (sum >> SHIFT) as u16;
        }
    }
}

#[inline(always)]
fn down_values(around: &[&[u16]], weights: &[u32], out: &mut [u8]) {
    const SHIFT: u32 = WEIGHT_BITS + BETWEEN_BITS;
    let radius = weights.len() - 1;
    for (number, part) in out.chunks_mut(BLOCK).enumerate() {
        let row = |row: usize| &around[row][number * BLOCK..][..part.len()];
        let pair = |distance: usize| [row(radius - distance), row(radius + distance)];
        let sums = weighted(row(radius), weights, pair, 1 << (SHIFT - 1));
        for (value, sum) in part.iter_mut().zip(sums) {
            *value = (sum >> SHIFT) as u8;
        }
    }
}

/// Returns the weighted sums of the values in the middle and of the pairs at each distance from it, plus `half`.
#[inline(always)]
fn weighted<'v>(middle: &[u16], weights: &[u32], pair: impl Fn(usize) -> [&'v [u16]; 2], half: u32) -> [u32; BLOCK] {
    let mut sums = [half; BLOCK];
    for (sum, &value) in sums.iter_mut().zip(middle) {
        *sum += weights[0] * u32::from(value);
    }
    for (distance, &weight) in weights.iter().enumerate().skip(1) {
        let [one, other] = pair(distance);
        for ((sum, &one), &other) in sums.iter_mut().zip(one).zip(other) {
            *sum += weight * (u32::from(one) + u32::from(other));
        }
    }
    sums
}
