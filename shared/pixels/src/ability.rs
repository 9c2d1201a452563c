//! Abilities: the parts of the way from bytes to pixels that a pipeline or a dataset may need, each with a digest.
//!
//! Two machines compare their digests of the abilities that a run needs, and no others. So an operation, a file format
//! or a stored form that one of them lacks, or for which it makes other pixels, matters only to runs that need it.

pub(crate) mod digests;

use crate::error::PixelError;
use crate::info::Format;
use crate::ops::Operation;
use crate::pipeline::Pipeline;
use crate::source::Source;
use std::fmt;
use std::sync::OnceLock;

/// Number of the first operation; the others follow in their order.
const OPERATIONS: u16 = 0x0100;
/// Number of the first file format; the others follow in their order.
const FORMATS: u16 = 0x0200;
/// Number of the form 0 of a pack; the others follow by their numbers.
const FORMS: u16 = 0x0300;

/// Number of an ability. It never changes its meaning. A number that this version does not know belongs to another
/// version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AbilityNumber(pub u16);

impl AbilityNumber {
    /// Cropping, resizing and mirroring, which every pipeline needs.
    pub const RENDERING: Self = Self(0x0001);
    /// Finding an image's EXIF orientation and turning the image upright.
    pub const ORIENTATION: Self = Self(0x0002);

    /// Returns the number for the decoder of a pack's form, by the form's number in a record.
    pub const fn of_form(form: u8) -> Self {
        Self(FORMS + form as u16)
    }

    /// Returns whether this is the number of a file format's decoder, of this version or another one.
    pub const fn is_format(self) -> bool {
        FORMATS <= self.0 && self.0 < FORMS
    }

    /// Returns whether this is the number for the decoder of a pack's form, of this version or another one.
    pub const fn is_form(self) -> bool {
        Self::of_form(0).0 <= self.0 && self.0 <= Self::of_form(u8::MAX).0
    }
}

/// The ability in words, as it continues the sentence "the drive lacks …": `the operation Resize`, `PNG files`.
impl fmt::Display for AbilityNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operation = self.0.checked_sub(OPERATIONS).and_then(|at| Operation::NAMES.get(usize::from(at)));
        match (*self, operation, Decoder::of_ability(*self)) {
            (Self::RENDERING, ..) => f.write_str("cropping and resizing"),
            (Self::ORIENTATION, ..) => f.write_str("turning images upright"),
            (_, Some(name), _) => write!(f, "the operation {name}"),
            (_, _, Some(decoder)) => write!(f, "{decoder}"),
            _ => write!(f, "ability {:#06x} of another version", self.0),
        }
    }
}

/// One ability of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ability {
    /// What the machine can do.
    pub number: AbilityNumber,
    /// Digest of its results for built-in images. Machines with the same digest make the same pixels.
    pub digest: [u8; 16],
}

/// Returns this machine's abilities, in the order of their numbers. The first call computes the digests.
pub fn abilities() -> &'static [Ability] {
    static ABILITIES: OnceLock<Vec<Ability>> = OnceLock::new();
    ABILITIES.get_or_init(digests::compute)
}

/// Returns this machine's ability with this number.
pub fn ability(number: AbilityNumber) -> Option<Ability> {
    abilities().iter().copied().find(|ability| ability.number == number)
}

impl Operation {
    /// Returns the number of the operation's ability.
    pub fn ability(&self) -> AbilityNumber {
        AbilityNumber(OPERATIONS + self.position())
    }
}

impl Pipeline {
    /// Returns the abilities that the pipeline needs of every machine, in the order of their numbers, each once. Those
    /// of its samples' decoders are not among them.
    pub fn needs(&self) -> Vec<AbilityNumber> {
        let orientation = self.exif_orientation.then_some(AbilityNumber::ORIENTATION);
        let mut needs: Vec<AbilityNumber> = self.operations.iter().map(Operation::ability).collect();
        needs.extend([AbilityNumber::RENDERING].into_iter().chain(orientation));
        needs.sort();
        needs.dedup();
        needs
    }
}

/// Most file formats that a set of decoders can hold, and most forms.
const KINDS_MAX: u32 = 16;

/// Makes the type of all decoders from the formats of files and this list of the forms that are not files: the number
/// of each in a pack's records, its name, and its variant, which [`Source`] has too.
macro_rules! decoders {
    ($($(#[$documentation:meta])* $code:literal $name:literal $form:ident,)+) => {
        /// Way in which the bytes of a sample become an image.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Decoder {
            /// Of complete files of this format.
            File(Format),
            $($(#[$documentation])* $form,)+
        }

        impl Decoder {
            const FORMS: &[Self] = &[$(Self::$form),+];

            /// Returns the decoder of a sample.
            ///
            /// # Errors
            ///
            /// If the sample is a file whose format this version does not know.
            #[inline]
            pub fn of(source: &Source<'_>) -> Result<Self, PixelError> {
                Ok(match source {
                    Source::Encoded(file) => Self::File(Format::of(file)?),
                    $(Source::$form { .. } => Self::$form,)+
                })
            }

            /// Returns the number of the decoder's ability.
            pub const fn ability(self) -> AbilityNumber {
                match self {
                    Self::File(format) => AbilityNumber(FORMATS + format as u16),
                    $(Self::$form => AbilityNumber::of_form($code),)+
                }
            }

            /// Returns the decoder's place in a set: formats come first, then forms, each in the order of its numbers.
            const fn place(self) -> u32 {
                match self {
                    Self::File(format) => format as u32,
                    $(Self::$form => KINDS_MAX + $code,)+
                }
            }
        }

        /// The samples that the decoder takes, in words: `PNG files`, `samples of the form raw`.
        impl fmt::Display for Decoder {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    Self::File(format) => write!(f, "{} files", format.title()),
                    $(Self::$form => f.write_str(concat!("samples of the form ", $name)),)+
                }
            }
        }

        const _: () = assert!(Format::ALL.len() <= KINDS_MAX as usize $(&& $code < KINDS_MAX)+);
    };
}

decoders! {
    /// Of [`Source::Planar`].
    1 "planar" Planar,
    /// Of [`Source::Indexed`].
    2 "indexed" Indexed,
    /// Of [`Source::Raw`].
    3 "raw" Raw,
    /// Of [`Source::Rows`].
    4 "rows" Rows,
}

impl Decoder {
    /// Returns all decoders, in the order of their abilities' numbers.
    pub fn all() -> impl Iterator<Item = Self> {
        Format::ALL.iter().map(|&format| Self::File(format)).chain(Self::FORMS.iter().copied())
    }

    /// Returns the decoder whose ability has this number, if this version knows it.
    pub fn of_ability(number: AbilityNumber) -> Option<Self> {
        Self::all().find(|decoder| decoder.ability() == number)
    }
}

/// A set of decoders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decoders(u32);

impl Decoders {
    /// No decoder.
    pub const NONE: Self = Self(0);
    /// Every decoder of this version.
    pub const ALL: Self = Self::FILES.with(Decoder::FORMS);
    /// Decoders of files in every format.
    pub const FILES: Self = Self((1 << Format::ALL.len()) - 1);

    /// Returns the set with further decoders.
    const fn with(mut self, mut decoders: &[Decoder]) -> Self {
        while let [decoder, rest @ ..] = decoders {
            self.0 |= 1 << decoder.place();
            decoders = rest;
        }
        self
    }

    /// Adds a decoder.
    pub fn insert(&mut self, decoder: Decoder) {
        *self = self.with(&[decoder]);
    }

    /// Returns whether the decoder is in the set.
    #[inline]
    pub fn contains(self, decoder: Decoder) -> bool {
        self.0 & 1 << decoder.place() != 0
    }

    /// Returns whether all decoders of `others` are in the set.
    pub fn contains_all(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Returns the decoders, in the order of their abilities' numbers.
    pub fn iter(self) -> impl Iterator<Item = Decoder> {
        Decoder::all().filter(move |&decoder| self.contains(decoder))
    }
}

impl FromIterator<Decoder> for Decoders {
    fn from_iter<T: IntoIterator<Item = Decoder>>(decoders: T) -> Self {
        let mut set = Self::NONE;
        decoders.into_iter().for_each(|decoder| set.insert(decoder));
        set
    }
}

#[cfg(test)]
mod tests;
