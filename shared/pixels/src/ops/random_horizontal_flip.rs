//! torchvision's `RandomHorizontalFlip`.

use super::{Effects, Operate, Piece, check_probability};
use crate::draw::Words;
use crate::error::PixelError;
use serde::{Deserialize, Serialize};

/// Mirrors left to right at random.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomHorizontalFlip {
    /// Probability of mirroring.
    #[serde(default = "default_probability")]
    pub p: f64,
}

fn default_probability() -> f64 {
    0.5
}

impl Operate for RandomHorizontalFlip {
    const EXAMPLES: &'static [Self] = &[Self { p: 0.5 }, Self { p: 1.0 }];

    fn check(&self) -> Result<(), String> {
        check_probability(self.p)
    }

    fn size_after(&self, before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
        Ok(before)
    }

    #[inline]
    fn draw(&self, _size: (u32, u32), words: &mut impl Words, effects: &mut impl Effects) -> Result<(), PixelError> {
        effects.add(Piece { flip: words.uniform() < self.p, ..Piece::default() });
        Ok(())
    }
}
