//! Changes of colours, in 32-bit floats by torchvision's formulas. Every addition, multiplication and division rounds
//! as IEEE 754 says and is not contracted, so every machine and every set of vector instructions gives the same values.

#![allow(unsafe_code)]

use crate::level::{Level, for_levels};

/// Pixels that change at once, as planes of floats.
const BLOCK: usize = 64;
/// Weights of red, green and blue in a gray value: torchvision's, from ITU-R BT.601.
const GRAY: [f32; 3] = [0.2989, 0.587, 0.114];
/// Factor by which torchvision multiplies a value from 0 to 1, before it drops the fraction.
const WHITE: f32 = 255.999;

/// Planes of a block: red, green and blue.
type BlockPlanes = [[f32; BLOCK]; 3];
/// The pixels of a block.
type PixelBlock = [[u8; 3]; BLOCK];

for_levels! {
    /// Turns each value v into factor × v + plus, within 0 and 255 and without its fraction.
    scale = scale_values(pixels: &mut [u8], factor: f32, plus: f32)
}
for_levels! {
    /// Returns the sum of the pixels' gray values.
    sum_of_grays = sum_gray_values(pixels: &[u8]) -> u64
}
for_levels! {
    /// Turns each pixel into its gray value.
    make_gray = make_gray_values(pixels: &mut [u8])
}
for_levels! {
    /// Turns each value v into factor × v + rest × gray value of its pixel, within 0 and 255 and without its fraction.
    blend_with_gray = blend_values(pixels: &mut [u8], factor: f32, rest: f32)
}
for_levels! {
    /// Turns each value v into v + share × (smoothed value − v), within 0 and 255 and without its fraction. `around`
    /// has the row above, the row itself and the row below, from the pixel before the first one to the pixel behind the
    /// last one.
    smooth = smooth_values(row: &mut [u8], around: [&[u8]; 3], share: f32)
}
for_levels! {
    /// Turns the hue of each pixel by `sixths` of the colour circle, from −3 to 3.
    turn_hue = turn_hue_values(pixels: &mut [u8], sixths: f32)
}

/// Returns the value without its fraction.
///
/// # Safety
///
/// The value lies above −1 and below 256.
#[inline(always)]
unsafe fn whole(value: f32) -> i32 {
    // SAFETY: an i32 has room for the value (the caller's promise).
    unsafe { value.to_int_unchecked::<i32>() }
}

/// Returns the value, limited to 0 to 255; 0 if it is NaN.
#[inline(always)]
fn within(value: f32) -> f32 {
    let value = if value > 0.0 { value } else { 0.0 };
    if value < 255.0 { value } else { 255.0 }
}

/// Returns the gray value of a pixel whose values lie between 0 and 255.
#[inline(always)]
fn gray(red: f32, green: f32, blue: f32) -> i32 {
    // SAFETY: the weights are positive, and their sum is below 1.
    unsafe { whole(within(GRAY[0] * red + GRAY[1] * green + GRAY[2] * blue)) }
}

#[inline(always)]
fn scale_values(pixels: &mut [u8], factor: f32, plus: f32) {
    for value in pixels {
        // SAFETY: `within` returns nothing outside 0 and 255.
        *value = unsafe { whole(within(factor * f32::from(*value) + plus)) } as u8;
    }
}

#[inline(always)]
fn sum_gray_values(pixels: &[u8]) -> u64 {
    let (blocks, rest) = pixels.as_chunks::<3>().0.as_chunks::<BLOCK>();
    let mut sum = 0;
    for block in blocks {
        for gray in grays(block) {
            sum += u64::from(gray);
        }
    }
    for &pixel in rest {
        sum += u64::from(gray_of(pixel));
    }
    sum
}

#[inline(always)]
fn make_gray_values(pixels: &mut [u8]) {
    let (blocks, rest) = pixels.as_chunks_mut::<3>().0.as_chunks_mut::<BLOCK>();
    for block in blocks {
        let grays = grays(block);
        join(&[grays; 3], block);
    }
    rest.iter_mut().for_each(|pixel| *pixel = [gray_of(*pixel); 3]);
}

#[inline(always)]
fn gray_of(pixel: [u8; 3]) -> u8 {
    let [red, green, blue] = pixel.map(f32::from);
    gray(red, green, blue) as u8
}

/// Returns the gray values of a block.
#[inline(always)]
fn grays(block: &PixelBlock) -> [u8; BLOCK] {
    let ([red, green, blue], mut grays) = (separated(block), [0; BLOCK]);
    for at in 0..BLOCK {
        grays[at] = gray_of([red[at], green[at], blue[at]]);
    }
    grays
}

/// Returns the channels of a block. Separating them before they become floats compiles to shuffles.
#[inline(always)]
fn separated(block: &PixelBlock) -> [[u8; BLOCK]; 3] {
    let mut planes = [[0; BLOCK]; 3];
    for at in 0..BLOCK {
        [planes[0][at], planes[1][at], planes[2][at]] = block[at];
    }
    planes
}

/// Makes the pixels of a block from its channels.
#[inline(always)]
fn join([red, green, blue]: &[[u8; BLOCK]; 3], block: &mut PixelBlock) {
    for at in 0..BLOCK {
        block[at] = [red[at], green[at], blue[at]];
    }
}

#[inline(always)]
fn blend_values(pixels: &mut [u8], factor: f32, rest: f32) {
    change_blocks(pixels, |[red, green, blue]| {
        for at in 0..BLOCK {
            let plus = rest * gray(red[at], green[at], blue[at]) as f32;
            red[at] = factor * red[at] + plus;
            green[at] = factor * green[at] + plus;
            blue[at] = factor * blue[at] + plus;
        }
    });
}

#[inline(always)]
fn smooth_values(row: &mut [u8], around: [&[u8]; 3], share: f32) {
    let [above, own, below] = around.map(|pixels| &pixels[..row.len() + 6]);
    for (at, value) in row.iter_mut().enumerate() {
        let column = |at: usize| i32::from(above[at]) + i32::from(own[at]) + i32::from(below[at]);
        let sum = column(at) + column(at + 3) + column(at + 6) + 4 * i32::from(own[at + 3]);
        let (own, smoothed) = (f32::from(own[at + 3]), thirteenth(sum) as f32);
        // SAFETY: `within` returns nothing outside 0 and 255.
        *value = unsafe { whole(within(own + share * (smoothed - own))) } as u8;
    }
}

/// Returns a thirteenth of the sum of thirteen values, rounded to the nearest whole number: no half occurs.
#[inline(always)]
fn thirteenth(sum: i32) -> i32 {
    // 5042 / 65 536 is so close to 1 / 13 that the result is exact.
    ((sum + 6) * 5042) >> 16
}

#[inline(always)]
fn turn_hue_values(pixels: &mut [u8], sixths: f32) {
    change_blocks(pixels, |[red, green, blue]| {
        for at in 0..BLOCK {
            let pixel = [red[at], green[at], blue[at]];
            [red[at], green[at], blue[at]] = turn_pixel(pixel, sixths);
        }
    });
}

/// Turns the hue of a pixel.
///
/// The hue h, in sixths of the circle, follows from the largest value v and the range c of the values as in the usual
/// conversion to HSV. A channel of the result is v − c × min(k, 4 − k), the minimum limited to 0 to 1, where k is
/// h + n modulo 6, and n is 5 for red, 3 for green, 1 for blue.
#[inline(always)]
fn turn_pixel([red, green, blue]: [f32; 3], sixths: f32) -> [f32; 3] {
    let greater = |a, b| if a > b { a } else { b };
    let lesser = |a, b| if a < b { a } else { b };
    let most = greater(greater(red, green), blue);
    let range = most - lesser(lesser(red, green), blue);
    let over = 1.0 / if range > 0.0 { range } else { 1.0 };
    let of_green = 2.0 + (blue - red) * over;
    let of_blue = 4.0 + (red - green) * over;
    let hue = if most == green { of_green } else { of_blue };
    let hue = if most == red { (green - blue) * over } else { hue };
    let hue = modulo_6(modulo_6(hue) + sixths);
    [5.0, 3.0, 1.0].map(|n: f32| {
        let k = modulo_6(hue + n);
        let share = lesser(greater(lesser(k, 4.0 - k), 0.0), 1.0);
        (most - range * share) * (WHITE / 255.0)
    })
}

/// Returns a value from −6 to 12 modulo 6.
#[inline(always)]
fn modulo_6(value: f32) -> f32 {
    let value = if value < 0.0 { value + 6.0 } else { value };
    if value >= 6.0 { value - 6.0 } else { value }
}

/// Changes pixels block by block. The results are limited to 0 to 255 and lose their fraction.
#[inline(always)]
fn change_blocks(pixels: &mut [u8], change: impl Fn(&mut BlockPlanes)) {
    let (blocks, rest) = pixels.as_chunks_mut::<3>().0.as_chunks_mut::<BLOCK>();
    for block in blocks {
        change_block(block, &change);
    }
    if !rest.is_empty() {
        let mut block = [[0; 3]; BLOCK];
        block[..rest.len()].copy_from_slice(rest);
        change_block(&mut block, &change);
        rest.copy_from_slice(&block[..rest.len()]);
    }
}

#[inline(always)]
fn change_block(block: &mut PixelBlock, change: &impl Fn(&mut BlockPlanes)) {
    let mut values = separated(block);
    let mut planes = [[0.0; BLOCK]; 3];
    for (plane, values) in planes.iter_mut().zip(&values) {
        for at in 0..BLOCK {
            plane[at] = f32::from(values[at]);
        }
    }
    change(&mut planes);
    for (values, plane) in values.iter_mut().zip(&planes) {
        for at in 0..BLOCK {
            // SAFETY: `within` returns nothing outside 0 and 255.
            values[at] = unsafe { whole(within(plane[at])) } as u8;
        }
    }
    join(&values, block);
}

#[cfg(test)]
mod tests;
