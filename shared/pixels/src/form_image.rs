//! Images of forms that implement [`FormDecoder`], which decodes a rectangle of the image.

use crate::error::PixelError;
use crate::geometry::Rect;
use crate::limits::Limits;
use crate::rows::{ImageRows, Sink};
use std::fmt;

/// Decodes the images of one form.
pub trait FormDecoder: Sync {
    /// Hands the pixels of a rectangle within the image to `sink`. Checks all bytes that these pixels need, and no
    /// others. Needs no memory but `memory` for bands of pixels.
    ///
    /// # Errors
    ///
    /// If the image's bytes are damaged or do not hold the rectangle, and if `sink` fails.
    fn read(&self, image: &FormImage<'_>, rect: Rect, memory: BandMemory<'_>, sink: Sink<'_>)
    -> Result<(), PixelError>;
}

/// An image of a form that implements [`FormDecoder`], or the part of the image that a crop needs.
#[derive(Clone, Copy)]
pub struct FormImage<'a> {
    /// Number of the form in records.
    pub form: u8,
    /// Decoder of the form.
    pub decoder: &'a dyn FormDecoder,
    /// Width in columns.
    pub width: u32,
    /// Height in rows.
    pub height: u32,
    /// EXIF orientation of the stored pixels, 1 to 8; 1 is upright.
    pub orientation: u8,
    /// Whether the image was larger before it was stored.
    pub was_shrunk: bool,
    /// What the decoder needs beside the image's bytes, such as their checksums.
    pub detail: &'a [u8],
    /// Offset of `bytes` within the image's bytes.
    pub offset: u64,
    /// The part of the image's bytes that was read.
    pub bytes: &'a [u8],
}

impl FormImage<'_> {
    /// Checks the description of the image, but none of its bytes.
    pub(crate) fn check(&self, limits: Limits) -> Result<(), PixelError> {
        limits.check_pixels(self.width, self.height)?;
        if self.width == 0 || self.height == 0 || !(1..=8).contains(&self.orientation) {
            return Err(PixelError::Malformed { source: format!("{self:?}").into() });
        }
        Ok(())
    }
}

impl fmt::Debug for FormImage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { form, width, height, orientation, detail, offset, bytes, .. } = self;
        let (detail, length) = (detail.len(), bytes.len());
        write!(
            f,
            "an image of {width}x{height} in form {form}, orientation {orientation}, with {length} bytes from {offset} \
             on and a detail of {detail} bytes"
        )
    }
}

/// Memory for a band of pixels, which a worker reuses from sample to sample.
pub struct BandMemory<'m> {
    pub(crate) limits: Limits,
    pub(crate) memory: &'m mut Vec<u8>,
}

impl<'m> BandMemory<'m> {
    /// Returns memory of this many bytes, with undefined contents.
    ///
    /// # Errors
    ///
    /// If the limits do not allow that much, or the machine lacks the memory.
    pub fn bytes(&mut self, bytes: u64) -> Result<&mut [u8], PixelError> {
        self.limits.resize(self.memory, bytes)
    }
}

/// The pixels of a [`FormImage`].
pub(crate) struct FormRows<'a> {
    image: FormImage<'a>,
    limits: Limits,
    memory: &'a mut Vec<u8>,
}

impl<'a> FormRows<'a> {
    /// Wraps an image. Returns an error if its description is impossible.
    pub fn new(image: FormImage<'a>, limits: Limits, memory: &'a mut Vec<u8>) -> Result<Self, PixelError> {
        image.check(limits)?;
        Ok(Self { image, limits, memory })
    }
}

impl ImageRows for FormRows<'_> {
    fn size(&self) -> (u32, u32) {
        (self.image.width, self.image.height)
    }

    fn read(&mut self, rect: Rect, sink: Sink<'_>) -> Result<(), PixelError> {
        let memory = BandMemory { limits: self.limits, memory: self.memory };
        self.image.decoder.read(&self.image, rect, memory, sink)
    }
}
