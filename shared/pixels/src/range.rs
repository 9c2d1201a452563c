//! Checks whether every build of libjpeg's integer inverse DCT gives the same result for a block of coefficients.
//!
//! The C code computes in 32 bits and looks its results up in a table that wraps beyond ±512; the SIMD code adds in 16
//! bits and saturates. They agree if each sum of two dequantised coefficients, each sum of two results of the first
//! pass and each result stays in its range. The coefficients that an encoder makes of 8-bit samples stay far inside.

use std::ops::RangeInclusive;

/// Bits of the fixed-point constants, and bits kept after the first pass (jidctint.c).
const CONST_BITS: u32 = 13;
const PASS1_BITS: u32 = 2;

/// Largest sum in 16 bits.
const SUM_MAX: i64 = i16::MAX as i64;
/// Largest result before the level shift: the range in which the C code's table clamps.
const RESULT_MAX: i64 = 511;
/// Sum of a block's magnitudes up to which it is certainly in range: each basis function is at most 1/4, both
/// directions taken together.
const SURE_SUM: i64 = 4 * RESULT_MAX - 4;
/// Largest coefficient that an encoder can make of samples in -128..=127: the DCT of 8 × 8 of them reaches 1024.
const ENCODER_MAX: i64 = 1024;
/// Quantised coefficients that the Huffman codes of 8-bit files can express. The first coefficient of a block is coded
/// as its difference from the first coefficient of the block before, in 11 bits; the others have 10 bits.
const FIRST_CODED: RangeInclusive<i16> = -1024..=1023;
const OTHERS_CODED: RangeInclusive<i16> = -1023..=1023;

/// Brings a block into range and returns the number of coefficients changed.
///
/// Clamps the coefficients to an encoder's range. While their sums still leave the range, halves all but the first one.
pub(crate) fn bring_into_range(block: &mut [i16; 64], quant: &[u16; 64]) -> u32 {
    if is_in_range(block, quant) { 0 } else { clamp(block, quant) }
}

/// Makes a block encodable and brings it into range; returns the number of coefficients changed.
///
/// With a quantisation step of 1, a block in range may hold coefficients that cannot be encoded: a decoder takes up to
/// 15 bits.
pub(crate) fn make_encodable(block: &mut [i16; 64], quant: &[u16; 64]) -> u32 {
    let is_coded = FIRST_CODED.contains(&block[0]) && block[1..].iter().all(|value| OTHERS_CODED.contains(value));
    if is_coded { bring_into_range(block, quant) } else { clamp(block, quant) }
}

fn clamp(block: &mut [i16; 64], quant: &[u16; 64]) -> u32 {
    let before = *block;
    for (value, &step) in block.iter_mut().zip(quant) {
        let step = i64::from(step.max(1));
        let limit = (ENCODER_MAX + step / 2) / step;
        *value = (i64::from(*value).clamp(-limit, limit) as i16).clamp(*OTHERS_CODED.start(), *OTHERS_CODED.end());
    }
    while !is_in_range(block, quant) {
        if block[1..].iter().all(|&value| value == 0) {
            block[0] = 0;
        }
        for value in &mut block[1..] {
            *value /= 2;
        }
    }
    before.iter().zip(block.iter()).filter(|(before, after)| before != after).count() as u32
}

/// Returns whether every build decodes a block to the same samples.
pub(crate) fn is_in_range(block: &[i16; 64], quant: &[u16; 64]) -> bool {
    let mut sum = 0;
    let mut values = [0i64; 64];
    for ((value, &coefficient), &step) in values.iter_mut().zip(block).zip(quant) {
        *value = i64::from(coefficient) * i64::from(step);
        sum += value.abs();
    }
    sum <= SURE_SUM || decodes_alike(&values)
}

/// Returns the samples of a block, computed in wide integers, if every build decodes it to the same ones.
#[cfg(test)]
pub(crate) fn samples(block: &[i16; 64], quant: &[u16; 64]) -> Option<[u8; 64]> {
    let values = std::array::from_fn(|i| i64::from(block[i]) * i64::from(quant[i]));
    let columns: [[i64; 8]; 8] =
        std::array::from_fn(|x| inverse(&std::array::from_fn(|v| values[8 * v + x]), CONST_BITS - PASS1_BITS));
    let row = |y: usize| inverse(&std::array::from_fn(|x| columns[x][y]), CONST_BITS + PASS1_BITS + 3);
    let sample = |value: i64| (value + 128).clamp(0, 255) as u8;
    decodes_alike(&values).then(|| std::array::from_fn(|i| sample(row(i / 8)[i % 8])))
}

/// Computes the inverse DCT in wide integers, and returns whether every quantity that some build holds in 16 bits fits.
fn decodes_alike(values: &[i64; 64]) -> bool {
    let mut between = [0i64; 64];
    for column in 0..8 {
        let input = std::array::from_fn(|i| values[8 * i + column]);
        if !sums_fit(&input) {
            return false;
        }
        let output = inverse(&input, CONST_BITS - PASS1_BITS);
        for (i, value) in output.into_iter().enumerate() {
            between[8 * i + column] = value;
        }
    }
    between.as_chunks::<8>().0.iter().all(|input| {
        sums_fit(input) && inverse(input, CONST_BITS + PASS1_BITS + 3).iter().all(|result| result.abs() <= RESULT_MAX)
    })
}

fn sums_fit(input: &[i64; 8]) -> bool {
    let fits = |i: usize, j: usize| input[i].abs() + input[j].abs() <= SUM_MAX;
    fits(0, 4) && fits(2, 6) && fits(7, 3) && fits(5, 1) && fits(7, 1) && fits(5, 3)
}

/// Does one pass of jidctint.c's `jpeg_idct_islow`.
fn inverse(input: &[i64; 8], shift: u32) -> [i64; 8] {
    let z1 = (input[2] + input[6]) * 4433;
    let (even2, even3) = (z1 - input[6] * 15137, z1 + input[2] * 6270);
    let even0 = (input[0] + input[4]) << CONST_BITS;
    let even1 = (input[0] - input[4]) << CONST_BITS;
    let even = [even0 + even3, even1 + even2, even1 - even2, even0 - even3];

    let [z1, z2, z3, z4] = [input[7] + input[1], input[5] + input[3], input[7] + input[3], input[5] + input[1]];
    let z5 = (z3 + z4) * 9633;
    let (z1, z2) = (-z1 * 7373, -z2 * 20995);
    let (z3, z4) = (-z3 * 16069 + z5, -z4 * 3196 + z5);
    let odd =
        [input[1] * 12299 + z1 + z4, input[3] * 25172 + z2 + z3, input[5] * 16819 + z2 + z4, input[7] * 2446 + z1 + z3];

    let descale = |value: i64| (value + (1 << (shift - 1))) >> shift;
    std::array::from_fn(|i| descale(if i < 4 { even[i] + odd[i] } else { even[7 - i] - odd[7 - i] }))
}

#[cfg(test)]
mod tests;
