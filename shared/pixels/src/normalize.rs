//! The host's last step: from u8 rows of RGB to floats, in one pass.
//!
//! A value is (v / 255 − mean) / std, computed once in f64 and rounded once, in a table of 3 × 256 values. Vector
//! instructions compute the values of planes by a formula, if the formula equals the table on all 768 inputs; making
//! the table includes that check. Otherwise values are looked up. Any other implementation, such as one on a GPU, has
//! to equal the table too.

mod float;
mod formula;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::ops::Range;

use half::{bf16, f16};
use serde::{Deserialize, Serialize};
use zerocopy::{FromBytes, IntoBytes};

use crate::field::{DType, ImageLayout};
use crate::level::Level;
use crate::pipeline::Shape;
use float::Float;
use formula::Formula;
#[cfg(target_arch = "aarch64")]
use neon as vectors;
#[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
use portable as vectors;
#[cfg(target_arch = "x86_64")]
use x86 as vectors;

/// Mean and standard deviation of each channel, red, green and blue, of values that lie between 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Normalize {
    /// Mean, which is subtracted.
    pub mean: [f64; 3],
    /// Standard deviation, which divides the difference.
    pub std: [f64; 3],
}

/// Why values cannot be normalised.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "mean {mean:?} and standard deviation {std:?}: all must be finite, no standard deviation may be 0, and no mean \
     beyond 1, since values are from 0 to 1 before: divide both by 255 if they are for values to 255"
)]
pub struct NormalizeError {
    /// Mean of each channel.
    pub mean: [f64; 3],
    /// Standard deviation of each channel.
    pub std: [f64; 3],
}

impl Normalize {
    /// ImageNet's mean and standard deviation, as torchvision's models expect them.
    pub const IMAGENET: Self = Self { mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225] };
    /// Changes nothing: values stay between 0 and 1.
    pub const UNIT: Self = Self { mean: [0.0; 3], std: [1.0; 3] };

    /// Checks the numbers.
    ///
    /// # Errors
    ///
    /// [`NormalizeError`] if a number is not finite or a standard deviation is 0.
    pub fn check(&self) -> Result<(), NormalizeError> {
        let Self { mean, std } = *self;
        let is_usable = mean.iter().chain(&std).all(|value| value.is_finite()) && !std.contains(&0.0);
        if is_usable && mean.iter().all(|mean| mean.abs() <= 1.0) { Ok(()) } else { Err(NormalizeError { mean, std }) }
    }

    /// Returns the exact value of a pixel's channel.
    fn exact(&self, channel: usize, value: usize) -> f64 {
        (value as f64 / 255.0 - self.mean[channel]) / self.std[channel]
    }
}

/// Makes floats of samples: one type of floats in one layout.
#[derive(Clone, Debug)]
pub struct Normalizer {
    table: FloatTable,
    layout: ImageLayout,
}

#[derive(Clone, Debug)]
enum FloatTable {
    F16(Box<Table<f16>>),
    Bf16(Box<Table<bf16>>),
    F32(Box<Table<f32>>),
}

/// The value of each pixel's channel.
#[derive(Clone, Debug)]
struct Table<T> {
    values: [[T; 256]; 3],
    /// A formula that gives these values.
    formula: Option<Formula>,
    level: Level,
}

impl Normalizer {
    /// Makes the table for floats of a type.
    ///
    /// # Panics
    ///
    /// If `dtype` is not a float, or [`Normalize::check`] fails: check numbers that come from outside first.
    pub fn new(normalize: &Normalize, dtype: DType, layout: ImageLayout) -> Self {
        normalize.check().unwrap_or_else(|error| panic!("{error}"));
        let table = match dtype {
            DType::F16 => FloatTable::F16(Table::new(normalize)),
            DType::Bf16 => FloatTable::Bf16(Table::new(normalize)),
            DType::F32 => FloatTable::F32(Table::new(normalize)),
            DType::U8 | DType::I64 => panic!("{dtype} is not a float"),
        };
        Self { table, layout }
    }

    /// Returns the table: the value of each of the 256 bytes of red, then of green, then of blue, as floats in this
    /// machine's byte order.
    pub fn table(&self) -> &[u8] {
        match &self.table {
            FloatTable::F16(table) => table.values.as_bytes(),
            FloatTable::Bf16(table) => table.values.as_bytes(),
            FloatTable::F32(table) => table.values.as_bytes(),
        }
    }

    /// Writes samples of `shape`, rows of RGB, as floats: `out` has as many floats as `pixels` has bytes.
    ///
    /// # Panics
    ///
    /// If the lengths do not fit or hold a part of a sample, if `out` is not aligned for floats, or if the shape does
    /// not have 3 channels.
    pub fn write(&self, pixels: &[u8], shape: Shape, out: &mut [u8]) {
        match &self.table {
            FloatTable::F16(table) => table.write(pixels, shape, self.layout, out),
            FloatTable::Bf16(table) => table.write(pixels, shape, self.layout, out),
            FloatTable::F32(table) => table.write(pixels, shape, self.layout, out),
        }
    }
}

impl<T: Float> Table<T> {
    fn new(normalize: &Normalize) -> Box<Self> {
        let values = std::array::from_fn(|c| std::array::from_fn(|v| T::round(normalize.exact(c, v))));
        Box::new(Self { formula: Formula::of(normalize, &values), values, level: Level::best() })
    }

    fn write(&self, pixels: &[u8], shape: Shape, layout: ImageLayout, out: &mut [u8]) {
        let out = <[T]>::mut_from_bytes(out).expect("whole floats, aligned");
        assert_eq!(shape.channels, 3, "a table has three channels");
        assert_eq!(pixels.len(), out.len(), "input and output have the same number of values");
        if pixels.is_empty() {
            return;
        }
        let (sample, values) = (shape.bytes(), pixels.len());
        assert!(sample > 0 && values.is_multiple_of(sample), "{values} values are not whole samples of {sample}");
        match layout {
            ImageLayout::Nhwc | ImageLayout::ChannelsLast => self.write_pixels(pixels, out),
            ImageLayout::Nchw => {
                let samples = pixels.chunks_exact(sample).zip(out.chunks_exact_mut(sample));
                samples.for_each(|(pixels, planes)| self.write_planes(pixels, planes));
            }
        }
    }

    /// Makes the floats of whole pixels, the channels of a pixel together.
    fn write_pixels(&self, pixels: &[u8], out: &mut [T]) {
        let [reds, greens, blues] = &self.values;
        let ((pixels, _), (out, _)) = (pixels.as_chunks::<3>(), out.as_chunks_mut::<3>());
        for (&[r, g, b], out) in pixels.iter().zip(out) {
            *out = [reds[usize::from(r)], greens[usize::from(g)], blues[usize::from(b)]];
        }
    }

    /// Makes the planes of one sample.
    fn write_planes(&self, pixels: &[u8], planes: &mut [T]) {
        let (pixels, _) = pixels.as_chunks::<3>();
        let (red, rest) = planes.split_at_mut(pixels.len());
        let (green, blue) = rest.split_at_mut(pixels.len());
        let done = self.write_by_vectors(pixels, [&mut *red, &mut *green, &mut *blue]);
        for part in [0..done.start, done.end..pixels.len()] {
            let pixels = &pixels[part.clone()];
            self.look_up(pixels, [&mut red[part.clone()], &mut green[part.clone()], &mut blue[part]]);
        }
    }

    /// Makes the pixels that vector instructions can make, and returns their range.
    fn write_by_vectors(&self, pixels: &[[u8; 3]], planes: [&mut [T]; 3]) -> Range<usize> {
        self.formula.as_ref().map_or(0..0, |formula| vectors::make(self.level, formula, pixels, planes))
    }

    fn look_up(&self, pixels: &[[u8; 3]], [red, green, blue]: [&mut [T]; 3]) {
        let [reds, greens, blues] = &self.values;
        for (&[r, g, b], ((red, green), blue)) in pixels.iter().zip(red.iter_mut().zip(green).zip(blue)) {
            *red = reds[usize::from(r)];
            *green = greens[usize::from(g)];
            *blue = blues[usize::from(b)];
        }
    }
}

#[cfg(test)]
mod tests;
