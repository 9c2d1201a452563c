//! torchvision's `RandomInvert`.

use super::{ChangePoints, by_chance::by_chance};

by_chance! {
    /// Inverts all values at random: a value v becomes 255 − v.
    RandomInvert {
        /// Probability of inverting.
        p = 0.5
    }
    adds Invert
}

/// Inverts all values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Invert;

impl ChangePoints for Invert {
    fn change(&self, pixels: &mut [u8]) {
        pixels.iter_mut().for_each(|value| *value = !*value);
    }
}
