//! The methods of [`StoredForm`] that differ by form. Each selects the form by a `match`, so that reading a small
//! sample costs no dynamic call.

use super::form::{DetailCheck, Form, Holds, PackOption, Unusable};
use super::{StoredForm, with_forms};
use crate::pack::IndexRecord;
use crate::{Header, Reads};
use ddlp_pixels::{ImageInfo, PixelError, SamplePlan, Source};
use std::ops::Range;

macro_rules! dispatch {
    ($($(#[$doc:meta])* $code:literal $name:ident $form:ident,)+) => {
        /// What forms have learnt of a sample from the bytes that were read first. A worker reuses the memory.
        #[derive(Debug, Default)]
        pub(crate) struct FormNotes {
            $($name: <super::$name::$form as Form>::Notes,)+
        }

        impl StoredForm {
            /// Returns the option of `ddlp pack` that asks for this form.
            pub const fn option(self) -> Option<PackOption> {
                match self { $(Self::$form => super::$name::$form::OPTION),+ }
            }

            /// Returns what messages call the detail of a sample; `None` if the form has no detail.
            pub const fn detail(self) -> Option<&'static str> {
                match self { $(Self::$form => super::$name::$form::DETAIL),+ }
            }

            /// Returns words for files that `ddlp pack` rewrote to store them in this form.
            pub const fn rewritten(self) -> &'static str {
                match self { $(Self::$form => super::$name::$form::REWRITTEN),+ }
            }

            pub(crate) const fn holds(self) -> Holds {
                match self { $(Self::$form => super::$name::$form::HOLDS),+ }
            }

            /// Returns whether a sample's bytes are a whole file.
            pub(crate) const fn is_file(self) -> bool {
                matches!(self.holds(), Holds::Files(_))
            }

            /// Returns whether a sample's bytes are pixels, decoded or in planes.
            pub(crate) const fn is_pixels(self) -> bool {
                matches!(self.holds(), Holds::Planes | Holds::Pixels(_))
            }

            /// Returns whether a sample is a file that is stored in pieces.
            pub const fn is_in_pieces(self) -> bool {
                matches!(self.holds(), Holds::Pieces(_))
            }

            /// Returns whether the form holds the pixels of decoded images.
            pub const fn is_decoded(self) -> bool {
                matches!(self.holds(), Holds::Pixels(_))
            }

            pub(crate) fn examples(self, take: &mut dyn FnMut(Source<'_>)) {
                match self { $(Self::$form => super::$name::$form::examples(take)),+ }
            }

            pub(crate) const fn alignment(self) -> u64 {
                match self { $(Self::$form => super::$name::$form::ALIGNMENT),+ }
            }

            pub(crate) fn detail_of(self, bytes: &Range<u64>, detail_length: u32) -> Range<u64> {
                match self { $(Self::$form => super::$name::$form::detail_of(bytes, detail_length)),+ }
            }

            pub(crate) fn check(self, record: &IndexRecord) -> Result<(), String> {
                match self { $(Self::$form => super::$name::$form::check(record)),+ }
            }

            pub(crate) fn first_bytes(self, header: &Header) -> Range<u64> {
                match self { $(Self::$form => super::$name::$form::first_bytes(header)),+ }
            }

            pub(crate) fn add_reads(
                self,
                header: &Header,
                plan: &mut SamplePlan<'_>,
                reads: &mut Reads,
            ) -> Result<(), PixelError> {
                match self { $(Self::$form => super::$name::$form::add_reads(header, plan, reads)),+ }
            }

            pub(crate) fn next(
                self,
                header: &Header,
                read: &[u8],
                plan: &mut SamplePlan<'_>,
                notes: &mut FormNotes,
                more: &mut Reads,
            ) -> Result<(), Unusable> {
                match self { $(Self::$form => super::$name::$form::next(header, read, plan, &mut notes.$name, more)),+ }
            }

            pub(crate) fn source<'a>(
                self,
                header: &Header,
                read: &'a [u8],
                plan: &mut SamplePlan<'_>,
                notes: &'a FormNotes,
            ) -> Result<Source<'a>, PixelError> {
                match self { $(Self::$form => super::$name::$form::source(header, read, plan, &notes.$name)),+ }
            }

            pub(crate) fn misfit(self, info: &ImageInfo) -> Option<&'static str> {
                match self { $(Self::$form => super::$name::$form::misfit(info)),+ }
            }

            pub(crate) fn detail_check(self, record: &IndexRecord) -> Option<Box<dyn DetailCheck>> {
                match self { $(Self::$form => super::$name::$form::detail_check(record)),+ }
            }
        }
    };
}

with_forms!(dispatch);
