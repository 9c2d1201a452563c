//! An image as a warp shows it.

use super::Warp;
use super::sample::{View, make};
use crate::error::PixelError;
use crate::geometry::{Rect, Window};
use crate::level::Level;
use crate::limits::Limits;
use crate::rows::{BAND_BYTES, Band, ImageRows, Sink};

/// Reusable memory of a warped image.
#[derive(Default)]
pub(crate) struct WarpMemory {
    /// The rectangle of the image that is read, if it comes in several bands.
    read: Vec<u8>,
    /// Rows of the result.
    made: Vec<u8>,
}

impl WarpMemory {
    /// Frees memory that is larger than `kept` bytes.
    pub fn trim(&mut self, kept: usize) {
        for buffer in [&mut self.read, &mut self.made] {
            if buffer.capacity() > kept {
                *buffer = Vec::new();
            }
        }
    }
}

/// An image as a warp shows it. Holds only the part of the image in memory that a read needs.
pub(crate) struct Warped<'a> {
    image: &'a mut dyn ImageRows,
    warp: &'a Warp,
    memory: &'a mut WarpMemory,
    limits: Limits,
}

impl<'a> Warped<'a> {
    /// Wraps an image.
    pub fn new(image: &'a mut dyn ImageRows, warp: &'a Warp, memory: &'a mut WarpMemory, limits: Limits) -> Self {
        Self { image, warp, memory, limits }
    }

    /// Writes a window of the result to `out` and returns true, if the window lies within the result.
    pub fn cut(&mut self, window: Window, out: &mut [u8]) -> Result<bool, PixelError> {
        let Some(rect) = window.visible(self.warp.size).filter(|_| window.lies_within(self.warp.size)) else {
            return Ok(false);
        };
        let Self { image, warp, memory, limits } = self;
        let needed = warp.needs(rect, image.size());
        with_view(*image, needed, &mut memory.read, *limits, |view| {
            make(Level::best(), warp, view, rect, out);
            Ok(())
        })?;
        Ok(true)
    }
}

impl ImageRows for Warped<'_> {
    fn size(&self) -> (u32, u32) {
        self.warp.size
    }

    fn read(&mut self, rect: Rect, sink: Sink<'_>) -> Result<(), PixelError> {
        let Self { image, warp, memory: WarpMemory { read, made }, limits } = self;
        let row_bytes = rect.width as usize * 3;
        let rows_at_once = (BAND_BYTES / row_bytes).clamp(1, rect.height as usize);
        let made = limits.resize(made, (rows_at_once * row_bytes) as u64)?;
        let needed = warp.needs(rect, image.size());
        with_view(*image, needed, read, *limits, |view| {
            for y in (0..rect.height).step_by(rows_at_once) {
                let rows = (rect.height - y).min(rows_at_once as u32);
                let made = &mut made[..rows as usize * row_bytes];
                make(Level::best(), warp, view, Rect { y: rect.y + y, height: rows, ..rect }, made);
                sink(Band { y, rows, columns: rect.width, left: 0, pixels: made })?;
            }
            Ok(())
        })
    }
}

/// Hands a rectangle of an image to `take`, or nothing of the image if it is `None`. Copies the rectangle into `read`
/// if the image comes in several bands.
fn with_view(
    image: &mut dyn ImageRows,
    rect: Option<Rect>,
    read: &mut Vec<u8>,
    limits: Limits,
    mut take: impl FnMut(View<'_>) -> Result<(), PixelError>,
) -> Result<(), PixelError> {
    let size = image.size();
    let Some(rect) = rect else {
        // No pixel comes from an image without pixels.
        let rect = Rect { x: 0, y: 0, width: 0, height: 0 };
        return take(View { size: (0, 0), rect, columns: 0, left: 0, pixels: &[] });
    };
    let row_bytes = rect.width as usize * 3;
    let mut in_one_band = false;
    image.read(rect, &mut |Band { y, rows, columns, left, pixels }| {
        if rows == rect.height {
            in_one_band = true;
            return take(View { size, rect, columns, left, pixels });
        }
        let band = Band { y, rows, columns, left, pixels };
        let read = limits.resize(read, row_bytes as u64 * u64::from(rect.height))?;
        for row in 0..rows {
            read[(y + row) as usize * row_bytes..][..row_bytes].copy_from_slice(band.row(row, rect.width));
        }
        Ok(())
    })?;
    if in_one_band { Ok(()) } else { take(View { size, rect, columns: rect.width, left: 0, pixels: read }) }
}
