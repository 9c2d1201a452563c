//! timm's `RandAugment`.

use super::augmentations::Augmentation;
use super::{ChangePoints, Effects, Fill, Operate, check_probability};
use crate::draw::Words;
use crate::error::PixelError;
use crate::warp::{Affine, Interpolation, Sampling, Warp};
use serde::{Deserialize, Serialize};

/// Most changes of an image.
const OPS_MAX: u32 = 16;
/// Largest magnitude, and the largest bound of magnitudes.
const MAGNITUDE_MAX: f64 = 100.0;
/// The magnitude at which a change has its usual strength.
const USUAL: f64 = 10.0;
/// Standard deviations above it stand for magnitudes that are drawn evenly.
const STD_MAX: f64 = 100.0;
/// Largest value of a pixel to which [`SolarizeAdd`] adds something.
const DARK_MAX: u8 = 127;

/// Makes several changes, one after the other, each chosen at random from fifteen, as timm's `rand_augment_transform`
/// does: the string `rand-m9-mstd0.5-inc1` is `magnitude` 9, `magnitude_std` 0.5, `increasing`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimmRandAugment {
    /// Number of changes, at most 16 (`n`).
    #[serde(default = "default_ops")]
    pub num_ops: u32,
    /// Magnitude of the changes, 0 to 100 (`m`); 10 is the usual strength.
    #[serde(default = "usual")]
    pub magnitude: f64,
    /// Standard deviation of the magnitudes, which are drawn from a normal distribution (`mstd`). Above 100, they are
    /// drawn evenly from 0 to `magnitude`.
    #[serde(default)]
    pub magnitude_std: f64,
    /// Bound of the drawn magnitudes, above 0 and at most 100 (`mmax`).
    #[serde(default = "usual")]
    pub magnitude_max: f64,
    /// Whether a larger magnitude makes every change stronger (`inc`).
    #[serde(default)]
    pub increasing: bool,
    /// Probability of each change (`p`).
    #[serde(default = "default_probability")]
    pub p: f64,
    /// How a value is made from the pixels around a place. Without it, each change draws bilinear or bicubic.
    #[serde(default)]
    pub interpolation: Option<Interpolation>,
    /// Colour of the pixels outside the image.
    #[serde(default = "gray")]
    pub fill: Fill,
}

fn default_ops() -> u32 {
    2
}

fn usual() -> f64 {
    USUAL
}

fn default_probability() -> f64 {
    0.5
}

fn gray() -> Fill {
    Fill([128; 3])
}

/// A change, before its magnitude is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Change {
    Usual(Augmentation),
    SolarizeAdd,
}

/// timm's list of changes.
const CHANGES: [Change; 15] = [
    Change::Usual(Augmentation::AutoContrast),
    Change::Usual(Augmentation::Equalize),
    Change::Usual(Augmentation::Invert),
    Change::Usual(Augmentation::Rotate),
    Change::Usual(Augmentation::Posterize),
    Change::Usual(Augmentation::Solarize),
    Change::SolarizeAdd,
    Change::Usual(Augmentation::Color),
    Change::Usual(Augmentation::Contrast),
    Change::Usual(Augmentation::Brightness),
    Change::Usual(Augmentation::Sharpness),
    Change::Usual(Augmentation::ShearX),
    Change::Usual(Augmentation::ShearY),
    Change::Usual(Augmentation::TranslateX),
    Change::Usual(Augmentation::TranslateY),
];

/// Adds a number to dark values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SolarizeAdd {
    /// What is added to values below 128; sums end at 255.
    pub add: u8,
}

impl ChangePoints for SolarizeAdd {
    fn change(&self, pixels: &mut [u8]) {
        for value in pixels {
            *value = if *value <= DARK_MAX { value.saturating_add(self.add) } else { *value };
        }
    }
}

impl Operate for TimmRandAugment {
    /// Together they make every change many times.
    const EXAMPLES: &'static [Self] = &[
        Self {
            num_ops: 16,
            magnitude: 9.0,
            magnitude_std: 0.5,
            magnitude_max: USUAL,
            increasing: true,
            p: 0.5,
            interpolation: None,
            fill: Fill([124, 116, 104]),
        },
        Self {
            num_ops: 16,
            magnitude: 14.0,
            magnitude_std: 101.0,
            magnitude_max: 20.0,
            increasing: false,
            p: 0.9,
            interpolation: Some(Interpolation::Bicubic),
            fill: Fill([0; 3]),
        },
    ];

    fn check(&self) -> Result<(), String> {
        let Self { num_ops, magnitude, magnitude_std, magnitude_max, .. } = *self;
        if num_ops > OPS_MAX {
            return Err(format!("num_ops {num_ops} is more than {OPS_MAX}"));
        }
        if !(0.0..=MAGNITUDE_MAX).contains(&magnitude) {
            return Err(format!("magnitude {magnitude} is not in 0..={MAGNITUDE_MAX}"));
        }
        if magnitude_std.is_nan() || magnitude_std < 0.0 {
            return Err(format!("magnitude_std {magnitude_std} is not 0 or more"));
        }
        if !(magnitude_max > 0.0 && magnitude_max <= MAGNITUDE_MAX) {
            return Err(format!("magnitude_max {magnitude_max} is not above 0 and at most {MAGNITUDE_MAX}"));
        }
        check_probability(self.p)
    }

    fn size_after(&self, before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
        Ok(before)
    }

    fn draw(&self, _: (u32, u32), words: &mut impl Words, effects: &mut impl Effects) -> Result<(), PixelError> {
        for _ in 0..self.num_ops {
            let change = CHANGES[words.below(CHANGES.len() as u64) as usize];
            if words.uniform() < self.p {
                self.add(change, self.strength(words), words, effects);
            }
        }
        Ok(())
    }
}

impl TimmRandAugment {
    /// Draws a magnitude, as a multiple of the usual one.
    fn strength(&self, words: &mut impl Words) -> f64 {
        let Self { magnitude, magnitude_std, magnitude_max, .. } = *self;
        let drawn = if magnitude_std > STD_MAX {
            magnitude * words.uniform()
        } else if magnitude_std > 0.0 {
            magnitude + magnitude_std * words.normal()
        } else {
            magnitude
        };
        drawn.clamp(0.0, magnitude_max) / USUAL
    }

    /// Adds a change, whose sign and interpolation are drawn.
    fn add(&self, change: Change, strength: f64, words: &mut impl Words, effects: &mut impl Effects) {
        let Change::Usual(change) = change else {
            return effects.add(SolarizeAdd { add: (strength * 110.0).trunc().min(128.0) as u8 });
        };
        let magnitude = match change {
            Augmentation::Rotate => 30.0 * strength,
            Augmentation::ShearX | Augmentation::ShearY => 0.3 * strength,
            Augmentation::TranslateX | Augmentation::TranslateY => 0.45 * strength,
            Augmentation::Color | Augmentation::Contrast | Augmentation::Brightness | Augmentation::Sharpness => {
                if self.increasing { 0.9 * strength } else { 1.8 * strength + 0.1 - 1.0 }
            }
            Augmentation::Posterize => rising(self.increasing, (4.0 * strength).trunc(), 4.0).max(0.0),
            Augmentation::Solarize => rising(self.increasing, (256.0 * strength).trunc().min(256.0), 256.0),
            Augmentation::Identity | Augmentation::AutoContrast | Augmentation::Equalize | Augmentation::Invert => 0.0,
        };
        let is_factor = matches!(
            change,
            Augmentation::Color | Augmentation::Contrast | Augmentation::Brightness | Augmentation::Sharpness
        );
        let has_sign = change.is_signed() && (self.increasing || !is_factor);
        let magnitude = if has_sign && words.below(2) == 1 { -magnitude } else { magnitude };
        // timm's factors are at least 0.1 where they may fall below 1.
        let magnitude = if is_factor && self.increasing { magnitude.max(0.1 - 1.0) } else { magnitude };
        let sampling = Sampling { interpolation: self.interpolation(change, words), fill: Some(self.fill.0) };
        let size = effects.size();
        let moved = |translate| Warp::affine(size, &Affine { translate, ..Affine::default() }, sampling);
        match change {
            // timm moves by parts of a pixel.
            Augmentation::TranslateX if magnitude != 0.0 => effects.add(moved((magnitude * f64::from(size.0), 0.0))),
            Augmentation::TranslateY if magnitude != 0.0 => effects.add(moved((0.0, magnitude * f64::from(size.1)))),
            // timm leaves an image alone whose values keep all their bits.
            Augmentation::Posterize if magnitude >= 8.0 => {}
            change => change.add(magnitude, sampling, effects),
        }
    }

    /// Returns the interpolation of a change; draws it if none is given.
    fn interpolation(&self, change: Augmentation, words: &mut impl Words) -> Interpolation {
        let warps = matches!(
            change,
            Augmentation::Rotate
                | Augmentation::ShearX
                | Augmentation::ShearY
                | Augmentation::TranslateX
                | Augmentation::TranslateY
        );
        match self.interpolation {
            Some(interpolation) => interpolation,
            None if warps => [Interpolation::Bilinear, Interpolation::Bicubic][words.below(2) as usize],
            None => Interpolation::Bilinear,
        }
    }
}

/// Returns a value that falls with the magnitude, or its distance from `most` if it is to fall with `value`.
fn rising(increasing: bool, value: f64, most: f64) -> f64 {
    if increasing { most - value } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::{Draw, Rng};
    use crate::ops::{Effect, Listed, Point};
    use std::collections::HashMap;

    fn deit() -> TimmRandAugment {
        toml::from_str("magnitude = 9\nmagnitude_std = 0.5\nincreasing = true").unwrap()
    }

    fn effects(operation: &TimmRandAugment, change: Change, strength: f64, words: &mut impl Words) -> Vec<Effect> {
        let mut listed = Listed::of((200, 100));
        operation.add(change, strength, words, &mut listed);
        listed.effects
    }

    #[test]
    fn the_usual_arguments_are_timms() {
        let words = &mut Rng::for_sample(Draw::default(), 0);
        let (rising, falling) = (deit(), TimmRandAugment { increasing: false, ..deit() });
        let point = |found: Vec<Effect>| match found[..] {
            [Effect::Point(point)] => point,
            _ => panic!("{found:?}"),
        };
        let posterize = Change::Usual(Augmentation::Posterize);
        let solarize = Change::Usual(Augmentation::Solarize);
        // timm: 4 - int(0.9 * 4), int(0.9 * 4), 256 - int(0.9 * 256), int(0.9 * 256), int(0.9 * 110).
        let keeping = |bits| Point::Posterize(crate::ops::Posterize::keeping(bits));
        assert_eq!(point(effects(&rising, posterize, 0.9, words)), keeping(1));
        assert_eq!(point(effects(&falling, posterize, 0.9, words)), keeping(3));
        let from = |value: u8| Point::Solarize(crate::ops::Solarize { from: Some(value) });
        assert_eq!(point(effects(&rising, solarize, 0.9, words)), from(26));
        assert_eq!(point(effects(&falling, solarize, 0.9, words)), from(230));
        assert_eq!(
            point(effects(&rising, Change::SolarizeAdd, 0.9, words)),
            Point::SolarizeAdd(SolarizeAdd { add: 99 })
        );
        let mut pixels = [0, 127, 128, 255];
        SolarizeAdd { add: 128 }.change(&mut pixels);
        assert_eq!(pixels, [128, 255, 128, 255]);
    }

    #[test]
    fn magnitudes_have_their_distribution_and_bounds() {
        let words = &mut Rng::for_sample(Draw::default(), 0);
        let mut drawn = |operation: TimmRandAugment| -> Vec<f64> {
            (0..20_000).map(|_| operation.strength(words) * USUAL).collect()
        };
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let normal = drawn(TimmRandAugment { magnitude: 5.0, ..deit() });
        let deviation = (mean(&normal.iter().map(|value| (value - 5.0).powi(2)).collect::<Vec<_>>())).sqrt();
        assert!((mean(&normal) - 5.0).abs() < 0.02 && (deviation - 0.5).abs() < 0.02, "{deviation}");
        let near = drawn(deit());
        assert!(near.iter().all(|value| (0.0..=10.0).contains(value)) && near.contains(&10.0));
        let even = drawn(TimmRandAugment { magnitude: 8.0, magnitude_std: 101.0, ..deit() });
        assert!((mean(&even) - 4.0).abs() < 0.1 && even.iter().all(|value| (0.0..8.0).contains(value)));
    }

    #[test]
    fn changes_and_signs_are_drawn_evenly() {
        let words = &mut Rng::for_sample(Draw::default(), 0);
        let operation = TimmRandAugment { num_ops: 1, ..deit() };
        let (mut none, mut kinds) = (0, HashMap::<_, u32>::new());
        for _ in 0..30_000 {
            let mut listed = Listed::of((200, 100));
            operation.draw((200, 100), words, &mut listed).unwrap();
            match listed.effects[..] {
                [] => none += 1,
                [effect] => *kinds.entry(std::mem::discriminant(&effect)).or_default() += 1,
                _ => panic!("{:?}", listed.effects),
            }
        }
        assert!((14_500..15_600).contains(&none), "half of the changes are left out: {none}");
        // Five of fifteen changes are warps.
        let warps =
            kinds[&std::mem::discriminant(&Effect::Warp(Warp::affine((1, 1), &Affine::default(), Sampling::NEAREST)))];
        assert!((4700..5300).contains(&warps), "{warps}");
    }

    #[test]
    fn wrong_parameters_are_named() {
        for (text, message) in [
            ("num_ops = 17", "num_ops 17"),
            ("magnitude = -1.0", "magnitude -1"),
            ("magnitude_std = nan", "magnitude_std NaN"),
            ("magnitude_max = 0.0", "magnitude_max 0"),
            ("p = 1.5", "1.5"),
        ] {
            let error = toml::from_str::<TimmRandAugment>(text).unwrap().check().unwrap_err();
            assert!(error.contains(message), "{error}");
        }
    }
}
