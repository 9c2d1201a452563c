//! torchvision's `RandomPhotometricDistort`.

use super::color_jitter::{Adjustment, Jitter, check_bounds};
use super::{ChangePoints, Effects, Factor, HueTurn, Operate, between, check_probability};
use crate::draw::Words;
use crate::error::PixelError;
use serde::{Deserialize, Serialize};

/// Changes brightness, contrast and saturation by factors, turns the hue, and exchanges the channels, each at random.
/// The contrast is changed before saturation and hue, or after them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomPhotometricDistort {
    /// Bounds of the factor of every value.
    #[serde(default = "default_brightness")]
    pub brightness: Factor,
    /// Bounds of the factor of every value's distance from the mean of the image's gray values.
    #[serde(default = "half_to_three_halves")]
    pub contrast: Factor,
    /// Bounds of the factor of every value's distance from the gray value of its pixel.
    #[serde(default = "half_to_three_halves")]
    pub saturation: Factor,
    /// Bounds of the part of the colour circle by which the hue turns.
    #[serde(default = "default_hue")]
    pub hue: HueTurn,
    /// Probability of each of the changes.
    #[serde(default = "default_probability")]
    pub p: f64,
}

fn default_brightness() -> Factor {
    Factor([0.875, 1.125])
}

fn half_to_three_halves() -> Factor {
    Factor([0.5, 1.5])
}

fn default_hue() -> HueTurn {
    HueTurn([-0.05, 0.05])
}

fn default_probability() -> f64 {
    0.5
}

/// Exchanges the channels of all pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Permute {
    /// The channel from which each one comes.
    pub from: [u8; 3],
}

impl ChangePoints for Permute {
    fn change(&self, pixels: &mut [u8]) {
        let from = self.from.map(usize::from);
        for pixel in pixels.as_chunks_mut::<3>().0 {
            *pixel = from.map(|channel| pixel[channel]);
        }
    }
}

impl Operate for RandomPhotometricDistort {
    const EXAMPLES: &'static [Self] = &[
        Self {
            brightness: Factor([0.875, 1.125]),
            contrast: Factor([0.5, 1.5]),
            saturation: Factor([0.5, 1.5]),
            hue: HueTurn([-0.05, 0.05]),
            p: 0.5,
        },
        Self {
            brightness: Factor([0.5, 1.5]),
            contrast: Factor([0.1, 0.7]),
            saturation: Factor([1.0, 2.0]),
            hue: HueTurn([-0.5, 0.5]),
            p: 1.0,
        },
    ];

    fn check(&self) -> Result<(), String> {
        let Self { brightness, contrast, saturation, hue, p } = *self;
        check_bounds(brightness, contrast, saturation, hue)?;
        check_probability(p)
    }

    fn size_after(&self, before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
        Ok(before)
    }

    fn draw(&self, _: (u32, u32), words: &mut impl Words, effects: &mut impl Effects) -> Result<(), PixelError> {
        let mut drawn = |bounds| (words.uniform() < self.p).then(|| between(words.uniform(), bounds));
        let brightness = drawn(self.brightness.0).map(Adjustment::Brightness);
        let contrast = drawn(self.contrast.0).map(Adjustment::Contrast);
        let saturation = drawn(self.saturation.0).map(Adjustment::Saturation);
        let hue = drawn(self.hue.0).map(Adjustment::Hue);
        let steps = match words.below(2) {
            0 => [brightness, contrast, saturation, hue],
            _ => [brightness, saturation, hue, contrast],
        };
        Jitter(steps).add_to(effects);
        if words.uniform() < self.p {
            let mut from = [0, 1, 2];
            for last in (1..from.len()).rev() {
                from.swap(last, words.below(last as u64 + 1) as usize);
            }
            effects.add(Permute { from });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::{Draw, Rng};
    use crate::ops::{Area, Effect, Operation, Point};
    use std::collections::HashMap;

    fn of(text: &str) -> RandomPhotometricDistort {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn each_change_has_its_probability() {
        let operation = Operation::from(of("p = 0.25"));
        let words = &mut Rng::for_sample(Draw::default(), 0);
        let mut counts = HashMap::<&str, u32>::new();
        let draws = 16_000;
        for _ in 0..draws {
            for effect in operation.effects((9, 9), words).unwrap() {
                let steps = match effect {
                    Effect::Point(Point::Permute(_)) => {
                        *counts.entry("channels").or_default() += 1;
                        continue;
                    }
                    Effect::Point(Point::Jitter(Jitter(steps))) => steps,
                    Effect::Area(Area::JitterOfWhole(whole)) => whole.steps(),
                    other => panic!("{other:?}"),
                };
                for step in steps.into_iter().flatten() {
                    let (name, value, bounds) = match step {
                        Adjustment::Brightness(value) => ("brightness", value, 0.875..=1.125),
                        Adjustment::Contrast(value) => ("contrast", value, 0.5..=1.5),
                        Adjustment::Saturation(value) => ("saturation", value, 0.5..=1.5),
                        Adjustment::Hue(value) => ("hue", value, -0.05..=0.05),
                    };
                    assert!(bounds.contains(&value), "{name} {value}");
                    *counts.entry(name).or_default() += 1;
                }
                let late = steps.iter().position(|step| matches!(step, Some(Adjustment::Contrast(_)))) == Some(3);
                *counts.entry("late contrast").or_default() += u32::from(late);
            }
        }
        assert_eq!(counts.len(), 6);
        for (name, count) in counts {
            // The standard deviation of a count is 55 at most.
            let expected = if name == "late contrast" { draws / 8 } else { draws / 4 };
            assert!(count.abs_diff(expected) < 250, "{count} of {name}");
        }
    }

    #[test]
    fn channels_are_exchanged() {
        let mut pixels = [1, 2, 3, 4, 5, 6];
        Permute { from: [2, 0, 1] }.change(&mut pixels);
        assert_eq!(pixels, [3, 1, 2, 6, 4, 5]);
    }

    #[test]
    fn wrong_parameters_are_named() {
        for (text, message) in
            [("p = 2.0", "p = 2"), ("contrast = [2.0, 1.0]", "contrast [2, 1]"), ("hue = 0.6", "hue")]
        {
            assert!(of(text).check().unwrap_err().contains(message));
        }
    }
}
