//! Padding to a size: images of different sizes lie on canvases of one size.

use super::{Effects, Fill, Operate, Piece, Size};
use crate::draw::Words;
use crate::error::PixelError;
use crate::geometry::{Border, Window};
use serde::{Deserialize, Serialize};

/// Puts the image into the upper left corner of a canvas, so that images of different sizes fit one batch. An image
/// that is larger than the canvas is first scaled down until it fits, and its sides are rounded down.
///
/// torchvision has no such transform. Detection models pad batches like this
/// (`torchvision.models.detection.transform.GeneralizedRCNNTransform.batch_images`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PadTo {
    /// Size of the canvas.
    pub size: Size,
    /// Colour of the canvas.
    #[serde(default)]
    pub fill: Fill,
}

impl PadTo {
    /// Returns the width and height of the image on the canvas.
    fn fit(&self, (width, height): (u32, u32)) -> (u32, u32) {
        let Size { height: most_high, width: most_wide } = self.size;
        if width <= most_wide && height <= most_high {
            return (width, height);
        }
        let [wide, high, most_wide, most_high] = [width, height, most_wide, most_high].map(u64::from);
        // The side that reaches further beyond the canvas gets the canvas's length.
        let scaled = |side: u64, most: u64, of: u64| ((side * most / of).max(1)) as u32;
        if wide * most_high >= high * most_wide {
            (most_wide as u32, scaled(high, most_wide, wide))
        } else {
            (scaled(wide, most_high, high), most_high as u32)
        }
    }
}

impl Operate for PadTo {
    const EXAMPLES: &'static [Self] = &[
        Self { size: Size { height: 300, width: 200 }, fill: Fill([90, 0, 255]) },
        Self { size: Size { height: 50, width: 31 }, fill: Fill([0; 3]) },
    ];
    const DRAWS: bool = false;

    fn check(&self) -> Result<(), String> {
        self.size.check()
    }

    fn size_after(&self, _before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
        Ok(Some(self.size.pair()))
    }

    fn draw(&self, size: (u32, u32), _words: &mut impl Words, effects: &mut impl Effects) -> Result<(), PixelError> {
        effects.add(Piece { resize: Some(self.fit(size)), ..Piece::default() });
        let (width, height) = self.size.pair();
        let window = Window { x: 0, y: 0, width, height };
        effects.add(Piece { border: Border::Fill(self.fill.0), ..Piece::cut(window) });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_keeps_its_size_or_is_scaled_down_to_fit() {
        let fit = |size| PadTo { size: Size { height: 300, width: 200 }, fill: Fill([0; 3]) }.fit(size);
        assert_eq!([(200, 300), (1, 1), (150, 299)].map(fit), [(200, 300), (1, 1), (150, 299)]);
        assert_eq!(
            [(400, 300), (100, 600), (401, 300), (9999, 2)].map(fit),
            [(200, 150), (50, 300), (200, 149), (200, 1)]
        );
        assert_eq!([(2, 9999), (400, 600), (u32::MAX, u32::MAX)].map(fit), [(1, 300), (200, 300), (200, 200)]);
    }
}
