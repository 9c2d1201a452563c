//! By AVX2, FMA and F16C.

use std::arch::x86_64::*;

use half::f16;

use super::formula::Formula;

/// Says that this processor has AVX2, FMA and F16C.
#[derive(Clone, Copy, Debug)]
pub struct Vectors(());

/// Pixels at once.
const AT_ONCE: usize = 8;

impl Vectors {
    pub fn of_this_machine() -> Option<Self> {
        let found =
            is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
        found.then_some(Self(()))
    }

    /// Makes as many pixels as fill registers and tells how many.
    pub fn f32(self, formula: &Formula, pixels: &[[u8; 3]], planes: [&mut [f32]; 3]) -> usize {
        assert!(planes.iter().all(|plane| plane.len() == pixels.len()), "a value in each plane for each pixel");
        let planes = planes.map(|plane| plane.as_mut_ptr().cast());
        // SAFETY: a `Vectors` is made only where the processor has the instructions. Planes have room for all pixels.
        unsafe { make::<false>(formula, pixels, planes) }
    }

    /// As [`f32`](Self::f32).
    pub fn f16(self, formula: &Formula, pixels: &[[u8; 3]], planes: [&mut [f16]; 3]) -> usize {
        assert!(planes.iter().all(|plane| plane.len() == pixels.len()), "a value in each plane for each pixel");
        let planes = planes.map(|plane| plane.as_mut_ptr().cast());
        // SAFETY: as above; an `f16` is the two bytes that the processor makes.
        unsafe { make::<true>(formula, pixels, planes) }
    }
}

/// # Safety
/// Each plane has room for a value of each pixel, of two bytes or four.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn make<const HALF: bool>(formula: &Formula, pixels: &[[u8; 3]], planes: [*mut u8; 3]) -> usize {
    let bytes = if HALF { 2 } else { 4 };
    let [scale, offset] = [formula.scale, formula.offset].map(|channels| channels.map(|value| _mm256_set1_ps(value)));
    let fine = formula.fine.as_ref();
    let fine = fine.map(|fine| [fine.scale, fine.offset].map(|channels| channels.map(|value| _mm256_set1_ps(value))));
    // Of 24 bytes, the first 16 are in the left half, the last 16 in the right one: four pixels' values of a channel of each.
    let places: [__m256i; 3] = std::array::from_fn(|channel| {
        let place = |i: usize| if i < 4 { channel + 3 * i } else { channel + 3 * i - 8 };
        let places: [i32; 8] = std::array::from_fn(|i| place(i) as i32 | !0xFF);
        zerocopy::transmute!(places)
    });
    let (eights, _) = pixels.as_chunks::<AT_ONCE>();
    for (number, eight) in eights.iter().enumerate() {
        let eight = eight.as_ptr().cast::<u8>();
        // SAFETY: 24 bytes.
        let (left, right) = unsafe { (_mm_loadu_si128(eight.cast()), _mm_loadu_si128(eight.add(8).cast())) };
        let both = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(left), right);
        for channel in 0..3 {
            let values = _mm256_cvtepi32_ps(_mm256_shuffle_epi8(both, places[channel]));
            let mut result = _mm256_fmadd_ps(values, scale[channel], offset[channel]);
            if let Some([scale, offset]) = fine {
                result = _mm256_add_ps(result, _mm256_fmadd_ps(values, scale[channel], offset[channel]));
            }
            // SAFETY: room for 8 pixels from this one on.
            unsafe {
                let out = planes[channel].add(number * AT_ONCE * bytes);
                if HALF {
                    _mm_storeu_si128(out.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(result));
                } else {
                    _mm256_storeu_ps(out.cast(), result);
                }
            }
        }
    }
    eights.len() * AT_ONCE
}
