//! Normalising by AVX2, FMA and F16C.

#![allow(unsafe_code)]

use std::arch::x86_64::*;
use std::ops::Range;

use super::float::Float;
use super::formula::Formula;
use crate::field::DType;
use crate::level::Level;

/// Pixels made at once.
const PIXELS_AT_ONCE: usize = 32;
/// Bytes of a register.
const REGISTER: usize = 32;

const F16: u16 = DType::F16.code();
const BF16: u16 = DType::Bf16.code();
const F32: u16 = DType::F32.code();

/// Makes the pixels that fill registers, and returns their range.
pub fn make<T: Float>(level: Level, formula: &Formula, pixels: &[[u8; 3]], planes: [&mut [T]; 3]) -> Range<usize> {
    assert!(planes.iter().all(|plane| plane.len() == pixels.len()), "each plane has a value for each pixel");
    let planes = planes.map(|plane| plane.as_mut_ptr().cast());
    let Level::Avx2(_) = level else { return 0..0 };
    // SAFETY: an `Avx2` is made only where the processor has the instructions. Planes have room for all pixels, in
    // floats of the type that is named.
    unsafe {
        match T::DTYPE {
            DType::F16 => make_as::<F16>(formula, pixels, planes),
            DType::Bf16 => make_as::<BF16>(formula, pixels, planes),
            DType::F32 => make_as::<F32>(formula, pixels, planes),
            DType::U8 | DType::I64 => 0..0,
        }
    }
}

#[inline]
#[target_feature(enable = "avx")]
fn broadcast([red, green, blue]: &[f32; 3]) -> [__m256; 3] {
    [_mm256_set1_ps(*red), _mm256_set1_ps(*green), _mm256_set1_ps(*blue)]
}

/// Rounds to bf16: to nearest, ties to even.
#[inline]
#[target_feature(enable = "avx2")]
fn round_to_bf16(values: __m256) -> __m128i {
    let bits = _mm256_castps_si256(values);
    let is_odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
    let rounded = _mm256_add_epi32(bits, _mm256_add_epi32(is_odd, _mm256_set1_epi32(0x7FFF)));
    let cut = _mm256_srli_epi32::<16>(rounded);
    _mm_packus_epi32(_mm256_castsi256_si128(cut), _mm256_extracti128_si256::<1>(cut))
}

/// # Safety
/// Each plane has room for a value of each pixel, of the type with the number `DTYPE`: F16, BF16 or F32.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn make_as<const DTYPE: u16>(formula: &Formula, pixels: &[[u8; 3]], planes: [*mut u8; 3]) -> Range<usize> {
    let bytes = if DTYPE == F32 { 4 } else { 2 };
    let (scale, offset) = (broadcast(&formula.scale), broadcast(&formula.offset));
    let fine = formula.fine.as_ref();
    let fine = fine.map(|fine| [broadcast(&fine.scale), broadcast(&fine.offset)]);
    // Of 24 bytes, the left half of a register gets the first 16 and the right half the last 16: four values of each
    // channel.
    let places: [__m256i; 3] = std::array::from_fn(|channel| {
        let place = |i: usize| if i < 4 { channel + 3 * i } else { channel + 3 * i - 8 };
        let places: [i32; 8] = std::array::from_fn(|i| place(i) as i32 | !0xFF);
        zerocopy::transmute!(places)
    });
    let made = |both: __m256i, channel: usize| {
        let values = _mm256_cvtepi32_ps(_mm256_shuffle_epi8(both, places[channel]));
        let result = _mm256_fmadd_ps(values, scale[channel], offset[channel]);
        match fine {
            Some([scale, offset]) => _mm256_add_ps(result, _mm256_fmadd_ps(values, scale[channel], offset[channel])),
            None => result,
        }
    };
    // From this pixel on, no store crosses a cache line, if the planes are equally aligned.
    let first = (planes[0].align_offset(REGISTER) / bytes).min(pixels.len());
    let (blocks, _) = pixels[first..].as_chunks::<PIXELS_AT_ONCE>();
    for (number, block) in blocks.iter().enumerate() {
        let (eights, _) = block.as_chunks::<8>();
        let both: [__m256i; PIXELS_AT_ONCE / 8] = std::array::from_fn(|i| {
            let eight = eights[i].as_ptr().cast::<u8>();
            // SAFETY: `eight` has 24 bytes.
            let (left, right) = unsafe { (_mm_loadu_si128(eight.cast()), _mm_loadu_si128(eight.add(8).cast())) };
            _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(left), right)
        });
        // One channel at a time, so that whole cache lines are written.
        for (channel, plane) in planes.iter().enumerate() {
            for (i, &both) in both.iter().enumerate() {
                let result = made(both, channel);
                // SAFETY: the plane has room for 8 pixels from here on.
                unsafe {
                    let out = plane.add((first + number * PIXELS_AT_ONCE + 8 * i) * bytes);
                    match DTYPE {
                        F16 => _mm_storeu_si128(out.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(result)),
                        BF16 => _mm_storeu_si128(out.cast(), round_to_bf16(result)),
                        _ => _mm256_storeu_ps(out.cast(), result),
                    }
                }
            }
        }
    }
    first..first + blocks.len() * PIXELS_AT_ONCE
}
