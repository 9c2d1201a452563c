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
}

/// The ability in words, as it continues the sentence "the drive lacks …": `the operation Resize`, `PNG files`.
impl fmt::Display for AbilityNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operation = self.0.checked_sub(OPERATIONS).and_then(|at| Operation::NAMES.get(usize::from(at)));
        let decoder = Decoder::ALL.into_iter().find(|decoder| decoder.ability() == *self);
        match (*self, operation, decoder) {
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

/// Way in which the bytes of a sample become an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Decoder {
    /// Of complete files of this format.
    File(Format),
    /// Of [`Source::Planar`].
    Planar,
    /// Of [`Source::Indexed`].
    Indexed,
    /// Of [`Source::Raw`].
    Raw,
    /// Of [`Source::Rows`].
    Rows,
}

impl Decoder {
    /// All decoders, in the order of their abilities' numbers.
    pub const ALL: [Self; 11] = [
        Self::File(Format::Jpeg),
        Self::File(Format::Png),
        Self::File(Format::WebP),
        Self::File(Format::Bmp),
        Self::File(Format::Gif),
        Self::File(Format::Pnm),
        Self::File(Format::Tiff),
        Self::Planar,
        Self::Indexed,
        Self::Raw,
        Self::Rows,
    ];

    /// Returns the decoder of a sample.
    ///
    /// # Errors
    ///
    /// If the sample is a file whose format this version does not know.
    #[inline]
    pub fn of(source: &Source<'_>) -> Result<Self, PixelError> {
        Ok(match source {
            Source::Encoded(file) => Self::File(Format::of(file)?),
            Source::Planar { .. } => Self::Planar,
            Source::Indexed { .. } => Self::Indexed,
            Source::Raw(_) => Self::Raw,
            Source::Rows(_) => Self::Rows,
        })
    }

    /// Returns the number of the decoder's ability.
    pub const fn ability(self) -> AbilityNumber {
        match self {
            Self::File(format) => AbilityNumber(FORMATS + format as u16),
            Self::Planar => AbilityNumber::of_form(1),
            Self::Indexed => AbilityNumber::of_form(2),
            Self::Raw => AbilityNumber::of_form(3),
            Self::Rows => AbilityNumber::of_form(4),
        }
    }

    /// Returns the decoder's place in [`Self::ALL`].
    const fn place(self) -> u32 {
        match self {
            Self::File(format) => format as u32,
            Self::Planar => 7,
            Self::Indexed => 8,
            Self::Raw => 9,
            Self::Rows => 10,
        }
    }
}

/// The samples that the decoder takes, in words: `PNG files`, `samples of the form raw`.
impl fmt::Display for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let form = match self {
            Self::File(format) => return write!(f, "{} files", format.title()),
            Self::Planar => "planar",
            Self::Indexed => "indexed",
            Self::Raw => "raw",
            Self::Rows => "rows",
        };
        write!(f, "samples of the form {form}")
    }
}

/// A set of decoders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decoders(u32);

impl Decoders {
    /// No decoder.
    pub const NONE: Self = Self(0);
    /// Every decoder of this version.
    pub const ALL: Self = Self((1 << Decoder::ALL.len()) - 1);
    /// Decoders of files in every format.
    pub const FILES: Self = Self((1 << Decoder::Planar.place()) - 1);

    /// Adds a decoder.
    pub fn insert(&mut self, decoder: Decoder) {
        self.0 |= 1 << decoder.place();
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
        Decoder::ALL.into_iter().filter(move |&decoder| self.contains(decoder))
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
