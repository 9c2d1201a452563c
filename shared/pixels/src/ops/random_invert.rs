//! torchvision's `RandomInvert`.

use super::{ChangePoints, Effects, Operate, check_probability};
use crate::draw::Words;
use crate::error::PixelError;
use serde::{Deserialize, Serialize};

/// Inverts all values at random: a value v becomes 255 − v.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomInvert {
    /// Probability of inverting.
    #[serde(default = "default_probability")]
    pub p: f64,
}

fn default_probability() -> f64 {
    0.5
}

/// Inverts all values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Invert;

impl Operate for RandomInvert {
    const EXAMPLES: &'static [Self] = &[Self { p: 0.5 }, Self { p: 1.0 }];

    fn check(&self) -> Result<(), String> {
        check_probability(self.p)
    }

    fn size_after(&self, before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
        Ok(before)
    }

    fn draw(&self, _size: (u32, u32), words: &mut impl Words, effects: &mut impl Effects) -> Result<(), PixelError> {
        if words.uniform() < self.p {
            effects.add(Invert);
        }
        Ok(())
    }
}

impl ChangePoints for Invert {
    fn change(&self, pixels: &mut [u8]) {
        pixels.iter_mut().for_each(|value| *value = !*value);
    }
}
