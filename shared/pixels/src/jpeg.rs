//! JPEG by libjpeg-turbo, for the files that [`baseline`] does not take and for every verdict: header, checks, and a
//! rectangle of pixels in bands of rows.
//!
//! A rectangle is cut out while decoding. `jpeg_crop_scanline` cuts the columns, with a margin of one MCU on both sides
//! because chroma is upsampled from its neighbours; rows above the rectangle are skipped, rows below are never decoded.
//! Block smoothing is off, so that any rectangle of an incomplete progressive file has the same pixels as the whole.
//!
//! A file that ends while image data is missing is an error ([`PixelError::Truncated`]): torchvision's decoder would
//! fill the rest with gray, Pillow refuses the file. If only the end marker is missing, that counts as a warning. All
//! other warnings of libjpeg are counted too, as torchvision counts them.

pub(crate) mod baseline;
pub(crate) mod exif;
pub(crate) mod ffi;

use crate::error::PixelError;
use crate::geometry::Rect;
use crate::info::{Format, ImageInfo, JpegColor, JpegInfo};
use crate::large;
use crate::limits::Limits;
use crate::rows::{BAND_BYTES, Band, ImageRows, Sink};
use ffi::{LibjpegHeader, Object, Opened, color_space};

/// Opens a file, and refuses one that this crate does not decode or that exceeds a limit.
pub(crate) fn open<'a>(
    object: &'a mut Object,
    file: &'a [u8],
    limits: Limits,
    keep_markers: bool,
) -> Result<Opened<'a>, PixelError> {
    let opened = object.open(file, limits, keep_markers)?;
    let header = &opened.header;
    limits.check_pixels(header.width, header.height)?;
    if header.precision != 8 {
        return Err(PixelError::Unsupported { message: format!("{} bits per component", header.precision) });
    }
    if exif::is_lossless(file) {
        return Err(PixelError::Unsupported { message: "lossless jpeg".into() });
    }
    if color_of(header) == JpegColor::Unknown {
        return Err(PixelError::Unsupported {
            message: format!("{} components whose colours are not known", header.components),
        });
    }
    if header.multiple_scans != 0 {
        limits.check_memory(header.coefficient_bytes)?;
    }
    Ok(opened)
}

/// Returns whether an end marker follows the image data, which are therefore not truncated: they cannot contain the
/// marker. Most files end with it; some cameras append data of their own.
pub(crate) fn has_end_marker(file: &[u8]) -> bool {
    const END: [u8; 2] = [0xFF, 0xD9];
    file.ends_with(&END) || exif::data(file).windows(2).any(|pair| pair == END)
}

/// Decodes a whole file to find its errors, and returns the number of warnings. If the image data end early, the file
/// is an error for every pipeline, whichever part of it the pipeline reads.
pub(crate) fn check_whole(
    object: &mut Object,
    file: &[u8],
    limits: Limits,
    band: &mut Vec<u8>,
) -> Result<u32, PixelError> {
    // Declared before the open file, which holds the memory, so that it is dropped after the file.
    let _turn;
    let opened = open(object, file, limits, false)?;
    let LibjpegHeader { width, height, .. } = opened.header;
    _turn = large::turn(opened.header.whole_bytes());
    let mut rows = JpegRows::new(opened, band);
    rows.read(Rect { x: 0, y: 0, width, height }, &mut |_| Ok(()))?;
    Ok(rows.warnings())
}

fn color_of(header: &LibjpegHeader) -> JpegColor {
    match (header.color_space, header.components) {
        (color_space::GRAYSCALE, 1) => JpegColor::Gray,
        (color_space::YCBCR, 3) => JpegColor::YCbCr,
        (color_space::RGB, 3) => JpegColor::Rgb,
        (color_space::CMYK, 4) => JpegColor::Cmyk,
        (color_space::YCCK, 4) => JpegColor::Ycck,
        _ => JpegColor::Unknown,
    }
}

pub(crate) fn info(opened: &Opened<'_>, orientation: u8) -> ImageInfo {
    let header = &opened.header;
    let parts = header.components.min(4) as usize;
    ImageInfo {
        format: Format::Jpeg,
        width: header.width,
        height: header.height,
        components: header.components,
        bits: header.precision,
        is_lossless: false,
        orientation,
        jpeg: Some(JpegInfo {
            color: color_of(header),
            sampling: header.h_samp.into_iter().zip(header.v_samp).take(parts).collect(),
            progressive: header.progressive != 0,
            arithmetic: header.arithmetic != 0,
            restart_interval: header.restart_interval,
            multiple_scans: header.multiple_scans != 0,
        }),
    }
}

/// The pixels of an open file, which can be read once.
pub(crate) struct JpegRows<'a, 'b> {
    opened: Opened<'a>,
    band: &'b mut Vec<u8>,
}

impl<'a, 'b> JpegRows<'a, 'b> {
    pub fn new(opened: Opened<'a>, band: &'b mut Vec<u8>) -> Self {
        Self { opened, band }
    }

    pub fn warnings(&self) -> u32 {
        self.opened.warnings()
    }
}

impl ImageRows for JpegRows<'_, '_> {
    fn size(&self) -> (u32, u32) {
        (self.opened.header.width, self.opened.header.height)
    }

    fn read(&mut self, rect: Rect, sink: Sink<'_>) -> Result<(), PixelError> {
        let header = &self.opened.header;
        let margin = header.mcu_width;
        let left = (rect.x / margin).saturating_sub(1) * margin;
        let right = ((rect.x + rect.width).div_ceil(margin) + 1).saturating_mul(margin).min(header.width);
        let mcu_height = header.mcu_height;
        let (left, columns) = self.opened.start(left, right - left, rect.y)?;
        let channels = self.opened.channels();
        let stride = columns as usize * channels;
        let fitting = u32::try_from(BAND_BYTES / stride).unwrap_or(u32::MAX);
        let at_once = (fitting / mcu_height * mcu_height).max(mcu_height).min(rect.height);
        self.band.resize(stride * at_once as usize, 0);
        let mut y = 0;
        while y < rect.height {
            let rows = at_once.min(rect.height - y);
            let pixels = &mut self.band[..stride * rows as usize];
            self.opened.rows(pixels, rows)?;
            if channels == 4 {
                rgb_from_stored_cmyk(pixels);
            }
            let pixels = &pixels[..columns as usize * 3 * rows as usize];
            sink(Band { y, rows, columns, left: rect.x - left, pixels })?;
            y += rows;
        }
        Ok(())
    }
}

/// Converts pixels of four stored inks to RGB in place, at the front of the slice.
///
/// Inks are stored inverted (Adobe's convention, which Pillow assumes, too). With K = stored black and c = 255 − stored
/// ink, Pillow's formula is K − c × K / 255, where t = c × K + 128 and the quotient is rounded as ((t >> 8) + t) >> 8.
fn rgb_from_stored_cmyk(pixels: &mut [u8]) {
    for i in 0..pixels.len() / 4 {
        let black = u32::from(pixels[4 * i + 3]);
        for channel in 0..3 {
            let t = (255 - u32::from(pixels[4 * i + channel])) * black + 128;
            pixels[3 * i + channel] = (black - (((t >> 8) + t) >> 8)) as u8;
        }
    }
}

#[cfg(test)]
mod tests;
