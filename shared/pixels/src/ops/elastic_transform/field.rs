//! Distances for all pixels of an image: noise, blurred by a Gaussian function. Everything is computed in 32-bit floats
//! with + and ×, in one order, so every machine gets the same distances.

#![allow(unsafe_code)]

use crate::level::{Level, for_levels};

/// How distances along one axis are made.
pub struct Field {
    /// Width and height of the image.
    pub size: (u32, u32),
    /// Standard deviation along x and y, in pixels; 0 for no blur.
    pub sigma: [f32; 2],
    /// Half the length of the kernel in both directions, without its middle.
    pub radius: u32,
}

impl Field {
    /// Writes noise, blurred and multiplied by `factor`, to `out`. `noise` returns the noise of a pixel by the pixel's
    /// number. `between` is memory for the same number of distances.
    pub fn make(&self, noise: impl Fn(u64) -> f32, factor: f32, between: &mut [f32], out: &mut [f32]) {
        let Self { size: (width, height), sigma, radius } = *self;
        (0..).zip(&mut *out).for_each(|(number, distance)| *distance = noise(number));
        if sigma[0] > 0.0 {
            let (level, width) = (Level::best(), width as usize);
            let [across, down] = sigma.map(|sigma| weights(sigma, radius));
            let mut padded = vec![0.0; width + 2 * radius as usize];
            for (row, blurred) in out.chunks_exact(width).zip(between.chunks_exact_mut(width)) {
                for (at, value) in (-i64::from(radius)..).zip(&mut padded) {
                    *value = row[mirrored(at, width as u32)];
                }
                let taps: Vec<&[f32]> = (0..across.len()).map(|tap| &padded[tap..][..width]).collect();
                weigh(level, &taps, &across, blurred);
            }
            for (y, row) in (0..).zip(out.chunks_exact_mut(width)) {
                let first = y - i64::from(radius);
                let around = (first..).take(down.len()).map(|y| &between[mirrored(y, height) * width..][..width]);
                weigh(level, &around.collect::<Vec<_>>(), &down, row);
            }
        }
        out.iter_mut().for_each(|distance| *distance *= factor);
    }
}

/// Returns the weights of a Gaussian kernel, which add up to 1.
fn weights(sigma: f32, radius: u32) -> Vec<f32> {
    let value = |distance: i64| {
        let deviations = distance as f64 / f64::from(sigma);
        libm::exp(-0.5 * deviations * deviations)
    };
    let values: Vec<f64> = (-i64::from(radius)..=i64::from(radius)).map(value).collect();
    let sum: f64 = values.iter().sum();
    values.into_iter().map(|value| (value / sum) as f32).collect()
}

/// Returns the index that stands for one outside of a row or column: mirrored at its outermost value.
fn mirrored(at: i64, length: u32) -> usize {
    let (at, last) = (at.abs(), i64::from(length) - 1);
    (if at > last { 2 * last - at } else { at }) as usize
}

for_levels! {
    /// Adds up rows, each times its weight.
    weigh = weigh_rows(rows: &[&[f32]], weights: &[f32], out: &mut [f32])
}

/// Values that are summed together.
const BLOCK: usize = 64;

#[inline(always)]
fn weigh_rows(rows: &[&[f32]], weights: &[f32], out: &mut [f32]) {
    for (first, part) in (0..).step_by(BLOCK).zip(out.chunks_mut(BLOCK)) {
        let mut sums = [0.0; BLOCK];
        for (row, weight) in rows.iter().zip(weights) {
            for (sum, value) in sums.iter_mut().zip(&row[first..][..part.len()]) {
                *sum += weight * value;
            }
        }
        part.copy_from_slice(&sums[..part.len()]);
    }
}
