//! torchvision's `RandomGrayscale`.

use super::{ChangePoints, Effects, Operate, check_probability};
use crate::color;
use crate::draw::Words;
use crate::error::PixelError;
use crate::level::Level;
use serde::{Deserialize, Serialize};

/// Turns the image gray at random: all channels of a pixel get ⌊0.2989 R + 0.587 G + 0.114 B⌋.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomGrayscale {
    /// Probability of turning gray. With 1 the operation is torchvision's `Grayscale(3)`.
    #[serde(default = "default_probability")]
    pub p: f64,
}

fn default_probability() -> f64 {
    0.1
}

/// Turns an image gray.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gray;

impl Operate for RandomGrayscale {
    const EXAMPLES: &'static [Self] = &[Self { p: 0.5 }, Self { p: 1.0 }];

    fn check(&self) -> Result<(), String> {
        check_probability(self.p)
    }

    fn size_after(&self, before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
        Ok(before)
    }

    fn draw(&self, _size: (u32, u32), words: &mut impl Words, effects: &mut impl Effects) -> Result<(), PixelError> {
        if words.uniform() < self.p {
            effects.add(Gray);
        }
        Ok(())
    }
}

impl ChangePoints for Gray {
    fn change(&self, pixels: &mut [u8]) {
        color::make_gray(Level::best(), pixels);
    }
}
