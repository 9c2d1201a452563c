//! Judges a drive by its results: the loader keeps the drive, lets it pause, reconnects or gives it up. Only
//! wrong results in a row count, since any drive may return a few during a run of days.

use ddlp_dataset::{Backoff, BackoffLimits};
use std::time::Duration;

/// An association ends after this many wrong results in a row.
pub(super) const WRONG_MAX: u32 = 8;
/// The drive is given up after this many of these associations in a row.
pub(super) const ASSOCIATIONS_MAX: u32 = 3;
/// The drive pauses after this many results in a row that left samples to the host.
const LEFT_MAX: u32 = 4;
/// Pauses of a drive that cannot read its dataset, refuses batches, or leaves samples of batch after batch to the host.
/// They grow longer than the delays after a lost link, since each attempt costs a batch that the CPU has to prepare
/// again.
const PAUSES: BackoffLimits =
    BackoffLimits { first: Duration::from_millis(100), cap: Duration::from_secs(30), attempts_max: u32::MAX };

/// The judgement of a drive by its results.
pub(super) struct Trust {
    /// Wrong results in a row on this association.
    wrong: u32,
    /// Associations in a row that ended because of wrong results.
    associations: u32,
    /// Results in a row that left samples to the host.
    left: u32,
    pauses: Backoff,
    seed: u64,
}

impl Trust {
    pub fn new(seed: u64) -> Self {
        Self { wrong: 0, associations: 0, left: 0, pauses: Backoff::new(PAUSES, seed), seed }
    }

    /// Records a good result, which resets all counts.
    pub fn good(&mut self) {
        (self.wrong, self.associations, self.left) = (0, 0, 0);
        self.pauses = Backoff::new(PAUSES, self.seed);
    }

    /// Records results that were wrong or damaged, or claims of corruption that the CPU refuted.
    pub fn wrong(&mut self, results: u32) {
        self.wrong += results;
    }

    /// Returns the length of a pause, for a drive that could not read its dataset or refused a batch: longer than the
    /// pause before.
    pub fn next_pause(&mut self) -> Duration {
        self.pauses.next_delay().unwrap_or(PAUSES.cap)
    }

    /// Records a result that left a sample to the host, as the drive may. It is not a fault, but the CPU prepares the
    /// batch again. Returns whether a pause is due, after several in a row.
    pub fn left_to_host(&mut self) -> bool {
        self.left += 1;
        self.left >= LEFT_MAX
    }

    /// Returns whether the association has to end. If so, counts it.
    pub fn ends_association(&mut self) -> bool {
        if self.wrong < WRONG_MAX {
            return false;
        }
        self.wrong = 0;
        self.associations += 1;
        true
    }

    /// Returns whether the drive has to be given up.
    pub fn is_useless(&self) -> bool {
        self.associations >= ASSOCIATIONS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records as many wrong results as end an association, and checks that they do.
    fn burst(trust: &mut Trust) {
        trust.wrong(WRONG_MAX - 1);
        assert!(!trust.ends_association());
        trust.wrong(1);
        assert!(trust.ends_association());
        assert!(!trust.ends_association(), "the next association begins with a clear count");
    }

    #[test]
    fn only_bursts_in_a_row_cost_a_drive_its_place() {
        let mut trust = Trust::new(1);
        for _ in 0..10 {
            burst(&mut trust);
            burst(&mut trust);
            assert!(!trust.is_useless());
            trust.good();
        }
        (0..ASSOCIATIONS_MAX).for_each(|_| burst(&mut trust));
        assert!(trust.is_useless());
    }

    #[test]
    fn absence_never_costs_a_drive_its_place_and_its_pauses_grow_until_a_good_result() {
        let mut trust = Trust::new(1);
        let pauses: Vec<Duration> = (0..100).map(|_| trust.next_pause()).collect();
        assert!(!trust.ends_association() && !trust.is_useless());
        assert!(pauses[0] <= PAUSES.first && pauses[5] > 10 * pauses[0], "{pauses:?}");
        assert!(pauses.iter().all(|&pause| pause <= PAUSES.cap) && pauses[99] >= PAUSES.cap / 2, "{pauses:?}");
        trust.good();
        assert!(trust.next_pause() <= PAUSES.first);
    }

    #[test]
    fn only_batches_in_a_row_that_are_left_to_the_host_make_a_drive_pause() {
        let mut trust = Trust::new(1);
        for _ in 0..100 {
            assert!((1..LEFT_MAX).all(|_| !trust.left_to_host()));
            trust.good();
        }
        assert!((1..LEFT_MAX).all(|_| !trust.left_to_host()));
        assert!(
            (0..20).all(|_| trust.left_to_host()) && !trust.ends_association(),
            "each one more makes another pause due"
        );
    }
}
