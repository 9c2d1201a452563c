//! The limit on corrupt samples of an epoch.

use crate::order::EpochCut;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// Corrupt samples that the default always allows, since a small dataset may have some.
const ALLOWED_MIN: u64 = 16;
/// Corrupt samples that the default allows, in percent of an epoch's samples.
const ALLOWED_PERCENT: f64 = 1.0;

/// A limit on the distinct samples of an epoch that the policies `skip` and `replace` may affect.
///
/// Each rank counts the samples of its own share of the epoch. A number of samples is divided by the number of ranks
/// and rounded up; a percentage applies to the share. A resumed run counts from zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum MaxCorrupt {
    /// The larger of 16 and 1 % of the share, but less than the whole share.
    #[default]
    Default,
    /// Number of samples, of all ranks together.
    Samples(u64),
    /// Percent of the share, 0 to 100.
    Percent(f64),
}

impl MaxCorrupt {
    /// Returns how many corrupt samples a rank tolerates in its share of an epoch.
    pub(crate) fn of(self, cut: &EpochCut) -> u64 {
        let share = cut.samples.div_ceil(cut.world);
        let percent = |percent: f64| (share as f64 * percent / 100.0) as u64;
        match self {
            // A small dataset must not be delivered without any sample.
            Self::Default => percent(ALLOWED_PERCENT).max(ALLOWED_MIN).min(share.saturating_sub(1)),
            Self::Samples(samples) => samples.div_ceil(cut.world),
            Self::Percent(share) => percent(share),
        }
    }
}

/// Parses a number of samples (`17`) or a share of the epoch (`2.5%`).
impl FromStr for MaxCorrupt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = || "expected a number of samples, or 0% to 100% of an epoch".to_string();
        match text.strip_suffix('%') {
            Some(percent) => {
                let percent: f64 = percent.parse().map_err(|_| wanted())?;
                (0.0..=100.0).contains(&percent).then_some(Self::Percent(percent)).ok_or_else(wanted)
            }
            None => text.parse().map(Self::Samples).map_err(|_| wanted()),
        }
    }
}

/// Name of the default where options are written.
const DEFAULT_NAME: &str = "default";

impl From<MaxCorrupt> for String {
    fn from(max: MaxCorrupt) -> Self {
        match max {
            MaxCorrupt::Default => DEFAULT_NAME.into(),
            MaxCorrupt::Samples(samples) => samples.to_string(),
            MaxCorrupt::Percent(percent) => format!("{percent}%"),
        }
    }
}

impl TryFrom<String> for MaxCorrupt {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        if text == DEFAULT_NAME { Ok(Self::Default) } else { text.parse() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::LastBatch;

    fn cut(samples: u64, world: u64) -> EpochCut {
        let last = LastBatch::Short;
        EpochCut { samples, batch: 64, last, rank: 0, world, repeats: 1, views: 1, buckets: None }
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
}
