//! torchvision's `RandomRotation`.

use super::{Degrees, Effects, Fill, Operate, between, check_center};
use crate::draw::Words;
use crate::error::PixelError;
use crate::warp::{Interpolation, Sampling, Warp};
use serde::{Deserialize, Serialize};

/// Rotates counterclockwise by an angle that is drawn evenly between two bounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomRotation {
    /// Bounds of the angle, in degrees.
    pub degrees: Degrees,
    /// How a value is made from the pixels around a place.
    #[serde(default = "nearest")]
    pub interpolation: Interpolation,
    /// Whether the result has room for the whole rotated image, rotated around its centre.
    #[serde(default)]
    pub expand: bool,
    /// The point around which the image rotates, x and y in pixels from the upper left corner; `None` for the centre.
    #[serde(default)]
    pub center: Option<[f64; 2]>,
    /// Colour of the pixels outside the image.
    #[serde(default)]
    pub fill: Fill,
}

fn nearest() -> Interpolation {
    Interpolation::Nearest
}

impl Operate for RandomRotation {
    const EXAMPLES: &'static [Self] = &[
        Self {
            degrees: Degrees([-180.0, 180.0]),
            interpolation: Interpolation::Nearest,
            expand: false,
            center: Some([11.0, 20.5]),
            fill: Fill([90, 0, 255]),
        },
        Self {
            degrees: Degrees([10.0, 80.0]),
            interpolation: Interpolation::Bilinear,
            expand: true,
            center: None,
            fill: Fill([0; 3]),
        },
    ];

    fn check(&self) -> Result<(), String> {
        self.degrees.check()?;
        check_center(self.center)
    }

    fn size_after(&self, before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
        Ok(before.filter(|_| !self.expand))
    }

    fn draw(&self, size: (u32, u32), words: &mut impl Words, effects: &mut impl Effects) -> Result<(), PixelError> {
        let angle = between(words.uniform(), self.degrees.0);
        let sampling = Sampling { interpolation: self.interpolation, fill: Some(self.fill.0) };
        effects.add(Warp::rotation(size, angle, self.expand, self.center.map(<(f64, f64)>::from), sampling));
        Ok(())
    }
}
