//! Resizing by the nearest pixel: Pillow's filter `NEAREST`, which torch calls `nearest-exact`.

use std::ops::Range;

use super::Resizing;
use crate::error::PixelError;
use crate::limits::Limits;
use crate::rows::ImageRows;

/// Returns the pixel among `from` pixels that is nearest to the centre of pixel `at` of `to` pixels, the later one of
/// two.
fn nearest(at: u32, from: u32, to: u32) -> u32 {
    // The result lies below `from`, so the cast loses nothing.
    ((2 * u64::from(at) + 1) * u64::from(from) / (2 * u64::from(to))) as u32
}

/// Returns the pixels from which a part of the result is made.
pub fn span(from: u32, to: u32, part: &Range<u32>) -> Range<u32> {
    nearest(part.start, from, to)..nearest(part.end - 1, from, to) + 1
}

/// Resizes into `out`, rows of RGB as wide as `resizing.part`. `columns` is scratch memory.
pub fn resize(
    image: &mut dyn ImageRows,
    resizing: &Resizing,
    columns: &mut Vec<u32>,
    limits: Limits,
    out: &mut [u8],
) -> Result<(), PixelError> {
    let Resizing { rect, size, part, mirrored, .. } = *resizing;
    let source = resizing.source();
    limits.reserve(columns, part.width as usize)?;
    columns.extend((part.x..part.x + part.width).map(|x| rect.x + nearest(x, rect.width, size.0) - source.x));
    if mirrored {
        columns.reverse();
    }
    let mut rows = (part.y..).zip(out.chunks_exact_mut(part.width as usize * 3)).peekable();
    image.read(source, &mut |band| {
        let place = |y: u32| rect.y + nearest(y, rect.height, size.1) - source.y;
        while let Some((y, out)) = rows.next_if(|(y, _)| place(*y) < band.y + band.rows) {
            let pixels = band.row(place(y) - band.y, source.width).as_chunks::<3>().0;
            for (pixel, &column) in out.as_chunks_mut::<3>().0.iter_mut().zip(&*columns) {
                *pixel = pixels[column as usize];
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_are_those_of_pillow() {
        let row = |from, to| (0..to).map(|at| nearest(at, from, to)).collect::<Vec<_>>();
        // Image.resize of a row 0, 1, 2, ... by Pillow 9.4.
        assert_eq!(row(4, 8), [0, 0, 1, 1, 2, 2, 3, 3]);
        assert_eq!(row(8, 4), [1, 3, 5, 7]);
        assert_eq!(row(7, 3), [1, 3, 5]);
        assert_eq!(row(3, 7), [0, 0, 1, 1, 1, 2, 2]);
        assert_eq!(row(5, 1), [2]);
        assert_eq!(row(1, 4), [0; 4]);
        let long = i32::MAX as u32;
        assert_eq!(span(long, long, &(7..long)), 7..long);
    }
}
