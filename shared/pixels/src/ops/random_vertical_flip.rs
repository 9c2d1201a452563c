//! torchvision's `RandomVerticalFlip`.

use super::{Cutout, MakeArea, Scratch, by_chance::by_chance};
use crate::error::PixelError;
use crate::geometry::Rect;

by_chance! {
    /// Mirrors top to bottom at random.
    RandomVerticalFlip {
        /// Probability of mirroring.
        p = 0.5
    }
    adds VerticalFlip
}

/// Mirrors top to bottom.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VerticalFlip;

impl MakeArea for VerticalFlip {
    /// Returns the rows that are made and those that they come from.
    fn needs(&self, made: Rect, (_, height): (u32, u32)) -> Rect {
        let first = made.y.min(height - made.y - made.height);
        Rect { y: first, height: height - 2 * first, ..made }
    }

    fn make(
        &self,
        from: &Cutout<'_>,
        made: Rect,
        _scratch: &mut Scratch<'_>,
        out: &mut [u8],
    ) -> Result<(), PixelError> {
        let (bytes, start) = (made.width as usize * 3, (made.x - from.rect.x) as usize * 3);
        for (y, row) in (made.y..).zip(out.chunks_exact_mut(bytes)) {
            row.copy_from_slice(&from.row(from.size.1 - 1 - y)[start..][..bytes]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::make_alone;
    use crate::synthetic;

    #[test]
    fn every_rectangle_is_that_of_the_mirrored_image() {
        let (size, pixels) = ((5, 7), synthetic::photo(5, 7, 1));
        let row = |y: u32| &pixels[(y * 15) as usize..][..15];
        let mirrored: Vec<&[u8]> = (0..7).rev().map(row).collect();
        for (y, height) in (0..7).flat_map(|y| (1..=7 - y).map(move |height| (y, height))) {
            let made = Rect { x: 1, y, width: 3, height };
            let rect = VerticalFlip.needs(made, size);
            let needed: Vec<u8> = (rect.y..rect.y + rect.height).flat_map(|y| row(y)[3..12].to_vec()).collect();
            let mut out = vec![0; (3 * 3 * height) as usize];
            make_alone(&VerticalFlip, &Cutout { size, rect, pixels: &needed }, made, &mut out);
            let expected: Vec<u8> =
                mirrored[y as usize..][..height as usize].iter().flat_map(|row| row[3..12].to_vec()).collect();
            assert_eq!(out, expected, "{made:?} from {rect:?}");
        }
    }
}
