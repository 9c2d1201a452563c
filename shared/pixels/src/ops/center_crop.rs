//! torchvision's `CenterCrop`.

use super::{Effects, Operate, Piece, check_side};
use crate::draw::Words;
use crate::error::PixelError;
use crate::geometry::Window;
use serde::{Deserialize, Serialize};

/// Cuts a square out of the middle; surrounds a smaller image with zeros.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CenterCrop {
    /// Side of the square, in pixels.
    pub size: u32,
}

impl Operate for CenterCrop {
    const EXAMPLES: &'static [Self] = &[Self { size: 24 }, Self { size: 61 }];
    const DRAWS: bool = false;

    fn check(&self) -> Result<(), String> {
        check_side(self.size)
    }

    fn size_after(&self, _before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
        Ok(Some((self.size, self.size)))
    }

    #[inline]
    fn draw(
        &self,
        (width, height): (u32, u32),
        _words: &mut impl Words,
        effects: &mut impl Effects,
    ) -> Result<(), PixelError> {
        let side = self.size;
        let (x, y) = (offset(width, side), offset(height, side));
        effects.add(Piece::cut(Window { x, y, width: side, height: side }));
        Ok(())
    }
}

fn offset(length: u32, side: u32) -> i64 {
    if side > length {
        return -i64::from((side - length) / 2);
    }
    // Round half of an odd difference to even.
    let half = (length - side) / 2;
    i64::from(if (length - side) % 2 == 1 { half + half % 2 } else { half })
}
