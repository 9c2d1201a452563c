//! torchvision's `RandomResizedCrop`.

use super::{Effects, Operate, Piece, SIDE_MAX, between, check_range, check_side};
use crate::draw::Words;
use crate::error::PixelError;
use crate::geometry::Window;
use serde::{Deserialize, Serialize};

/// Boxes that are tried before the central box is taken.
pub const RANDOM_RESIZED_CROP_TRIES: u32 = 10;

/// Cuts out a box of random area and aspect ratio and resizes it to a square.
///
/// Each try draws the area, then the logarithm of the ratio; for a box that fits, it then draws the row and the column.
/// Sides are rounded half to even. If ten tries fail, the box is the largest central one within the bounds of the
/// ratio. The same uniforms give the box that torchvision's `RandomResizedCrop.get_params` returns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomResizedCrop {
    /// Side of the square, in pixels.
    pub size: u32,
    /// Bounds of the box's area, as a fraction of the image's area.
    #[serde(default = "default_scale")]
    pub scale: [f64; 2],
    /// Bounds of the box's width / height before resizing; the ratio is drawn on a logarithmic scale.
    #[serde(default = "default_ratio")]
    pub ratio: [f64; 2],
}

/// torchvision's default bounds.
const SCALE: [f64; 2] = [0.08, 1.0];
const RATIO: [f64; 2] = [3.0 / 4.0, 4.0 / 3.0];

fn default_scale() -> [f64; 2] {
    SCALE
}

fn default_ratio() -> [f64; 2] {
    RATIO
}

impl RandomResizedCrop {
    /// Returns the operation with torchvision's default bounds.
    pub fn to(size: u32) -> Self {
        Self { size, scale: SCALE, ratio: RATIO }
    }

    fn window(&self, (width, height): (u32, u32), words: &mut impl Words) -> Window {
        let area = f64::from(width) * f64::from(height);
        let log_ratio = self.ratio.map(libm::log);
        for _ in 0..RANDOM_RESIZED_CROP_TRIES {
            let target_area = area * between(words.uniform(), self.scale);
            let aspect = libm::exp(between(words.uniform(), log_ratio));
            let w = (target_area * aspect).sqrt().round_ties_even();
            let h = (target_area / aspect).sqrt().round_ties_even();
            if 0.0 < w && w <= f64::from(width) && 0.0 < h && h <= f64::from(height) {
                let (w, h) = (w as u32, h as u32);
                let y = words.below(u64::from(height - h) + 1) as i64;
                let x = words.below(u64::from(width - w) + 1) as i64;
                return Window { x, y, width: w, height: h };
            }
        }
        central_box((width, height), self.ratio)
    }
}

impl Operate for RandomResizedCrop {
    /// In the last one no box fits, so that the central box is taken.
    const EXAMPLES: &'static [Self] = &[
        Self { size: 32, scale: SCALE, ratio: RATIO },
        Self { size: 25, scale: [0.9, 1.0], ratio: [0.5, 2.0] },
        Self { size: 30, scale: [1.0, 1.0], ratio: [3.0, 4.0] },
    ];

    fn check(&self) -> Result<(), String> {
        check_side(self.size)?;
        check_range("scale", self.scale, 1.0)?;
        check_range("ratio", self.ratio, f64::from(SIDE_MAX))
    }

    fn size_after(&self, _before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
        Ok(Some((self.size, self.size)))
    }

    #[inline]
    fn draw(&self, size: (u32, u32), words: &mut impl Words, effects: &mut impl Effects) -> Result<(), PixelError> {
        let window = self.window(size, words);
        effects.add(Piece { window: Some(window), resize: Some((self.size, self.size)), flip: false });
        Ok(())
    }
}

fn central_box((width, height): (u32, u32), [low, high]: [f64; 2]) -> Window {
    let ratio = f64::from(width) / f64::from(height);
    // Extreme bounds can give a box without pixels, which cannot be resized: give the box one row or column.
    let side = |length: f64, limit: u32| (length.round_ties_even() as u32).clamp(1, limit);
    let (w, h) = if ratio < low {
        (width, side(f64::from(width) / low, height))
    } else if ratio > high {
        (side(f64::from(height) * high, width), height)
    } else {
        (width, height)
    };
    Window { x: i64::from((width - w) / 2), y: i64::from((height - h) / 2), width: w, height: h }
}
