//! Encoders for demo data, tests and tools. The JPEG encoder is libjpeg-turbo's, and writes every layout that the
//! decoder has to read.

use crate::error::PixelError;
use crate::jpeg::exif;
use crate::jpeg::ffi::{self, EncodeInput, EncodeParams, color_space};
use image::codecs::png::PngEncoder;
use image::{ExtendedColorType, ImageEncoder};

/// Colours and subsampling of the file. They fix the input's bytes per pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Layout {
    /// Gray, from 1 byte a pixel.
    Gray,
    /// YCbCr from RGB, with colour differences in full resolution.
    Yuv444,
    /// YCbCr from RGB, with colour differences at half the columns.
    Yuv422,
    /// YCbCr from RGB, with colour differences at half the columns and half the rows.
    Yuv420,
    /// YCbCr from RGB, with colour differences at half the rows.
    Yuv440,
    /// YCbCr from RGB, with colour differences at a quarter of the columns.
    Yuv411,
    /// YCbCr from RGB, with colour differences at a quarter of the columns and half the rows.
    Yuv410,
    /// RGB, not converted.
    Rgb,
    /// Four inks, not converted, from 4 bytes a pixel (inverted, as Adobe stores them).
    Cmyk,
    /// Four inks, three of them converted to luma and colour differences, the latter at half the columns and half the
    /// rows.
    Ycck420,
}

impl Layout {
    /// All layouts.
    pub const ALL: [Self; 10] = [
        Self::Gray,
        Self::Yuv444,
        Self::Yuv422,
        Self::Yuv420,
        Self::Yuv440,
        Self::Yuv411,
        Self::Yuv410,
        Self::Rgb,
        Self::Cmyk,
        Self::Ycck420,
    ];

    /// Returns the bytes per pixel of the input.
    pub fn channels(self) -> u32 {
        match self {
            Self::Gray => 1,
            Self::Cmyk | Self::Ycck420 => 4,
            _ => 3,
        }
    }

    fn color_space(self) -> u32 {
        match self {
            Self::Gray => color_space::GRAYSCALE,
            Self::Rgb => color_space::RGB,
            Self::Cmyk => color_space::CMYK,
            Self::Ycck420 => color_space::YCCK,
            _ => color_space::YCBCR,
        }
    }

    fn sampling(self) -> (u32, u32) {
        match self {
            Self::Gray | Self::Yuv444 | Self::Rgb | Self::Cmyk => (1, 1),
            Self::Yuv422 => (2, 1),
            Self::Yuv420 | Self::Ycck420 => (2, 2),
            Self::Yuv440 => (1, 2),
            Self::Yuv411 => (4, 1),
            Self::Yuv410 => (4, 2),
        }
    }
}

/// Settings of the encoder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JpegOptions {
    /// Quality from 1 to 100, as libjpeg defines it.
    pub quality: u8,
    /// Colours and subsampling.
    pub layout: Layout,
    /// Whether the file is progressive, with libjpeg's usual scans.
    pub progressive: bool,
    /// Whether Huffman tables are made for this image (a progressive file always has its own).
    pub optimize: bool,
    /// Whether the file is arithmetically coded.
    pub arithmetic: bool,
    /// Rows of MCUs between restart markers; 0 for no markers.
    pub restart_rows: u32,
    /// MCUs between restart markers, up to 65535; 0 for no markers. Ignored if `restart_rows` is not 0.
    pub restart_mcus: u32,
    /// EXIF orientation to write, 1 to 8. The pixels are not turned.
    pub orientation: Option<u8>,
}

impl Default for JpegOptions {
    /// Returns the settings of a baseline file with 4:2:0 and quality 90.
    fn default() -> Self {
        Self {
            quality: 90,
            layout: Layout::Yuv420,
            progressive: false,
            optimize: false,
            arithmetic: false,
            restart_rows: 0,
            restart_mcus: 0,
            orientation: None,
        }
    }
}

/// Encodes rows of pixels, stored without gaps, with the layout's bytes per pixel.
///
/// Returns an error if a JPEG cannot have this size (1 to 65 500 a side) or if `pixels` has the wrong length.
pub fn jpeg(pixels: &[u8], width: u32, height: u32, options: &JpegOptions) -> Result<Vec<u8>, PixelError> {
    let components = options.layout.channels();
    let expected = u128::from(width) * u128::from(height) * u128::from(components);
    if pixels.len() as u128 != expected || pixels.is_empty() {
        let message = format!("{} bytes are not {width}x{height} pixels of {components}", pixels.len());
        return Err(PixelError::Unsupported { message });
    }
    if options.orientation.is_some_and(|value| !(1..=8).contains(&value)) {
        return Err(PixelError::Unsupported { message: format!("orientation {:?}", options.orientation) });
    }
    let app1 = options.orientation.map(exif::app1_of_orientation).unwrap_or_default();
    let mut params = EncodeParams::new(width, height, components, options.layout.color_space());
    (params.h_samp, params.v_samp) = options.layout.sampling();
    params.quality = u32::from(options.quality);
    params.progressive = u32::from(options.progressive);
    params.optimize = u32::from(options.optimize);
    params.arithmetic = u32::from(options.arithmetic);
    params.restart_rows = options.restart_rows;
    params.restart_mcus = options.restart_mcus.min(u16::MAX.into());
    ffi::encode(params, EncodeInput { pixels, app1: &app1 })
}

/// Encodes rows of RGB pixels, stored without gaps, as a PNG.
///
/// Returns an error if `pixels` has the wrong length or there is no pixel.
pub fn png(pixels: &[u8], width: u32, height: u32) -> Result<Vec<u8>, PixelError> {
    let expected = u128::from(width) * u128::from(height) * 3;
    if pixels.len() as u128 != expected || pixels.is_empty() {
        let message = format!("{} bytes are not {width}x{height} pixels of 3", pixels.len());
        return Err(PixelError::Unsupported { message });
    }
    let mut file = Vec::new();
    let written = PngEncoder::new(&mut file).write_image(pixels, width, height, ExtendedColorType::Rgb8);
    written.map_err(|error| PixelError::Unsupported { message: error.to_string() })?;
    Ok(file)
}
