//! torchvision's `CenterCrop`.

use super::first_form::{FirstForm, keep_first_form};
use super::{Effects, Operate, Piece, Size};
use crate::draw::Words;
use crate::error::PixelError;
use crate::geometry::Window;
use serde::{Deserialize, Serialize};

/// Cuts a rectangle out of the middle; surrounds a smaller image with zeros.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct CenterCrop {
    /// Size of the rectangle.
    pub size: Size,
}

keep_first_form!(CenterCrop);

impl FirstForm for CenterCrop {
    type Rest = ();

    fn first(&self) -> Option<(u32, ())> {
        self.size.side().map(|side| (side, ()))
    }

    fn of_first(size: u32, (): ()) -> Option<Self> {
        Some(Self::to(size))
    }
}

impl CenterCrop {
    /// Returns the operation for a square with this side.
    pub const fn to(side: u32) -> Self {
        Self { size: Size::square(side) }
    }
}

impl Operate for CenterCrop {
    const EXAMPLES: &'static [Self] = &[Self::to(24), Self::to(61), Self { size: Size { height: 61, width: 24 } }];
    const DRAWS: bool = false;

    fn check(&self) -> Result<(), String> {
        self.size.check()
    }

    fn size_after(&self, _before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
        Ok(Some(self.size.pair()))
    }

    #[inline]
    fn draw(
        &self,
        (width, height): (u32, u32),
        _words: &mut impl Words,
        effects: &mut impl Effects,
    ) -> Result<(), PixelError> {
        let (across, down) = self.size.pair();
        let (x, y) = (offset(width, across), offset(height, down));
        effects.add(Piece::cut(Window { x, y, width: across, height: down }));
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
