//! torchvision's `RandomShortestSize`.

use super::{Effects, Operate, Piece, check_side};
use crate::draw::Words;
use crate::error::PixelError;
use crate::resize::Resampling;
use serde::{Deserialize, Deserializer, Serialize};
use std::borrow::Cow;

/// Most lengths to choose from.
const SIZES_MAX: usize = 64;

/// Resizes so that the shorter side has a length that is drawn from a list. Both sides are rounded down to whole
/// pixels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomShortestSize {
    /// Lengths of the shorter side, at most 64.
    pub min_size: Sides,
    /// Longest that the longer side may become; both are then shorter.
    #[serde(default)]
    pub max_size: Option<u32>,
    /// How a pixel is made.
    #[serde(default)]
    pub interpolation: Resampling,
}

/// Lengths of a side. In a description, a number stands for a list of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sides(Cow<'static, [u32]>);

impl<'de> Deserialize<'de> for Sides {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected a whole number, or a list of them")]
        enum Given {
            One(u32),
            List(Vec<u32>),
        }
        let sides = match deserializer.is_human_readable() {
            true => match Given::deserialize(deserializer)? {
                Given::One(side) => vec![side],
                Given::List(sides) => sides,
            },
            false => Vec::deserialize(deserializer)?,
        };
        Ok(Self(sides.into()))
    }
}

impl Operate for RandomShortestSize {
    const EXAMPLES: &'static [Self] = &[
        Self {
            min_size: Sides(Cow::Borrowed(&[30, 37, 211])),
            max_size: Some(113),
            interpolation: Resampling::Bilinear,
        },
        Self { min_size: Sides(Cow::Borrowed(&[41])), max_size: None, interpolation: Resampling::Nearest },
    ];

    fn check(&self) -> Result<(), String> {
        let sides = &self.min_size.0;
        if sides.is_empty() || sides.len() > SIZES_MAX {
            return Err(format!("min_size has {} numbers, but must have 1 to {SIZES_MAX}", sides.len()));
        }
        sides.iter().chain(&self.max_size).try_for_each(|&side| check_side(side))
    }

    fn size_after(&self, before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
        Ok(match *self.min_size.0 {
            [side] => before.and_then(|size| self.target(side, size).ok()),
            _ => None,
        })
    }

    fn draw(&self, size: (u32, u32), words: &mut impl Words, effects: &mut impl Effects) -> Result<(), PixelError> {
        let sides = &self.min_size.0;
        let side = sides[words.below(sides.len() as u64) as usize];
        let target = self.target(side, size).map_err(|message| PixelError::Misfit { message })?;
        effects.add(Piece { resize: Some(target), interpolation: self.interpolation, ..Piece::default() });
        Ok(())
    }
}

impl RandomShortestSize {
    /// Returns the size to which an image is resized whose shorter side gets this length.
    fn target(&self, side: u32, (width, height): (u32, u32)) -> Result<(u32, u32), String> {
        let ratio = f64::from(side) / f64::from(width.min(height));
        let most = self.max_size.map(|most| f64::from(most) / f64::from(width.max(height)));
        let ratio = most.map_or(ratio, |most| ratio.min(most));
        let [to_width, to_height] = [width, height].map(|length| (f64::from(length) * ratio) as u32);
        if to_width.max(to_height) > i32::MAX as u32 {
            return Err(format!(
                "an image of {width}x{height} pixels, resized to a short side of {side}, would have more than {} on \
                 the long one: set `max_size`",
                i32::MAX
            ));
        }
        // A side of a very long image has at least one pixel, which torchvision refuses to make.
        Ok((to_width.max(1), to_height.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::{Draw, Rng};
    use crate::ops::Operation;
    use std::collections::HashSet;

    fn of(text: &str) -> RandomShortestSize {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn sizes_are_torchvisions() {
        // RandomShortestSize.make_params of torchvision 0.29.
        for (side, most, from, to) in [
            (800, Some(1333), (640, 427), (1199, 800)),
            (800, Some(1333), (640, 280), (1333, 583)),
            (480, None, (500, 375), (640, 480)),
            (37, Some(41), (170, 150), (41, 36)),
            (50, None, (333, 1000), (50, 150)),
        ] {
            let operation = RandomShortestSize { max_size: most, ..of("min_size = 1") };
            assert_eq!(operation.target(side, from), Ok(to), "{side} {most:?} {from:?}");
        }
        assert_eq!(of("min_size = 5\nmax_size = 6").target(5, (10_000, 1)), Ok((5, 1)));
        assert!(of("min_size = 65535").target(65_535, (100_000, 1)).unwrap_err().contains("`max_size`"));
    }

    #[test]
    fn every_length_is_drawn() {
        let operation = Operation::from(of("min_size = [10, 20, 30]"));
        let words = &mut Rng::for_sample(Draw::default(), 0);
        let sizes: HashSet<_> =
            (0..100).map(|_| operation.effects((60, 80), words).unwrap()[0].geometry().unwrap().resize).collect();
        assert_eq!(sizes, HashSet::from([(10, 13), (20, 26), (30, 40)].map(Some)));
        assert_eq!(operation.size_after(Some((60, 80))), Ok(None));
        assert_eq!(Operation::from(of("min_size = 30")).size_after(Some((60, 80))), Ok(Some((30, 40))));
    }

    #[test]
    fn wrong_parameters_are_named() {
        for (text, message) in
            [("min_size = []", "min_size has 0"), ("min_size = 0", "size 0"), ("min_size = 9\nmax_size = 0", "size 0")]
        {
            assert!(of(text).check().unwrap_err().contains(message));
        }
        let error = toml::from_str::<RandomShortestSize>("min_size = -1").unwrap_err().to_string();
        assert!(error.contains("a whole number, or a list of them"), "{error}");
    }
}
