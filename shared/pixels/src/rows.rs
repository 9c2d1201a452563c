//! Images that are read in bands of rows, for every kind of source.

use crate::error::PixelError;
use crate::geometry::{Rect, Window};

/// Bytes that a band aims at, so that it stays in a core's cache.
pub(crate) const BAND_BYTES: usize = 128 << 10;

/// Some rows of a rectangle, RGB. Rows may be wider than the rectangle.
pub struct Band<'a> {
    /// First row, counted from the rectangle's first row.
    pub y: u32,
    /// Number of rows.
    pub rows: u32,
    /// Columns of `pixels`.
    pub columns: u32,
    /// Column of `pixels` at which the rectangle begins.
    pub left: u32,
    /// Rows of RGB, 8 bits.
    pub pixels: &'a [u8],
}

impl Band<'_> {
    /// Returns the rectangle's part of a row, `width` pixels.
    pub fn row(&self, row: u32, width: u32) -> &[u8] {
        let start = (row as usize * self.columns as usize + self.left as usize) * 3;
        &self.pixels[start..start + width as usize * 3]
    }
}

/// Receiver of the bands of a rectangle, from top to bottom.
pub type Sink<'s> = &'s mut dyn FnMut(Band<'_>) -> Result<(), PixelError>;

/// An image that can be read by rectangles.
pub(crate) trait ImageRows {
    /// Returns width and height.
    fn size(&self) -> (u32, u32);

    /// Hands the pixels of a rectangle within the image to `sink`.
    fn read(&mut self, rect: Rect, sink: Sink<'_>) -> Result<(), PixelError>;

    /// Copies a window into `out`, mirrored if `flip` is set, with zeros outside the image. Returns false if the image
    /// has no faster way to do so than [`read`](Self::read).
    fn cut_directly(&mut self, _window: Window, _flip: bool, _out: &mut [u8]) -> bool {
        false
    }
}

/// An RGB image in memory.
pub(crate) struct Interleaved<'a> {
    pub width: u32,
    pub height: u32,
    pub pixels: &'a [u8],
}

impl ImageRows for Interleaved<'_> {
    fn size(&self) -> (u32, u32) {
        (self.width, self.height)
    }

    fn read(&mut self, rect: Rect, sink: Sink<'_>) -> Result<(), PixelError> {
        let stride = self.width as usize * 3;
        let pixels = &self.pixels[rect.y as usize * stride..][..rect.height as usize * stride];
        sink(Band { y: 0, rows: rect.height, columns: self.width, left: rect.x, pixels })
    }
}

/// An RGB image that is partly in memory. Only that part can be read.
pub(crate) struct Part<'a> {
    /// Width and height of the whole image.
    pub size: (u32, u32),
    /// Rectangle in memory.
    pub part: Rect,
    /// Pixels of that rectangle.
    pub pixels: &'a [u8],
}

impl ImageRows for Part<'_> {
    fn size(&self) -> (u32, u32) {
        self.size
    }

    fn read(&mut self, rect: Rect, sink: Sink<'_>) -> Result<(), PixelError> {
        let Rect { x, y, width, height } = self.part;
        let rect = Rect { x: rect.x - x, y: rect.y - y, ..rect };
        assert!(rect.x + rect.width <= width && rect.y + rect.height <= height, "{rect:?} is in {:?}", self.part);
        Interleaved { width, height, pixels: self.pixels }.read(rect, sink)
    }
}
