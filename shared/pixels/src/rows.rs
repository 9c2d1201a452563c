//! Pixels that come in bands of rows, wherever they come from.

use crate::error::PixelError;

/// A box of whole pixels within an image. Never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rect {
    pub x: u32,
    pub y: u32,
    pub width: u32,
    pub height: u32,
}

/// Some rows of a rectangle, RGB. Rows may be wider than the rectangle.
pub(crate) struct Band<'a> {
    /// First row, counted from the rectangle's.
    pub y: u32,
    pub rows: u32,
    /// Columns of `pixels`.
    pub columns: u32,
    /// Column of `pixels` where the rectangle begins.
    pub left: u32,
    pub pixels: &'a [u8],
}

impl Band<'_> {
    /// The rectangle's part of a row, `width` pixels.
    pub fn row(&self, row: u32, width: u32) -> &[u8] {
        let start = (row as usize * self.columns as usize + self.left as usize) * 3;
        &self.pixels[start..start + width as usize * 3]
    }
}

/// Takes the bands of a rectangle from top to bottom.
pub(crate) type Sink<'s> = &'s mut dyn FnMut(Band<'_>) -> Result<(), PixelError>;

/// An image that can be read by rectangles.
pub(crate) trait Rows {
    /// Width and height.
    fn size(&self) -> (u32, u32);

    /// Hands the pixels of a rectangle within the image to `sink`.
    fn read(&mut self, rect: Rect, sink: Sink<'_>) -> Result<(), PixelError>;
}

/// An RGB image in memory.
pub(crate) struct Interleaved<'a> {
    pub width: u32,
    pub height: u32,
    pub pixels: &'a [u8],
}

impl Rows for Interleaved<'_> {
    fn size(&self) -> (u32, u32) {
        (self.width, self.height)
    }

    fn read(&mut self, rect: Rect, sink: Sink<'_>) -> Result<(), PixelError> {
        let stride = self.width as usize * 3;
        let pixels = &self.pixels[rect.y as usize * stride..][..rect.height as usize * stride];
        sink(Band { y: 0, rows: rect.height, columns: self.width, left: rect.x, pixels })
    }
}

/// An RGB image of which a part is in memory. No more than that can be read.
pub(crate) struct Part<'a> {
    /// Width and height of the whole image.
    pub size: (u32, u32),
    /// The part.
    pub part: Rect,
    /// The part's pixels.
    pub pixels: &'a [u8],
}

impl Rows for Part<'_> {
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

/// An image of three planes in memory.
pub(crate) struct Planes<'a> {
    width: u32,
    height: u32,
    bytes: &'a [u8],
    row: &'a mut Vec<u8>,
}

impl<'a> Planes<'a> {
    /// Errors where the bytes are not those of three planes of this size.
    pub fn new(width: u32, height: u32, bytes: &'a [u8], row: &'a mut Vec<u8>) -> Result<Self, PixelError> {
        let expected = u128::from(width) * u128::from(height) * 3;
        if bytes.is_empty() {
            return Err(PixelError::Empty);
        }
        let message = format!("{} bytes are not three planes of {width}x{height}", bytes.len());
        match (bytes.len() as u128).cmp(&expected) {
            std::cmp::Ordering::Less => Err(PixelError::Truncated { message }),
            std::cmp::Ordering::Greater => Err(PixelError::Malformed { message }),
            std::cmp::Ordering::Equal => Ok(Self { width, height, bytes, row }),
        }
    }
}

impl Rows for Planes<'_> {
    fn size(&self) -> (u32, u32) {
        (self.width, self.height)
    }

    fn read(&mut self, rect: Rect, sink: Sink<'_>) -> Result<(), PixelError> {
        let columns = rect.width as usize;
        let plane = self.width as usize * self.height as usize;
        self.row.resize(columns * 3, 0);
        for y in 0..rect.height {
            let start = (rect.y + y) as usize * self.width as usize + rect.x as usize;
            let channel = |i: usize| &self.bytes[i * plane + start..][..columns];
            let colors = channel(0).iter().zip(channel(1)).zip(channel(2));
            for (pixel, ((&red, &green), &blue)) in self.row.chunks_exact_mut(3).zip(colors) {
                pixel.copy_from_slice(&[red, green, blue]);
            }
            sink(Band { y, rows: 1, columns: rect.width, left: 0, pixels: self.row })?;
        }
        Ok(())
    }
}
