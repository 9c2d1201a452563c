//! The samples that a push sends.

use super::super::super::push::PushPart;
use std::ops::Range;
use std::sync::Arc;

/// The samples to be sent.
pub enum Numbers {
    Range(Range<u64>),
    List(Arc<[u64]>),
}

impl Numbers {
    /// Returns the samples of a part, of a pack of this length.
    pub fn of(part: &PushPart, samples: u64) -> Self {
        match part {
            PushPart::All => Self::Range(0..samples),
            PushPart::Share(share) => Self::Range(share.samples(samples)),
            PushPart::Samples(numbers) => Self::List(numbers.clone()),
            PushPart::Begin | PushPart::End => Self::Range(0..0),
        }
    }

    /// Returns how many there are.
    pub fn len(&self) -> u64 {
        match self {
            Self::Range(range) => range.end - range.start,
            Self::List(numbers) => numbers.len() as u64,
        }
    }

    /// Returns the number of the sample at a place.
    pub fn at(&self, place: u64) -> u64 {
        match self {
            Self::Range(range) => range.start + place,
            Self::List(numbers) => numbers[place as usize],
        }
    }
}
