//! The first frame of an animated WebP, as libwebp shows it: on a canvas of zeros, whatever the file says about
//! blending and a background. Transparent pixels keep their colours. `gif` has the first frame of a GIF.

mod gif;

use crate::error::PixelError;
use crate::info::Format;
use crate::orientation::{chunks_of, riff_chunks};

/// Bit of an animation in the flags of a VP8X chunk.
const ANIMATION: u8 = 2;
/// Bytes of an ANMF chunk in front of the frame's own chunks.
const FRAME_HEADER_BYTES: usize = 16;

/// The first frame of an animation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FirstFrame {
    /// A file of this frame alone, without its transparency.
    pub still: Vec<u8>,
    /// Columns and rows of the frame.
    pub size: (u32, u32),
    /// Column and row of the canvas at which the frame begins.
    pub at: (u32, u32),
    /// Columns and rows of the canvas.
    pub canvas: (u32, u32),
    /// Colour of the canvas around the frame.
    pub fill: [u8; 3],
}

impl FirstFrame {
    /// Finds the first frame of an animated WebP, or of a GIF. Returns `None` for a file whose decoder shows it alike.
    pub fn of(file: &[u8], format: Format) -> Result<Option<Self>, PixelError> {
        match format {
            Format::WebP => Self::of_webp(file),
            Format::Gif => Ok(gif::Gif::parse(file).and_then(|gif| gif.first_frame())),
            _ => Ok(None),
        }
    }

    fn of_webp(file: &[u8]) -> Result<Option<Self>, PixelError> {
        let malformed = |message: &str| PixelError::Malformed { source: message.into() };
        let Some((b"VP8X", header)) = riff_chunks(file).next() else { return Ok(None) };
        if header.len() < 10 || header[0] & ANIMATION == 0 {
            return Ok(None);
        }
        let canvas = (number(header, 4) + 1, number(header, 7) + 1);
        let frame = riff_chunks(file).find(|&(kind, _)| kind == b"ANMF").map(|(_, data)| data);
        let frame = frame.filter(|frame| frame.len() >= FRAME_HEADER_BYTES);
        let frame = frame.ok_or_else(|| malformed("an animation without a whole frame"))?;
        let at = (2 * number(frame, 0), 2 * number(frame, 3));
        let size = (number(frame, 6) + 1, number(frame, 9) + 1);
        if at.0 + size.0 > canvas.0 || at.1 + size.1 > canvas.1 {
            return Err(malformed("the first frame reaches out of its canvas"));
        }
        let image = chunks_of(&frame[FRAME_HEADER_BYTES..]).find(|&(kind, _)| kind == b"VP8 " || kind == b"VP8L");
        let (kind, data) = image.ok_or_else(|| malformed("the first frame has no whole image"))?;
        let padded = data.len().next_multiple_of(2) as u32;
        let mut still = Vec::with_capacity(20 + padded as usize);
        still.extend_from_slice(b"RIFF");
        still.extend_from_slice(&(12 + padded).to_le_bytes());
        still.extend_from_slice(b"WEBP");
        still.extend_from_slice(kind);
        still.extend_from_slice(&(data.len() as u32).to_le_bytes());
        still.extend_from_slice(data);
        still.resize(20 + padded as usize, 0);
        Ok(Some(Self { still, size, at, canvas, fill: [0; 3] }))
    }

    /// Fills the canvas, and copies the frame's RGB pixels onto it.
    pub fn paint(&self, frame: &[u8], canvas: &mut [u8]) {
        canvas.as_chunks_mut::<3>().0.fill(self.fill);
        let (row_bytes, stride) = (self.size.0 as usize * 3, self.canvas.0 as usize * 3);
        let rows = canvas.chunks_exact_mut(stride).skip(self.at.1 as usize);
        for (row, out) in frame.chunks_exact(row_bytes).zip(rows) {
            out[self.at.0 as usize * 3..][..row_bytes].copy_from_slice(row);
        }
    }
}

/// Returns columns and rows of a GIF's canvas, if its first frame is found.
pub(crate) fn gif_canvas(file: &[u8]) -> Option<(u32, u32)> {
    gif::Gif::parse(file).map(|gif| gif.canvas())
}

/// Returns whether the image of a WebP, or the first frame of an animation, is coded without loss.
pub(crate) fn is_lossless(file: &[u8]) -> bool {
    let is_image = |&(kind, _): &(&[u8], &[u8])| kind == b"VP8 " || kind == b"VP8L";
    let frame = riff_chunks(file).find(|&(kind, _)| kind == b"ANMF");
    let image = match frame.and_then(|(_, data)| data.get(FRAME_HEADER_BYTES..)) {
        Some(chunks) => chunks_of(chunks).find(is_image),
        None => riff_chunks(file).find(is_image),
    };
    image.is_some_and(|(kind, _)| kind == b"VP8L")
}

/// A little-endian number of 24 bits.
fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], 0])
}
