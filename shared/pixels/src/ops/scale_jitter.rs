//! torchvision's `ScaleJitter`.

use super::{Effects, Operate, Piece, between, check_range, check_side};
use crate::draw::Words;
use crate::error::PixelError;
use crate::resize::Resampling;
use serde::{Deserialize, Serialize};

/// Largest factor of the size.
const SCALE_MAX: f64 = 1000.0;

/// Resizes the image to a random multiple of the size in which it just fits a target. Both sides are rounded down to
/// whole pixels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScaleJitter {
    /// The target. As in torchvision, the first number belongs to the width, the second one to the height.
    pub target_size: [u32; 2],
    /// Bounds of the multiple, above 0 and at most 1000.
    #[serde(default = "default_scale")]
    pub scale_range: [f64; 2],
    /// How a pixel is made.
    #[serde(default)]
    pub interpolation: Resampling,
}

fn default_scale() -> [f64; 2] {
    [0.1, 2.0]
}

impl Operate for ScaleJitter {
    const EXAMPLES: &'static [Self] = &[
        Self { target_size: [60, 80], scale_range: [0.1, 2.0], interpolation: Resampling::Bilinear },
        Self { target_size: [200, 90], scale_range: [0.9, 1.2], interpolation: Resampling::Nearest },
    ];

    fn check(&self) -> Result<(), String> {
        self.target_size.iter().try_for_each(|&side| check_side(side))?;
        check_range("scale_range", self.scale_range, SCALE_MAX)
    }

    fn size_after(&self, _before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
        Ok(None)
    }

    fn draw(&self, size: (u32, u32), words: &mut impl Words, effects: &mut impl Effects) -> Result<(), PixelError> {
        let target = self.target(size, between(words.uniform(), self.scale_range))?;
        effects.add(Piece { resize: Some(target), interpolation: self.interpolation, ..Piece::default() });
        Ok(())
    }
}

impl ScaleJitter {
    /// Returns the size to which an image is resized by a scale. As in torchvision, products are 32-bit floats.
    fn target(&self, (width, height): (u32, u32), scale: f64) -> Result<(u32, u32), PixelError> {
        let [across, down] = self.target_size.map(f64::from);
        let fits = (down / f64::from(height)).min(across / f64::from(width));
        let ratio = fits as f32 * scale as f32;
        let [to_width, to_height] = [width, height].map(|length| (length as f32 * ratio) as u32);
        if to_width.max(to_height) > i32::MAX as u32 {
            let message = format!("an image of {width}x{height} pixels would be resized to {to_width}x{to_height}");
            return Err(PixelError::Misfit { message });
        }
        Ok((to_width.max(1), to_height.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_torchvisions() {
        let operation: ScaleJitter = toml::from_str("target_size = [1024, 512]").unwrap();
        // ScaleJitter.make_params of torchvision 0.29 for these scales.
        for (from, scale, to) in [
            ((640, 427), 1.0, (767, 511)),
            ((427, 640), 0.5, (170, 256)),
            ((2000, 100), 2.0, (2048, 102)),
            ((500, 375), 0.1, (68, 51)),
        ] {
            assert_eq!(operation.target(from, scale), Ok(to), "{from:?} {scale}");
        }
        assert_eq!(operation.target((60_000, 1), 0.1), Ok((102, 1)));
    }

    #[test]
    fn wrong_parameters_are_named() {
        let check = |text: &str| toml::from_str::<ScaleJitter>(text).unwrap().check().unwrap_err();
        assert!(check("target_size = [0, 5]").contains("size 0"));
        assert!(check("target_size = [5, 5]\nscale_range = [0.0, 1.0]").contains("scale_range [0, 1]"));
    }
}
