//! A rectangle of pixels.

use std::fmt;

/// A rectangle of an image, in pixels from its top left corner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The first column.
    pub x: usize,
    /// The first row.
    pub y: usize,
    /// The number of columns.
    pub width: usize,
    /// The number of rows.
    pub height: usize,
}

impl Region {
    /// Returns whether the region has pixels, and all of them lie in an image of this size.
    pub(crate) fn is_inside(&self, width: usize, height: usize) -> bool {
        let fits = |begin: usize, count: usize, side: usize| {
            count > 0 && begin.checked_add(count).is_some_and(|end| end <= side)
        };
        fits(self.x, self.width, width) && fits(self.y, self.height, height)
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "of {}×{} at ({}, {})", self.width, self.height, self.x, self.y)
    }
}
