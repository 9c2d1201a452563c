//! Both passes for NEON: products of 16-bit numbers are added to sums of 32 bits.

#![allow(unsafe_code)]

use std::arch::aarch64::*;

use zerocopy::transmute;

use super::groups::{Groups, STEP, VALUES_AT_ONCE};

/// Makes a row of outputs of each row of pixels, `stride` apart.
pub fn columns<const ROWS: usize>(groups: &Groups, bits: u32, rows: [&[u8]; ROWS], out: &mut [u8], stride: usize) {
    assert!(groups.fit(&rows, out, stride), "rows have the width that the weights are for");
    // SAFETY: aarch64 has NEON. The rows are as long as the groups need.
    unsafe {
        match groups.steps {
            1 => columns_neon::<ROWS, 1>(groups, bits, rows, out, stride),
            2 => columns_neon::<ROWS, 2>(groups, bits, rows, out, stride),
            _ => columns_neon::<ROWS, 0>(groups, bits, rows, out, stride),
        }
    }
}

/// Does the work of [`columns`]. `STEPS` is 0 if the number of steps is known only at run time.
///
/// # Safety
/// Rows and outputs [`fit`](Groups::fit).
#[target_feature(enable = "neon")]
unsafe fn columns_neon<const ROWS: usize, const STEPS: usize>(
    groups: &Groups,
    bits: u32,
    rows: [&[u8]; ROWS],
    out: &mut [u8],
    stride: usize,
) {
    let steps = if STEPS == 0 { groups.steps } else { STEPS };
    let round = vdupq_n_s32(1 << (bits - 1));
    let right_by = vdupq_n_s32(-(bits as i32));
    let rows = rows.map(<[u8]>::as_ptr);
    let mut at = 0;
    for (two, weights) in groups.twos.iter().zip(groups.weights.chunks_exact(steps)) {
        for half in 0..2 {
            let bytes: uint8x16_t = transmute!(two.bytes[half]);
            let mut sums = [round; ROWS];
            for (step, weights) in weights.iter().enumerate() {
                let weights: int16x8_t = transmute!(weights[half]);
                for (sum, row) in sums.iter_mut().zip(rows) {
                    // SAFETY: 16 bytes; `Groups::make` has placed every step within the rows of inputs.
                    let inputs = unsafe { vld1q_u8(row.add(two.offsets[half] as usize + STEP * step)) };
                    let taps = vreinterpretq_s16_u8(vqtbl1q_u8(inputs, bytes));
                    *sum = vmlal_s16(*sum, vget_low_s16(taps), vget_low_s16(weights));
                    *sum = vmlal_high_s16(*sum, taps, weights);
                }
            }
            for (row, sum) in sums.into_iter().enumerate() {
                let values = vqmovun_s32(vshlq_s32(sum, right_by));
                let values: [u8; 8] = transmute!(vqmovn_u16(vcombine_u16(values, values)));
                out[row * stride + at..][..4].copy_from_slice(&values[..4]);
            }
            at += if groups.dense { 4 } else { 3 };
        }
    }
}

/// See [`super::rows::make_row`].
pub fn rows(rows: &[u8], stride: usize, weights: &[i16], bits: u32, out: &mut [u8]) {
    assert!(rows.len() >= weights.len() * stride, "a row for each weight");
    assert!(stride >= out.len().next_multiple_of(VALUES_AT_ONCE), "rows have room behind their pixels");
    // SAFETY: aarch64 has NEON. The assertions check the number and length of the rows.
    unsafe { rows_neon(rows, stride, weights, bits, out) }
}

/// # Safety
/// There is a row for each weight, of a multiple of [`VALUES_AT_ONCE`] bytes that holds `out`.
#[target_feature(enable = "neon")]
unsafe fn rows_neon(rows: &[u8], stride: usize, weights: &[i16], bits: u32, out: &mut [u8]) {
    let round = vdupq_n_s32(1 << (bits - 1));
    let right_by = vdupq_n_s32(-(bits as i32));
    for (number, out) in out.chunks_mut(VALUES_AT_ONCE / 2).enumerate() {
        let mut sums = [round; 4];
        for (row, &weight) in weights.iter().enumerate() {
            // SAFETY: the row has 16 more bytes.
            let values = unsafe { vld1q_u8(rows.as_ptr().add(row * stride + number * VALUES_AT_ONCE / 2)) };
            let low = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(values)));
            let high = vreinterpretq_s16_u16(vmovl_high_u8(values));
            sums = [
                vmlal_n_s16(sums[0], vget_low_s16(low), weight),
                vmlal_high_n_s16(sums[1], low, weight),
                vmlal_n_s16(sums[2], vget_low_s16(high), weight),
                vmlal_high_n_s16(sums[3], high, weight),
            ];
        }
        let [a, b, c, d] = sums.map(|sum| vqmovun_s32(vshlq_s32(sum, right_by)));
        let values = vcombine_u8(vqmovn_u16(vcombine_u16(a, b)), vqmovn_u16(vcombine_u16(c, d)));
        let values: [u8; 16] = transmute!(values);
        out.copy_from_slice(&values[..out.len()]);
    }
}
