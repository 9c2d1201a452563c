//! How many batches a drive has in work at a time.

use std::time::Duration;

/// Batches in work on a drive that is near: one at work and one that waits.
const NEAR: usize = 2;
/// Most batches in work on a drive that is far away.
const FAR_MAX: usize = 16;

/// Shorter times are no distance: a busy machine takes as long.
const FAR: Duration = Duration::from_millis(5);

/// Returns the round trip to a drive that answered commands within these times; zero if it is near.
pub(crate) fn round_trip(answers: [Duration; 2]) -> Duration {
    answers.into_iter().min().filter(|time| *time >= FAR).unwrap_or_default()
}

/// Bounds of the number of batches that a drive has in work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DriveDepth {
    pub least: usize,
    pub most: usize,
}

impl DriveDepth {
    /// Returns the given depth; without one, the loader works it out.
    pub fn of(given: Option<usize>) -> Self {
        given.map_or(Self { least: NEAR, most: FAR_MAX }, |depth| Self { least: depth, most: depth })
    }

    /// Returns how many batches keep the drive at work. From the end of a batch until its successor arrives, two round
    /// trips pass: one for completion and request, one in which the thread reads another result. A batch takes
    /// `batch_s` seconds, if that is known.
    pub fn at(self, round_trip: Duration, batch_s: Option<f64>) -> usize {
        let meanwhile = batch_s.map_or(0.0, |batch_s| (2.0 * round_trip.as_secs_f64() / batch_s).round());
        // A float beyond the integer's range becomes the largest one.
        self.least.saturating_add(meanwhile as usize).min(self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_late_answer_makes_no_drive_far() {
        let ms = Duration::from_millis;
        assert_eq!(round_trip([ms(4), ms(300)]), Duration::ZERO);
        assert_eq!(round_trip([ms(102), ms(100)]), ms(100));
    }

    #[test]
    fn a_long_path_needs_more_batches_in_work_and_a_given_depth_holds() {
        let ms = Duration::from_millis;
        let auto = DriveDepth::of(None);
        assert_eq!(auto.at(ms(100), None), 2, "nothing is known of the drive's rate");
        assert_eq!(auto.at(Duration::ZERO, Some(0.1)), 2);
        assert_eq!(auto.at(ms(100), Some(0.1)), 4);
        assert_eq!(auto.at(ms(100), Some(1e-9)), FAR_MAX);
        assert_eq!(auto.at(ms(100), Some(0.0)), FAR_MAX);
        assert_eq!(DriveDepth::of(Some(3)).at(ms(100), Some(0.1)), 3);
    }
}
