//! torchvision's `RandomPerspective`.

use super::{Effects, Fill, Operate, check_probability};
use crate::draw::Words;
use crate::error::PixelError;
use crate::warp::{Interpolation, Sampling, Warp};
use serde::{Deserialize, Serialize};

/// Moves the corners of the image inwards at random, as if the image were seen in perspective.
///
/// Draws whether it does so, then the column and the row of each corner, clockwise from the upper left one. Corners are
/// whole pixels. An image of one row or column stays as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomPerspective {
    /// How far a corner can move, as a part of half the image, from 0 to 1.
    #[serde(default = "half")]
    pub distortion_scale: f64,
    /// Probability of moving the corners.
    #[serde(default = "half")]
    pub p: f64,
    /// How a value is made from the pixels around a place.
    #[serde(default = "bilinear")]
    pub interpolation: Interpolation,
    /// Colour of the pixels outside the image.
    #[serde(default)]
    pub fill: Fill,
}

fn half() -> f64 {
    0.5
}

fn bilinear() -> Interpolation {
    Interpolation::Bilinear
}

impl RandomPerspective {
    /// Draws the places of the image's corner pixels.
    fn corners(&self, (width, height): (u32, u32), words: &mut impl Words) -> [(f64, f64); 4] {
        // Both factors are at most those of a u32, so the cast loses only the fraction.
        let room = |length: u32| (self.distortion_scale * f64::from(length / 2)) as u64;
        let mut inwards = |length: u32| words.below(room(length) + 1) as f64;
        let (right, bottom) = (f64::from(width) - 1.0, f64::from(height) - 1.0);
        let mut corner = |x: f64, y: f64| {
            let (across, down) = (inwards(width), inwards(height));
            (if x > 0.0 { x - across } else { across }, if y > 0.0 { y - down } else { down })
        };
        [corner(0.0, 0.0), corner(right, 0.0), corner(right, bottom), corner(0.0, bottom)]
    }
}

impl Operate for RandomPerspective {
    const EXAMPLES: &'static [Self] = &[
        Self { distortion_scale: 0.5, p: 1.0, interpolation: Interpolation::Bilinear, fill: Fill([90, 0, 255]) },
        Self { distortion_scale: 1.0, p: 0.5, interpolation: Interpolation::Nearest, fill: Fill([0; 3]) },
    ];

    fn check(&self) -> Result<(), String> {
        if !(0.0..=1.0).contains(&self.distortion_scale) {
            return Err(format!("distortion_scale {} is not in 0..=1", self.distortion_scale));
        }
        check_probability(self.p)
    }

    fn size_after(&self, before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
        Ok(before)
    }

    fn draw(&self, size: (u32, u32), words: &mut impl Words, effects: &mut impl Effects) -> Result<(), PixelError> {
        if words.uniform() < self.p {
            let sampling = Sampling { interpolation: self.interpolation, fill: Some(self.fill.0) };
            if let Some(warp) = Warp::perspective(size, self.corners(size, words), sampling) {
                effects.add(warp);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::{Draw, Rng};

    #[test]
    fn corners_stay_in_their_quarters_and_reach_all_of_them() {
        let operation = RandomPerspective { distortion_scale: 0.5, ..RandomPerspective::EXAMPLES[0].clone() };
        // A quarter of the image: 0 to 2 columns, 0 to 1 rows.
        let (mut least, mut most) = ([(9.0f64, 9.0f64); 4], [(0.0f64, 0.0f64); 4]);
        for sample_id in 0..200 {
            let mut words = Rng::for_sample(Draw { seed: 1, epoch: 0, sample_id }, 0);
            for (at, (x, y)) in operation.corners((9, 6), &mut words).into_iter().enumerate() {
                least[at] = (least[at].0.min(x), least[at].1.min(y));
                most[at] = (most[at].0.max(x), most[at].1.max(y));
            }
        }
        assert_eq!(least, [(0.0, 0.0), (6.0, 0.0), (6.0, 4.0), (0.0, 4.0)]);
        assert_eq!(most, [(2.0, 1.0), (8.0, 1.0), (8.0, 5.0), (2.0, 5.0)]);
    }
}
