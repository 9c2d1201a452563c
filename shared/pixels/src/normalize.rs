//! The last stage on the host: u8 rows of RGB to float planes, by a table of 3 × 256 values.
//!
//! Each value is (v / 255 − mean) / std, computed once in f64 and rounded once. Any other path (SIMD, GPU) has to equal
//! the table on all 768 inputs.

use half::f16;

use crate::pipeline::Shape;

/// Mean of ImageNet's channels, as torchvision's models expect it.
pub const IMAGENET_MEAN: [f64; 3] = [0.485, 0.456, 0.406];
/// Standard deviation of ImageNet's channels.
pub const IMAGENET_STD: [f64; 3] = [0.229, 0.224, 0.225];

/// Normalises and casts samples.
#[derive(Clone, Debug)]
pub struct Normalize {
    single: [[f32; 256]; 3],
    half: [[f16; 256]; 3],
}

impl Normalize {
    /// Tables for (v / 255 − mean) / std of each channel.
    ///
    /// # Panics
    /// When a standard deviation is 0 or a parameter is not finite.
    pub fn new(mean: [f64; 3], std: [f64; 3]) -> Self {
        assert!(mean.iter().chain(&std).all(|value| value.is_finite()) && !std.contains(&0.0), "{mean:?} {std:?}");
        let exact = |channel: usize, value: usize| (value as f64 / 255.0 - mean[channel]) / std[channel];
        Self {
            single: std::array::from_fn(|c| std::array::from_fn(|v| exact(c, v) as f32)),
            half: std::array::from_fn(|c| std::array::from_fn(|v| f16::from_f64_const(exact(c, v)))),
        }
    }

    /// With ImageNet's mean and standard deviation.
    pub fn imagenet() -> Self {
        Self::new(IMAGENET_MEAN, IMAGENET_STD)
    }

    /// The 3 × 256 values as f32.
    pub fn table_f32(&self) -> &[[f32; 256]; 3] {
        &self.single
    }

    /// The 3 × 256 values as f16.
    pub fn table_f16(&self) -> &[[f16; 256]; 3] {
        &self.half
    }

    /// Writes samples of `shape`, rows of RGB, as planes of f32: N × C × H × W.
    ///
    /// # Panics
    /// When the lengths differ, are not those of whole samples, or the shape has other than 3 channels.
    pub fn f32_nchw(&self, nhwc: &[u8], shape: Shape, out: &mut [f32]) {
        planes(&self.single, nhwc, shape, out);
    }

    /// As [`f32_nchw`](Self::f32_nchw), as f16.
    ///
    /// # Panics
    /// As [`f32_nchw`](Self::f32_nchw).
    pub fn f16_nchw(&self, nhwc: &[u8], shape: Shape, out: &mut [f16]) {
        planes(&self.half, nhwc, shape, out);
    }
}

fn planes<T: Copy>(table: &[[T; 256]; 3], nhwc: &[u8], shape: Shape, out: &mut [T]) {
    assert_eq!(shape.channels, 3, "a table has three channels");
    assert_eq!(nhwc.len(), out.len(), "input and output have the same number of values");
    let sample = shape.bytes();
    if nhwc.is_empty() {
        return;
    }
    assert!(sample > 0 && nhwc.len().is_multiple_of(sample), "{} values are no whole samples of {sample}", nhwc.len());
    let plane = sample / 3;
    let [reds, greens, blues] = table;
    for (pixels, planes) in nhwc.chunks_exact(sample).zip(out.chunks_exact_mut(sample)) {
        let (red, rest) = planes.split_at_mut(plane);
        let (green, blue) = rest.split_at_mut(plane);
        let planes = red.iter_mut().zip(green).zip(blue);
        for (&[r, g, b], ((red, green), blue)) in pixels.as_chunks::<3>().0.iter().zip(planes) {
            *red = reds[usize::from(r)];
            *green = greens[usize::from(g)];
            *blue = blues[usize::from(b)];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every value in every channel: 256 × 1 pixels of gray.
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
                // The nearest f16: neither neighbour is nearer.
                let apart = |bits: u16| (f16::from_bits(bits).to_f64() - exact).abs();
                let bits = half[at].to_bits();
                assert!(apart(bits) <= apart(bits + 1) && apart(bits) <= apart(bits - 1));
                assert_eq!(normalize.table_f32()[channel][value], single[at]);
                assert_eq!(normalize.table_f16()[channel][value], half[at]);
            }
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
    #[should_panic(expected = "no whole samples")]
    fn a_part_of_a_sample_is_refused() {
        let shape = Shape { height: 1, width: 2, channels: 3 };
        Normalize::imagenet().f32_nchw(&[0; 9], shape, &mut [0.0; 9]);
    }
}
