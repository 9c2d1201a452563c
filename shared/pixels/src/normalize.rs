//! The host's last step: from u8 rows of RGB to float planes, in one pass.
//!
//! A value is (v / 255 − mean) / std, computed once in f64 and rounded once, in a table of 3 × 256 values. Vector
//! instructions compute it by a formula, if that equals the table on all 768 inputs; making the table includes that
//! check. Otherwise values are looked up. Any other path (a GPU) has to equal the table, too.

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
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns every value in every channel, as 256 × 1 pixels of gray.
    fn every_value() -> (Shape, Vec<u8>) {
        let shape = Shape { height: 2, width: 128, channels: 3 };
        (shape, (0..=255).flat_map(|value| [value; 3]).collect())
    }

    #[test]
    fn all_768_inputs_are_the_exact_value_rounded_once() {
        let (shape, pixels) = every_value();
        let normalize = Normalize::imagenet();
        let (mut single, mut half) = (vec![0.0; 768], vec![f16::ZERO; 768]);
        normalize.f32_nchw(&pixels, shape, &mut single);
        normalize.f16_nchw(&pixels, shape, &mut half);
        for channel in 0..3 {
            for value in 0..256 {
                let exact = (value as f64 / 255.0 - IMAGENET_MEAN[channel]) / IMAGENET_STD[channel];
                let at = channel * 256 + value;
                assert_eq!(single[at].to_bits(), (exact as f32).to_bits());
                // Neither neighbour of an f16 is nearer to the exact value.
                let apart = |bits: u16| (f16::from_bits(bits).to_f64() - exact).abs();
                let bits = half[at].to_bits();
                assert!(apart(bits) <= apart(bits + 1) && apart(bits) <= apart(bits - 1));
                assert_eq!(normalize.single[channel][value], single[at]);
                assert_eq!(normalize.half[channel][value], half[at]);
            }
        }
    }

    /// Compares both ways for every value in every channel at every place of a register, and for pixels that do not
    /// fill a register.
    fn by_both_ways(mean: [f64; 3], std: [f64; 3]) -> Normalize {
        let normalize = Normalize::new(mean, std);
        for pixels in [1, 7, 31, 32, 33, 47, 64, 256 * 17, 256 * 17 + 3] {
            let shape = Shape { height: 1, width: pixels, channels: 3 };
            let values = (0..pixels).flat_map(|i| [i, i + i / 16, 5 * i + i / 16].map(|value| (value % 256) as u8));
            let values: Vec<u8> = values.collect();
            // Buffers of any alignment.
            let from = pixels as usize % 5;
            let (mut single, mut half) = (vec![0.0; from + values.len()], vec![f16::ZERO; from + values.len()]);
            let (single, half) = (&mut single[from..], &mut half[from..]);
            normalize.f32_nchw(&values, shape, single);
            normalize.f16_nchw(&values, shape, half);
            let pixels = pixels as usize;
            for (at, &value) in values.iter().enumerate() {
                let (channel, to) = (at % 3, at % 3 * pixels + at / 3);
                assert_eq!(single[to].to_bits(), normalize.single[channel][usize::from(value)].to_bits());
                assert_eq!(half[to].to_bits(), normalize.half[channel][usize::from(value)].to_bits());
            }
        }
        normalize
    }

    #[test]
    fn vectors_give_what_the_table_has() {
        let normalize = by_both_ways(IMAGENET_MEAN, IMAGENET_STD);
        assert!(normalize.formulas.0.is_some() && normalize.formulas.1.is_some(), "there is a formula for ImageNet");
        for (mean, std) in [
            ([0.5; 3], [0.5; 3]),
            ([0.0; 3], [1.0; 3]),
            ([0.0; 3], [1.0 / 255.0; 3]),
            ([0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]),
            ([1e9, 0.0, -3.0], [1e-9, 1e12, -2.0]),
            ([0.5; 3], [1e-310, 1e300, 1e-40]),
        ] {
            by_both_ways(mean, std);
        }
    }

    #[test]
    fn vectors_make_most_of_a_sample_where_there_are_any() {
        let has_vectors = Level::tested().next().is_some_and(|level| ["AVX2", "NEON"].contains(&level.name()));
        let (normalize, pixels) = (Normalize::imagenet(), [[7; 3]; 1000]);
        let mut single = [[0.0; 1000]; 3];
        let mut half = [[f16::ZERO; 1000]; 3];
        let made = [
            normalize.f32_vectors(&pixels, single.each_mut().map(|plane| &mut plane[..])),
            normalize.f16_vectors(&pixels, half.each_mut().map(|plane| &mut plane[..])),
        ];
        assert!(made.iter().all(|made| (made.len() > 900) == has_vectors), "{made:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            rng_seed: proptest::test_runner::RngSeed::Fixed(47),
            ..ProptestConfig::with_cases(256)
        })]

        /// Some of these many values lie so close to the middle between two floats that a second rounding would show.
        #[test]
        fn vectors_round_as_the_formula_does(
            mean in prop::array::uniform3(-1.0..1.0), std in prop::array::uniform3(0.05..1.0)
        ) {
            by_both_ways(mean, std);
        }
    }

    #[test]
    fn a_batch_is_its_samples() {
        let shape = Shape { height: 1, width: 2, channels: 3 };
        let normalize = Normalize::new([0.0; 3], [1.0 / 255.0; 3]);
        let batch = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
        let mut out = [0.0; 12];
        normalize.f32_nchw(&batch, shape, &mut out);
        assert_eq!(out, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0, 7.0, 10.0, 8.0, 11.0, 9.0, 12.0]);
        normalize.f32_nchw(&[], shape, &mut []);
    }

    #[test]
    #[should_panic(expected = "not whole samples")]
    fn a_part_of_a_sample_is_refused() {
        let shape = Shape { height: 1, width: 2, channels: 3 };
        Normalize::imagenet().f32_nchw(&[0; 9], shape, &mut [0.0; 9]);
    }
}
