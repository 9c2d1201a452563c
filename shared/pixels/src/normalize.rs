//! The host's last step: from u8 rows of RGB to float planes, in one pass.
//!
//! A value is (v / 255 − mean) / std, computed once in f64 and rounded once, in a table of 3 × 256 values. Vector
//! instructions compute the value by a formula, if the formula equals the table on all 768 inputs; making the table
//! includes that check. Otherwise values are looked up. Any other implementation, such as one on a GPU, has to equal
//! the table too.

mod formula;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::ops::Range;

use half::f16;

use crate::level::Level;
use crate::pipeline::Shape;
use formula::Formula;

/// Mean of ImageNet's channels, as torchvision's models expect it.
const IMAGENET_MEAN: [f64; 3] = [0.485, 0.456, 0.406];
/// Standard deviation of ImageNet's channels.
const IMAGENET_STD: [f64; 3] = [0.229, 0.224, 0.225];

/// Normalises and casts samples.
#[derive(Clone, Debug)]
pub struct Normalize {
    single: [[f32; 256]; 3],
    half: [[f16; 256]; 3],
    level: Level,
    /// Formulas for f32 and for f16.
    formulas: (Option<Formula>, Option<Formula>),
}

impl Normalize {
    /// Makes tables of (v / 255 − mean) / std for each channel.
    ///
    /// # Panics
    ///
    /// If a standard deviation is 0 or a parameter is not finite.
    pub fn new(mean: [f64; 3], std: [f64; 3]) -> Self {
        assert!(mean.iter().chain(&std).all(|value| value.is_finite()) && !std.contains(&0.0), "{mean:?} {std:?}");
        let exact = |channel: usize, value: usize| (value as f64 / 255.0 - mean[channel]) / std[channel];
        let single = std::array::from_fn(|c| std::array::from_fn(|v| exact(c, v) as f32));
        let half = std::array::from_fn(|c| std::array::from_fn(|v| f16::from_f64_const(exact(c, v))));
        Self {
            level: Level::best(),
            formulas: (Formula::of_f32(mean, std, &single), Formula::of_f16(mean, std, &half)),
            single,
            half,
        }
    }

    /// Makes tables with ImageNet's mean and standard deviation.
    pub fn imagenet() -> Self {
        Self::new(IMAGENET_MEAN, IMAGENET_STD)
    }

    /// Writes samples of `shape`, rows of RGB, as planes of f32: N × C × H × W.
    ///
    /// # Panics
    ///
    /// If the lengths differ or hold a part of a sample, or if the shape does not have 3 channels.
    pub fn f32_nchw(&self, nhwc: &[u8], shape: Shape, out: &mut [f32]) {
        planes(&self.single, nhwc, shape, out, |pixels, planes| self.f32_vectors(pixels, planes));
    }

    /// Writes samples as [`f32_nchw`](Self::f32_nchw) does, but as f16.
    ///
    /// # Panics
    ///
    /// As [`f32_nchw`](Self::f32_nchw).
    pub fn f16_nchw(&self, nhwc: &[u8], shape: Shape, out: &mut [f16]) {
        planes(&self.half, nhwc, shape, out, |pixels, planes| self.f16_vectors(pixels, planes));
    }

    /// Makes the pixels that vector instructions can make, and returns their range.
    fn f32_vectors(&self, pixels: &[[u8; 3]], planes: [&mut [f32]; 3]) -> Range<usize> {
        match (self.level, &self.formulas.0) {
            #[cfg(target_arch = "x86_64")]
            (Level::Avx2(token), Some(formula)) => x86::f32(token, formula, pixels, planes),
            #[cfg(target_arch = "aarch64")]
            (_, Some(formula)) => neon::f32(formula, pixels, planes),
            _ => 0..0,
        }
    }

    /// Makes pixels as [`f32_vectors`](Self::f32_vectors) does, but as f16.
    fn f16_vectors(&self, pixels: &[[u8; 3]], planes: [&mut [f16]; 3]) -> Range<usize> {
        match (self.level, &self.formulas.1) {
            #[cfg(target_arch = "x86_64")]
            (Level::Avx2(token), Some(formula)) => x86::f16(token, formula, pixels, planes),
            #[cfg(target_arch = "aarch64")]
            (_, Some(formula)) => neon::f16(formula, pixels, planes),
            _ => 0..0,
        }
    }
}

/// Makes planes: `vectors` makes pixels and returns their range; the table makes the others.
fn planes<T: Copy>(
    table: &[[T; 256]; 3],
    nhwc: &[u8],
    shape: Shape,
    out: &mut [T],
    vectors: impl Fn(&[[u8; 3]], [&mut [T]; 3]) -> Range<usize>,
) {
    assert_eq!(shape.channels, 3, "a table has three channels");
    assert_eq!(nhwc.len(), out.len(), "input and output have the same number of values");
    let sample = shape.bytes();
    if nhwc.is_empty() {
        return;
    }
    assert!(sample > 0 && nhwc.len().is_multiple_of(sample), "{} values are not whole samples of {sample}", nhwc.len());
    let plane = sample / 3;
    for (pixels, planes) in nhwc.chunks_exact(sample).zip(out.chunks_exact_mut(sample)) {
        let (pixels, _) = pixels.as_chunks::<3>();
        let (red, rest) = planes.split_at_mut(plane);
        let (green, blue) = rest.split_at_mut(plane);
        let done = vectors(pixels, [&mut *red, &mut *green, &mut *blue]);
        for part in [0..done.start, done.end..plane] {
            let pixels = &pixels[part.clone()];
            look_up(table, pixels, [&mut red[part.clone()], &mut green[part.clone()], &mut blue[part]]);
        }
    }
}

fn look_up<T: Copy>(table: &[[T; 256]; 3], pixels: &[[u8; 3]], [red, green, blue]: [&mut [T]; 3]) {
    let [reds, greens, blues] = table;
    for (&[r, g, b], ((red, green), blue)) in pixels.iter().zip(red.iter_mut().zip(green).zip(blue)) {
        *red = reds[usize::from(r)];
        *green = greens[usize::from(g)];
        *blue = blues[usize::from(b)];
    }
}

#[cfg(test)]
mod tests;
