//! torchvision's `RandomCrop`.

use super::first_form::{FirstForm, keep_first_form};
use super::{Effects, Fill, Operate, Padding, PaddingMode, Piece, Size};
use crate::draw::Words;
use crate::error::PixelError;
use crate::geometry::Window;
use serde::{Deserialize, Serialize};

/// Surrounds the image with a border and cuts a rectangle out of it at a random place. Draws the row, then the column.
///
/// An image that is smaller than the rectangle, border included, is an error unless `pad_if_needed` is set. A mirrored
/// border shows the image itself, also where `padding` and `pad_if_needed` both widen it (torchvision mirrors the
/// padded image there).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct RandomCrop {
    /// Size of the rectangle.
    pub size: Size,
    /// Widths of the border, in pixels.
    #[serde(default)]
    pub padding: Padding,
    /// Whether an image that is smaller than the rectangle gets a wider border on both sides: by as many pixels as are
    /// missing.
    #[serde(default)]
    pub pad_if_needed: bool,
    /// Colour of a constant border.
    #[serde(default)]
    pub fill: Fill,
    /// What the border is made of.
    #[serde(default)]
    pub padding_mode: PaddingMode,
}

keep_first_form!(RandomCrop);

impl FirstForm for RandomCrop {
    type Rest = u32;

    fn first(&self) -> Option<(u32, u32)> {
        let (side, padding) = self.size.side().zip(self.padding.width())?;
        (*self == Self::padded(side, padding)).then_some((side, padding))
    }

    fn of_first(size: u32, padding: u32) -> Option<Self> {
        Some(Self::padded(size, padding))
    }
}

impl RandomCrop {
    /// Returns the operation for a square with this side, out of the image alone.
    pub const fn to(side: u32) -> Self {
        Self::padded(side, 0)
    }

    /// Returns the operation for a square with this side, out of the image with a black border of this width.
    pub const fn padded(side: u32, padding: u32) -> Self {
        Self {
            size: Size::square(side),
            padding: Padding::all(padding),
            pad_if_needed: false,
            fill: Fill([0; 3]),
            padding_mode: PaddingMode::Constant,
        }
    }

    /// Returns the border before the image and, for each axis, by how much the image with its border is longer than the
    /// rectangle.
    fn room(&self, (width, height): (u32, u32)) -> Option<[(u64, u64); 2]> {
        let Padding([left, top, right, bottom]) = self.padding;
        let axis = |length: u32, before: u32, after: u32, wanted: u32| {
            let padded = u64::from(length) + u64::from(before) + u64::from(after);
            let missing = u64::from(wanted).saturating_sub(padded);
            match missing {
                0 => Some((u64::from(before), padded - u64::from(wanted))),
                // The border grows by what is missing on both sides.
                _ => self.pad_if_needed.then_some((u64::from(before) + missing, missing)),
            }
        };
        Some([axis(width, left, right, self.size.width)?, axis(height, top, bottom, self.size.height)?])
    }

    fn misfit(&self, (width, height): (u32, u32)) -> String {
        let Self { size, padding, .. } = self;
        let of_pair = |one: u32, other: u32| if one == other { one.to_string() } else { format!("{one} and {other}") };
        let Padding([left, top, right, bottom]) = *padding;
        let border = match padding.width() {
            Some(0) => String::new(),
            Some(width) => format!(" with a border of {width}"),
            None => format!(" with a border of {} across and {} down", of_pair(left, right), of_pair(top, bottom)),
        };
        let (wide, high) = size.pair();
        format!(
            "a crop of {wide}x{high} does not fit into an image of {width}x{height} pixels{border}: set \
             `pad_if_needed`, widen `padding`, or resize the image first"
        )
    }
}

impl Operate for RandomCrop {
    const EXAMPLES: &'static [Self] = &[
        Self::padded(32, 4),
        Self::to(29),
        Self {
            size: Size { height: 43, width: 31 },
            padding: Padding([1, 2, 3, 0]),
            pad_if_needed: true,
            fill: Fill([90, 0, 255]),
            padding_mode: PaddingMode::Constant,
        },
        Self { padding_mode: PaddingMode::Reflect, ..Self::padded(33, 5) },
    ];

    fn check(&self) -> Result<(), String> {
        self.size.check()?;
        self.padding.check()
    }

    fn size_after(&self, before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
        match before {
            Some(size) if self.room(size).is_none() => Err(self.misfit(size)),
            _ => Ok(Some(self.size.pair())),
        }
    }

    #[inline]
    fn draw(&self, size: (u32, u32), words: &mut impl Words, effects: &mut impl Effects) -> Result<(), PixelError> {
        let Some([(left, across), (top, down)]) = self.room(size) else {
            return Err(PixelError::Misfit { message: self.misfit(size) });
        };
        let (y, x) = if across == 0 && down == 0 { (0, 0) } else { (words.below(down + 1), words.below(across + 1)) };
        let Size { height, width } = self.size;
        let window = Window { x: x as i64 - left as i64, y: y as i64 - top as i64, width, height };
        effects.add(Piece { border: self.padding_mode.border(self.fill), ..Piece::cut(window) });
        Ok(())
    }
}
