//! Turns an image upright by its EXIF orientation. Holds only the requested rectangle in memory.

use crate::error::PixelError;
use crate::geometry::Rect;
use crate::limits::Limits;
use crate::rows::{Band, ImageRows, Sink};

/// A stored image, seen upright.
pub(crate) struct Upright<'a> {
    stored: &'a mut dyn ImageRows,
    orientation: u8,
    pixels: &'a mut Vec<u8>,
    limits: Limits,
}

impl<'a> Upright<'a> {
    /// Wraps an image; `orientation` is EXIF's, 1 to 8.
    pub fn new(stored: &'a mut dyn ImageRows, orientation: u8, pixels: &'a mut Vec<u8>, limits: Limits) -> Self {
        assert!((1..=8).contains(&orientation));
        Self { stored, orientation, pixels, limits }
    }
}

/// Returns whether rows become columns.
fn transposes(orientation: u8) -> bool {
    orientation >= 5
}

/// Returns whether the stored columns, and whether the stored rows, run against the upright ones. In EXIF 2.32, tag
/// 274, the value names the sides at which stored row 0 and stored column 0 are seen.
fn reversed(orientation: u8) -> (bool, bool) {
    let columns = matches!(orientation, 2 | 3 | 7 | 8);
    let rows = matches!(orientation, 3 | 4 | 6 | 7);
    (columns, rows)
}

/// Returns the start of a stored span within `length`, which may run backwards.
fn place(start: u32, span: u32, length: u32, backwards: bool) -> u32 {
    if backwards { length - start - span } else { start }
}

/// Returns the stored rectangle that is seen as `rect` in the upright image. The stored image has the size `stored`.
pub(crate) fn stored_rect(rect: Rect, (width, height): (u32, u32), orientation: u8) -> Rect {
    let (columns_back, rows_back) = reversed(orientation);
    let Rect { x, y, width: across, height: down } = rect;
    let (x, y, across, down) = if transposes(orientation) { (y, x, down, across) } else { (x, y, across, down) };
    Rect { x: place(x, across, width, columns_back), y: place(y, down, height, rows_back), width: across, height: down }
}

/// Returns the size of the upright image. The stored image has the size `stored`.
pub(crate) fn upright_size(stored: (u32, u32), orientation: u8) -> (u32, u32) {
    if transposes(orientation) { (stored.1, stored.0) } else { stored }
}

impl ImageRows for Upright<'_> {
    fn size(&self) -> (u32, u32) {
        upright_size(self.stored.size(), self.orientation)
    }

    fn read(&mut self, rect: Rect, sink: Sink<'_>) -> Result<(), PixelError> {
        let (columns_back, rows_back) = reversed(self.orientation);
        let turned = transposes(self.orientation);
        let Rect { width: across, height: down, .. } = rect;
        let stored = stored_rect(rect, self.stored.size(), self.orientation);
        let Rect { width: stored_across, height: stored_down, .. } = stored;
        self.limits.resize(self.pixels, u64::from(across) * u64::from(down) * 3)?;
        let (pixels, _) = self.pixels.as_chunks_mut::<3>();
        self.stored.read(stored, &mut |band| {
            for row in 0..band.rows {
                let v = place(band.y + row, 1, stored_down, rows_back) as usize;
                let (colors, _) = band.row(row, stored_across).as_chunks::<3>();
                for (column, color) in colors.iter().enumerate() {
                    let u = place(column as u32, 1, stored_across, columns_back) as usize;
                    let at = if turned { u * across as usize + v } else { v * across as usize + u };
                    pixels[at] = *color;
                }
            }
            Ok(())
        })?;
        sink(Band { y: 0, rows: down, columns: across, left: 0, pixels: self.pixels })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Interleaved;

    fn seen(orientation: u8, rect: Rect) -> Vec<u8> {
        // Stored:  1 2 3
        //          4 5 6
        let pixels: Vec<u8> = (1..=6).flat_map(|value| [value; 3]).collect();
        let mut stored = Interleaved { width: 3, height: 2, pixels: &pixels };
        let mut buffer = Vec::new();
        let mut upright = Upright::new(&mut stored, orientation, &mut buffer, Limits::default());
        let mut seen = Vec::new();
        let mut sink = |band: Band<'_>| {
            for y in 0..band.rows {
                seen.extend(band.row(y, rect.width).iter().step_by(3));
            }
            Ok(())
        };
        upright.read(rect, &mut sink).unwrap();
        seen
    }

    #[test]
    fn every_orientation_is_turned_as_exif_says() {
        let flat = Rect { x: 0, y: 0, width: 3, height: 2 };
        let tall = Rect { x: 0, y: 0, width: 2, height: 3 };
        assert_eq!(seen(1, flat), [1, 2, 3, 4, 5, 6]);
        assert_eq!(seen(2, flat), [3, 2, 1, 6, 5, 4]);
        assert_eq!(seen(3, flat), [6, 5, 4, 3, 2, 1]);
        assert_eq!(seen(4, flat), [4, 5, 6, 1, 2, 3]);
        assert_eq!(seen(5, tall), [1, 4, 2, 5, 3, 6]);
        assert_eq!(seen(6, tall), [4, 1, 5, 2, 6, 3]);
        assert_eq!(seen(7, tall), [6, 3, 5, 2, 4, 1]);
        assert_eq!(seen(8, tall), [3, 6, 2, 5, 1, 4]);
    }

    #[test]
    fn a_part_is_the_part_of_the_whole() {
        for orientation in 1..=8 {
            let (width, height) = if orientation >= 5 { (2, 3) } else { (3, 2) };
            let whole = seen(orientation, Rect { x: 0, y: 0, width, height });
            for y in 0..height {
                for x in 0..width {
                    let part = seen(orientation, Rect { x, y, width: width - x, height: 1 });
                    let start = (y * width + x) as usize;
                    assert_eq!(part, whole[start..start + (width - x) as usize], "orientation {orientation}");
                }
            }
        }
    }
}
