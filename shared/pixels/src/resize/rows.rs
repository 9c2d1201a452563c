//! The pass over rows: makes one row of outputs from several rows of inputs.

#![allow(unsafe_code)]

#[cfg(not(target_arch = "aarch64"))]
use super::groups::VALUES_AT_ONCE;
use crate::level::Level;

/// Makes a row of values from rows that begin `stride` apart, one for each of an even number of weights, which have
/// `bits` bits after the point. May read a little beyond the length of `out`, up to a multiple of
/// [`VALUES_AT_ONCE`](super::groups::VALUES_AT_ONCE).
pub fn make_row(level: Level, rows: &[u8], stride: usize, weights: &[i16], bits: u32, out: &mut [u8]) {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2(token) => super::x86::rows(token, rows, stride, weights, bits, out),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a `Sse41` is made only where the processor has SSE4.1.
        Level::Sse41(_) => unsafe { portable_sse41(rows, stride, weights, bits, out) },
        #[cfg(target_arch = "aarch64")]
        Level::Base => super::neon::rows(rows, stride, weights, bits, out),
        #[cfg(not(target_arch = "aarch64"))]
        Level::Base => portable(rows, stride, weights, bits, out),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.1")]
fn portable_sse41(rows: &[u8], stride: usize, weights: &[i16], bits: u32, out: &mut [u8]) {
    portable(rows, stride, weights, bits, out);
}

#[cfg(not(target_arch = "aarch64"))]
#[inline(always)]
fn portable(rows: &[u8], stride: usize, weights: &[i16], bits: u32, out: &mut [u8]) {
    for (number, out) in out.chunks_mut(VALUES_AT_ONCE).enumerate() {
        let mut sums = [1 << (bits - 1); VALUES_AT_ONCE];
        for (row, &weight) in rows.chunks_exact(stride).zip(weights) {
            let values: &[u8; VALUES_AT_ONCE] =
                row[number * VALUES_AT_ONCE..].first_chunk().expect("rows have room behind their pixels");
            for (sum, &value) in sums.iter_mut().zip(values) {
                *sum += i32::from(value) * i32::from(weight);
            }
        }
        for (out, sum) in out.iter_mut().zip(sums) {
            *out = (sum >> bits).clamp(0, 255) as u8;
        }
    }
}
