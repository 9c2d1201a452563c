//! torchvision's `RandomHorizontalFlip`.

use super::{Piece, by_chance::by_chance};

by_chance! {
    /// Mirrors left to right at random.
    RandomHorizontalFlip {
        /// Probability of mirroring.
        p = 0.5
    }
    adds Piece { flip: true, ..Piece::default() }
}
