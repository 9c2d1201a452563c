//! torchvision's `RandomSolarize`.

use super::{ChangePoints, Effects, Operate, check_probability};
use crate::draw::Words;
use crate::error::PixelError;
use serde::{Deserialize, Serialize};

/// Inverts, at random, the values that reach a threshold: a value v becomes 255 − v.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomSolarize {
    /// Smallest value that is inverted, from 0 to 256.
    pub threshold: f64,
    /// Probability of inverting.
    #[serde(default = "default_probability")]
    pub p: f64,
}

fn default_probability() -> f64 {
    0.5
}

/// Inverts values that reach a threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Solarize {
    /// Smallest value that is inverted; `None` if all values are smaller.
    pub from: Option<u8>,
}

impl Operate for RandomSolarize {
    const EXAMPLES: &'static [Self] =
        &[Self { threshold: 128.0, p: 0.5 }, Self { threshold: 0.0, p: 1.0 }, Self { threshold: 255.5, p: 1.0 }];

    fn check(&self) -> Result<(), String> {
        if !(0.0..=256.0).contains(&self.threshold) {
            return Err(format!("threshold {} is not in 0..=256", self.threshold));
        }
        check_probability(self.p)
    }

    fn size_after(&self, before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
        Ok(before)
    }

    fn draw(&self, _size: (u32, u32), words: &mut impl Words, effects: &mut impl Effects) -> Result<(), PixelError> {
        if words.uniform() < self.p {
            effects.add(Solarize::at(self.threshold));
        }
        Ok(())
    }
}

impl Solarize {
    /// Returns the change that inverts values from `threshold` on, which is not negative.
    pub fn at(threshold: f64) -> Self {
        Self { from: u8::try_from(threshold.ceil() as u16).ok() }
    }
}

impl ChangePoints for Solarize {
    fn change(&self, pixels: &mut [u8]) {
        let Some(from) = self.from else { return };
        for value in pixels {
            *value = if *value >= from { !*value } else { *value };
        }
    }
}
