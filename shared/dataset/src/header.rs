//! What is known of a sample before any of its bytes are read.

use crate::forms::StoredForm;
use ddlp_pixels::{FormDecoder, FormImage, Source};
use std::ops::Range;

/// A piece of a sample whose bytes lie apart: one scan group's bytes, or the markers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The piece's bytes, counted as the header counts them.
    pub extent: Range<u64>,
    /// CRC32C of these bytes.
    pub crc32c: u32,
}

/// What is known of a sample before any of its bytes are read. Ranges count bytes from the source's own origin: the
/// beginning of the sample's file, or of the file that holds many samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Form in which the sample is stored.
    pub form: StoredForm,
    /// Width and height of the image, 0 where unknown.
    pub size: (u32, u32),
    /// EXIF orientation of a sample that is decoded or in pieces, 1 to 8; in other forms 1, since their files contain
    /// the orientation.
    pub orientation: u8,
    /// Whether the source's image of a decoded sample was larger.
    pub was_shrunk: bool,
    /// The sample's bytes; of a sample in pieces, the first piece.
    pub bytes: Range<u64>,
    /// CRC32C of these bytes, if the source has one.
    pub crc32c: Option<u32>,
    /// What the form needs beside these bytes; empty if the form has no detail.
    pub detail: Range<u64>,
    /// CRC32C of the detail.
    pub detail_crc32c: u32,
}

impl Header {
    /// Returns the header of a sample whose place alone is known.
    fn of(form: StoredForm, size: (u32, u32), bytes: Range<u64>) -> Self {
        let detail = bytes.end..bytes.end;
        let (orientation, was_shrunk, crc32c, detail_crc32c) = (1, false, None, 0);
        Self { form, size, orientation, was_shrunk, bytes, crc32c, detail, detail_crc32c }
    }

    /// Returns the header of an encoded file without a checksum.
    pub fn file(bytes: Range<u64>) -> Self {
        Self::of(StoredForm::Kept, (0, 0), bytes)
    }

    /// Returns the header of three planes of 8-bit RGB without a checksum.
    pub fn planar(size: (u32, u32), bytes: Range<u64>) -> Self {
        Self::of(StoredForm::Planar, size, bytes)
    }

    /// Returns a sample whose form implements [`FormDecoder`], from what was read of it: the detail, and the sample's
    /// bytes from `offset` on.
    pub(crate) fn image<'a>(
        &self,
        decoder: &'a dyn FormDecoder,
        detail: &'a [u8],
        offset: u64,
        bytes: &'a [u8],
    ) -> Source<'a> {
        let &Self { form, size: (width, height), orientation, was_shrunk, .. } = self;
        let form = form as u8;
        Source::Image(FormImage { form, decoder, width, height, orientation, was_shrunk, detail, offset, bytes })
    }

    /// Returns the number of bytes of the detail.
    pub fn detail_bytes(&self) -> usize {
        (self.detail.end - self.detail.start) as usize
    }
}
