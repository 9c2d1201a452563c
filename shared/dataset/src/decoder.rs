//! The decoders of samples, and the abilities of this machine: all abilities of `ddlp-pixels`, and one for each form of
//! a pack.

use crate::forms::StoredForm;
use ddlp_pixels::{Ability, AbilityNumber, Format, PixelError, Source, abilities_without_forms};
use std::fmt;
use std::sync::OnceLock;

/// Most file formats that a set of decoders can hold, and most forms.
const KINDS_MAX: u32 = 16;

/// Way in which the bytes of a sample become an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decoder {
    /// Of complete files of this format.
    File(Format),
    /// Of samples in this form, which is not [`StoredForm::Kept`].
    Form(StoredForm),
}

impl StoredForm {
    /// Returns the decoder of the form's samples; `None` if the file's format selects the decoder.
    pub const fn decoder(self) -> Option<Decoder> {
        match self {
            Self::Kept => None,
            form => Some(Decoder::Form(form)),
        }
    }
}

impl Decoder {
    /// Returns all decoders, in the order of their abilities' numbers.
    pub fn all() -> impl Iterator<Item = Self> {
        let forms = (0..KINDS_MAX as u8).filter_map(StoredForm::of_code).filter_map(StoredForm::decoder);
        Format::ALL.iter().map(|&format| Self::File(format)).chain(forms)
    }

    /// Returns the decoder of a sample.
    ///
    /// # Errors
    ///
    /// If the sample is a file whose format this version does not know.
    #[inline]
    pub fn of(source: &Source<'_>) -> Result<Self, PixelError> {
        Ok(match source {
            Source::Encoded(file) => Self::File(Format::of(file)?),
            Source::Indexed { .. } => Self::Form(StoredForm::Indexed),
            Source::Pieces { .. } => Self::Form(StoredForm::Pcr),
            Source::Planar { .. } => Self::Form(StoredForm::Planar),
            Source::Rows(_) => Self::Form(StoredForm::Rows),
            Source::Image(image) => match StoredForm::of_code(image.form) {
                Some(form) => Self::Form(form),
                None => return Err(PixelError::Unsupported { message: format!("{image:?}") }),
            },
        })
    }

    /// Returns the decoder whose ability has this number, if this version knows it.
    pub fn of_ability(number: AbilityNumber) -> Option<Self> {
        Self::all().find(|decoder| decoder.ability() == number)
    }

    /// Returns the number of the decoder's ability.
    pub const fn ability(self) -> AbilityNumber {
        match self {
            Self::File(format) => AbilityNumber::of_format(format),
            Self::Form(form) => AbilityNumber::of_form(form as u8),
        }
    }

    /// Returns the decoder's place in a set: formats come first, then forms, each in the order of its numbers.
    const fn place(self) -> u32 {
        match self {
            Self::File(format) => format as u32,
            Self::Form(form) => KINDS_MAX + form as u32,
        }
    }
}

/// The decoder in words: `the decoder of PNG files`, `the decoder of the form raw`.
impl fmt::Display for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&ability_name(self.ability()))
    }
}

/// Returns an ability in words, as it continues the sentence "the drive lacks …": `the operation Resize`, `the
/// decoder of PNG files`, `the decoder of the form raw`.
pub fn ability_name(number: AbilityNumber) -> String {
    match (number.name(), Decoder::of_ability(number)) {
        (Some(name), _) => name,
        (None, Some(Decoder::Form(form))) => format!("the decoder of the form {}", form.name()),
        (None, _) => format!("ability {:#06x} of another version", number.0),
    }
}

/// Returns this machine's abilities, in the order of their numbers. The first call computes the digests.
pub fn abilities() -> &'static [Ability] {
    static ABILITIES: OnceLock<Vec<Ability>> = OnceLock::new();
    ABILITIES.get_or_init(|| {
        let mut abilities = abilities_without_forms();
        let files = AbilityNumber::of_format(Format::Jpeg);
        let files = abilities.iter().copied().find(|ability| ability.number == files);
        abilities.extend(Decoder::all().filter_map(|decoder| match decoder {
            Decoder::File(_) => None,
            Decoder::Form(form) => {
                let own = Ability::of_form(form as u8, |take| form.examples(take));
                // Forms that hold files hold JPEGs. If a detail is damaged, the sample is decoded as a file, so the
                // ability includes the JPEG decoder's.
                Some(files.filter(|_| form.is_file() || form.is_in_pieces()).map_or(own, |files| own.and(files)))
            }
        }));
        abilities
    })
}

/// Returns this machine's ability with this number.
pub fn ability(number: AbilityNumber) -> Option<Ability> {
    abilities().iter().copied().find(|ability| ability.number == number)
}

/// A set of decoders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decoders(u32);

impl Decoders {
    /// No decoder.
    pub const NONE: Self = Self(0);
    /// Every decoder of this version.
    pub const ALL: Self = Self::FILES.with_forms(StoredForm::ALL);
    /// Decoders of files in every format.
    pub const FILES: Self = Self((1 << Format::ALL.len()) - 1);

    /// Returns the set with the decoders of these forms.
    const fn with_forms(mut self, mut forms: &[StoredForm]) -> Self {
        while let [form, rest @ ..] = forms {
            assert!((*form as u32) < KINDS_MAX && Format::ALL.len() <= KINDS_MAX as usize);
            if let Some(decoder) = form.decoder() {
                self.0 |= 1 << decoder.place();
            }
            forms = rest;
        }
        self
    }

    /// Adds a decoder.
    pub fn insert(&mut self, decoder: Decoder) {
        self.0 |= 1 << decoder.place();
    }

    /// Returns whether the decoder is in the set.
    #[inline]
    pub fn contains(self, decoder: Decoder) -> bool {
        self.0 & 1 << decoder.place() != 0
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
