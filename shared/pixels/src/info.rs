//! What an image file is: its format, and its header.

use crate::error::PixelError;

/// Makes the type of all file formats from their variants, their names as people write them and in lower case, and the
/// extensions of their files' names. Abilities number formats by their order, so add new ones at the end.
macro_rules! formats {
    ($($(#[$documentation:meta])* $format:ident $title:literal $name:literal [$($extension:literal)|+],)+) => {
        /// A file format of images.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Format {
            $($(#[$documentation])* $format,)+
        }

        impl Format {
            /// All formats, in the order of their abilities' numbers.
            pub const ALL: &[Self] = &[$(Self::$format),+];

            /// Returns the format that the end of a file's name promises, in upper or lower case.
            pub fn of_name(name: &[u8]) -> Option<Self> {
                let extension = name.rsplit(|&byte| byte == b'.').next()?.to_ascii_lowercase();
                match str::from_utf8(&extension).ok()? {
                    $($($extension)|+ => Some(Self::$format),)+
                    _ => None,
                }
            }

            /// Returns the format's name as people write it.
            pub(crate) fn title(self) -> &'static str {
                match self { $(Self::$format => $title),+ }
            }

            /// Returns the format's name in lower case.
            pub fn name(self) -> &'static str {
                match self { $(Self::$format => $name),+ }
            }
        }
    };
}

formats! {
    /// JPEG in any coding of 8 bits per sample, except lossless.
    Jpeg "JPEG" "jpeg" ["jpg" | "jpeg"],
    /// PNG.
    Png "PNG" "png" ["png"],
    /// WebP, the first frame.
    WebP "WebP" "webp" ["webp"],
    /// BMP.
    Bmp "BMP" "bmp" ["bmp"],
    /// GIF, the first frame.
    Gif "GIF" "gif" ["gif"],
    /// PBM, PGM, PPM and PAM.
    Pnm "PNM" "pnm" ["pbm" | "pgm" | "ppm" | "pam" | "pnm"],
    /// TIFF, the first page.
    Tiff "TIFF" "tiff" ["tif" | "tiff"],
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
    /// Whether the file holds every pixel as it was, which JPEG and lossy WebP do not.
    pub is_lossless: bool,
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
    fn names_promise_a_format_by_their_end() {
        let formats = [&b"a/b.JPEG"[..], b"x.y.Png", b"c.d/e", b"f.pgm", b"tiff", b""].map(Format::of_name);
        let expected = [Some(Format::Jpeg), Some(Format::Png), None, Some(Format::Pnm), Some(Format::Tiff), None];
        assert_eq!(formats, expected);
    }
}
