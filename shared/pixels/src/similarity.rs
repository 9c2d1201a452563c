//! How alike two images look: SSIM (Wang, Bovik, Sheikh, Simoncelli 2004) and MS-SSIM (Wang, Simoncelli, Bovik 2003).
//!
//! Windows are Gaussian with σ = 1.5, of 11 × 11 pixels, within the image. C₁ = (0.01 · 255)², C₂ = (0.03 · 255)², and
//! variances divide by the weights' sum. So values equal scikit-image's `structural_similarity` with
//! `gaussian_weights=True, sigma=1.5, use_sample_covariance=False, data_range=255`. MS-SSIM has the five scales and
//! weights of its paper. A scale's pixels are the means of 2 × 2 pixels of the scale before.

use crate::error::PixelError;
use crate::geometry::Rect;
use crate::preparer::Preparer;
use crate::resize::{Resampling, Resizing, Scaler};
use crate::rows::Interleaved;
use crate::source::Source;

/// Pixels of a window's side.
const WINDOW: usize = 11;
/// Standard deviation of a window's weights, in pixels.
const SIGMA: f64 = 1.5;
const C1: f64 = (0.01 * 255.0) * (0.01 * 255.0);
const C2: f64 = (0.03 * 255.0) * (0.03 * 255.0);
/// Exponents of MS-SSIM's scales, the finest first.
const SCALE_WEIGHTS: [f64; 5] = [0.0448, 0.2856, 0.3001, 0.2363, 0.1333];

/// One component of an image, values from 0 to 255.
#[derive(Clone, Debug, PartialEq)]
pub struct Plane {
    width: usize,
    height: usize,
    values: Vec<f64>,
}

/// An image to compare: its luma and its colour differences, as JFIF computes them.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedImage {
    /// Luma.
    pub y: Plane,
    /// Difference to blue.
    pub cb: Plane,
    /// Difference to red.
    pub cr: Plane,
}

impl ComparedImage {
    /// Decodes an image, in its stored orientation, and shrinks it until its shorter side has `short_side` pixels, by
    /// Pillow's bicubic filter. A smaller image keeps its size.
    pub fn decode(preparer: &mut Preparer, source: Source<'_>, short_side: u32) -> Result<Self, PixelError> {
        let mut pixels = Vec::new();
        let decoded = preparer.decode(source, None, &mut pixels)?;
        let (mut width, mut height) = (decoded.width, decoded.height);
        if width.min(height) > short_side {
            let mut image = Interleaved { width, height, pixels: &pixels };
            let rect = Rect { x: 0, y: 0, width, height };
            let size = shrunk((width, height), short_side);
            let part = Rect { x: 0, y: 0, width: size.0, height: size.1 };
            let resizing = Resizing { rect, size, interpolation: Resampling::Bicubic, part, mirrored: false };
            let mut small = vec![0; size.0 as usize * size.1 as usize * 3];
            Scaler::default().resize(&mut image, &resizing, preparer.limits(), &mut small)?;
            (pixels, (width, height)) = (small, size);
        }
        Ok(Self::of_rgb(&pixels, width as usize, height as usize))
    }

    fn of_rgb(pixels: &[u8], width: usize, height: usize) -> Self {
        let plane = |weights: [f64; 3], zero: f64| {
            let value = |pixel: &[u8]| zero + pixel.iter().zip(weights).map(|(&v, w)| f64::from(v) * w).sum::<f64>();
            Plane { width, height, values: pixels.chunks_exact(3).map(value).collect() }
        };
        Self {
            y: plane([0.299, 0.587, 0.114], 0.0),
            cb: plane([-0.168_736, -0.331_264, 0.5], 128.0),
            cr: plane([0.5, -0.418_688, -0.081_312], 128.0),
        }
    }
}

/// Returns a size whose shorter side is `short`; rounds the longer one.
fn shrunk((width, height): (u32, u32), short: u32) -> (u32, u32) {
    let least = u64::from(width.min(height));
    let side = |side: u32| ((2 * u64::from(side) * u64::from(short) + least) / (2 * least)) as u32;
    (side(width), side(height))
}

/// Returns the mean SSIM of two planes of one size. `None` if a side is shorter than a window, 11 pixels.
///
/// # Panics
///
/// If the sizes differ.
pub fn ssim(one: &Plane, other: &Plane) -> Option<f64> {
    Some(compare(one, other)?.ssim)
}

/// Returns the MS-SSIM of two planes of one size. `None` if a side is shorter than 176 pixels, a window of the last
/// scale. A negative mean counts as 0.
///
/// # Panics
///
/// If the sizes differ.
pub fn ms_ssim(one: &Plane, other: &Plane) -> Option<f64> {
    if one.width.min(one.height) < WINDOW << (SCALE_WEIGHTS.len() - 1) {
        return None;
    }
    let (mut scales, mut product) = ((one.clone(), other.clone()), 1.0);
    for (number, weight) in SCALE_WEIGHTS.into_iter().enumerate() {
        let Compared { ssim, contrast } = compare(&scales.0, &scales.1)?;
        if number + 1 == SCALE_WEIGHTS.len() {
            return Some(product * ssim.max(0.0).powf(weight));
        }
        product *= contrast.max(0.0).powf(weight);
        scales = (scales.0.halved(), scales.1.halved());
    }
    None
}

/// Means over all windows.
struct Compared {
    ssim: f64,
    /// Mean of SSIM's factor for contrast and structure.
    contrast: f64,
}

fn compare(one: &Plane, other: &Plane) -> Option<Compared> {
    assert_eq!((one.width, one.height), (other.width, other.height), "images of two sizes");
    if one.width.min(one.height) < WINDOW {
        return None;
    }
    let weights = window();
    let smooth = |value: &dyn Fn(f64, f64) -> f64| {
        let values = one.values.iter().zip(&other.values).map(|(&one, &other)| value(one, other));
        Plane { values: values.collect(), ..*one }.smoothed(&weights)
    };
    let (mean_one, mean_other) = (smooth(&|one, _| one), smooth(&|_, other| other));
    let (square_one, square_other) = (smooth(&|one, _| one * one), smooth(&|_, other| other * other));
    let product = smooth(&|one, other| one * other);
    let (mut ssim, mut contrast) = (0.0, 0.0);
    for at in 0..product.len() {
        let (one, other) = (mean_one[at], mean_other[at]);
        let variances = square_one[at] - one * one + square_other[at] - other * other;
        let structure = (2.0 * (product[at] - one * other) + C2) / (variances + C2);
        contrast += structure;
        ssim += structure * (2.0 * one * other + C1) / (one * one + other * other + C1);
    }
    let windows = product.len() as f64;
    Some(Compared { ssim: ssim / windows, contrast: contrast / windows })
}

/// Returns the weights of a window along one side; their sum is 1.
fn window() -> [f64; WINDOW] {
    let weight = |at: usize| {
        let distance = at as f64 - (WINDOW / 2) as f64;
        (-distance * distance / (2.0 * SIGMA * SIGMA)).exp()
    };
    let weights: [f64; WINDOW] = std::array::from_fn(weight);
    weights.map(|weight| weight / weights.iter().sum::<f64>())
}

impl Plane {
    /// Returns the weighted means of all windows within the plane.
    fn smoothed(&self, weights: &[f64; WINDOW]) -> Vec<f64> {
        let wide = self.width - WINDOW + 1;
        let mut across = Vec::with_capacity(wide * self.height);
        for row in self.values.chunks_exact(self.width) {
            across
                .extend(row.windows(WINDOW).map(|window| window.iter().zip(weights).map(|(v, w)| v * w).sum::<f64>()));
        }
        let mut means = vec![0.0; wide * (self.height - WINDOW + 1)];
        for (y, means) in means.chunks_exact_mut(wide).enumerate() {
            for (weight, row) in weights.iter().zip(across[y * wide..].chunks_exact(wide)) {
                means.iter_mut().zip(row).for_each(|(mean, value)| *mean += weight * value);
            }
        }
        means
    }

    /// Returns the means of 2 × 2 pixels; an odd last row or column is left out.
    fn halved(&self) -> Self {
        let (width, height) = (self.width / 2, self.height / 2);
        let value = |at: usize| {
            let corner = at / width * 2 * self.width + at % width * 2;
            let [left, right] = [corner, corner + 1].map(|at| self.values[at] + self.values[at + self.width]);
            (left + right) / 4.0
        };
        Self { width, height, values: (0..width * height).map(value).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use crate::{encode, synthetic};

    /// Two planes that differ by at most 9 × `change`, of a pattern that the program of the reference makes too:
    /// `y, x = numpy.mgrid[0:height, 0:width]; one = (5 * x + 3 * y + x * y % 23 * 4) % 256`,
    /// `other = numpy.clip(one + ((7 * x + 11 * y) % 19 - 9) * change, 0, 255)`.
    fn planes(width: usize, height: usize, change: i64) -> (Plane, Plane) {
        let places = (0..height as i64).flat_map(|y| (0..width as i64).map(move |x| (x, y)));
        let one = move |(x, y): (i64, i64)| (5 * x + 3 * y + x * y % 23 * 4) % 256;
        let other = move |(x, y): (i64, i64)| (one((x, y)) + ((7 * x + 11 * y) % 19 - 9) * change).clamp(0, 255);
        let plane = |values: Vec<i64>| Plane { width, height, values: values.iter().map(|&v| v as f64).collect() };
        (plane(places.clone().map(one).collect()), plane(places.map(other).collect()))
    }

    /// Values of scikit-image 0.26.0, by `structural_similarity` with the arguments in this module's documentation.
    #[test]
    fn ssim_is_that_of_scikit_image() {
        for (width, height, change, expected) in [
            (64, 48, 1, 0.987_650_397_758_366_7),
            (64, 48, 5, 0.777_283_761_795_947_4),
            (11, 30, 3, 0.842_505_904_315_082_8),
            (61, 11, 8, 0.596_721_610_697_781_7),
        ] {
            let (one, other) = planes(width, height, change);
            let found = ssim(&one, &other).unwrap();
            assert!((found - expected).abs() < 1e-9, "{width} × {height}, {change}: {found}");
        }
        let (one, _) = planes(64, 48, 0);
        let inverse = Plane { values: one.values.iter().map(|value| 255.0 - value).collect(), ..one };
        let found = ssim(&one, &inverse).unwrap();
        assert!((found + 0.760_676_292_845_479_4).abs() < 1e-9, "{found}");
    }

    /// Values of pytorch-msssim 1.0.0, by `ms_ssim` with `data_range=255` on tensors of float64.
    #[test]
    fn ms_ssim_is_that_of_pytorch_msssim() {
        for (width, height, change, expected) in [
            (192, 176, 1, 0.998_707_377_263_724),
            (192, 176, 6, 0.962_025_804_246_375_7),
            (208, 256, 15, 0.845_525_874_277_902_4),
        ] {
            let (one, other) = planes(width, height, change);
            let found = ms_ssim(&one, &other).unwrap();
            // The reference has windows of float32.
            assert!((found - expected).abs() < 1e-6, "{width} × {height}, {change}: {found}");
        }
    }

    #[test]
    fn what_is_equal_is_1_and_what_is_too_small_has_no_value() {
        let (one, _) = planes(200, 180, 0);
        assert_eq!(ssim(&one, &one), Some(1.0));
        assert_eq!(ms_ssim(&one, &one), Some(1.0));
        let (narrow, _) = planes(10, 300, 0);
        assert_eq!(ssim(&narrow, &narrow), None);
        let (short, _) = planes(300, 175, 0);
        assert!(ssim(&short, &short).is_some());
        assert_eq!(ms_ssim(&short, &short), None);
    }

    #[test]
    fn images_are_shrunk_to_their_short_side_and_never_enlarged() {
        let mut preparer = Preparer::new(Limits::default());
        for ((width, height), expected) in [((90, 61), (47, 32)), ((61, 90), (32, 47)), ((40, 20), (40, 20))] {
            let file = encode::png(&synthetic::photo(width, height, 1), width, height).unwrap();
            let image = ComparedImage::decode(&mut preparer, Source::Encoded(&file), 32).unwrap();
            for plane in [image.y, image.cb, image.cr] {
                assert_eq!((plane.width, plane.height), expected);
                assert_eq!(plane.values.len(), plane.width * plane.height);
            }
        }
    }

    #[test]
    fn colours_become_luma_and_differences() {
        let image = ComparedImage::of_rgb(&[255, 255, 255, 255, 0, 0, 0, 0, 255], 3, 1);
        let expected = [[255.0, 128.0, 128.0], [76.245, 84.97, 255.5], [29.07, 255.5, 107.27]];
        for (at, expected) in expected.into_iter().enumerate() {
            let found = [&image.y, &image.cb, &image.cr].map(|plane| plane.values[at]);
            assert!(found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 0.01), "{found:?}");
        }
    }
}
