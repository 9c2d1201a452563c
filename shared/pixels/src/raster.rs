//! Formats other than JPEG, mostly by the `image` crate: decoded whole, then RGB of 8 bits. What Pillow reads otherwise
//! than the crate is read by `pnm` and `bmp`, or changed before or behind the crate's decoder.
//!
//! Alpha is dropped without blending and gray is repeated, as Pillow's `convert("RGB")` does it. Values of 16 bits keep
//! their upper 8 bits. Only the first page or frame is decoded. Limits hold before anything image-sized is allocated.

use std::io::Cursor;

use image::codecs::{bmp::BmpDecoder, gif::GifDecoder, png::PngDecoder, pnm::PnmDecoder};
use image::codecs::{tiff::TiffDecoder, webp::WebPDecoder};
use image::error::{ImageError, LimitErrorKind};
use image::{ColorType, ImageDecoder};

use crate::bmp::{self, RunLengths};
use crate::error::PixelError;
use crate::first_frame::{self, FirstFrame};
use crate::info::{Format, ImageInfo};
use crate::large;
use crate::limits::Limits;
use crate::orientation;
use crate::panics;
use crate::pnm::Pnm;

/// Decodes a whole image as RGB into `pixels`. `native` is scratch memory for the format's own pixels.
pub(crate) fn decode(
    file: &[u8],
    format: Format,
    limits: Limits,
    native: &mut Vec<u8>,
    pixels: &mut Vec<u8>,
) -> Result<DecodedRaster, PixelError> {
    if let Some(frame) = FirstFrame::of(file, format)? {
        return decode_frame(file, format, &frame, limits, native, pixels);
    }
    if let (Format::Pnm, Some(pnm)) = (format, Pnm::parse(file)?) {
        let size = (pnm.width, pnm.height);
        let turn = admit(limits, size, pnm.native_bytes())?;
        pnm.decode(limits, pixels)?;
        return Ok(DecodedRaster::new(size, turn));
    }
    if let (Format::Bmp, Some(image)) = (format, RunLengths::parse(file)) {
        let size = (image.width, image.height);
        let turn = admit(limits, size, u64::from(size.0) * u64::from(size.1))?;
        image.decode(limits, native, pixels)?;
        return Ok(DecodedRaster::new(size, turn));
    }
    let decoded = decode_by_crate(file, format, limits, native, pixels);
    let (Format::Png, Err(PixelError::Truncated { .. } | PixelError::Malformed { .. })) = (format, &decoded) else {
        return decoded;
    };
    let whole = orientation::png_up_to_its_pixels(file);
    whole.and_then(|file| decode_by_crate(&file, format, limits, native, pixels).ok()).map_or(decoded, Ok)
}

fn decode_by_crate(
    file: &[u8],
    format: Format,
    limits: Limits,
    native: &mut Vec<u8>,
    pixels: &mut Vec<u8>,
) -> Result<DecodedRaster, PixelError> {
    let job = Decode { format, limits, native, pixels: &mut *pixels };
    let decoded = panics::contained(|| with_decoder(file, format, limits, job))???;
    if format == Format::Bmp {
        bmp::cut_off_levels(file, pixels);
    }
    Ok(decoded)
}

/// Checks an image's size and the memory that its decoder needs beside the RGB pixels, and waits for a turn.
fn admit(limits: Limits, (width, height): (u32, u32), own_bytes: u64) -> Result<Option<large::Turn>, PixelError> {
    let count = u64::from(width) * u64::from(height);
    limits.check_pixels(width, height)?;
    let all_bytes = own_bytes.saturating_add(count * 3);
    limits.check_memory(all_bytes)?;
    if count == 0 {
        return Err(PixelError::Malformed { source: format!("an image of {width}x{height} pixels").into() });
    }
    Ok(large::turn(all_bytes))
}

/// Decodes the first frame of an animation onto its canvas.
fn decode_frame(
    file: &[u8],
    format: Format,
    frame: &FirstFrame,
    limits: Limits,
    native: &mut Vec<u8>,
    pixels: &mut Vec<u8>,
) -> Result<DecodedRaster, PixelError> {
    let (width, height) = frame.canvas;
    limits.check_pixels(width, height)?;
    if format == Format::WebP {
        // What follows the first frame has to be an animation, too.
        info(file, format, limits)?;
    }
    let decoded = decode(&frame.still, format, limits, native, pixels)?;
    if (decoded.width, decoded.height) != frame.size {
        return Err(PixelError::Malformed { source: "the first frame has another size than its image".into() });
    }
    // The frame's own pixels, in `native`, are not needed any more.
    native.clear();
    limits.resize(native, u64::from(width) * u64::from(height) * 3)?;
    frame.paint(pixels, native);
    std::mem::swap(native, pixels);
    Ok(DecodedRaster { width, height, ..decoded })
}

/// Reads the header.
pub(crate) fn info(file: &[u8], format: Format, limits: Limits) -> Result<ImageInfo, PixelError> {
    if let (Format::Pnm, Some(pnm)) = (format, Pnm::parse(file)?) {
        return Ok(pnm.info());
    }
    if let (Format::Bmp, Some(image)) = (format, RunLengths::parse(file)) {
        return Ok(image.info());
    }
    let is_lossless = format != Format::WebP || first_frame::is_lossless(file);
    let mut info = panics::contained(|| with_decoder(file, format, limits, Describe { format, is_lossless }))??;
    if let (Format::Gif, Some(canvas)) = (format, first_frame::gif_canvas(file)) {
        (info.width, info.height) = canvas;
    }
    Ok(info)
}

/// Work on a decoder whose type depends on the format.
trait Job {
    type Output;
    fn run(self, decoder: impl ImageDecoder) -> Result<Self::Output, ImageError>;
}

fn with_decoder<J: Job>(file: &[u8], format: Format, limits: Limits, job: J) -> Result<J::Output, PixelError> {
    let error = |error| error_of(error, limits);
    let reader = Cursor::new(file);
    let within = image_limits(limits);
    let output = match format {
        Format::Png => job.run(PngDecoder::with_limits(reader, within).map_err(error)?),
        Format::WebP => job.run(WebPDecoder::new(reader).map_err(error)?),
        Format::Bmp => job.run(BmpDecoder::new(Cursor::new(bmp::with_known_header(file))).map_err(error)?),
        Format::Gif => job.run(GifDecoder::new(reader).map_err(error)?),
        Format::Pnm => job.run(PnmDecoder::new(reader).map_err(error)?),
        // The TIFF decoder has a JPEG decoder of its own, which does not give the same bits on every machine.
        Format::Tiff if orientation::is_jpeg_in_tiff(file) => {
            return Err(PixelError::Unsupported { message: "a TIFF compressed as JPEG".into() });
        }
        Format::Tiff => job.run(TiffDecoder::new(reader).map_err(error)?),
        Format::Jpeg => return Err(PixelError::Unsupported { message: "JPEG is decoded by another module".into() }),
    };
    output.map_err(error)
}

fn image_limits(limits: Limits) -> image::Limits {
    let mut within = image::Limits::default();
    within.max_alloc = Some(limits.memory_bytes);
    within
}

struct Describe {
    format: Format,
    is_lossless: bool,
}

impl Job for Describe {
    type Output = ImageInfo;

    fn run(self, decoder: impl ImageDecoder) -> Result<ImageInfo, ImageError> {
        let (width, height) = decoder.dimensions();
        let color = decoder.original_color_type();
        let components = u32::from(color.channel_count());
        let bits = u32::from(color.bits_per_pixel()) / components.max(1);
        let Self { format, is_lossless } = self;
        Ok(ImageInfo { format, width, height, components, bits, is_lossless, orientation: 1, jpeg: None })
    }
}

/// Size of a decoded image whose pixels lie in the caller's buffer, and its turn.
pub(crate) struct DecodedRaster {
    pub width: u32,
    pub height: u32,
    _turn: Option<large::Turn>,
}

impl DecodedRaster {
    fn new((width, height): (u32, u32), turn: Option<large::Turn>) -> Self {
        Self { width, height, _turn: turn }
    }
}

struct Decode<'a> {
    format: Format,
    limits: Limits,
    native: &'a mut Vec<u8>,
    pixels: &'a mut Vec<u8>,
}

impl Job for Decode<'_> {
    type Output = Result<DecodedRaster, PixelError>;

    fn run(self, mut decoder: impl ImageDecoder) -> Result<Self::Output, ImageError> {
        let (width, height) = decoder.dimensions();
        let color = decoder.color_type();
        let native_bytes = decoder.total_bytes();
        let count = u64::from(width) * u64::from(height);
        // A TIFF's decoder has a buffer of its own, which is up to 4/3 as large: four inks become three colours in it.
        let own_bytes = if self.format == Format::Tiff { native_bytes.saturating_mul(4) / 3 } else { 0 };
        let turn = match admit(self.limits, (width, height), native_bytes.saturating_add(own_bytes)) {
            Ok(turn) => turn,
            Err(error) => return Ok(Err(error)),
        };
        decoder.set_limits(image_limits(self.limits))?;
        // A decoder may leave out pixels: set them to zero, so that none of the last image remain.
        self.native.clear();
        let room = self.limits.resize(self.native, native_bytes).map(|_| ());
        if let Err(error) = room.and_then(|()| self.limits.make_room(self.pixels, count * 3)) {
            return Ok(Err(error));
        }
        decoder.read_image(self.native)?;
        Ok(rgb_from(color, self.native, self.pixels).map(|()| DecodedRaster::new((width, height), turn)))
    }
}

/// Converts decoded pixels to RGB. `pixels` has to have room. 16-bit components are in the machine's byte order.
fn rgb_from(color: ColorType, native: &[u8], pixels: &mut Vec<u8>) -> Result<(), PixelError> {
    let upper = if cfg!(target_endian = "little") { 1 } else { 0 };
    let (stride, channels) = match color {
        ColorType::L8 => (1, [0; 3]),
        ColorType::La8 => (2, [0; 3]),
        ColorType::Rgb8 => (3, [0, 1, 2]),
        ColorType::Rgba8 => (4, [0, 1, 2]),
        ColorType::L16 => (2, [upper; 3]),
        ColorType::La16 => (4, [upper; 3]),
        ColorType::Rgb16 => (6, [upper, 2 + upper, 4 + upper]),
        ColorType::Rgba16 => (8, [upper, 2 + upper, 4 + upper]),
        other => return Err(PixelError::Unsupported { message: format!("pixels of the type {other:?}") }),
    };
    pixels.clear();
    for pixel in native.chunks_exact(stride) {
        pixels.extend_from_slice(&channels.map(|at| pixel[at]));
    }
    Ok(())
}

fn error_of(error: ImageError, limits: Limits) -> PixelError {
    match &error {
        ImageError::Limits(limit) => match limit.kind() {
            LimitErrorKind::DimensionError => PixelError::Unsupported { message: error.to_string() },
            _ => PixelError::TooMuchMemory { limit: limits.memory_bytes },
        },
        ImageError::Unsupported(_) => PixelError::Unsupported { message: error.to_string() },
        ImageError::IoError(io) if io.kind() == std::io::ErrorKind::UnexpectedEof => {
            PixelError::Truncated { source: error.into() }
        }
        _ if ended(&error) => PixelError::Truncated { source: error.into() },
        _ => PixelError::Malformed { source: error.into() },
    }
}

/// Returns whether an unexpected end of the file is among the causes.
fn ended(error: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| error.source()).any(|error| {
        error.downcast_ref::<std::io::Error>().is_some_and(|io| io.kind() == std::io::ErrorKind::UnexpectedEof)
    })
}
