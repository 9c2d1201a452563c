//! torchvision's `ElasticTransform`.

use super::numbers::{self, Numbers};
use super::random_erasing::hash;
use super::{Cutout, Effects, Fill, MakeArea, Operate, Scratch};
use crate::draw::Words;
use crate::error::PixelError;
use crate::geometry::Rect;
use crate::level::Level;
use crate::warp::{Interpolation, Sampling, View, displace};
use field::Field;
use serde::{Deserialize, Deserializer, Serialize};

mod field;

/// Largest α, in pixels.
const ALPHA_MAX: f64 = 65_535.0;
/// Smallest σ of a blur, and the largest one, in pixels.
const SIGMA_MIN: f64 = 0.01;
const SIGMA_MAX: f64 = 100.0;

/// Moves each pixel by a random distance. Distances of neighbours are alike: they are noise, blurred by a Gaussian
/// function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ElasticTransform {
    /// Factor of the distances along x and along y: without a blur, they lie between −α/2 and α/2 pixels.
    #[serde(default = "default_alpha")]
    pub alpha: Pair,
    /// Standard deviation of the blur along x and along y, in pixels; both 0 for none.
    #[serde(default = "default_sigma")]
    pub sigma: Pair,
    /// How a value is made from the pixels around a place.
    #[serde(default)]
    pub interpolation: Interpolation,
    /// Colour of the pixels outside the image.
    #[serde(default)]
    pub fill: Fill,
}

fn default_alpha() -> Pair {
    Pair([50.0; 2])
}

fn default_sigma() -> Pair {
    Pair([5.0; 2])
}

/// A number for x and one for y. In a description, one number stands for both.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Pair(pub [f64; 2]);

impl<'de> Deserialize<'de> for Pair {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return Deserialize::deserialize(deserializer).map(Self);
        }
        numbers::read(deserializer, "a number, or two of them", |given| match given {
            Numbers::One(number) => Some(Self([number; 2])),
            Numbers::List(both) => both.as_array().copied().map(Self),
        })
    }
}

/// Moves each pixel by a distance of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Displacement {
    /// α and σ along x and y.
    alpha: [f32; 2],
    sigma: [f32; 2],
    sampling: Sampling,
    seed: u64,
}

impl Operate for ElasticTransform {
    const EXAMPLES: &'static [Self] = &[
        Self {
            alpha: Pair([50.0; 2]),
            sigma: Pair([2.0; 2]),
            interpolation: Interpolation::Bilinear,
            fill: Fill([0; 3]),
        },
        Self {
            alpha: Pair([9.0, 15.0]),
            sigma: Pair([1.0, 0.5]),
            interpolation: Interpolation::Nearest,
            fill: Fill([9, 99, 199]),
        },
        Self {
            alpha: Pair([3.0; 2]),
            sigma: Pair([0.0; 2]),
            interpolation: Interpolation::Bicubic,
            fill: Fill([7; 3]),
        },
    ];

    fn check(&self) -> Result<(), String> {
        for alpha in self.alpha.0 {
            if !(0.0..=ALPHA_MAX).contains(&alpha) {
                return Err(format!("alpha {alpha} is not in 0..={ALPHA_MAX}"));
            }
        }
        let Pair([x, y]) = self.sigma;
        let is_blur = |sigma: f64| (SIGMA_MIN..=SIGMA_MAX).contains(&sigma);
        if (x == 0.0 && y == 0.0) || (is_blur(x) && is_blur(y)) {
            return Ok(());
        }
        Err(format!("sigma [{x}, {y}] is neither 0 for both nor from {SIGMA_MIN} to {SIGMA_MAX}"))
    }

    fn size_after(&self, before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
        before.map_or(Ok(None), |size| self.check_size(size).map(|()| before))
    }

    fn draw(&self, size: (u32, u32), words: &mut impl Words, effects: &mut impl Effects) -> Result<(), PixelError> {
        self.check_size(size).map_err(|message| PixelError::Misfit { message })?;
        let [alpha, sigma] = [self.alpha, self.sigma].map(|Pair(both)| both.map(|number| number as f32));
        let sampling = Sampling { interpolation: self.interpolation, fill: Some(self.fill.0) };
        effects.add(Displacement { alpha, sigma, sampling, seed: words.word() });
        Ok(())
    }
}

/// Returns half the length of the kernel that blurs distances, without its middle. The kernel is as long as
/// torchvision's: 8 σ + 1, rounded down, and one more if that is even.
fn radius(sigma: f32) -> u32 {
    (8.0 * f64::from(sigma) + 1.0) as u32 / 2
}

impl ElasticTransform {
    fn check_size(&self, (width, height): (u32, u32)) -> Result<(), String> {
        let Pair([x, y]) = self.sigma;
        let radius = radius(x.max(y) as f32);
        if x == 0.0 || width.min(height) > radius {
            return Ok(());
        }
        Err(format!(
            "an image of {width}x{height} pixels is too small for distances that are blurred over {radius} pixels on \
             each side: choose a smaller `sigma`, or resize the image first"
        ))
    }
}

impl MakeArea for Displacement {
    fn needs(&self, _made: Rect, (width, height): (u32, u32)) -> Rect {
        Rect { x: 0, y: 0, width, height }
    }

    fn images(&self) -> u64 {
        // The images before and after, and three 32-bit floats for each pixel.
        2 + 4
    }

    fn make(&self, from: &Cutout<'_>, made: Rect, scratch: &mut Scratch<'_>, out: &mut [u8]) -> Result<(), PixelError> {
        let Self { alpha, sigma, sampling, seed } = *self;
        let [x, y] = [0, 1].map(|axis| Field { size: from.size, sigma, radius: radius(sigma[axis]) });
        let noise = |axis: u32| move |number| unit((hash(seed, number) >> (32 * axis)) as u32);
        let mut memory = Vec::new();
        let pixels = from.size.0 as usize * from.size.1 as usize;
        let (distances, between) = scratch.limits.resize_allowed(&mut memory, 3 * pixels)?.split_at_mut(2 * pixels);
        let (along_x, along_y) = distances.split_at_mut(pixels);
        x.make(noise(0), 0.5 * alpha[0], between, along_x);
        y.make(noise(1), 0.5 * alpha[1], between, along_y);
        let Cutout { size, rect, pixels } = *from;
        let image = View { size, rect, columns: rect.width, left: 0, pixels };
        displace(Level::best(), image, [along_x, along_y], sampling, made, out);
        Ok(())
    }
}

/// Returns a multiple of 2⁻²³ from −1 to 1, without 1, from the upper bits of a word.
fn unit(word: u32) -> f32 {
    (word >> 8) as f32 / (1 << 23) as f32 - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::golden::{image, pixels};
    use crate::ops::make_alone;
    use crate::synthetic;

    fn of(text: &str) -> ElasticTransform {
        toml::from_str(text).unwrap()
    }

    /// Compares with torchvision's ElasticTransform (golden/elastic.py).
    #[test]
    fn pixels_are_torchvisions() {
        let image = image();
        let size = (20, 20);
        let whole = Rect { x: 0, y: 0, width: 20, height: 20 };
        let mut count = 0;
        for line in include_str!("../../tests/golden/elastic.txt").lines() {
            let (parameters, expected) = line.split_once(' ').unwrap();
            let [seed, alpha_x, alpha_y, sigma_x, sigma_y, interpolation, fill] =
                *parameters.split(':').collect::<Vec<_>>()
            else {
                panic!("{line}")
            };
            let pair = |x: &str, y: &str| [x.parse().unwrap(), y.parse().unwrap()];
            let interpolation = match interpolation {
                "nearest" => Interpolation::Nearest,
                _ => Interpolation::Bilinear,
            };
            let sampling = Sampling { interpolation, fill: Some([fill.parse().unwrap(); 3]) };
            let (alpha, sigma) = (pair(alpha_x, alpha_y), pair(sigma_x, sigma_y));
            let displacement = Displacement { alpha, sigma, sampling, seed: seed.parse().unwrap() };
            let mut out = vec![0; image.len()];
            make_alone(&displacement, &Cutout { size, rect: whole, pixels: &image }, whole, &mut out);
            let far = out.iter().zip(pixels(expected)).filter(|&(&found, expected)| found.abs_diff(expected) > 1);
            assert_eq!(far.count(), 0, "{parameters}");
            count += 1;
        }
        assert_eq!(count, 6);
    }

    #[test]
    fn a_displacement_by_nothing_changes_nothing() {
        let (size, pixels) = ((23, 17), synthetic::photo(23, 17, 3));
        let whole = Rect { x: 0, y: 0, width: 23, height: 17 };
        for interpolation in [Interpolation::Nearest, Interpolation::Bilinear, Interpolation::Bicubic] {
            let sampling = Sampling { interpolation, fill: None };
            let displacement = Displacement { alpha: [0.0; 2], sigma: [1.0; 2], sampling, seed: 1 };
            let mut out = vec![0; pixels.len()];
            make_alone(&displacement, &Cutout { size, rect: whole, pixels: &pixels }, whole, &mut out);
            assert_eq!(out, pixels);
        }
    }

    #[test]
    fn wrong_parameters_and_small_images_are_named() {
        for (text, message) in [
            ("alpha = -1", "alpha -1"),
            ("alpha = [1.0, nan]", "alpha NaN"),
            ("sigma = [0.0, 1.0]", "sigma [0, 1]"),
            ("sigma = 101", "sigma [101, 101]"),
        ] {
            assert!(of(text).check().unwrap_err().contains(message));
        }
        // torchvision's kernel for σ = 5 has 41 pixels.
        assert!(of("").size_after(Some((20, 300))).unwrap_err().contains("smaller `sigma`"));
        assert_eq!(of("").size_after(Some((21, 300))), Ok(Some((21, 300))));
        assert_eq!(of("sigma = 0").size_after(Some((1, 1))), Ok(Some((1, 1))));
    }
}
