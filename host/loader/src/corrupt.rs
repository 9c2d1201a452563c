//! The count of an epoch's corrupt samples: beyond the limit, the run ends.

use crate::error::LoaderError;
use crate::report::CorruptReport;
use std::collections::HashSet;

/// Corrupt samples that the error names.
const NAMED_MAX: usize = 5;

/// Count of the corrupt samples in the epoch that is being delivered.
#[derive(Debug)]
pub(crate) struct CorruptCount {
    limit: u64,
    epoch: u32,
    /// Samples of the counted batches, corrupt or not.
    samples: u64,
    /// Indices in the dataset of the corrupt samples; a sample that occurs twice in an epoch counts once.
    corrupt: HashSet<u64>,
    /// Names of the first corrupt samples.
    named: Vec<String>,
}

impl CorruptCount {
    pub fn new(limit: u64) -> Self {
        Self { limit, epoch: 0, samples: 0, corrupt: HashSet::new(), named: Vec::new() }
    }

    /// Counts a batch that is about to be delivered: `samples` requested samples, of which `corrupt` are corrupt, each
    /// with its index in the dataset. Fails when the epoch exceeds the limit.
    pub fn add(&mut self, epoch: u32, samples: usize, corrupt: &[(u64, CorruptReport)]) -> Result<(), LoaderError> {
        if epoch != self.epoch {
            *self = Self { epoch, ..Self::new(self.limit) };
        }
        self.samples += samples as u64;
        if let Some((_, CorruptReport { sample, reason, action, .. })) =
            corrupt.first().filter(|_| self.named.is_empty())
        {
            tracing::warn!(
                "sample {sample} of epoch {epoch} is corrupt ({reason}): {action}. The report lists all corrupt samples"
            );
        }
        for (index, report) in corrupt {
            if self.corrupt.insert(*index) && self.named.len() < NAMED_MAX {
                self.named.push(report.sample.clone());
            }
        }
        let found = self.corrupt.len() as u64;
        if found <= self.limit {
            return Ok(());
        }
        Err(LoaderError::TooManyCorrupt {
            corrupt: found,
            samples: self.samples,
            limit: self.limit,
            first: self.named.join(", "),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_distinct_samples_of_one_epoch_count() {
        let batch = |indices: &[u64]| -> Vec<(u64, CorruptReport)> {
            let report =
                |&index: &u64| (index, CorruptReport { sample: format!("s{index}"), ..CorruptReport::default() });
            indices.iter().map(report).collect()
        };
        let mut count = CorruptCount::new(2);
        count.add(0, 10, &batch(&[1, 2])).unwrap();
        count.add(0, 10, &batch(&[2, 1, 1])).unwrap();
        count.add(1, 10, &batch(&[3, 4])).unwrap();
        let error = count.add(1, 10, &batch(&[4, 5])).unwrap_err().to_string();
        assert!(
            error.contains("3 of 20") && error.contains("s3, s4, s5") && error.contains("2 are allowed"),
            "{error}"
        );
    }
}
