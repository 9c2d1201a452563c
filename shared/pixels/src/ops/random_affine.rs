//! torchvision's `RandomAffine`.

use super::{Degrees, Effects, Fill, Operate, Shear, check_center};
use crate::draw::Words;
use crate::error::PixelError;
use crate::warp::{Affine, Interpolation, Sampling, Warp};
use serde::{Deserialize, Serialize};

/// Largest factor of the size, and the inverse of the smallest one.
const SCALE_MAX: f64 = 1000.0;

/// Rotates clockwise, translates, scales and shears, all by amounts that are drawn evenly between bounds.
///
/// Draws the angle, then the translations along x and y, the scale, and the shears along x and y. What has no
/// parameter is not drawn. Translations are rounded to whole pixels, half to even.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomAffine {
    /// Bounds of the angle, in degrees.
    pub degrees: Degrees,
    /// Largest translations along x and y, either way, as parts of the image's width and height.
    #[serde(default)]
    pub translate: Option<[f64; 2]>,
    /// Bounds of the factor of the size.
    #[serde(default)]
    pub scale: Option<[f64; 2]>,
    /// Bounds of the angles of shears, in degrees.
    #[serde(default)]
    pub shear: Option<Shear>,
    /// How a value is made from the pixels around a place.
    #[serde(default = "nearest")]
    pub interpolation: Interpolation,
    /// Colour of the pixels outside the image.
    #[serde(default)]
    pub fill: Fill,
    /// The point that stays in place without a translation, x and y in pixels from the upper left corner; `None` for
    /// the centre.
    #[serde(default)]
    pub center: Option<[f64; 2]>,
}

fn nearest() -> Interpolation {
    Interpolation::Nearest
}

impl Operate for RandomAffine {
    const EXAMPLES: &'static [Self] = &[
        Self {
            degrees: Degrees([-30.0, 30.0]),
            translate: Some([0.2, 0.1]),
            scale: Some([0.7, 1.4]),
            shear: Some(Shear([-15.0, 15.0, -5.0, 20.0])),
            interpolation: Interpolation::Bilinear,
            fill: Fill([90, 0, 255]),
            center: Some([11.0, 20.5]),
        },
        Self {
            degrees: Degrees([0.0, 0.0]),
            translate: None,
            scale: None,
            shear: None,
            interpolation: Interpolation::Nearest,
            fill: Fill([0; 3]),
            center: None,
        },
    ];

    fn check(&self) -> Result<(), String> {
        self.degrees.check()?;
        if let Some([x, y]) = self.translate
            && ![x, y].iter().all(|part| (0.0..=1.0).contains(part))
        {
            return Err(format!("translate [{x}, {y}] has a part that is not in 0..=1"));
        }
        if let Some([low, high]) = self.scale
            && !(1.0 / SCALE_MAX <= low && low <= high && high <= SCALE_MAX)
        {
            return Err(format!("scale [{low}, {high}] is not a range within [1/{SCALE_MAX}, {SCALE_MAX}]"));
        }
        self.shear.map_or(Ok(()), |shear| shear.check())?;
        check_center(self.center)
    }

    fn size_after(&self, before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
        Ok(before)
    }

    fn draw(&self, size: (u32, u32), words: &mut impl Words, effects: &mut impl Effects) -> Result<(), PixelError> {
        let mut between = |low: f64, high: f64| low + (high - low) * words.uniform();
        let Degrees([low, high]) = self.degrees;
        let angle = between(low, high);
        let mut shift = |part: f64, length: u32| {
            let most = part * f64::from(length);
            between(-most, most).round_ties_even()
        };
        let translate = self.translate.map_or((0.0, 0.0), |[x, y]| (shift(x, size.0), shift(y, size.1)));
        let scale = self.scale.map_or(1.0, |[low, high]| between(low, high));
        let shear = self.shear.map_or((0.0, 0.0), |Shear([x_low, x_high, y_low, y_high])| {
            (between(x_low, x_high), between(y_low, y_high))
        });
        let affine = Affine { angle, translate, scale, shear, center: self.center.map(<(f64, f64)>::from) };
        let sampling = Sampling { interpolation: self.interpolation, fill: Some(self.fill.0) };
        effects.add(Warp::affine(size, &affine, sampling));
        Ok(())
    }
}
