//! torchvision's `RandomChoice`.

use super::nested::Transforms;
use super::{Effects, Operate, Operation, RandomHorizontalFlip, RandomInvert};
use crate::draw::Words;
use crate::error::PixelError;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Applies one of its operations, chosen at random.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomChoice {
    /// The operations.
    pub transforms: Transforms,
    /// A number for each operation, to which its probability is proportional. Without them, all are chosen equally
    /// often.
    #[serde(default)]
    pub p: Option<Cow<'static, [f64]>>,
}

impl Operate for RandomChoice {
    const EXAMPLES: &'static [Self] = &[
        Self {
            transforms: Transforms::of(&[
                Operation::RandomInvert(RandomInvert { p: 0.5 }),
                Operation::RandomHorizontalFlip(RandomHorizontalFlip { p: 0.5 }),
            ]),
            p: None,
        },
        Self {
            transforms: Transforms::of(&[
                Operation::RandomHorizontalFlip(RandomHorizontalFlip { p: 1.0 }),
                Operation::RandomInvert(RandomInvert { p: 1.0 }),
            ]),
            p: Some(Cow::Borrowed(&[1.0, 2.0])),
        },
    ];

    fn check(&self) -> Result<(), String> {
        self.transforms.check()?;
        let Some(p) = self.p.as_deref() else { return Ok(()) };
        if p.len() != self.transforms.len() {
            return Err(format!("p has {} numbers for {} transforms", p.len(), self.transforms.len()));
        }
        if let Some(wrong) = p.iter().find(|number| !(number.is_finite() && **number >= 0.0)) {
            return Err(format!("p has {wrong}, but its numbers must be 0 or more"));
        }
        let sum: f64 = p.iter().sum();
        if sum > 0.0 && sum.is_finite() { Ok(()) } else { Err(format!("the numbers of p add up to {sum}")) }
    }

    fn size_after(&self, before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
        let mut size = self.transforms.size_after_one(0, before)?;
        for index in 1..self.transforms.len() {
            let other = self.transforms.size_after_one(index, before)?;
            size = size.filter(|_| size == other);
        }
        Ok(size)
    }

    // Not a part of the function that draws any operation, which small images call often.
    #[inline(never)]
    fn draw(&self, _: (u32, u32), words: &mut impl Words, effects: &mut impl Effects) -> Result<(), PixelError> {
        self.transforms.draw(self.choose(words), words, effects)
    }
}

impl RandomChoice {
    /// Draws the index of an operation.
    fn choose(&self, words: &mut impl Words) -> usize {
        let Some(p) = self.p.as_deref() else { return words.below(self.transforms.len() as u64) as usize };
        let mut rest = words.uniform() * p.iter().sum::<f64>();
        let chosen = p.iter().position(|number| {
            rest -= number;
            rest < 0.0
        });
        // Rounding may leave a rest.
        chosen.or(p.iter().rposition(|&number| number > 0.0)).expect("one number is above 0")
    }
}
