//! The forms in which a sample can be stored: one file for each, behind the trait [`Form`](form::Form). Only packs have
//! all of them.
//!
//! # To add a stored form
//!
//! 1. Write `shared/dataset/src/forms/NAME.rs`: a type with its `Form`. Constants say what the form is, what it holds
//!    (files or pixels) and how it stores that, and which option of `ddlp pack` asks for it. Methods check a record,
//!    make a `Source` of the sample's bytes, and pass on the examples from which the digest of the form's ability is
//!    made. A form whose crops need only a part of the bytes overrides `first_bytes`, `reads` (what to read: any number
//!    of extents) and `next` (checks the bytes, and asks for more); what `next` learns for `source` are the form's
//!    `Notes`. A form whose detail lies elsewhere than behind the sample's bytes overrides `detail_of`; one whose
//!    detail can be compared with the bytes overrides `detail_check`. A form of pixels that leaves some files as they
//!    are overrides `misfit`.
//! 2. A form with its own coding also implements `FormDecoder`, which decodes a rectangle of an image, in this file.
//!    `Header::image` makes the `Source`. Forms of JPEGs make one of the other kinds of `Source`.
//! 3. In `forms.rs`, add the module, and a line to the list with a new number. Records and abilities hold the numbers.
//! 4. Add the form to `pack/tests/forms.rs`, its digest to `decoder/tests.rs`, and the form to
//!    `tests/tests/suite/digests.rs` and `docs/pack.md`.
//!
//! No other product file changes: `ddlp pack` with its help and summary, `ddlp inspect`, `ddlp verify`, the comparison
//! of abilities and packing a pack again go through the list: the form `l3` came as `forms/l3.rs` and three lines in
//! `forms.rs`. A form whose samples are not files must open a whole sample without notes, since `Dataset::sample` has
//! no place to keep them. If the sample's bytes are a whole file, damage in its detail, or in the part that a crop
//! reads, costs no pixels that the whole file has: the file is then read and decoded whole.

mod dispatch;
mod form;
mod indexed;
mod kept;
mod l3;
mod pcr;
mod planar;
mod raw;
mod rows;

pub(crate) use dispatch::FormNotes;
pub use form::PackOption;
pub(crate) use form::{Holds, Unusable, check_bytes};
pub(crate) use pcr::check_pieces;
pub(crate) use planar::store_planes;
#[cfg(test)]
pub(crate) use raw::GROUPS;

/// Passes the list of forms to a macro, in the order of help and summaries. Each line has the form's number in records,
/// which never changes, its name and module, and its type.
macro_rules! with_forms {
    ($take:ident) => {
        $take! {
            /// The encoded file, the source's or a repaired one.
            0 kept Kept,
            /// A JPEG with the source's coefficients, and an index of its rows of MCUs, so that a crop reads only its
            /// rows.
            4 rows Rows,
            /// A JPEG with the source's coefficients, and checkpoints: places in it at which decoding can start.
            2 indexed Indexed,
            /// Rows of 8-bit RGB pixels, and a checksum for every 16 rows.
            3 raw Raw,
            /// The pixels of a lossless image in L3, of which a crop reads and decodes only its patches.
            5 l3 L3,
            /// The pieces of a progressive JPEG with the source's coefficients, one for each scan group, of which a run
            /// with a lower fidelity reads only the first ones.
            6 pcr Pcr,
            /// 8-bit RGB in three planes.
            1 planar Planar,
        }
    };
}
use with_forms;

macro_rules! name_forms {
    ($($(#[$doc:meta])* $code:literal $name:ident $form:ident,)+) => {
        /// Form in which a sample is stored. Forms are ordered by their numbers in a record.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum StoredForm {
            $($(#[$doc])* $form = $code,)+
        }

        impl StoredForm {
            /// All forms, in the order of help and summaries.
            pub const ALL: &[Self] = &[$(Self::$form),+];

            /// Returns the form with this number in a record.
            pub(crate) fn of_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$form),)+
                    _ => None,
                }
            }

            /// Returns the form's name, as options and messages have it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$form => stringify!($name)),+ }
            }
        }
    };
}

with_forms!(name_forms);
