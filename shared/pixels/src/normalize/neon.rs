//! Normalising by NEON.

#![allow(unsafe_code)]

use std::arch::aarch64::*;
use std::arch::asm;
use std::ops::Range;

use super::float::Float;
use super::formula::Formula;
use crate::field::DType;
use crate::level::Level;

/// Pixels made at once.
const PIXELS_AT_ONCE: usize = 16;

const F16: u16 = DType::F16.code();
const BF16: u16 = DType::Bf16.code();
const F32: u16 = DType::F32.code();

/// Makes the pixels that fill registers, and returns their range.
pub fn make<T: Float>(_: Level, formula: &Formula, pixels: &[[u8; 3]], planes: [&mut [T]; 3]) -> Range<usize> {
    assert!(planes.iter().all(|plane| plane.len() == pixels.len()), "each plane has a value for each pixel");
    let planes = planes.map(|plane| plane.as_mut_ptr().cast());
    // SAFETY: aarch64 has NEON. Planes have room for all pixels, in floats of the type that is named.
    unsafe {
        match T::DTYPE {
            DType::F16 => make_as::<F16>(formula, pixels, planes),
            DType::Bf16 => make_as::<BF16>(formula, pixels, planes),
            DType::F32 => make_as::<F32>(formula, pixels, planes),
            DType::U8 | DType::I64 => 0..0,
        }
    }
}

/// # Safety
/// Each plane has room for a value of each pixel, of the type with the number `DTYPE`: F16, BF16 or F32.
#[target_feature(enable = "neon")]
unsafe fn make_as<const DTYPE: u16>(formula: &Formula, pixels: &[[u8; 3]], planes: [*mut u8; 3]) -> Range<usize> {
    let bytes = if DTYPE == F32 { 4 } else { 2 };
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
                    match DTYPE {
                        F16 => vst1_u16(out.cast(), round_to_f16(result)),
                        BF16 => vst1_u16(out.cast(), round_to_bf16(result)),
                        _ => vst1q_f32(out.cast(), result),
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
fn round_to_f16(values: float32x4_t) -> uint16x4_t {
    let halves;
    // SAFETY: a NEON instruction from one register to another.
    unsafe {
        asm!("fcvtn {halves:v}.4h, {values:v}.4s", halves = out(vreg) halves, values = in(vreg) values,
            options(pure, nomem, nostack, preserves_flags));
    }
    halves
}

/// Rounds to bf16: to nearest, ties to even.
#[inline]
#[target_feature(enable = "neon")]
fn round_to_bf16(values: float32x4_t) -> uint16x4_t {
    let bits = vreinterpretq_u32_f32(values);
    let is_odd = vandq_u32(vshrq_n_u32::<16>(bits), vdupq_n_u32(1));
    vshrn_n_u32::<16>(vaddq_u32(bits, vaddq_u32(is_odd, vdupq_n_u32(0x7FFF))))
}
