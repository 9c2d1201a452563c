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
