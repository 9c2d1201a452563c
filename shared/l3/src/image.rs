//! The pixels that an encoder is given.

use crate::Error;

/// The pixels of an image: rows of `channels` bytes for each pixel.
#[derive(Clone, Copy, Debug)]
pub struct Image<'a> {
    pixels: &'a [u8],
    width: usize,
    height: usize,
    channels: usize,
}

impl<'a> Image<'a> {
    /// Takes `pixels` of `channels` bytes each (1 for gray, 3 for RGB), in rows that follow each other without a gap.
    ///
    /// # Errors
    ///
    /// Returns an error if a side is 0, if the number of channels is neither 1 nor 3, or if `pixels` has another
    /// length.
    pub fn new(pixels: &'a [u8], width: usize, height: usize, channels: usize) -> Result<Self, Error> {
        if !matches!(channels, 1 | 3) {
            return Err(Error::Channels(channels));
        }
        let is_side = |side: usize| side > 0 && u32::try_from(side).is_ok();
        if !is_side(width) || !is_side(height) {
            return Err(Error::Size { width, height });
        }
        let expected = width as u64 * height as u64;
        let expected = expected.checked_mul(channels as u64).ok_or(Error::Size { width, height })?;
        if pixels.len() as u64 != expected {
            return Err(Error::Length { what: "pixels of the image", expected, found: pixels.len() as u64 });
        }
        Ok(Self { pixels, width, height, channels })
    }

    /// Returns the width in pixels.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the height in pixels.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Returns the number of bytes of a pixel.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// Returns `width` pixels of row `y` from column `x` on.
    pub(crate) fn row(&self, x: usize, y: usize, width: usize) -> &'a [u8] {
        &self.pixels[(y * self.width + x) * self.channels..][..width * self.channels]
    }
}
