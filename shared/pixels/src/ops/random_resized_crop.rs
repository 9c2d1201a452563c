//! torchvision's `RandomResizedCrop`.

use super::first_form::{FirstForm, keep_first_form};
use super::{Effects, Operate, Piece, SIDE_MAX, Size, between, check_range};
use crate::draw::Words;
use crate::error::PixelError;
use crate::geometry::Window;
use crate::resize::Resampling;
use serde::{Deserialize, Serialize};

/// Boxes that are tried before the central box is taken.
pub const RANDOM_RESIZED_CROP_TRIES: u32 = 10;

/// Cuts out a box of random area and aspect ratio and resizes it.
///
/// Each try draws the area, then the logarithm of the ratio; for a box that fits, it then draws the row and the column.
/// Sides are rounded half to even. If ten tries fail, the box is the largest central one within the bounds of the
/// ratio. The same uniforms give the box that torchvision's `RandomResizedCrop.get_params` returns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct RandomResizedCrop {
    /// Size of the result.
    pub size: Size,
    /// Bounds of the box's area, as a fraction of the image's area.
    #[serde(default = "default_scale")]
    pub scale: [f64; 2],
    /// Bounds of the box's width / height before resizing; the ratio is drawn on a logarithmic scale.
    #[serde(default = "default_ratio")]
    pub ratio: [f64; 2],
    /// How a pixel is made.
    #[serde(default)]
    pub interpolation: CropInterpolation,
}

/// How the pixels of a [`RandomResizedCrop`] are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CropInterpolation {
    /// See [`Resampling::Nearest`].
    Nearest,
    /// See [`Resampling::Bilinear`].
    #[default]
    Bilinear,
    /// See [`Resampling::Bicubic`].
    Bicubic,
    /// See [`Resampling::Box`].
    Box,
    /// See [`Resampling::Hamming`].
    Hamming,
    /// See [`Resampling::Lanczos`].
    Lanczos,
    /// Bilinear or bicubic, drawn for each image after its box, as timm's `RandomResizedCropAndInterpolation` does.
    Random,
}

impl CropInterpolation {
    fn draw(self, words: &mut impl Words) -> Resampling {
        match self {
            Self::Nearest => Resampling::Nearest,
            Self::Bilinear => Resampling::Bilinear,
            Self::Bicubic => Resampling::Bicubic,
            Self::Box => Resampling::Box,
            Self::Hamming => Resampling::Hamming,
            Self::Lanczos => Resampling::Lanczos,
            Self::Random => [Resampling::Bilinear, Resampling::Bicubic][words.below(2) as usize],
        }
    }
}

keep_first_form!(RandomResizedCrop);

impl FirstForm for RandomResizedCrop {
    type Rest = [[f64; 2]; 2];

    fn first(&self) -> Option<(u32, Self::Rest)> {
        let side = self.size.side().filter(|_| self.interpolation == CropInterpolation::Bilinear)?;
        Some((side, [self.scale, self.ratio]))
    }

    fn of_first(size: u32, [scale, ratio]: Self::Rest) -> Option<Self> {
        Some(Self::within(size, scale, ratio))
    }
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
    /// Returns the operation for a square with this side, with torchvision's default bounds.
    pub const fn to(side: u32) -> Self {
        Self::within(side, SCALE, RATIO)
    }

    /// Returns the operation for a square with this side.
    pub const fn within(side: u32, scale: [f64; 2], ratio: [f64; 2]) -> Self {
        Self { size: Size::square(side), scale, ratio, interpolation: CropInterpolation::Bilinear }
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
    /// In the third one no box fits, so that the central box is taken.
    const EXAMPLES: &'static [Self] = &[
        Self::to(32),
        Self::within(25, [0.9, 1.0], [0.5, 2.0]),
        Self::within(30, [1.0, 1.0], [3.0, 4.0]),
        Self { size: Size { height: 40, width: 23 }, interpolation: CropInterpolation::Nearest, ..Self::to(1) },
    ];

    fn check(&self) -> Result<(), String> {
        self.size.check()?;
        check_range("scale", self.scale, 1.0)?;
        check_range("ratio", self.ratio, f64::from(SIDE_MAX))
    }

    fn size_after(&self, _before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
        Ok(Some(self.size.pair()))
    }

    #[inline]
    fn draw(&self, size: (u32, u32), words: &mut impl Words, effects: &mut impl Effects) -> Result<(), PixelError> {
        let window = self.window(size, words);
        let (resize, interpolation) = (Some(self.size.pair()), self.interpolation.draw(words));
        effects.add(Piece { window: Some(window), resize, interpolation, ..Piece::default() });
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
