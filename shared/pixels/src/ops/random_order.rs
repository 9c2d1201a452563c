//! torchvision's `RandomOrder`.

use super::nested::{TRANSFORMS_MAX, Transforms};
use super::{Effects, Operate, Operation, RandomHorizontalFlip, RandomInvert};
use crate::draw::Words;
use crate::error::PixelError;
use serde::{Deserialize, Serialize};

/// Applies all of its operations, in an order that is drawn for each image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomOrder {
    /// The operations.
    pub transforms: Transforms,
}

impl Operate for RandomOrder {
    const EXAMPLES: &'static [Self] = &[Self {
        transforms: Transforms::of(&[
            Operation::RandomInvert(RandomInvert { p: 0.5 }),
            Operation::RandomHorizontalFlip(RandomHorizontalFlip { p: 0.5 }),
            Operation::RandomInvert(RandomInvert { p: 0.3 }),
        ]),
    }];

    fn check(&self) -> Result<(), String> {
        self.transforms.check()
    }

    fn size_after(&self, before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
        let mut keep = true;
        for index in 0..self.transforms.len() {
            keep &= self.transforms.size_after_one(index, before)? == before;
        }
        // Where an operation changes the size, the order may decide which size the last one leaves.
        Ok(before.filter(|_| keep))
    }

    // Not a part of the function that draws any operation, which small images call often.
    #[inline(never)]
    fn draw(&self, _: (u32, u32), words: &mut impl Words, effects: &mut impl Effects) -> Result<(), PixelError> {
        let mut order: [usize; TRANSFORMS_MAX] = std::array::from_fn(|index| index);
        for left in (1..=self.transforms.len()).rev() {
            order.swap(left - 1, words.below(left as u64) as usize);
            self.transforms.draw(order[left - 1], words, effects)?;
        }
        Ok(())
    }
}
