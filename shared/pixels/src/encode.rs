//! A JPEG encoder for demo data, tests and tools: libjpeg-turbo's, in every layout that the decoder has to stand.

use crate::error::PixelError;
use crate::jpeg::exif;
use crate::jpeg::ffi::{self, EncodeInput, EncodeParams, color_space};

/// Colours and subsampling of the file. The input's bytes per pixel follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Layout {
    /// From 1 byte a pixel.
    Gray,
    /// YCbCr from RGB, full colour resolution.
    Yuv444,
    /// Half the columns.
    Yuv422,
    /// Half the columns and rows.
    Yuv420,
    /// Half the rows.
    Yuv440,
    /// A quarter of the columns.
    Yuv411,
    /// A quarter of the columns, half the rows.
    Yuv410,
    /// RGB as it is.
    Rgb,
    /// Four inks as they are, from 4 bytes a pixel (inverted, as Adobe stores them).
    Cmyk,
    /// Four inks, the first three as luma and colour differences with half the columns and rows.
    Ycck420,
}

impl Layout {
    /// Every layout.
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

    /// Bytes per pixel of the input.
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

/// How to encode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JpegOptions {
    /// 1 to 100, as libjpeg has it.
    pub quality: u8,
    /// Colours and subsampling.
    pub layout: Layout,
    /// Progressive, with libjpeg's usual scans.
    pub progressive: bool,
    /// Huffman tables made for this image (a progressive file always has them).
    pub optimize: bool,
    /// Arithmetic coding.
    pub arithmetic: bool,
    /// Rows of MCUs between restart markers, 0 for none.
    pub restart_rows: u32,
    /// MCUs between restart markers, up to 65535, 0 for none; `restart_rows` goes before it.
    pub restart_mcus: u32,
    /// EXIF orientation to say, 1 to 8. It does not turn the pixels.
    pub orientation: Option<u8>,
}

impl Default for JpegOptions {
    /// Baseline 4:2:0 of quality 90.
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

/// Encodes rows of pixels without a gap, of the layout's bytes per pixel.
///
/// Errors where the size is none of a JPEG's (1 to 65 500 a side) or `pixels` has another length.
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
