//! What comes in: a sample's bytes, what they are, and how much of them is put up with.

use serde::{Deserialize, Serialize};

use crate::error::PixelError;
use crate::jpeg::exif;
use crate::raw::RawImage;

/// A sample's bytes.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Source<'a> {
    /// A complete file of a known image format, told by its contents.
    Encoded(&'a [u8]),
    /// A JPEG with places from which its decoding can go on, so that what a rectangle does not cover need not be read. Its pixels
    /// are those of the file alone, if the file is intact and the checkpoints are its own.
    Indexed {
        /// The complete file.
        file: &'a [u8],
        /// Those places as [`Indexed::checkpoints`](crate::Indexed::checkpoints) has them. If they are damaged the file alone is decoded.
        checkpoints: &'a [u8],
    },
    /// 8-bit RGB in three planes, each `height` rows of `width`.
    Planar {
        /// Columns.
        width: u32,
        /// Rows.
        height: u32,
        /// 3 × height × width.
        bytes: &'a [u8],
    },
    /// 8-bit RGB that lies in a file, of which a rectangle's rows are read and no others.
    Raw(RawImage<'a>),
}

impl Source<'_> {
    /// EXIF orientation of what is stored, 1 to 8; 1 is upright.
    pub(crate) fn orientation(&self) -> u8 {
        match self {
            Self::Encoded(file) | Self::Indexed { file, .. } => exif::orientation(file),
            Self::Planar { .. } => 1,
            Self::Raw(image) => image.orientation,
        }
    }
}

/// What decoding one sample may cost. Past a limit it ends with a typed error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Width × height of the stored image.
    pub pixels: u64,
    /// Scans of a JPEG: each may cost a pass over the image for a few bytes of the file.
    pub scans: u32,
    /// Bytes for the decoder's own image-sized buffers, and as many for all images between the first stage and the last
    /// together: so it bounds the work of the stages, too.
    pub memory_bytes: u64,
}

impl Default for Limits {
    /// 178 956 970 pixels (where Pillow refuses, too), 100 scans, 1 GiB.
    fn default() -> Self {
        Self { pixels: 178_956_970, scans: 100, memory_bytes: 1 << 30 }
    }
}

impl Limits {
    /// Whether none of them is above that of `most`.
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
        if bytes > self.memory_bytes { Err(self.too_much_memory()) } else { Ok(()) }
    }

    /// Empties a buffer and makes room for `bytes`. Memory that is not there is an error like memory that is not allowed.
    pub(crate) fn make_room(&self, buffer: &mut Vec<u8>, bytes: u64) -> Result<(), PixelError> {
        self.check_memory(bytes)?;
        self.reserve(buffer, bytes as usize)
    }

    /// Empties a buffer and makes room for so many values, which are allowed. Memory that is not there is an error.
    pub(crate) fn reserve<T>(&self, buffer: &mut Vec<T>, values: usize) -> Result<(), PixelError> {
        buffer.clear();
        self.reserve_more(buffer, values)
    }

    /// Makes room for so many values behind those of a buffer; likewise.
    pub(crate) fn reserve_more<T>(&self, buffer: &mut Vec<T>, values: usize) -> Result<(), PixelError> {
        buffer.try_reserve_exact(values).map_err(|_| self.too_much_memory())
    }

    /// Makes a buffer `bytes` long, whatever is in it: see [`make_room`](Self::make_room).
    pub(crate) fn resize<'b>(&self, buffer: &'b mut Vec<u8>, bytes: u64) -> Result<&'b mut [u8], PixelError> {
        self.check_memory(bytes)?;
        self.resize_allowed(buffer, bytes as usize)
    }

    /// Likewise where the bytes are allowed: see [`reserve`](Self::reserve).
    pub(crate) fn resize_allowed<'b>(&self, buffer: &'b mut Vec<u8>, bytes: usize) -> Result<&'b mut [u8], PixelError> {
        if buffer.capacity() < bytes {
            self.reserve(buffer, bytes)?;
        }
        // There is room now, so that this does not allocate.
        buffer.resize(bytes, 0);
        Ok(buffer)
    }

    fn too_much_memory(&self) -> PixelError {
        PixelError::TooMuchMemory { limit: self.memory_bytes }
    }
}

/// A file format of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// JPEG, any coding of 8 bits per sample but lossless.
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
}

impl Format {
    /// Tells a format by the first bytes of a file.
    pub fn of(bytes: &[u8]) -> Result<Self, PixelError> {
        Ok(match bytes {
            [] => return Err(PixelError::Empty),
            [0xFF, 0xD8, 0xFF, ..] => Self::Jpeg,
            [0x89, b'P', b'N', b'G', 0x0D, 0x0A, 0x1A, 0x0A, ..] => Self::Png,
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Self::WebP,
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Self::Gif,
            [b'B', b'M', ..] => Self::Bmp,
            [b'P', b'1'..=b'7', ..] => Self::Pnm,
            _ => return Err(PixelError::UnknownFormat { first: bytes[..bytes.len().min(8)].to_vec() }),
        })
    }

    /// The format's name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Jpeg => "jpeg",
            Self::Png => "png",
            Self::WebP => "webp",
            Self::Bmp => "bmp",
            Self::Gif => "gif",
            Self::Pnm => "pnm",
        }
    }
}

/// What a file says about its image.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImageInfo {
    /// The file's format.
    pub format: Format,
    /// Columns as stored.
    pub width: u32,
    /// Rows as stored.
    pub height: u32,
    /// Components of a pixel as stored: 1 gray, 2 gray and alpha, 3 colour, 4 CMYK or colour and alpha.
    pub components: u32,
    /// Bits per component as stored.
    pub bits: u32,
    /// EXIF orientation of a JPEG, 1 to 8; 1 is upright.
    pub orientation: u8,
    /// What only a JPEG has.
    pub jpeg: Option<JpegInfo>,
}

/// What only a JPEG has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JpegInfo {
    /// Colours as stored.
    pub color: JpegColor,
    /// Horizontal and vertical sampling factor of each component.
    pub sampling: Vec<(u32, u32)>,
    /// Whether it is progressive.
    pub progressive: bool,
    /// Whether it is arithmetically coded.
    pub arithmetic: bool,
    /// MCUs between restart markers, 0 without them.
    pub restart_interval: u32,
    /// Whether its components or coefficients are spread over several scans.
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
    /// Red, green, blue as they are.
    Rgb,
    /// Four inks.
    Cmyk,
    /// Four inks, the first three as luma and colour differences.
    Ycck,
    /// None that a decoder could turn into RGB.
    Unknown,
}

impl JpegInfo {
    /// The usual name of the subsampling, such as "4:2:0", where there is one.
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
            assert_eq!(limits.resize(&mut buffer, bytes), Err(PixelError::TooMuchMemory { limit: u64::MAX }));
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
