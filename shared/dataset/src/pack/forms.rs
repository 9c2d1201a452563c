//! The forms in which a pack stores samples: one file for each, behind the trait [`Form`].
//!
//! `forms!` lists them once, with the number that a record has for the form, and generates [`StoredForm`]. Each method
//! of `StoredForm` selects the form by a `match`, so that reading a small sample costs no dynamic call.

mod indexed;
mod kept;
mod planar;
mod raw;
mod rows;

use super::record::IndexRecord;
use super::report::WhyKept;
use super::storing::{StoredSample, Workspace};
use crate::{Header, Reads};
use ddlp_pixels::{Decoder, PixelError, RowIndex, SamplePlan, Source};
use indexed::Indexed;
use kept::Kept;
use planar::Planar;
use raw::Raw;
use rows::Rows;
use std::ops::Range;

#[cfg(test)]
pub(super) use raw::GROUP_ROWS;

/// One way to store a sample.
trait Form {
    /// Option of `ddlp pack` that asks for this form.
    const OPTION: Option<PackOption> = None;
    /// What messages call the detail; `None` if the form has no detail.
    const DETAIL: Option<&'static str> = None;
    /// Words for files that `pack` rewrote to store them in this form.
    const REWRITTEN: &'static str = "rewritten";
    /// Whether a sample's bytes are a whole file, which gives the same pixels without the detail.
    const IS_FILE: bool = false;
    /// Whether `pack` decodes files and stores their pixels. The record then has the orientation, the pack may be read
    /// past the page cache, and the size of the sample is known only when its file has been read.
    const IS_DECODED: bool = false;
    /// Decoder of the form's samples; `None` if each file's format tells.
    const DECODER: Option<Decoder>;
    /// Number of bytes of which the offset of each sample is a multiple.
    const ALIGNMENT: u64 = 1;

    /// Returns the first byte of a sample's detail, which lies next to the sample's bytes: behind them, unless the form
    /// overrides this.
    fn detail_offset(record: &IndexRecord) -> u64 {
        record.offset.saturating_add(record.length.into())
    }

    /// Checks what a record says about size, detail and verdict, and returns the problem. The extents of the sample and
    /// of its name have been checked before.
    fn check(record: &IndexRecord) -> Result<(), String>;

    /// Returns the bytes that every plan needs.
    fn opening(header: &Header) -> Range<u64>;

    /// Names the first bytes that a plan needs: [`opening`](Self::opening), and whatever follows from the header alone.
    ///
    /// # Errors
    ///
    /// If the pipeline cannot take an image of this size.
    fn reads(header: &Header, _plan: &mut SamplePlan<'_>) -> Result<Reads, PixelError> {
        Ok(Reads::one(Self::opening(header)))
    }

    /// Checks the bytes that have been read, and says what comes next. `read` begins with the bytes of the first
    /// [`reads`](Self::reads). May leave notes for [`source`](Self::source). If samples are not files, a whole
    /// sample must need one round of reads and no notes.
    fn next(header: &Header, read: &[u8], plan: &mut SamplePlan<'_>, notes: &mut FormNotes) -> Result<Next, Unusable>;

    /// Opens a sample from its bytes, after [`next`](Self::next) has returned [`Next::Render`] for them.
    ///
    /// # Errors
    ///
    /// If the pipeline cannot take an image of this size.
    fn source<'a>(
        header: &Header,
        read: &'a [u8],
        plan: &mut SamplePlan<'_>,
        notes: &'a FormNotes,
    ) -> Result<Source<'a>, PixelError>;

    /// Appends a sample to the bytes of its run. `pack` passes files, which are intact, to the form that its options
    /// ask for, and planes and pixels to their own form.
    fn store(source: Source<'_>, workspace: &mut Workspace<'_>) -> Result<StoredSample, NotStored>;

    /// Returns a check of the detail against the sample's bytes, if the detail says something about them that can be
    /// checked without decoding.
    fn detail_check(_record: &IndexRecord) -> Option<Box<dyn DetailCheck>> {
        None
    }
}

/// What to do after bytes have been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Render the sample.
    Render,
    /// Read these bytes too.
    Read(Reads),
    /// Read the whole file instead, since a part of it is not enough.
    ReadFile,
}

/// Reason why the bytes that were read give no pixels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// The bytes are damaged.
    Damage(Damage),
    /// The pipeline cannot take the image.
    Pixels(PixelError),
}

impl From<Damage> for Unusable {
    fn from(damage: Damage) -> Self {
        Self::Damage(damage)
    }
}

impl From<PixelError> for Unusable {
    fn from(error: PixelError) -> Self {
        Self::Pixels(error)
    }
}

/// What forms have learnt of a sample from the bytes that were read first. A worker reuses the memory.
#[derive(Debug)]
pub(crate) struct FormNotes {
    /// The row index of a JPEG.
    row_index: Option<RowIndex>,
}

impl FormNotes {
    /// No notes.
    pub(crate) const NONE: Self = Self { row_index: None };
}

impl Default for FormNotes {
    fn default() -> Self {
        Self::NONE
    }
}

/// Damage in the bytes that were read of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Damage {
    /// The checksum of the sample's bytes is wrong.
    Bytes {
        /// The CRC32C that the source has.
        stored: u32,
        /// The CRC32C of the bytes.
        computed: u32,
    },
    /// The checksum of the sample's detail is wrong.
    Detail {
        /// The CRC32C of the detail.
        computed: u32,
    },
}

/// Reason why a sample is not stored in a form.
pub(super) enum NotStored {
    /// The form cannot hold this file, which is kept.
    Kept(WhyKept),
    /// Memory is refused, or a sample of a pack is damaged.
    Failed(PixelError),
}

impl From<PixelError> for NotStored {
    fn from(error: PixelError) -> Self {
        Self::Failed(error)
    }
}

/// Comparison of a detail with the bytes of its sample.
pub(super) trait DetailCheck {
    /// Takes the next piece of the sample's bytes.
    fn take(&mut self, piece: &[u8]);

    /// Returns what is wrong with the detail once all bytes have been taken.
    fn finish(self: Box<Self>) -> Result<(), String>;
}

/// Option of `ddlp pack` that asks for a form, with the words that its help has for the form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackOption {
    /// `--jpeg`; the words follow «Store JPEGs».
    Jpeg(&'static str),
    /// `--format`; the words follow «Store encoded images, or».
    Format(&'static str),
}

/// Checks a sample's bytes, if the source has their checksum.
pub(crate) fn check_bytes(header: &Header, bytes: &[u8]) -> Result<(), Damage> {
    let Some(stored) = header.crc32c else { return Ok(()) };
    let computed = crc32c::crc32c(bytes);
    if computed == stored { Ok(()) } else { Err(Damage::Bytes { stored, computed }) }
}

/// Checks a sample's detail.
fn check_detail(header: &Header, detail: &[u8]) -> Result<(), Damage> {
    let computed = crc32c::crc32c(detail);
    if computed == header.detail_crc32c { Ok(()) } else { Err(Damage::Detail { computed }) }
}

/// Lists the forms, in the order in which people are told about them: the number of each in a record, its name, and the
/// type that implements it. A number never changes its meaning.
macro_rules! forms {
    ($($(#[$doc:meta])* $code:literal $name:literal $form:ident,)+) => {
        /// Form in which a sample is stored. Forms are ordered by their numbers in a record.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum StoredForm {
            $($(#[$doc])* $form = $code,)+
        }

        impl StoredForm {
            /// All forms, in the order in which people are told about them.
            pub const ALL: &[Self] = &[$(Self::$form),+];

            /// Returns the form with this number in a record.
            pub(super) fn of_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$form),)+
                    _ => None,
                }
            }

            /// Returns the form's name, as options and messages have it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$form => $name),+ }
            }

            /// Returns the option of `ddlp pack` that asks for this form.
            pub const fn option(self) -> Option<PackOption> {
                match self { $(Self::$form => $form::OPTION),+ }
            }

            /// Returns what messages call the detail of a sample; `None` if the form has no detail.
            pub const fn detail(self) -> Option<&'static str> {
                match self { $(Self::$form => $form::DETAIL),+ }
            }

            /// Returns words for files that `ddlp pack` rewrote to store them in this form.
            pub const fn rewritten(self) -> &'static str {
                match self { $(Self::$form => $form::REWRITTEN),+ }
            }

            pub(super) const fn decoder(self) -> Option<Decoder> {
                match self { $(Self::$form => $form::DECODER),+ }
            }

            pub(crate) const fn is_file(self) -> bool {
                match self { $(Self::$form => $form::IS_FILE),+ }
            }

            pub(crate) const fn is_decoded(self) -> bool {
                match self { $(Self::$form => $form::IS_DECODED),+ }
            }

            pub(super) const fn alignment(self) -> u64 {
                match self { $(Self::$form => $form::ALIGNMENT),+ }
            }

            pub(super) fn detail_offset(self, record: &IndexRecord) -> u64 {
                match self { $(Self::$form => $form::detail_offset(record)),+ }
            }

            pub(super) fn check(self, record: &IndexRecord) -> Result<(), String> {
                match self { $(Self::$form => $form::check(record)),+ }
            }

            pub(super) fn opening(self, header: &Header) -> Range<u64> {
                match self { $(Self::$form => $form::opening(header)),+ }
            }

            pub(crate) fn reads(self, header: &Header, plan: &mut SamplePlan<'_>) -> Result<Reads, PixelError> {
                match self { $(Self::$form => $form::reads(header, plan)),+ }
            }

            pub(crate) fn next(
                self,
                header: &Header,
                read: &[u8],
                plan: &mut SamplePlan<'_>,
                notes: &mut FormNotes,
            ) -> Result<Next, Unusable> {
                match self { $(Self::$form => $form::next(header, read, plan, notes)),+ }
            }

            pub(crate) fn source<'a>(
                self,
                header: &Header,
                read: &'a [u8],
                plan: &mut SamplePlan<'_>,
                notes: &'a FormNotes,
            ) -> Result<Source<'a>, PixelError> {
                match self { $(Self::$form => $form::source(header, read, plan, notes)),+ }
            }

            pub(super) fn store(
                self,
                source: Source<'_>,
                workspace: &mut Workspace<'_>,
            ) -> Result<StoredSample, NotStored> {
                match self { $(Self::$form => $form::store(source, workspace)),+ }
            }

            pub(super) fn detail_check(self, record: &IndexRecord) -> Option<Box<dyn DetailCheck>> {
                match self { $(Self::$form => $form::detail_check(record)),+ }
            }
        }
    };
}

forms! {
    /// The encoded file, the source's or a repaired one.
    0 "kept" Kept,
    /// A JPEG with the source's coefficients, and an index of its rows of MCUs, so that a crop reads only its rows.
    4 "rows" Rows,
    /// A JPEG with the source's coefficients, and checkpoints: places in it at which decoding can start.
    2 "indexed" Indexed,
    /// Rows of 8-bit RGB pixels, and a checksum for every 16 rows.
    3 "raw" Raw,
    /// 8-bit RGB in three planes.
    1 "planar" Planar,
}
