//! The input of a sample: its bytes, their format, and the limits on decoding them.

use serde::{Deserialize, Serialize};

use crate::error::PixelError;
use crate::orientation;
use crate::partial::JpegInRows;
use crate::raw::RawImage;

/// Bytes of a sample, in one of the forms that a dataset can hold.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Source<'a> {
    /// A complete file of an image format, recognised by its contents.
    Encoded(&'a [u8]),
    /// A JPEG with checkpoints, at which decoding can start, so that a decoder can skip what a rectangle does not
    /// cover. If the file is intact and the checkpoints belong to it, the pixels are the same as without them.
    Indexed {
        /// The complete file.
        file: &'a [u8],
        /// The checkpoints, as in [`Indexed::checkpoints`](crate::Indexed::checkpoints). If they are damaged, the file
        /// is decoded without them.
        checkpoints: &'a [u8],
    },
    /// 8-bit RGB in three planes, each `height` rows of `width`.
    Planar {
        /// Width in columns.
        width: u32,
        /// Height in rows.
        height: u32,
        /// The planes, 3 × height × width bytes.
        bytes: &'a [u8],
    },
    /// 8-bit RGB in a file. Only the rows of the requested rectangle are read.
    Raw(RawImage<'a>),
    /// A JPEG in a file, with a row index. Only the rows of MCUs that a crop needs are read. The pixels are those of
    /// the whole file.
    Rows(JpegInRows<'a>),
}

impl Source<'_> {
    /// Returns the EXIF orientation of the stored pixels, 1 to 8; 1 is upright.
    pub(crate) fn orientation(&self) -> u8 {
        match self {
            Self::Encoded(file) | Self::Indexed { file, .. } => orientation::of(file),
            Self::Planar { .. } => 1,
            Self::Raw(image) => image.orientation,
            Self::Rows(jpeg) => jpeg.orientation(),
        }
    }
}

/// Limits on the cost of decoding one sample. Exceeding one is a typed error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Most pixels (width × height) of the stored image.
    pub pixels: u64,
    /// Most scans of a JPEG: a few bytes of the file can make each scan cost a pass over the image.
    pub scans: u32,
    /// Most bytes of the decoder's image-sized buffers. The images between the first operation and the last may
    /// together take as many again. So this bounds the work of the operations too.
    pub memory_bytes: u64,
}

impl Default for Limits {
    /// Returns 178 956 970 pixels (Pillow's limit), 100 scans, 1 GiB.
    fn default() -> Self {
        Self { pixels: 178_956_970, scans: 100, memory_bytes: 1 << 30 }
    }
}

impl Limits {
    /// Returns whether none of the limits exceeds that of `most`.
    pub fn is_within(&self, most: &Self) -> bool {
        self.pixels <= most.pixels && self.scans <= most.scans && self.memory_bytes <= most.memory_bytes
    }

    pub(crate) fn check_pixels(&self, width: u32, height: u32) -> Result<(), PixelError> {
        if u64::from(width) * u64::from(height) > self.pixels {
            return Err(PixelError::TooManyPixels { width, height, limit: self.pixels });
        }
        Ok(())
    }

    pub(crate) fn check_memory(&self, bytes: u64) -> Result<(), PixelError> {
        if bytes > self.memory_bytes {
            return Err(PixelError::TooMuchMemory { limit: self.memory_bytes });
        }
        Ok(())
    }

    /// Empties a buffer and makes room for `bytes`. Returns an error if the limit does not allow them or the machine
    /// lacks the memory.
    pub(crate) fn make_room(&self, buffer: &mut Vec<u8>, bytes: u64) -> Result<(), PixelError> {
        self.check_memory(bytes)?;
        self.reserve(buffer, bytes as usize)
    }

    /// Empties a buffer and makes room for `values` values, which the caller has checked against the limit. Returns an
    /// error if the machine lacks the memory.
    pub(crate) fn reserve<T>(&self, buffer: &mut Vec<T>, values: usize) -> Result<(), PixelError> {
        buffer.clear();
        self.reserve_more(buffer, values)
    }

    /// Makes room for `values` more values behind those of a buffer. Otherwise as [`reserve`](Self::reserve).
    pub(crate) fn reserve_more<T>(&self, buffer: &mut Vec<T>, values: usize) -> Result<(), PixelError> {
        buffer.try_reserve_exact(values).map_err(|_| {
            let bytes = values.saturating_mul(size_of::<T>());
            PixelError::NoMemory { message: format!("{bytes} bytes are not there") }
        })
    }

    /// Makes a buffer `bytes` long, with any contents. Otherwise as [`make_room`](Self::make_room).
    pub(crate) fn resize<'b>(&self, buffer: &'b mut Vec<u8>, bytes: u64) -> Result<&'b mut [u8], PixelError> {
        self.check_memory(bytes)?;
        self.resize_allowed(buffer, bytes as usize)
    }

    /// Makes a buffer `bytes` long, with any contents. Otherwise as [`reserve`](Self::reserve).
    pub(crate) fn resize_allowed<'b>(&self, buffer: &'b mut Vec<u8>, bytes: usize) -> Result<&'b mut [u8], PixelError> {
        if buffer.capacity() < bytes {
            self.reserve(buffer, bytes)?;
        }
        // The buffer has the room, so this does not allocate.
        buffer.resize(bytes, 0);
        Ok(buffer)
    }
}

/// A file format of images. Add new ones at the end: abilities number them by their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// JPEG in any coding of 8 bits per sample, except lossless.
    Jpeg,
    /// PNG.
    Png,
    /// WebP, the first frame.
    WebP,
    /// BMP.
    Bmp,
    /// GIF, the first frame.
    Gif,
    /// PBM, PGM, PPM and PAM.
    Pnm,
    /// TIFF, the first page.
    Tiff,
}

impl Format {
    /// Recognises a format by the first bytes of a file.
    pub fn of(bytes: &[u8]) -> Result<Self, PixelError> {
        Ok(match bytes {
            [] => return Err(PixelError::Empty),
            [0xFF, 0xD8, 0xFF, ..] => Self::Jpeg,
            [0x89, b'P', b'N', b'G', 0x0D, 0x0A, 0x1A, 0x0A, ..] => Self::Png,
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Self::WebP,
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Self::Gif,
            [b'B', b'M', ..] => Self::Bmp,
            [b'P', b'1'..=b'7', ..] => Self::Pnm,
            [b'I', b'I', b'*', 0, ..] | [b'M', b'M', 0, b'*', ..] => Self::Tiff,
            _ => return Err(PixelError::UnknownFormat { first: bytes[..bytes.len().min(8)].to_vec() }),
        })
    }

    /// Returns the format's name as people write it.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Jpeg => "JPEG",
            Self::Png => "PNG",
            Self::WebP => "WebP",
            Self::Bmp => "BMP",
            Self::Gif => "GIF",
            Self::Pnm => "PNM",
            Self::Tiff => "TIFF",
        }
    }

    /// Returns the format's name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Jpeg => "jpeg",
            Self::Png => "png",
            Self::WebP => "webp",
            Self::Bmp => "bmp",
            Self::Gif => "gif",
            Self::Pnm => "pnm",
            Self::Tiff => "tiff",
        }
    }
}

/// Header of an image file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImageInfo {
    /// Format of the file.
    pub format: Format,
    /// Width of the stored image, in columns.
    pub width: u32,
    /// Height of the stored image, in rows.
    pub height: u32,
    /// Components of a stored pixel: 1 gray, 2 gray and alpha, 3 colour, 4 CMYK or colour and alpha.
    pub components: u32,
    /// Bits of a stored component.
    pub bits: u32,
    /// EXIF orientation, 1 to 8; 1 is upright.
    pub orientation: u8,
    /// Properties that only a JPEG has.
    pub jpeg: Option<JpegInfo>,
}

/// Properties that only a JPEG has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JpegInfo {
    /// Colours as stored.
    pub color: JpegColor,
    /// Horizontal and vertical sampling factor of each component.
    pub sampling: Vec<(u32, u32)>,
    /// Whether the file is progressive.
    pub progressive: bool,
    /// Whether the file is arithmetically coded.
    pub arithmetic: bool,
    /// MCUs between restart markers; 0 for no markers.
    pub restart_interval: u32,
    /// Whether components or coefficients are spread over several scans.
    pub multiple_scans: bool,
}

/// Colours of a JPEG.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum JpegColor {
    /// One component.
    Gray,
    /// Luma and two colour differences.
    YCbCr,
    /// Red, green and blue, not converted.
    Rgb,
    /// Four inks.
    Cmyk,
    /// Four inks, three of them converted to luma and colour differences.
    Ycck,
    /// Colours that cannot be converted to RGB.
    Unknown,
}

impl JpegInfo {
    /// Returns the usual name of the subsampling, such as "4:2:0", if it has one.
    pub fn subsampling(&self) -> Option<&'static str> {
        let all_one = |parts: &[(u32, u32)]| parts.iter().all(|&part| part == (1, 1));
        match (&self.color, self.sampling.as_slice()) {
            (JpegColor::Gray, _) => Some("4:0:0"),
            (_, [luma, rest @ ..]) if all_one(&rest[..rest.len().min(2)]) => match luma {
                (1, 1) => Some("4:4:4"),
                (2, 1) => Some("4:2:2"),
                (2, 2) => Some("4:2:0"),
                (1, 2) => Some("4:4:0"),
                (4, 1) => Some("4:1:1"),
                (4, 2) => Some("4:1:0"),
                (1, 4) => Some("4:4:1"),
                _ => None,
            },
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_not_there_is_an_error() {
        let limits = Limits { memory_bytes: u64::MAX, ..Limits::default() };
        let mut buffer = vec![1; 10];
        for bytes in [u64::MAX, i64::MAX as u64] {
            let refused = limits.resize(&mut buffer, bytes);
            let message = format!("{bytes} bytes are not there");
            assert_eq!(refused, Err(PixelError::NoMemory { message }), "the limit allows them");
        }
        for bytes in [10, 3, 2000] {
            assert_eq!(limits.resize(&mut buffer, bytes).unwrap().len(), bytes as usize);
        }
        let little = Limits { memory_bytes: 9, ..limits };
        assert_eq!(little.resize(&mut buffer, 10), Err(PixelError::TooMuchMemory { limit: 9 }));
    }

    #[test]
    fn limits_lie_within_others_when_each_does() {
        let most = Limits::default();
        assert!(most.is_within(&most) && Limits { pixels: 0, scans: 0, memory_bytes: 0 }.is_within(&most));
        assert!(!Limits { pixels: most.pixels + 1, ..most }.is_within(&most));
        assert!(!Limits { scans: most.scans + 1, ..most }.is_within(&most));
        assert!(!Limits { memory_bytes: most.memory_bytes + 1, ..most }.is_within(&most));
    }
}
