//! Normalising by NEON.

#![allow(unsafe_code)]

use std::arch::aarch64::*;
use std::arch::asm;
use std::ops::Range;

use half::f16;

use super::formula::Formula;

/// Pixels made at once.
const PIXELS_AT_ONCE: usize = 16;

/// Makes the pixels that fill registers, and returns their range.
pub fn f32(formula: &Formula, pixels: &[[u8; 3]], planes: [&mut [f32]; 3]) -> Range<usize> {
    assert!(planes.iter().all(|plane| plane.len() == pixels.len()), "each plane has a value for each pixel");
    let planes = planes.map(|plane| plane.as_mut_ptr().cast());
    // SAFETY: aarch64 has NEON. Planes have room for all pixels.
    unsafe { make::<false>(formula, pixels, planes) }
}

/// Makes pixels as [`f32`](f32()) does, but as f16.
pub fn f16(formula: &Formula, pixels: &[[u8; 3]], planes: [&mut [f16]; 3]) -> Range<usize> {
    assert!(planes.iter().all(|plane| plane.len() == pixels.len()), "each plane has a value for each pixel");
    let planes = planes.map(|plane| plane.as_mut_ptr().cast());
    // SAFETY: as above; an `f16` is the two bytes that the processor makes.
    unsafe { make::<true>(formula, pixels, planes) }
}

/// # Safety
/// Each plane has room for a value of each pixel, of two bytes or four.
#[target_feature(enable = "neon")]
unsafe fn make<const HALF: bool>(formula: &Formula, pixels: &[[u8; 3]], planes: [*mut u8; 3]) -> Range<usize> {
    let bytes = if HALF { 2 } else { 4 };
    let [scale, offset] = [formula.scale, formula.offset].map(|channels| channels.map(|value| vdupq_n_f32(value)));
    let fine = formula.fine.as_ref();
    let fine = fine.map(|fine| [fine.scale, fine.offset].map(|channels| channels.map(|value| vdupq_n_f32(value))));
    let (sixteens, _) = pixels.as_chunks::<PIXELS_AT_ONCE>();
    for (number, sixteen) in sixteens.iter().enumerate() {
        // SAFETY: `sixteen` has 48 bytes.
        let uint8x16x3_t(red, green, blue) = unsafe { vld3q_u8(sixteen.as_ptr().cast()) };
        for (channel, values) in [red, green, blue].into_iter().enumerate() {
            let (low, high) = (vmovl_u8(vget_low_u8(values)), vmovl_high_u8(values));
            let quarters = [
                vmovl_u16(vget_low_u16(low)),
                vmovl_high_u16(low),
                vmovl_u16(vget_low_u16(high)),
                vmovl_high_u16(high),
            ];
            for (quarter, values) in quarters.into_iter().enumerate() {
                let values = vcvtq_f32_u32(values);
                let mut result = vfmaq_f32(offset[channel], values, scale[channel]);
                if let Some([scale, offset]) = fine {
                    result = vaddq_f32(result, vfmaq_f32(offset[channel], values, scale[channel]));
                }
                // SAFETY: the plane has room for 4 pixels from here on.
                unsafe {
                    let out = planes[channel].add((number * PIXELS_AT_ONCE + quarter * 4) * bytes);
                    if HALF {
                        vst1_u16(out.cast(), halves(result));
                    } else {
                        vst1q_f32(out.cast(), result);
                    }
                }
            }
        }
    }
    0..sixteens.len() * PIXELS_AT_ONCE
}

/// Rounds to f16, for which the language has no stable vector type.
#[inline]
#[target_feature(enable = "neon")]
fn halves(values: float32x4_t) -> uint16x4_t {
    let halves;
    // SAFETY: a NEON instruction from one register to another.
    unsafe {
        asm!("fcvtn {halves:v}.4h, {values:v}.4s", halves = out(vreg) halves, values = in(vreg) values,
            options(pure, nomem, nostack, preserves_flags));
    }
    halves
}
