//! How many samples of an epoch may be left out or replaced before the run ends.

use crate::error::LoaderError;
use crate::order::Cut;
use crate::report::CorruptReport;
use std::collections::HashSet;
use std::str::FromStr;

/// Corrupt samples that are always allowed by default: a small dataset may have some.
const ALLOWED_MIN: u64 = 16;
/// The default in percent of an epoch's samples.
const ALLOWED_PERCENT: f64 = 1.0;
/// Corrupt samples that the error names.
const NAMED_MAX: usize = 5;

/// A limit on the distinct samples of an epoch that the policies `skip` and `replace` apply to.
///
/// Each rank counts the samples of its own share: a number is divided by the number of ranks and rounded up, and percent are of the share.
/// A run that goes on from a state counts from zero.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum MaxCorrupt {
    /// The larger of 16 and 1 % of the share.
    #[default]
    Default,
    /// So many of all ranks together.
    Samples(u64),
    /// Percent of the share, 0 to 100.
    Percent(f64),
}

impl MaxCorrupt {
    /// Returns how many samples of its share of an epoch a rank may do without.
    pub(crate) fn of(self, cut: &Cut) -> u64 {
        let share = cut.samples.div_ceil(cut.world);
        let percent = |percent: f64| (share as f64 * percent / 100.0) as u64;
        match self {
            Self::Default => percent(ALLOWED_PERCENT).max(ALLOWED_MIN),
            Self::Samples(samples) => samples.div_ceil(cut.world),
            Self::Percent(share) => percent(share),
        }
    }
}

/// `17` is a number of samples, `2.5%` a share of the epoch.
impl FromStr for MaxCorrupt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = || "a number of samples, or 0% to 100% of an epoch's, is possible".to_string();
        match text.strip_suffix('%') {
            Some(percent) => {
                let percent: f64 = percent.parse().map_err(|_| wanted())?;
                (0.0..=100.0).contains(&percent).then_some(Self::Percent(percent)).ok_or_else(wanted)
            }
            None => text.parse().map(Self::Samples).map_err(|_| wanted()),
        }
    }
}

/// Counts the corrupt samples of the epoch that is being delivered.
#[derive(Debug)]
pub(crate) struct CorruptCount {
    limit: u64,
    epoch: u32,
    /// Samples of the batches that were asked for, corrupt or not.
    samples: u64,
    /// Indices of the corrupt ones in the dataset: one that comes twice in an epoch counts once.
    corrupt: HashSet<u64>,
    /// Names of the first ones.
    named: Vec<String>,
}

impl CorruptCount {
    pub fn new(limit: u64) -> Self {
        Self { limit, epoch: 0, samples: 0, corrupt: HashSet::new(), named: Vec::new() }
    }

    /// Counts a batch that is about to be delivered: its samples, and those of them that are corrupt, each with its index in the
    /// dataset. An error when they are more than the limit.
    pub fn add(&mut self, epoch: u32, samples: usize, corrupt: &[(u64, CorruptReport)]) -> Result<(), LoaderError> {
        if epoch != self.epoch {
            *self = Self { epoch, ..Self::new(self.limit) };
        }
        self.samples += samples as u64;
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
    use crate::order::LastBatch;

    fn cut(samples: u64, world: u64) -> Cut {
        Cut { samples, batch: 64, last: LastBatch::Short, rank: 0, world }
    }

    #[test]
    fn the_limit_scales_with_a_ranks_share() {
        let of = |limit: &str, samples, world| limit.parse::<MaxCorrupt>().unwrap().of(&cut(samples, world));
        assert_eq!([of("0", 1000, 1), of("20", 1000, 1), of("20", 1000, 8)], [0, 20, 3]);
        assert_eq!([of("2.5%", 1000, 1), of("2.5%", 1000, 4), of("100%", 1001, 2)], [25, 6, 501]);
        let default = |samples, world| MaxCorrupt::default().of(&cut(samples, world));
        assert_eq!([default(100, 1), default(1699, 1), default(1700, 1), default(1_000_000, 8)], [16, 16, 17, 1250]);
        for wrong in ["", "-1", "1.5", "101%", "-1%", "nan%", "%", "one"] {
            assert!(wrong.parse::<MaxCorrupt>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn distinct_samples_of_an_epoch_count() {
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
