//! Blends images as MixUp does, in every type of elements. Only the host does that, with the images of a batch.
//!
//! Bytes are blended in fixed point, floats of 32 bits by torchvision's formula. Floats of 16 bits are blended as
//! floats of 32 bits, and rounded once.

#![allow(unsafe_code)]

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use zerocopy::{FromBytes, IntoBytes};

use crate::field::DType;
use crate::level::{Level, for_levels};

/// Fraction of the weights of bytes, in bits.
const WEIGHT_BITS: u32 = 15;
/// Floats that are blended at once.
const BLOCK: usize = 256;

/// Replaces each element of `image` by weight × element + (1 − weight) × the element of `other`. Both have elements of
/// this type, in this machine's byte order and aligned. `weight` lies between 0 and 1; bytes take the nearest multiple
/// of 2⁻¹⁵, and round the result to the nearest whole number.
///
/// # Panics
///
/// If the elements are integers of 64 bits, are not aligned, or if the lengths differ.
pub fn blend(dtype: DType, weight: f64, image: &mut [u8], other: &[u8]) {
    assert_eq!(image.len(), other.len(), "both images have the same size");
    let level = Level::best();
    match dtype {
        DType::U8 => blend_weighted(level, weight, image, other),
        DType::F32 => blend_floats(level, elements_mut(image), elements(other), weight as f32, (1.0 - weight) as f32),
        DType::F16 => blend_halves::<f16>(level, weight, image, other),
        DType::Bf16 => blend_halves::<bf16>(level, weight, image, other),
        DType::I64 => panic!("images have no elements of type {dtype}"),
    }
}

fn elements<T: FromBytes + zerocopy::Immutable>(bytes: &[u8]) -> &[T] {
    <[T]>::ref_from_bytes(bytes).expect("whole elements, aligned")
}

fn elements_mut<T: FromBytes + IntoBytes>(bytes: &mut [u8]) -> &mut [T] {
    <[T]>::mut_from_bytes(bytes).expect("whole elements, aligned")
}

fn blend_weighted(level: Level, weight: f64, image: &mut [u8], other: &[u8]) {
    let one = 1 << WEIGHT_BITS;
    match (weight * f64::from(one)).round() as i32 {
        0 => image.copy_from_slice(other),
        // A weight of 1 would not fit 15 bits.
        weight if weight == one => {}
        weight => blend_bytes(level, image, other, weight as i16),
    }
}

for_levels! {
    blend_bytes = blend_byte_values(image: &mut [u8], other: &[u8], weight: i16)
}
for_levels! {
    blend_floats = blend_float_values(image: &mut [f32], other: &[f32], weight: f32, rest: f32)
}

/// Adds to each byte of `other` its difference from the byte of `image`, times `weight`. That is written as the
/// instruction pmulhrsw computes it.
#[inline(always)]
fn blend_byte_values(image: &mut [u8], other: &[u8], weight: i16) {
    for (own, &other) in image.iter_mut().zip(other) {
        let difference = i16::from(*own) - i16::from(other);
        let step = (((i32::from(difference) * i32::from(weight)) >> (WEIGHT_BITS - 1)) + 1) >> 1;
        *own = (i16::from(other) + step as i16) as u8;
    }
}

#[inline(always)]
fn blend_float_values(image: &mut [f32], other: &[f32], weight: f32, rest: f32) {
    for (own, &other) in image.iter_mut().zip(other) {
        *own = other * rest + *own * weight;
    }
}

fn blend_halves<T>(level: Level, weight: f64, image: &mut [u8], other: &[u8])
where
    T: FromBytes + IntoBytes + zerocopy::Immutable,
    [T]: HalfFloatSliceExt,
{
    let (mut own, mut others) = ([0.0; BLOCK], [0.0; BLOCK]);
    let blocks = elements_mut::<T>(image).chunks_mut(BLOCK).zip(elements::<T>(other).chunks(BLOCK));
    for (image, other) in blocks {
        let (own, others) = (&mut own[..image.len()], &mut others[..other.len()]);
        image.convert_to_f32_slice(own);
        other.convert_to_f32_slice(others);
        blend_floats(level, own, others, weight as f32, (1.0 - weight) as f32);
        image.convert_from_f32_slice(own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_the_rounded_weighted_mean_on_every_level() {
        let own: Vec<u8> = (0..=255).flat_map(|value| [value; 256]).collect();
        let other: Vec<u8> = (0..256).flat_map(|_| 0..=255).collect();
        for weight in [0u32, 1, 127, 16_383, 16_384, 20_001, 32_640, 32_767, 32_768] {
            let mean = |own: u8, other: u8| {
                ((u32::from(own) * weight + u32::from(other) * (32_768 - weight) + 16_384) >> 15) as u8
            };
            let expected: Vec<u8> = own.iter().zip(&other).map(|(&own, &other)| mean(own, other)).collect();
            for level in Level::tested() {
                let mut found = own.clone();
                blend_weighted(level, f64::from(weight) / 32_768.0, &mut found, &other);
                assert!(found == expected, "{weight}, {}", level.name());
            }
        }
    }

    #[test]
    fn bytes_of_every_count_are_blended() {
        for count in 0..70 {
            let (mut image, other) = (vec![200; count], vec![100; count]);
            blend(DType::U8, 0.25, &mut image, &other);
            assert_eq!(image, vec![125; count]);
        }
    }

    #[test]
    fn floats_of_16_bits_are_rounded_once() {
        fn check<T: crate::Element + PartialEq>(dtype: DType, round: fn(f32) -> T, value: fn(T) -> f32)
        where
            [T]: HalfFloatSliceExt,
        {
            let (weight, rest) = (0.3_f64 as f32, (1.0 - 0.3_f64) as f32);
            let own: Vec<T> = (0..700).map(|at| round(at as f32 * 0.013 - 2.0)).collect();
            let other: Vec<T> = (0..700).map(|at| round(3.0 - at as f32 * 0.0071)).collect();
            let mean = |(&own, &other)| round(value(other) * rest + value(own) * weight);
            let expected: Vec<T> = own.iter().zip(&other).map(mean).collect();
            let mut found = own.clone();
            blend(dtype, 0.3, found.as_mut_bytes(), other.as_bytes());
            assert!(found == expected, "{dtype}");
        }
        check(DType::F16, f16::from_f32, f16::to_f32);
        check(DType::Bf16, bf16::from_f32, bf16::to_f32);
    }
}
