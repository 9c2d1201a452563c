//! Why an attempt at a sample failed: what the policy decides about, and what it does not.

use crate::abilities::AgreedDecoders;
use ddlp_dataset::{Dataset, ReadError, SampleError, Unavailable};
use ddlp_pixels::{AbilityNumber, CorruptReason, PixelError};

/// Why one attempt at a stored sample failed. Kept small, since the result of every attempt contains it.
pub(super) enum Failure {
    /// Another attempt would fail alike.
    Lasting(LastingFailure),
    Unavailable(Box<Unavailable>),
}

/// Why a stored sample cannot be prepared.
#[derive(Clone, Copy)]
pub(super) enum LastingFailure {
    Corrupt(CorruptReason),
    /// Only the host can tell: see [`Outcome::OtherDecoder`](crate::slot::Outcome::OtherDecoder).
    OtherDecoder(Option<AbilityNumber>),
}

impl From<Unavailable> for Failure {
    fn from(error: Unavailable) -> Self {
        Self::Unavailable(Box::new(error))
    }
}

impl Failure {
    pub(super) fn corrupt(reason: CorruptReason) -> Self {
        Self::Lasting(LastingFailure::Corrupt(reason))
    }

    /// Judges an attempt. A drive, which has `agreed` with the host, leaves to the host what only the host can judge.
    #[cold]
    pub(super) fn of(error: SampleError, agreed: Option<&AgreedDecoders>, dataset: &dyn Dataset, index: u64) -> Self {
        let other = |decoder| Self::Lasting(LastingFailure::OtherDecoder(decoder));
        // The bytes may look like another format's because the file was replaced.
        let other_of_bytes = |decoder| match dataset.check_damage() {
            Err(unavailable) => unavailable.into(),
            Ok(()) => other(decoder),
        };
        match (error, agreed) {
            (SampleError::OtherDecoder(decoder), _) => other_of_bytes(Some(decoder.ability())),
            (SampleError::Read(ReadError::Unavailable(Unavailable::UnknownForm { form, .. })), Some(_)) => {
                other(Some(AbilityNumber::of_form(form)))
            }
            (SampleError::Pixels(PixelError::UnknownFormat { .. }), Some(agreed)) if !agreed.include_all_formats => {
                other_of_bytes(None)
            }
            (SampleError::Read(error), _) => Self::of_reading(error),
            (SampleError::Pixels(error), _) => Self::of_decoding(error, dataset, index),
        }
    }

    #[cold]
    fn of_reading(error: ReadError) -> Self {
        match error {
            ReadError::Corrupt(error) => Self::corrupt(error.reason()),
            ReadError::Unavailable(error) => error.into(),
        }
    }

    #[cold]
    fn of_decoding(error: PixelError, dataset: &dyn Dataset, index: u64) -> Self {
        // The bytes may not decode because the file was replaced.
        if let Err(error) = dataset.check_damage() {
            return error.into();
        }
        match error {
            PixelError::NoMemory { message: problem } => {
                let (name, location) = (dataset.name(index), dataset.location(index));
                Unavailable::NoMemory { name, location, problem }.into()
            }
            error => Self::corrupt(error.reason()),
        }
    }
}
