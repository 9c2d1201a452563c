//! Why an attempt at a sample failed: what the policy decides about, and what it does not.

use crate::abilities::AgreedDecoders;
use crate::slot::Outcome;
use ddlp_dataset::{Dataset, ReadError, SampleError, Unavailable};
use ddlp_pixels::{AbilityNumber, CorruptReason, PixelError};

/// Why a stored sample was not prepared. Kept small, since the result of every attempt contains it.
pub(super) enum Failure {
    Corrupt(CorruptReason),
    /// Only the host can judge the sample. The drive reports this outcome, on which the host prepares the batch.
    LeftToHost(Outcome),
    /// Another attempt may do better.
    Unavailable(Box<Unavailable>),
}

impl From<Unavailable> for Failure {
    fn from(error: Unavailable) -> Self {
        Self::Unavailable(Box::new(error))
    }
}

impl Failure {
    /// Judges an attempt. A drive, which has `agreed` with the host, leaves to the host what only the host can judge.
    #[cold]
    pub(super) fn of(error: SampleError, agreed: Option<&AgreedDecoders>, dataset: &dyn Dataset, index: u64) -> Self {
        let other = Outcome::OtherDecoder;
        // The bytes may have another format or size because the file was replaced.
        let of_bytes = |outcome| match dataset.check_damage() {
            Err(unavailable) => unavailable.into(),
            Ok(()) => Self::LeftToHost(outcome),
        };
        match (error, agreed) {
            (SampleError::OtherDecoder(decoder), _) => of_bytes(other(Some(decoder.ability()))),
            (SampleError::Read(ReadError::Unavailable(Unavailable::UnknownForm { form, .. })), Some(_)) => {
                Self::LeftToHost(other(Some(AbilityNumber::of_form(form))))
            }
            (SampleError::Pixels(PixelError::UnknownFormat { .. }), Some(agreed)) if !agreed.include_all_formats => {
                of_bytes(other(None))
            }
            // The host's error names both sizes.
            (SampleError::Pixels(error @ PixelError::Misfit { .. }), Some(_)) => {
                of_bytes(Outcome::Failed(error.reason()))
            }
            (SampleError::Read(error), _) => Self::of_reading(error),
            (SampleError::Pixels(error), _) => Self::of_decoding(error, dataset, index),
        }
    }

    #[cold]
    fn of_reading(error: ReadError) -> Self {
        match error {
            ReadError::Corrupt(error) => Self::Corrupt(error.reason()),
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
            PixelError::Misfit { message: problem } => {
                let (name, location) = (dataset.name(index), dataset.location(index));
                Unavailable::Misfit { name, location, problem }.into()
            }
            PixelError::Function(source) => {
                let (name, location) = (dataset.name(index), dataset.location(index));
                Unavailable::Function { name, location, source }.into()
            }
            error => Self::Corrupt(error.reason()),
        }
    }
}
