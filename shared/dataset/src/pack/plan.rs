//! The layout of a pack, planned before its samples are read; refuses sources that no pack can hold.

use super::bundles::{self, BUNDLE_SAMPLES_MAX, BundleShape};
use super::format::{
    BLOCK_BYTES, CLASS_NAME_BYTES_MAX, IndexPart, NAME_BYTES_MAX, RECORD_BYTES, SAMPLES_MAX, classes_to_bytes, round_up,
};
use super::options::PackOptions;
use super::report::PackError;
use crate::{CLASSES_MAX, Dataset, SAMPLE_BYTES_MAX};

/// Offsets of all parts. The samples come last, since repairing may change their length.
pub(super) struct PackPlan {
    pub(super) classes: Vec<u8>,
    pub(super) source_bytes: u64,
    /// Place and length of each section.
    pub(super) sections: Vec<(IndexPart, u64, u64)>,
    /// The bundles, if samples are to lie in pieces.
    pub(super) bundles: Option<BundleShape>,
    pub(super) data_offset: u64,
    /// Lower bound for the length of the file, as far as the source's list tells it.
    pub(super) least_bytes: u64,
}

impl PackPlan {
    pub(super) fn new(source: &dyn Dataset, options: &PackOptions) -> Result<Self, PackError> {
        check_counts(source)?;
        let bundles = bundles_of(source, options)?;
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
        // Only decoding shows how far images are shrunk. Progressive files are a little smaller than others.
        let least_data_bytes = match &bundles {
            Some(_) => source_bytes / 2,
            None if options.format.max_side.is_some() => 0,
            None => source_bytes,
        };
        Self::place(samples, names_bytes, (classes, bundles), source_bytes, least_data_bytes)
            .ok_or(PackError::TooLarge { samples })
    }

    pub(super) fn place(
        samples: u64,
        names_bytes: u64,
        (classes, bundles): (Vec<u8>, Option<BundleShape>),
        source_bytes: u64,
        least_data_bytes: u64,
    ) -> Option<Self> {
        let of_all = [
            (IndexPart::Records, samples.checked_mul(RECORD_BYTES as u64)?),
            (IndexPart::Labels, samples.checked_mul(4)?),
            (IndexPart::Names, names_bytes),
            (IndexPart::Classes, classes.len() as u64),
        ];
        let mut end = BLOCK_BYTES;
        let mut sections = Vec::new();
        for (part, length) in of_all.into_iter().chain(bundles.iter().flat_map(BundleShape::sections)) {
            sections.push((part, end, length));
            end = round_up(end.checked_add(length)?)?;
        }
        let least_bytes = round_up(end.checked_add(least_data_bytes)?)?;
        let plan = Self { classes, source_bytes, sections, bundles, data_offset: end, least_bytes };
        (least_bytes <= i64::MAX as u64).then_some(plan)
    }
}

/// Returns the bundles that the options ask for.
fn bundles_of(source: &dyn Dataset, options: &PackOptions) -> Result<Option<BundleShape>, PackError> {
    if !options.format.form.is_in_pieces() {
        return Ok(None);
    }
    let (samples, bundle_samples) = (source.len(), options.bundle_samples);
    if !(1..=BUNDLE_SAMPLES_MAX).contains(&bundle_samples) {
        return Err(PackError::BundleSize { samples: bundle_samples });
    }
    if samples > bundles::SAMPLES_MAX {
        return Err(PackError::TooManyInPieces { samples });
    }
    Ok(Some(BundleShape { groups: options.groups.clone(), bundle_samples, samples }))
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
