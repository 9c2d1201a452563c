//! The layout of a pack, planned before its samples are read; refuses sources that no pack can hold.

use super::format::{
    BLOCK_BYTES, CLASS_NAME_BYTES_MAX, IndexPart, NAME_BYTES_MAX, RECORD_BYTES, SAMPLES_MAX, classes_to_bytes, round_up,
};
use super::options::PackFormat;
use super::report::PackError;
use crate::{CLASSES_MAX, Dataset, SAMPLE_BYTES_MAX};

/// Offsets of all parts. The samples come last, since repairing may change their length.
pub(super) struct PackPlan {
    pub(super) classes: Vec<u8>,
    pub(super) source_bytes: u64,
    /// Place and length of each section.
    pub(super) sections: [(IndexPart, u64, u64); 4],
    pub(super) data_offset: u64,
    /// Lower bound for the length of the file, as far as the source's list tells it.
    pub(super) least_bytes: u64,
}

impl PackPlan {
    pub(super) fn new(source: &dyn Dataset, format: PackFormat) -> Result<Self, PackError> {
        check_counts(source)?;
        let (mut names_bytes, mut source_bytes) = (0u64, 0u64);
        for index in 0..source.len() {
            let bytes = source.name(index).len();
            if bytes > NAME_BYTES_MAX as usize {
                return Err(PackError::NameTooLong { index, bytes });
            }
            names_bytes += bytes as u64;
            let length = source.location(index).length;
            source_bytes = source_bytes.saturating_add(if length > SAMPLE_BYTES_MAX { 0 } else { length });
        }
        let classes = classes_to_bytes(source.classes());
        let samples = source.len();
        Self::place(samples, names_bytes, classes, source_bytes, format).ok_or(PackError::TooLarge { samples })
    }

    fn place(samples: u64, names_bytes: u64, classes: Vec<u8>, source_bytes: u64, format: PackFormat) -> Option<Self> {
        let lengths = [
            (IndexPart::Records, samples.checked_mul(RECORD_BYTES as u64)?),
            (IndexPart::Labels, samples.checked_mul(4)?),
            (IndexPart::Names, names_bytes),
            (IndexPart::Classes, classes.len() as u64),
        ];
        let mut end = BLOCK_BYTES;
        let mut sections = [(IndexPart::Superblock, 0, 0); 4];
        for (section, (part, length)) in sections.iter_mut().zip(lengths) {
            *section = (part, end, length);
            end = round_up(end.checked_add(length)?)?;
        }
        // Only decoding shows how far images are shrunk.
        let least_data_bytes = if format.max_side.is_some() { 0 } else { source_bytes };
        let least_bytes = round_up(end.checked_add(least_data_bytes)?)?;
        let plan = Self { classes, source_bytes, sections, data_offset: end, least_bytes };
        (least_bytes <= i64::MAX as u64).then_some(plan)
    }
}

/// Refuses counts that a reader would refuse.
fn check_counts(source: &dyn Dataset) -> Result<(), PackError> {
    let (samples, classes) = (source.len(), source.classes());
    if samples > SAMPLES_MAX || classes.len() > CLASSES_MAX {
        return Err(PackError::TooMany { samples, classes: classes.len() });
    }
    match classes.iter().map(String::len).enumerate().find(|&(_, bytes)| bytes > CLASS_NAME_BYTES_MAX as usize) {
        Some((class, bytes)) => Err(PackError::ClassNameTooLong { class, bytes }),
        None => Ok(()),
    }
}
