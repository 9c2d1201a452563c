//! torchvision's `RandomCrop`.

use super::{Effects, Operate, Piece, SIDE_MAX, check_side};
use crate::draw::Words;
use crate::error::PixelError;
use crate::geometry::Window;
use serde::{Deserialize, Serialize};

/// Surrounds the image with zeros and cuts a square out of it at a random place. Draws the row, then the column.
///
/// An image that is smaller than the square, border included, is an error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomCrop {
    /// Side of the square, in pixels.
    pub size: u32,
    /// Width of the border, in pixels.
    #[serde(default)]
    pub padding: u32,
}

impl Operate for RandomCrop {
    const EXAMPLES: &'static [Self] = &[Self { size: 32, padding: 4 }, Self { size: 29, padding: 0 }];

    fn check(&self) -> Result<(), String> {
        check_side(self.size)?;
        if self.padding > SIDE_MAX {
            return Err(format!("padding {} is more than {SIDE_MAX}", self.padding));
        }
        Ok(())
    }

    fn size_after(&self, before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
        match before {
            Some(size) if self.room(size).is_none() => Err(self.misfit(size)),
            _ => Ok(Some((self.size, self.size))),
        }
    }

    #[inline]
    fn draw(&self, size: (u32, u32), words: &mut impl Words, effects: &mut impl Effects) -> Result<(), PixelError> {
        let Some((across, down)) = self.room(size) else {
            return Err(PixelError::Unsupported { message: self.misfit(size) });
        };
        let (y, x) = if across == 0 && down == 0 { (0, 0) } else { (words.below(down + 1), words.below(across + 1)) };
        let border = i64::from(self.padding);
        let (x, y) = (x as i64 - border, y as i64 - border);
        effects.add(Piece::cut(Window { x, y, width: self.size, height: self.size }));
        Ok(())
    }
}

impl RandomCrop {
    /// Returns by how much the image with its border is wider and higher than the square.
    fn room(&self, (width, height): (u32, u32)) -> Option<(u64, u64)> {
        let room = |length: u32| (u64::from(length) + 2 * u64::from(self.padding)).checked_sub(u64::from(self.size));
        room(width).zip(room(height))
    }

    fn misfit(&self, (width, height): (u32, u32)) -> String {
        let Self { size, padding } = self;
        format!("a crop of {size} does not fit into {width}x{height} pixels with a border of {padding}")
    }
}
