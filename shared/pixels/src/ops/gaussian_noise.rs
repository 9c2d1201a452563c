//! torchvision's `GaussianNoise`.

use super::random_erasing::hash;
use super::{Cutout, Effects, MakeArea, Operate, Scratch};
use crate::draw::Words;
use crate::error::PixelError;
use crate::geometry::Rect;
use serde::{Deserialize, Serialize};
use std::sync::LazyLock;

/// Largest mean and standard deviation, as parts of the range of values.
const PART_MAX: f64 = 10.0;

/// Adds noise of a normal distribution to each value. The noise is rounded towards 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GaussianNoise {
    /// Mean of the noise, as a part of the range of values.
    #[serde(default)]
    pub mean: f64,
    /// Standard deviation of the noise, as a part of the range of values.
    #[serde(default = "default_sigma")]
    pub sigma: f64,
    /// Whether sums end at 0 and 255. Otherwise they begin again at the other end.
    #[serde(default = "yes")]
    pub clip: bool,
}

fn default_sigma() -> f64 {
    0.1
}

fn yes() -> bool {
    true
}

/// Adds noise to each value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise {
    /// Mean and standard deviation, in levels.
    mean: f32,
    sigma: f32,
    clip: bool,
    seed: u64,
}

/// Numbers from which noise is drawn. Their noise fits a core's first-level cache.
const QUANTILES: usize = 1 << 14;

/// Numbers between which equal parts of the standard normal distribution lie, rounded to 32-bit floats. One of them,
/// drawn evenly, stands for a number of the distribution.
static NORMAL: LazyLock<Box<[f32]>> = LazyLock::new(|| {
    let mut numbers = vec![0.0; QUANTILES].into_boxed_slice();
    // Newton's method, from the number before.
    let mut x = -4.1;
    for at in 0..QUANTILES / 2 {
        let below = (at as f64 + 0.5) / QUANTILES as f64;
        for _ in 0..4 {
            let density = libm::exp(-0.5 * x * x) / std::f64::consts::TAU.sqrt();
            x -= (0.5 * libm::erfc(-x / std::f64::consts::SQRT_2) - below) / density;
        }
        numbers[at] = x as f32;
        numbers[QUANTILES - 1 - at] = -x as f32;
    }
    numbers
});

impl Operate for GaussianNoise {
    const EXAMPLES: &'static [Self] =
        &[Self { mean: 0.0, sigma: 0.1, clip: true }, Self { mean: -0.2, sigma: 0.5, clip: false }];

    fn check(&self) -> Result<(), String> {
        let Self { mean, sigma, .. } = *self;
        if !(-PART_MAX..=PART_MAX).contains(&mean) {
            return Err(format!("mean {mean} is not in -{PART_MAX}..={PART_MAX}"));
        }
        if !(0.0..=PART_MAX).contains(&sigma) {
            return Err(format!("sigma {sigma} is not in 0..={PART_MAX}"));
        }
        Ok(())
    }

    fn size_after(&self, before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
        Ok(before)
    }

    fn draw(&self, _: (u32, u32), words: &mut impl Words, effects: &mut impl Effects) -> Result<(), PixelError> {
        let Self { mean, sigma, clip } = *self;
        effects.add(Noise { mean: (255.0 * mean) as f32, sigma: (255.0 * sigma) as f32, clip, seed: words.word() });
        Ok(())
    }
}

impl MakeArea for Noise {
    fn needs(&self, made: Rect, _size: (u32, u32)) -> Rect {
        made
    }

    fn make(&self, from: &Cutout<'_>, made: Rect, scratch: &mut Scratch<'_>, out: &mut [u8]) -> Result<(), PixelError> {
        let Self { mean, sigma, clip, seed } = *self;
        let levels = scratch.values(QUANTILES)?;
        for (level, number) in levels.iter_mut().zip(&*NORMAL) {
            *level = ((mean + number * sigma) as i16).cast_unsigned();
        }
        let levels: &[u16; QUANTILES] = levels.first_chunk().expect("as many numbers");
        for (y, row) in (made.y..).zip(out.chunks_exact_mut(made.width as usize * 3)) {
            let pixels = &from.row(y)[(made.x - from.rect.x) as usize * 3..];
            let first = u64::from(y) * u64::from(from.size.0) + u64::from(made.x);
            let pixels = pixels.as_chunks::<3>().0.iter().zip(row.as_chunks_mut::<3>().0);
            for (number, (pixel, out)) in (first..).zip(pixels) {
                let word = hash(seed, number);
                for (channel, (&value, out)) in pixel.iter().zip(out).enumerate() {
                    let number = (word >> (16 * channel)) as usize % QUANTILES;
                    let sum = i16::from(value) + levels[number].cast_signed();
                    *out = if clip { sum.clamp(0, 255) as u8 } else { sum as u8 };
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::make_alone;

    /// Returns the differences that noise makes from an image of one value.
    fn noise(operation: &GaussianNoise, value: u8) -> Vec<f64> {
        let size = (200, 100);
        let pixels = vec![value; 60_000];
        let whole = Rect { x: 0, y: 0, width: size.0, height: size.1 };
        let GaussianNoise { mean, sigma, clip } = *operation;
        let noise = Noise { mean: (255.0 * mean) as f32, sigma: (255.0 * sigma) as f32, clip, seed: 5 };
        let mut out = vec![0; pixels.len()];
        make_alone(&noise, &Cutout { size, rect: whole, pixels: &pixels }, whole, &mut out);
        out.iter().map(|&found| f64::from(found) - f64::from(value)).collect()
    }

    #[test]
    fn the_numbers_are_those_of_the_normal_distribution() {
        let numbers = &*NORMAL;
        assert!(numbers.is_sorted());
        let moment =
            |power| numbers.iter().map(|&number| f64::from(number).powi(power)).sum::<f64>() / QUANTILES as f64;
        assert!(moment(1).abs() < 1e-6 && (moment(2) - 1.0).abs() < 2e-3 && (moment(4) - 3.0).abs() < 0.05);
        // The quantiles of 0.975 and 0.75.
        assert!((numbers[15_974] - 1.959_964).abs() < 1e-3 && (numbers[12_287] - 0.674_490).abs() < 2e-4);
    }

    #[test]
    fn noise_has_its_mean_and_deviation() {
        for (mean, sigma) in [(0.0, 0.1), (0.1, 0.05), (-0.2, 0.0)] {
            let found = noise(&GaussianNoise { mean, sigma, clip: true }, 128);
            let average = found.iter().sum::<f64>() / 60_000.0;
            let deviation = (found.iter().map(|one| (one - average).powi(2)).sum::<f64>() / 60_000.0).sqrt();
            // Rounding towards 0 takes half a level at most.
            assert!((average - 255.0 * mean).abs() < 0.7, "{average}");
            assert!((deviation - 255.0 * sigma).abs() < 0.7, "{deviation}");
        }
    }

    #[test]
    fn sums_end_or_begin_again_at_the_other_end() {
        let clipped = noise(&GaussianNoise { mean: 0.0, sigma: 0.2, clip: true }, 250);
        assert!(clipped.iter().all(|&difference| difference <= 5.0) && clipped.contains(&5.0));
        let wrapped = noise(&GaussianNoise { mean: 10.0 / 255.0, sigma: 0.0, clip: false }, 250);
        assert!(wrapped.iter().all(|&difference| difference == -246.0));
    }

    #[test]
    fn wrong_parameters_are_named() {
        let check = |text: &str| toml::from_str::<GaussianNoise>(text).unwrap().check().unwrap_err();
        assert!(check("mean = 11.0").contains("mean 11"));
        assert!(check("sigma = -0.1").contains("sigma -0.1"));
        assert!(check("sigma = nan").contains("sigma NaN"));
    }
}
