//! torchvision's `Pad`.

use super::{Effects, Fill, Operate, Padding, PaddingMode, Piece};
use crate::draw::Words;
use crate::error::PixelError;
use crate::geometry::Window;
use serde::{Deserialize, Serialize};

/// Surrounds the image with a border.
///
/// A mirrored border may be wider than the image, which is then mirrored several times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pad {
    /// Widths of the border, in pixels.
    pub padding: Padding,
    /// Colour of a constant border.
    #[serde(default)]
    pub fill: Fill,
    /// What the border is made of.
    #[serde(default)]
    pub padding_mode: PaddingMode,
}

impl Pad {
    /// Returns the window of an image that contains its border.
    fn window(&self, (width, height): (u32, u32)) -> Option<Window> {
        let Padding([left, top, right, bottom]) = self.padding;
        let side = |length: u32, before: u32, after: u32| length.checked_add(before)?.checked_add(after);
        let (width, height) = (side(width, left, right)?, side(height, top, bottom)?);
        Some(Window { x: -i64::from(left), y: -i64::from(top), width, height })
    }
}

impl Operate for Pad {
    const EXAMPLES: &'static [Self] = &[
        Self { padding: Padding([1, 2, 3, 4]), fill: Fill([90, 0, 255]), padding_mode: PaddingMode::Constant },
        Self { padding: Padding([9, 0, 5, 70]), fill: Fill([0; 3]), padding_mode: PaddingMode::Edge },
        Self { padding: Padding([50, 4, 7, 0]), fill: Fill([0; 3]), padding_mode: PaddingMode::Reflect },
        Self { padding: Padding([3, 4, 50, 99]), fill: Fill([0; 3]), padding_mode: PaddingMode::Symmetric },
    ];
    const DRAWS: bool = false;

    fn check(&self) -> Result<(), String> {
        self.padding.check()
    }

    fn size_after(&self, before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
        Ok(before.and_then(|size| self.window(size)).map(|window| (window.width, window.height)))
    }

    fn draw(&self, size: (u32, u32), _words: &mut impl Words, effects: &mut impl Effects) -> Result<(), PixelError> {
        let Some(window) = self.window(size) else {
            let message =
                format!("an image of {}x{} pixels is too large for a border: resize it first", size.0, size.1);
            return Err(PixelError::Misfit { message });
        };
        effects.add(Piece { border: self.padding_mode.border(self.fill), ..Piece::cut(window) });
        Ok(())
    }
}
