//! torchvision's `GaussianBlur`.

use super::first_form::{FirstForm, keep_first_form};
use super::numbers::{self, Numbers};
use super::{Cutout, Effects, MakeArea, Operate, Scratch};
use crate::draw::Words;
use crate::error::PixelError;
use crate::geometry::Rect;
use crate::level::Level;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

mod blur;

/// Longest kernel, in pixels.
const KERNEL_MAX: u32 = 63;
const RADIUS_MAX: usize = KERNEL_MAX as usize / 2;
/// Largest standard deviation, in pixels.
const SIGMA_MAX: f64 = 1000.0;
/// Bits behind the binary point of a weight.
const WEIGHT_BITS: u32 = 16;

/// Blurs by a Gaussian function whose standard deviation is drawn evenly between two bounds.
///
/// The image is mirrored at its edges, without repeating the outermost pixels, so each of its sides has to be longer
/// than half the kernel. Rows are blurred first, then columns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct GaussianBlur {
    /// Lengths of the kernel, in pixels: odd, at most 63.
    pub kernel_size: Kernel,
    /// Bounds of the standard deviation, in pixels.
    #[serde(default = "default_sigma")]
    pub sigma: [f64; 2],
}

fn default_sigma() -> [f64; 2] {
    [0.1, 2.0]
}

/// Lengths of a kernel along x and y. In a description, a number stands for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel(pub [u32; 2]);

impl From<u32> for Kernel {
    fn from(length: u32) -> Self {
        Self([length; 2])
    }
}

impl Serialize for Kernel {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            [along_x, along_y] if along_x == along_y && serializer.is_human_readable() => along_x.serialize(serializer),
            lengths => lengths.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Kernel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return Deserialize::deserialize(deserializer).map(Self);
        }
        numbers::read(deserializer, "a whole number, or two of them", |given| match given {
            Numbers::One(length) => numbers::whole(length).map(Self::from),
            Numbers::List(&[along_x, along_y]) => Some(Self([numbers::whole(along_x)?, numbers::whole(along_y)?])),
            Numbers::List(_) => None,
        })
    }
}

keep_first_form!(GaussianBlur);

impl FirstForm for GaussianBlur {
    type Rest = [f64; 2];

    fn first(&self) -> Option<(u32, [f64; 2])> {
        self.is_square().then_some((self.kernel_size.0[0], self.sigma))
    }

    fn of_first(kernel_size: u32, sigma: [f64; 2]) -> Option<Self> {
        Some(Self { kernel_size: kernel_size.into(), sigma })
    }
}

/// Blurs by a Gaussian function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Blur {
    /// Pixels of the kernel on either side of its middle, along x and y.
    pub radius: [u32; 2],
    /// Standard deviation, in pixels.
    pub sigma: f64,
}

impl Operate for GaussianBlur {
    const EXAMPLES: &'static [Self] = &[
        Self { kernel_size: Kernel([5, 5]), sigma: [0.3, 2.0] },
        Self { kernel_size: Kernel([23, 23]), sigma: [1.5, 6.0] },
    ];

    fn check(&self) -> Result<(), String> {
        let [low, high] = self.sigma;
        if let Some(length) = self.kernel_size.0.iter().find(|&&length| length.is_multiple_of(2) || length > KERNEL_MAX)
        {
            return Err(format!("kernel_size {length} is not an odd number up to {KERNEL_MAX}"));
        }
        // Comparisons with NaN are false.
        if low > 0.0 && low <= high && high <= SIGMA_MAX {
            return Ok(());
        }
        Err(format!("sigma [{low}, {high}] is not a range within (0, {SIGMA_MAX}]"))
    }

    fn size_after(&self, before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
        match before {
            Some(size) => self.check_size(size).map(|()| before),
            None => Ok(None),
        }
    }

    fn draw(&self, size: (u32, u32), words: &mut impl Words, effects: &mut impl Effects) -> Result<(), PixelError> {
        self.check_size(size).map_err(|message| PixelError::Misfit { message })?;
        let [low, high] = self.sigma;
        effects.add(Blur {
            radius: self.kernel_size.0.map(|length| length / 2),
            sigma: low + (high - low) * words.uniform(),
        });
        Ok(())
    }
}

impl GaussianBlur {
    fn check_size(&self, (width, height): (u32, u32)) -> Result<(), String> {
        let Kernel([along_x, along_y]) = self.kernel_size;
        let Some((_, kernel)) =
            [(width, along_x), (height, along_y)].into_iter().find(|(side, kernel)| *side <= kernel / 2)
        else {
            return Ok(());
        };
        Err(format!(
            "an image of {width}x{height} pixels is too small to be blurred by {kernel} pixels: choose a smaller \
             `kernel_size`, or resize the image first"
        ))
    }

    /// Returns whether the kernel is as long along x as along y.
    pub(crate) fn is_square(&self) -> bool {
        let Kernel([along_x, along_y]) = self.kernel_size;
        along_x == along_y
    }
}

impl Blur {
    /// Returns the weights of the middle and of each distance from it, up to `radius`. All weights of the kernel add up
    /// to 1.
    fn weights(&self, radius: u32) -> [u32; RADIUS_MAX + 1] {
        let mut weights = [0; RADIUS_MAX + 1];
        let value = |distance: u32| {
            let deviations = f64::from(distance) / self.sigma;
            libm::exp(-0.5 * deviations * deviations)
        };
        let sum = 1.0 + 2.0 * (1..=radius).map(value).sum::<f64>();
        let one = 1 << WEIGHT_BITS;
        let mut sides = 0;
        for distance in 1..=radius {
            let weight = (value(distance) / sum * f64::from(one)).round_ties_even() as u32;
            weights[distance as usize] = weight;
            sides += 2 * weight;
        }
        weights[0] = one - sides;
        weights
    }
}

impl MakeArea for Blur {
    fn needs(&self, made: Rect, size: (u32, u32)) -> Rect {
        made.with_margins(self.radius, size)
    }

    fn make(&self, from: &Cutout<'_>, made: Rect, scratch: &mut Scratch<'_>, out: &mut [u8]) -> Result<(), PixelError> {
        let level = Level::best();
        let [across, down] = self.radius.map(|radius| self.weights(radius));
        let (values, [along_x, along_y]) = (made.width as usize * 3, self.radius.map(|radius| radius as usize));
        let rows = from.rect.y..from.rect.y + from.rect.height;
        let (padded, blurred) =
            scratch.values(values + 6 * along_x + values * rows.len())?.split_at_mut(values + 6 * along_x);
        for (y, blurred) in rows.clone().zip(blurred.chunks_exact_mut(values)) {
            pad_row(from, y, made, self.radius[0], padded);
            blur::across(level, padded, &across[..=along_x], blurred);
        }
        let row = |y: u32| &blurred[(y - rows.start) as usize * values..][..values];
        let mut around = [&[][..]; 2 * RADIUS_MAX + 1];
        for (y, out) in (made.y..).zip(out.chunks_exact_mut(values)) {
            for (distance, place) in (-i64::from(self.radius[1])..).zip(&mut around[..=2 * along_y]) {
                *place = row(mirrored(i64::from(y) + distance, from.size.1));
            }
            blur::down(level, &around[..=2 * along_y], &down[..=along_y], out);
        }
        Ok(())
    }
}

/// Copies a row with as many pixels on both sides of `made` as the kernel reaches.
fn pad_row(from: &Cutout<'_>, y: u32, made: Rect, radius: u32, padded: &mut [u16]) {
    let pixels = from.row(y).as_chunks::<3>().0;
    let first = i64::from(made.x) - i64::from(radius);
    for (x, to) in (first..).zip(padded.as_chunks_mut::<3>().0) {
        *to = pixels[(mirrored(x, from.size.0) - from.rect.x) as usize].map(u16::from);
    }
}

/// Returns the index that stands for one outside of a row or column: mirrored at its outermost pixel.
fn mirrored(at: i64, length: u32) -> u32 {
    let last = i64::from(length) - 1;
    let at = if at < 0 { -at } else { at };
    (if at > last { 2 * last - at } else { at }) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::make_alone;
    use crate::synthetic;

    /// Returns a pixel of the blurred image, computed from the definition.
    fn exact(pixels: &[u8], size: (u32, u32), blur: Blur, (x, y): (u32, u32), channel: usize) -> f64 {
        let [along_x, along_y] = blur.radius.map(i64::from);
        let weight = |distance: i64| (-0.5 * (distance as f64 / blur.sigma).powi(2)).exp();
        let (mut sum, mut all) = (0.0, 0.0);
        for down in -along_y..=along_y {
            for across in -along_x..=along_x {
                let (x, y) = (mirrored(i64::from(x) + across, size.0), mirrored(i64::from(y) + down, size.1));
                let weight = weight(down) * weight(across);
                sum += weight * f64::from(pixels[((y * size.0 + x) * 3) as usize + channel]);
                all += weight;
            }
        }
        sum / all
    }

    #[test]
    fn values_are_within_half_a_level_of_the_definition() {
        let size = (23, 17);
        let pixels = synthetic::photo(size.0, size.1, 3);
        let whole = Rect { x: 0, y: 0, width: size.0, height: size.1 };
        for (radius, sigma) in [
            ([0, 0], 1.0),
            ([1, 1], 0.1),
            ([3, 3], 0.8),
            ([11, 11], 2.0),
            ([16, 16], 900.0),
            ([0, 4], 3.0),
            ([9, 2], 2.0),
        ] {
            let blur = Blur { radius, sigma };
            let mut out = vec![0; pixels.len()];
            make_alone(&blur, &Cutout { size, rect: whole, pixels: &pixels }, whole, &mut out);
            for (at, &value) in out.iter().enumerate() {
                let pixel = at as u32 / 3;
                let expected = exact(&pixels, size, blur, (pixel % size.0, pixel / size.0), at % 3);
                assert!((f64::from(value) - expected).abs() < 0.53, "{radius:?} {sigma}: {value} {expected} at {at}");
            }
        }
    }

    #[test]
    fn white_stays_white() {
        let (size, pixels) = ((40, 40), vec![255; 40 * 40 * 3]);
        let whole = Rect { x: 0, y: 0, width: 40, height: 40 };
        for sigma in [0.1, 0.5, 1.3, 2.0, 7.0, 1000.0] {
            let mut out = vec![0; pixels.len()];
            let blur = Blur { radius: [RADIUS_MAX as u32; 2], sigma };
            make_alone(&blur, &Cutout { size, rect: whole, pixels: &pixels }, whole, &mut out);
            assert!(out.iter().all(|&value| value == 255), "{sigma}");
        }
    }
}
