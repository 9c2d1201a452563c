//! torchvision's `Resize`.

use super::{Effects, Operate, Piece, check_side};
use crate::draw::Words;
use crate::error::PixelError;
use serde::{Deserialize, Serialize};

/// Resizes so that the shorter side has `size` pixels. The longer side is rounded down to whole pixels.
///
/// An image whose longer side would exceed 2³¹ − 1 pixels is an error. This does not check the memory that the result
/// needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resize {
    /// The shorter side, in pixels.
    pub size: u32,
}

impl Operate for Resize {
    const EXAMPLES: &'static [Self] = &[Self { size: 37 }, Self { size: 211 }];
    const DRAWS: bool = false;

    fn check(&self) -> Result<(), String> {
        check_side(self.size)
    }

    fn size_after(&self, before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
        Ok(before.and_then(|size| self.target(size).ok()))
    }

    #[inline]
    fn draw(&self, size: (u32, u32), _words: &mut impl Words, effects: &mut impl Effects) -> Result<(), PixelError> {
        let target = self.target(size).map_err(|message| PixelError::Unsupported { message })?;
        effects.add(Piece { resize: Some(target), ..Piece::default() });
        Ok(())
    }
}

impl Resize {
    fn target(&self, (width, height): (u32, u32)) -> Result<(u32, u32), String> {
        let (side, short, long) = (self.size, width.min(height), width.max(height));
        let resized = u64::from(side) * u64::from(long) / u64::from(short);
        let Some(resized) = u32::try_from(resized).ok().filter(|&resized| resized <= i32::MAX as u32) else {
            return Err(format!("{width}x{height} resized to a short side of {side} would be {resized} pixels long"));
        };
        Ok(if width <= height { (side, resized) } else { (resized, side) })
    }
}
