//! torchvision's `RandomApply`.

use super::nested::Transforms;
use super::{Effects, Operate, Operation, RandomHorizontalFlip, RandomInvert, check_probability};
use crate::draw::Words;
use crate::error::PixelError;
use serde::{Deserialize, Serialize};

/// Applies all of its operations, or none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomApply {
    /// The operations, in order.
    pub transforms: Transforms,
    /// Probability of applying them.
    #[serde(default = "default_probability")]
    pub p: f64,
}

fn default_probability() -> f64 {
    0.5
}

impl Operate for RandomApply {
    const EXAMPLES: &'static [Self] = &[
        Self {
            transforms: Transforms::of(&[
                Operation::RandomInvert(RandomInvert { p: 0.5 }),
                Operation::RandomHorizontalFlip(RandomHorizontalFlip { p: 0.5 }),
            ]),
            p: 0.5,
        },
        Self { transforms: Transforms::of(&[Operation::RandomInvert(RandomInvert { p: 1.0 })]), p: 1.0 },
    ];

    fn check(&self) -> Result<(), String> {
        check_probability(self.p)?;
        self.transforms.check()
    }

    fn size_after(&self, before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
        let after = self.transforms.size_after_all(before)?;
        Ok(after.filter(|_| self.p >= 1.0 || after == before))
    }

    // Not a part of the function that draws any operation, which small images call often.
    #[inline(never)]
    fn draw(&self, _: (u32, u32), words: &mut impl Words, effects: &mut impl Effects) -> Result<(), PixelError> {
        if words.uniform() >= self.p {
            return Ok(());
        }
        (0..self.transforms.len()).try_for_each(|index| self.transforms.draw(index, words, effects))
    }
}
