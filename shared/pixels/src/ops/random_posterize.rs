//! torchvision's `RandomPosterize`.

use super::{ChangePoints, Effects, Operate, check_probability};
use crate::draw::Words;
use crate::error::PixelError;
use serde::{Deserialize, Serialize};

/// Bits of a value.
const BITS: u8 = 8;

/// Keeps only the upper bits of all values at random.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomPosterize {
    /// Number of bits to keep, at most 8.
    pub bits: u8,
    /// Probability of a change.
    #[serde(default = "default_probability")]
    pub p: f64,
}

fn default_probability() -> f64 {
    0.5
}

/// Keeps only the upper bits of all values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Posterize {
    /// Bits that are kept.
    mask: u8,
}

impl Operate for RandomPosterize {
    const EXAMPLES: &'static [Self] =
        &[Self { bits: 3, p: 0.5 }, Self { bits: 0, p: 1.0 }, Self { bits: 5, p: 1.0 }, Self { bits: BITS, p: 1.0 }];

    fn check(&self) -> Result<(), String> {
        if self.bits > BITS {
            return Err(format!("bits {} is more than a value has, {BITS}", self.bits));
        }
        check_probability(self.p)
    }

    fn size_after(&self, before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
        Ok(before)
    }

    fn draw(&self, _size: (u32, u32), words: &mut impl Words, effects: &mut impl Effects) -> Result<(), PixelError> {
        if words.uniform() < self.p {
            effects.add(Posterize::keeping(self.bits));
        }
        Ok(())
    }
}

impl Posterize {
    /// Returns the change that keeps as many bits, at most 8.
    pub fn keeping(bits: u8) -> Self {
        Self { mask: (u16::from(u8::MAX) << BITS.saturating_sub(bits)) as u8 }
    }
}

impl ChangePoints for Posterize {
    fn change(&self, pixels: &mut [u8]) {
        pixels.iter_mut().for_each(|value| *value &= self.mask);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::{Draw, Rng};
    use crate::ops::{Effect, Operation, Point};

    #[test]
    fn the_upper_bits_are_kept() {
        for (bits, expected) in [(0, 0), (1, 0x80), (3, 0xA0), (7, 0xB6), (8, 0xB7)] {
            let words = &mut Rng::for_sample(Draw::default(), 0);
            let operation = Operation::from(RandomPosterize { bits, p: 1.0 });
            let [Effect::Point(Point::Posterize(change))] = operation.effects((1, 1), words).unwrap()[..] else {
                panic!("it is drawn")
            };
            let mut pixels = [0xB7; 3];
            change.change(&mut pixels);
            assert_eq!(pixels, [expected; 3], "{bits}");
        }
    }
}
