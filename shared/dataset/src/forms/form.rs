//! The trait of a form, and what its methods return.

use crate::pack::IndexRecord;
use crate::pack::storing::{NotStored, PackedSample, StorePixels, Workspace};
use crate::{Decoder, Header, Reads};
use ddlp_pixels::{ImageInfo, PixelError, SamplePlan, Source};
use std::fmt;
use std::ops::Range;

/// One way to store a sample.
pub(super) trait Form {
    /// What the form learns of a sample from the bytes that are read first. A worker reuses the memory.
    type Notes: fmt::Debug + Default + Send + Sync;

    /// Option of `ddlp pack` that asks for this form.
    const OPTION: Option<PackOption> = None;
    /// What messages call the detail; `None` if the form has no detail.
    const DETAIL: Option<&'static str> = None;
    /// Words for files that `pack` rewrote to store them in this form.
    const REWRITTEN: &'static str = "rewritten";
    /// What the form holds, and how `pack` stores that.
    const HOLDS: Holds;
    /// Alignment of each sample's offset, in bytes.
    const ALIGNMENT: u64 = 1;

    /// Passes built-in samples in this form to `take`: two machines that make the same pixels of them agree on the
    /// form's decoder. Passes none if the file's format selects the decoder.
    fn examples(take: &mut dyn FnMut(Source<'_>));

    /// Returns the extent of a detail of this length, which lies next to the sample's bytes: after them, unless the
    /// form overrides this.
    fn detail_of(bytes: &Range<u64>, detail_length: u32) -> Range<u64> {
        bytes.end..bytes.end.saturating_add(detail_length.into())
    }

    /// Checks what a record says about size, detail and verdict, and returns the problem. The extents of the sample and
    /// of its name have been checked before.
    fn check(record: &IndexRecord) -> Result<(), String>;

    /// Returns the bytes that every plan needs: the sample's and the detail after them, unless the form overrides
    /// this.
    fn first_bytes(header: &Header) -> Range<u64> {
        header.bytes.start..header.detail.end
    }

    /// Adds the first extents that a plan needs to `reads`: [`first_bytes`](Self::first_bytes), and whatever follows
    /// from the header alone.
    ///
    /// # Errors
    ///
    /// If the pipeline cannot take an image of this size.
    fn add_reads(header: &Header, _plan: &mut SamplePlan<'_>, reads: &mut Reads) -> Result<(), PixelError> {
        reads.add(Self::first_bytes(header));
        Ok(())
    }

    /// Checks the bytes that have been read, and adds the extents to read next to `more`. If it adds none, the sample
    /// can be rendered. `read` begins with the bytes of the first [`reads`](Self::reads). May leave notes for
    /// [`source`](Self::source), but not of a whole sample, if samples are not files. A form without a detail only
    /// compares the checksum of the bytes.
    fn next(
        header: &Header,
        read: &[u8],
        _plan: &mut SamplePlan<'_>,
        _notes: &mut Self::Notes,
        _more: &mut Reads,
    ) -> Result<(), Unusable> {
        check_bytes(header, read)
    }

    /// Opens a sample from its bytes, to which [`next`](Self::next) has added no extents.
    ///
    /// # Errors
    ///
    /// If the pipeline cannot take an image of this size.
    fn source<'a>(
        header: &Header,
        read: &'a [u8],
        plan: &mut SamplePlan<'_>,
        notes: &'a Self::Notes,
    ) -> Result<Source<'a>, PixelError>;

    /// Returns why this form cannot hold the pixels of this file, which `pack` then keeps; `None` if it can.
    fn misfit(_info: &ImageInfo) -> Option<&'static str> {
        None
    }

    /// Returns a check of the detail against the sample's bytes, if the detail says something about them that can be
    /// checked without decoding.
    fn detail_check(_record: &IndexRecord) -> Option<Box<dyn DetailCheck>> {
        None
    }
}

/// What a form holds. The functions append a sample to the bytes of the chunk.
#[derive(Clone, Copy)]
pub(crate) enum Holds {
    /// Whole files, which give the same pixels without the detail. The function gets intact or repaired files.
    Files(fn(&[u8], &mut Workspace<'_>) -> Result<PackedSample, NotStored>),
    /// JPEGs in pieces, which lie apart ([`Piece`](crate::Piece)). The record has the orientation.
    Pieces(fn(&[u8], &mut Workspace<'_>) -> Result<PackedSample, NotStored>),
    /// Three planes, which `pack` stores as the source has them.
    Planes,
    /// Pixels that `pack` decodes. The record then has the orientation, the pack may be read past the page cache, and
    /// the size of the sample is known only when its file has been read.
    Pixels(StorePixels),
}

/// Reason why the bytes that were read of a sample give no pixels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// The checksum of the sample's bytes is wrong.
    Bytes {
        /// The CRC32C that the source has.
        stored: u32,
        /// The CRC32C of the bytes.
        computed: u32,
    },
    /// The checksum of the sample's detail, or of one of its pieces, is wrong.
    Detail {
        /// The extent of the detail or the piece.
        extent: Range<u64>,
        /// The CRC32C that the source has.
        stored: u32,
        /// The CRC32C of the bytes.
        computed: u32,
    },
    /// These bytes are not enough, or damaged: the whole file is needed.
    NeedsFile,
    /// The bytes arrived damaged over a network, and in another way in each read.
    Unsteady(String),
    /// The image cannot be decoded, or the pipeline cannot take it.
    Pixels(PixelError),
    /// The image needs a decoder that may not be used.
    OtherDecoder(Decoder),
}

impl Unusable {
    /// Returns whether the bytes may not be those that are stored.
    pub(crate) fn is_damage(&self) -> bool {
        match self {
            Self::Bytes { .. } | Self::Detail { .. } | Self::NeedsFile | Self::Unsteady(_) => true,
            Self::Pixels(error) => matches!(error, PixelError::Checksum { .. }),
            Self::OtherDecoder(_) => false,
        }
    }
}

impl From<PixelError> for Unusable {
    fn from(error: PixelError) -> Self {
        Self::Pixels(error)
    }
}

/// Comparison of a detail with the bytes of its sample.
pub(crate) trait DetailCheck {
    /// Takes the next piece of the sample's bytes.
    fn take(&mut self, piece: &[u8]);

    /// Returns what is wrong with the detail once all bytes have been taken.
    fn finish(self: Box<Self>) -> Result<(), String>;
}

/// Option of `ddlp pack` that asks for a form, with the words that its help has for the form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackOption {
    /// `--jpeg`; the words follow “Store JPEGs”.
    Jpeg(&'static str),
    /// `--format`; the words follow “Store encoded images, or”.
    Format(&'static str),
}

/// Checks a sample's bytes, if the source has their checksum.
pub(crate) fn check_bytes(header: &Header, bytes: &[u8]) -> Result<(), Unusable> {
    let Some(stored) = header.crc32c else { return Ok(()) };
    let computed = crc32c::crc32c(bytes);
    if computed == stored { Ok(()) } else { Err(Unusable::Bytes { stored, computed }) }
}

/// Checks a sample's detail.
pub(super) fn check_detail(header: &Header, detail: &[u8]) -> Result<(), Unusable> {
    let (stored, computed) = (header.detail_crc32c, crc32c::crc32c(detail));
    if computed == stored { Ok(()) } else { Err(Unusable::Detail { extent: header.detail.clone(), stored, computed }) }
}
