//! torchvision's `RandomGrayscale`.

use super::{ChangePoints, by_chance::by_chance};
use crate::color;
use crate::level::Level;

by_chance! {
    /// Turns the image gray at random: all channels of a pixel get ⌊0.2989 R + 0.587 G + 0.114 B⌋.
    RandomGrayscale {
        /// Probability of turning gray. With 1 the operation is torchvision's `Grayscale(3)`.
        p = 0.1
    }
    adds Gray
}

/// Turns an image gray.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gray;

impl ChangePoints for Gray {
    fn change(&self, pixels: &mut [u8]) {
        color::make_gray(Level::best(), pixels);
    }
}
