//! Counts over the index of a pack, for people to look at.

use super::reader::Pack;
use super::record::{IndexRecord, StoredVerdict};
use super::report::LISTED_MAX;
use crate::forms::StoredForm;
use crate::{Dataset, ReadError};
use std::collections::BTreeMap;

/// A sample that is not intact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerdictEntry {
    /// Its index.
    pub index: u64,
    /// Its name.
    pub name: String,
    /// Verdict of the check at packing.
    pub verdict: StoredVerdict,
}

/// Counts over the whole index, from all records and no sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Samples of each class.
    pub class_samples: Vec<u64>,
    /// Samples stored in each form.
    pub forms: BTreeMap<StoredForm, u64>,
    /// Decoded samples whose source image was larger.
    pub shrunk: u64,
    /// Intact samples.
    pub intact: u64,
    /// Repaired samples.
    pub repaired: u64,
    /// Rejected samples.
    pub rejected: u64,
    /// The first [`LISTED_MAX`] repaired or rejected samples.
    pub listed: Vec<VerdictEntry>,
    /// Bytes of all samples, details included.
    pub sample_bytes: u64,
    /// Bytes of the smallest sample, its detail included.
    pub smallest_bytes: u64,
    /// Bytes of the largest sample, its detail included.
    pub largest_bytes: u64,
    /// Width of the widest sample, in pixels.
    pub width_max: u32,
    /// Height of the tallest sample, in pixels.
    pub height_max: u32,
}

impl Survey {
    /// Counts the entries in the index of `pack`.
    pub fn of(pack: &Pack) -> Result<Self, ReadError> {
        let class_samples = vec![0; pack.classes().len()];
        let forms = StoredForm::ALL.iter().map(|&form| (form, 0)).collect();
        let mut survey = Self { class_samples, forms, smallest_bytes: u64::MAX, ..Self::default() };
        pack.each_record(0..pack.len(), |index, record| {
            survey.count(pack, index, record?);
            Ok(())
        })?;
        Ok(survey)
    }

    fn count(&mut self, pack: &Pack, index: u64, record: IndexRecord) {
        if let Some(samples) = self.class_samples.get_mut(pack.label(index) as usize) {
            *samples += 1;
        }
        *self.forms.entry(record.form).or_default() += 1;
        self.shrunk += u64::from(record.was_shrunk);
        match record.verdict {
            StoredVerdict::Intact => self.intact += 1,
            StoredVerdict::Repaired => self.repaired += 1,
            StoredVerdict::Rejected(_) => self.rejected += 1,
        }
        if record.verdict != StoredVerdict::Intact && self.listed.len() < LISTED_MAX {
            self.listed.push(VerdictEntry { index, name: pack.name(index), verdict: record.verdict });
        }
        let in_pieces = pack.bundles.as_ref().filter(|_| record.form.is_in_pieces());
        let bytes = in_pieces.map_or(record.total_bytes(), |bundles| bundles.sample_bytes(index));
        self.sample_bytes += bytes;
        self.smallest_bytes = self.smallest_bytes.min(bytes);
        self.largest_bytes = self.largest_bytes.max(bytes);
        self.width_max = self.width_max.max(record.width);
        self.height_max = self.height_max.max(record.height);
    }
}
