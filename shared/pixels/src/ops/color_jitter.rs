//! torchvision's `ColorJitter`.

use super::{ChangePoints, Cutout, Effects, FACTOR_MAX, MakeArea, Operate, Scratch};
use crate::color;
use crate::draw::Words;
use crate::error::PixelError;
use crate::geometry::Rect;
use crate::level::Level;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// Changes brightness, contrast and saturation by factors, and turns the hue. Each amount is drawn evenly between its
/// bounds; the order of the changes is drawn too.
///
/// Instead of both bounds, a description in TOML may name one number x: for a factor, the bounds are then 1 − x, or 0
/// if that is negative, and 1 + x; for the hue, −x and x.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColorJitter {
    /// Factor of every value. The bounds are 1 and 1 by default.
    #[serde(default)]
    pub brightness: Factor,
    /// Factor of every value's distance from the mean of the image's gray values.
    #[serde(default)]
    pub contrast: Factor,
    /// Factor of every value's distance from the gray value of its pixel.
    #[serde(default)]
    pub saturation: Factor,
    /// Part of the colour circle by which the hue turns, from −0.5 to 0.5. The bounds are 0 and 0 by default.
    #[serde(default)]
    pub hue: HueTurn,
}

/// Bounds of a factor, from 0 to 1000.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Factor(pub [f64; 2]);

/// Bounds of a part of a circle, from −0.5 to 0.5.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct HueTurn(pub [f64; 2]);

impl Default for Factor {
    fn default() -> Self {
        Self([1.0, 1.0])
    }
}

impl From<f64> for Factor {
    fn from(strength: f64) -> Self {
        // NaN stays NaN, which `check` refuses.
        Self([if strength > 1.0 { 0.0 } else { 1.0 - strength }, 1.0 + strength])
    }
}

impl From<f64> for HueTurn {
    fn from(strength: f64) -> Self {
        Self([-strength, strength])
    }
}

impl<'de> Deserialize<'de> for Factor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        bounds(deserializer, |strength| (strength >= 0.0).then(|| Self::from(strength).0)).map(Self)
    }
}

impl<'de> Deserialize<'de> for HueTurn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        bounds(deserializer, |strength| (strength >= 0.0).then(|| Self::from(strength).0)).map(Self)
    }
}

/// Reads two bounds. In a format that people write, reads one number as well, from which `of` makes bounds.
fn bounds<'de, D: Deserializer<'de>>(
    deserializer: D,
    of: impl Fn(f64) -> Option<[f64; 2]>,
) -> Result<[f64; 2], D::Error> {
    if deserializer.is_human_readable() {
        deserializer.deserialize_any(NumberOrBounds(of))
    } else {
        Deserialize::deserialize(deserializer)
    }
}

struct NumberOrBounds<F>(F);

impl<'de, F: Fn(f64) -> Option<[f64; 2]>> Visitor<'de> for NumberOrBounds<F> {
    type Value = [f64; 2];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of 0 or more, or two bounds")
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
        (self.0)(number).ok_or_else(|| E::custom(format!("{number} is not a number of 0 or more")))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        self.visit_f64(number as f64)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        self.visit_f64(number as f64)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut bounds: A) -> Result<Self::Value, A::Error> {
        let mut next = |number| bounds.next_element()?.ok_or_else(|| A::Error::invalid_length(number, &"two bounds"));
        let both = [next(0)?, next(1)?];
        match bounds.next_element::<f64>()? {
            None => Ok(both),
            Some(_) => Err(A::Error::invalid_length(3, &"two bounds")),
        }
    }
}

/// One change of all colours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Adjustment {
    Brightness(f64),
    Contrast(f64),
    Saturation(f64),
    Hue(f64),
}

/// Changes of colours in their order. Each changes a pixel by that pixel alone: contrast is not among them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Jitter(pub(super) [Option<Adjustment>; 4]);

/// Changes of colours in their order. Contrast is among them, and needs the mean of the whole image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JitterOfWhole(Jitter);

impl Jitter {
    const fn one(adjustment: Adjustment) -> Self {
        Self([Some(adjustment), None, None, None])
    }

    /// Adds these changes as one effect, which needs the whole image if the contrast is among them.
    pub(super) fn add_to(self, effects: &mut impl Effects) {
        if self.0.iter().flatten().any(|adjustment| matches!(adjustment, Adjustment::Contrast(_))) {
            effects.add(JitterOfWhole(self));
        } else if self.0 != [None; 4] {
            effects.add(self);
        }
    }

    /// Returns the change of the brightness alone.
    pub fn brightness(factor: f64) -> Self {
        Self::one(Adjustment::Brightness(factor))
    }

    /// Returns the change of the saturation alone.
    pub fn saturation(factor: f64) -> Self {
        Self::one(Adjustment::Saturation(factor))
    }
}

impl JitterOfWhole {
    /// Returns the changes in their order.
    #[cfg(test)]
    pub(super) fn steps(self) -> [Option<Adjustment>; 4] {
        self.0.0
    }

    /// Returns the change of the contrast alone.
    pub fn contrast(factor: f64) -> Self {
        Self(Jitter::one(Adjustment::Contrast(factor)))
    }
}

/// Checks the bounds of all changes.
pub(super) fn check_bounds(
    brightness: Factor,
    contrast: Factor,
    saturation: Factor,
    HueTurn([low, high]): HueTurn,
) -> Result<(), String> {
    for (name, Factor([low, high])) in [("brightness", brightness), ("contrast", contrast), ("saturation", saturation)]
    {
        // Comparisons with NaN are false.
        if !(0.0 <= low && low <= high && high <= FACTOR_MAX) {
            return Err(format!("{name} [{low}, {high}] is not a range within [0, {FACTOR_MAX}]"));
        }
    }
    if -0.5 <= low && low <= high && high <= 0.5 {
        return Ok(());
    }
    Err(format!("hue [{low}, {high}] is not a range within [-0.5, 0.5]"))
}

impl ColorJitter {
    /// Returns whether the operation leaves every image as it is.
    fn does_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl Operate for ColorJitter {
    const EXAMPLES: &'static [Self] = &[
        Self {
            brightness: Factor([0.4, 1.6]),
            contrast: Factor([0.4, 1.6]),
            saturation: Factor([0.2, 1.8]),
            hue: HueTurn([-0.5, 0.5]),
        },
        Self {
            brightness: Factor([1.0, 1.0]),
            contrast: Factor([1.0, 1.0]),
            saturation: Factor([0.0, 0.5]),
            hue: HueTurn([0.1, 0.1]),
        },
    ];

    fn check(&self) -> Result<(), String> {
        check_bounds(self.brightness, self.contrast, self.saturation, self.hue)
    }

    fn size_after(&self, before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
        Ok(before)
    }

    fn draw(&self, _size: (u32, u32), words: &mut impl Words, effects: &mut impl Effects) -> Result<(), PixelError> {
        if self.does_nothing() {
            return Ok(());
        }
        let mut between = |[low, high]: [f64; 2]| low + (high - low) * words.uniform();
        let (brightness, contrast) = (between(self.brightness.0), between(self.contrast.0));
        let (saturation, hue) = (between(self.saturation.0), between(self.hue.0));
        let mut steps = [
            (brightness != 1.0).then_some(Adjustment::Brightness(brightness)),
            (contrast != 1.0).then_some(Adjustment::Contrast(contrast)),
            (saturation != 1.0).then_some(Adjustment::Saturation(saturation)),
            (hue != 0.0).then_some(Adjustment::Hue(hue)),
        ];
        // Fisher and Yates: each order is as likely as any other.
        for last in (1..steps.len()).rev() {
            steps.swap(last, words.below(last as u64 + 1) as usize);
        }
        Jitter(steps).add_to(effects);
        Ok(())
    }
}

impl ChangePoints for Jitter {
    fn change(&self, pixels: &mut [u8]) {
        let level = Level::best();
        for step in self.0.into_iter().flatten() {
            match step {
                Adjustment::Brightness(factor) => color::scale(level, pixels, factor as f32, 0.0),
                Adjustment::Contrast(factor) => {
                    let mean = color::sum_of_grays(level, pixels) as f64 / (pixels.len() / 3).max(1) as f64;
                    color::scale(level, pixels, factor as f32, (1.0 - factor) as f32 * mean as f32);
                }
                Adjustment::Saturation(factor) => {
                    color::blend_with_gray(level, pixels, factor as f32, (1.0 - factor) as f32);
                }
                Adjustment::Hue(turn) => color::turn_hue(level, pixels, (6.0 * turn) as f32),
            }
        }
    }
}

impl MakeArea for JitterOfWhole {
    fn needs(&self, _made: Rect, (width, height): (u32, u32)) -> Rect {
        Rect { x: 0, y: 0, width, height }
    }

    fn make(&self, from: &Cutout<'_>, made: Rect, scratch: &mut Scratch<'_>, out: &mut [u8]) -> Result<(), PixelError> {
        if made == from.rect {
            out.copy_from_slice(from.pixels);
            self.0.change(out);
            return Ok(());
        }
        let changed = scratch.bytes(from.pixels.len())?;
        changed.copy_from_slice(from.pixels);
        self.0.change(changed);
        let changed = Cutout { size: from.size, rect: from.rect, pixels: changed };
        for (y, row) in (made.y..).zip(out.chunks_exact_mut(made.width as usize * 3)) {
            row.copy_from_slice(&changed.row(y)[(made.x - from.rect.x) as usize * 3..][..row.len()]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::{Draw, Rng};
    use crate::ops::{Area, Effect, Operation};
    use std::collections::BTreeMap;

    const ALL: ColorJitter = ColorJitter {
        brightness: Factor([0.6, 1.4]),
        contrast: Factor([0.6, 1.4]),
        saturation: Factor([0.6, 1.4]),
        hue: HueTurn([-0.1, 0.1]),
    };

    #[test]
    fn a_number_stands_for_bounds() {
        let read = |text: &str| toml::from_str::<ColorJitter>(text).map_err(|error| error.to_string());
        let jitter = read("brightness = 0.4\ncontrast = 2\nsaturation = [0.5, 1]\nhue = 0.1").unwrap();
        assert_eq!(jitter.brightness, Factor([0.6, 1.4]));
        assert_eq!(jitter.contrast, Factor([0.0, 3.0]));
        assert_eq!(jitter.saturation, Factor([0.5, 1.0]));
        assert_eq!(jitter.hue, HueTurn([-0.1, 0.1]));
        assert_eq!(read("").unwrap(), ColorJitter::default());
        for wrong in ["hue = -0.1", "brightness = [1]", "brightness = [1, 2, 3]", "contrast = 'much'", "contrast = nan"]
        {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_program_carries_both_bounds() {
        let codec = bincode::config::standard().with_little_endian().with_fixed_int_encoding();
        let bytes = Operation::from(ALL).to_bytes();
        let read = bincode::serde::decode_from_slice::<Operation, _>(&bytes, codec).unwrap();
        assert_eq!(read, (ALL.into(), bytes.len()));
    }

    #[test]
    fn factors_are_drawn_evenly_and_each_order_as_often() {
        let (mut orders, mut sums) = (BTreeMap::<Vec<u8>, u32>::new(), [0.0; 4]);
        let draws = 4800;
        for sample_id in 0..draws {
            let words = &mut Rng::for_sample(Draw { sample_id, ..Draw::default() }, 0);
            let [Effect::Area(Area::JitterOfWhole(JitterOfWhole(Jitter(steps))))] =
                Operation::from(ALL).effects((1, 1), words).unwrap()[..]
            else {
                panic!("contrast needs the whole image")
            };
            let numbered = steps.map(|step| match step.unwrap() {
                Adjustment::Brightness(factor) => (0, factor),
                Adjustment::Contrast(factor) => (1, factor),
                Adjustment::Saturation(factor) => (2, factor),
                Adjustment::Hue(turn) => (3, turn),
            });
            *orders.entry(numbered.iter().map(|&(number, _)| number).collect()).or_default() += 1;
            numbered.iter().for_each(|&(number, factor)| sums[usize::from(number)] += factor);
        }
        assert_eq!(orders.len(), 24);
        // 200 each on the average; the standard deviation is 14.
        assert!(orders.values().all(|count| (130..270).contains(count)), "{orders:?}");
        for (sum, mean) in sums.into_iter().zip([1.0, 1.0, 1.0, 0.0]) {
            assert!((sum / draws as f64 - mean).abs() < 0.02, "{sums:?}");
        }
    }

    #[test]
    fn only_contrast_needs_the_whole_image() {
        let words = &mut Rng::for_sample(Draw::default(), 0);
        let mut effects = |jitter: ColorJitter| Operation::from(jitter).effects((9, 9), words).unwrap();
        assert_eq!(effects(ColorJitter::default()), []);
        let without = ColorJitter { contrast: Factor::default(), ..ALL };
        assert!(matches!(effects(without)[..], [Effect::Point(_)]));
    }

    #[test]
    fn wrong_bounds_are_refused() {
        for (wrong, name) in [
            (ColorJitter { brightness: Factor([-0.1, 1.0]), ..ALL }, "brightness"),
            (ColorJitter { contrast: Factor([1.2, 1.0]), ..ALL }, "contrast"),
            (ColorJitter { saturation: Factor([1.0, f64::NAN]), ..ALL }, "saturation"),
            (ColorJitter { hue: HueTurn([-0.6, 0.0]), ..ALL }, "hue"),
        ] {
            assert!(wrong.check().unwrap_err().starts_with(name));
        }
        assert_eq!(ALL.check(), Ok(()));
    }
}
