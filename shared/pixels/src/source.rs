//! The input of a sample: its bytes, in one of the forms that a dataset can hold.

use crate::form_image::FormImage;
use crate::orientation;
use crate::partial::PartialJpeg;

/// Bytes of a sample, in one of the forms that a dataset can hold.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// A complete file of an image format, recognised by its contents.
    Encoded(&'a [u8]),
    /// A JPEG with checkpoints, at which decoding can start, so that a decoder can skip what a rectangle does not
    /// cover. If the file is intact and the checkpoints belong to it, the pixels are the same as without them.
    Indexed {
        /// The complete file.
        file: &'a [u8],
        /// The checkpoints, as in [`IndexedJpeg::checkpoints`](crate::IndexedJpeg::checkpoints). If they are damaged,
        /// the file is decoded without them.
        checkpoints: &'a [u8],
    },
    /// A JPEG of the first pieces of scan groups ([`Pieces`](crate::Pieces)), whose markers were not read.
    Pieces {
        /// The pieces, joined to a file.
        file: &'a [u8],
        /// EXIF orientation of the image, 1 to 8; 1 is upright.
        orientation: u8,
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
    /// An image of a form that implements [`FormDecoder`](crate::FormDecoder).
    Image(FormImage<'a>),
    /// The rows of MCUs that a crop needs of a JPEG. The pixels are those of the whole file.
    Rows(PartialJpeg<'a>),
}

impl Source<'_> {
    /// Returns the EXIF orientation of the stored pixels, 1 to 8; 1 is upright.
    pub(crate) fn orientation(&self) -> u8 {
        match self {
            Self::Encoded(file) | Self::Indexed { file, .. } => orientation::of(file),
            Self::Pieces { orientation, .. } => *orientation,
            Self::Planar { .. } => 1,
            Self::Image(image) => image.orientation,
            Self::Rows(jpeg) => jpeg.index.orientation(),
        }
    }
}
