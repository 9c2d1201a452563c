//! The schedule's record of a prong.

use super::BatchId;

/// Weight of the newest measurement in the moving average of the time per batch.
const NEWEST: f64 = 0.25;
/// A batch that takes more than this many times the average is a stall, which does not change the rate. Two in a row
/// do.
const STALL: f64 = 4.0;

/// A batch that a prong works on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub id: BatchId,
    pub since: f64,
}

/// A prong: its rate and what it has in work.
#[derive(Debug)]
pub(super) struct Prong {
    pub up: bool,
    /// Seconds per batch while the prong has work: a moving average, or the time of its last probe.
    pub batch_s: Option<f64>,
    /// In the order of the claims.
    pub outstanding: Vec<Work>,
    /// Outstanding batches that another prong finished.
    pub cancels: Vec<BatchId>,
    /// The outstanding batch that measures the rate of this prong anew.
    pub probe: Option<BatchId>,
    /// Claims of all prongs before the last claim of this one.
    pub last_claim: u64,
    /// The last batch was a stall.
    stalled: bool,
    /// When the prong last turned from one batch to the next.
    turned_at: f64,
}

impl Default for Prong {
    fn default() -> Self {
        Self {
            up: true,
            batch_s: None,
            outstanding: Vec::new(),
            cancels: Vec::new(),
            probe: None,
            last_claim: 0,
            stalled: false,
            turned_at: f64::NEG_INFINITY,
        }
    }
}

impl Prong {
    pub fn claim(&mut self, id: BatchId, now: f64) {
        self.outstanding.push(Work { id, since: now });
    }

    /// Returns whether the prong has the batch in work, though perhaps in vain.
    pub fn works_on(&self, id: BatchId) -> bool {
        self.outstanding.iter().any(|work| work.id == id)
    }

    /// Tells the prong to stop work on a batch that another one finished, unless the batch is a probe, which has to be
    /// measured.
    pub fn cancel(&mut self, id: BatchId) {
        if self.probe != Some(id) {
            self.cancels.push(id);
        }
    }

    /// Removes a finished batch from the outstanding ones, and updates the rate if the batch's time shows it.
    pub fn done(&mut self, id: BatchId, now: f64, shows_rate: bool) {
        let Some(work) = self.outstanding.iter().find(|work| work.id == id) else { return };
        let took = (now - work.since.max(self.turned_at)).max(0.0);
        if self.probe == Some(id) {
            self.batch_s = Some(took);
        } else if shows_rate {
            self.learn(took);
        }
        self.take_off(id);
        self.turned_at = now;
    }

    /// Removes a batch that the prong stopped work on, and learns from the least time that it would have taken.
    pub fn stopped(&mut self, id: BatchId, now: f64) {
        if let Some(first) = self.outstanding.first().filter(|first| first.id == id) {
            let least = now - first.since.max(self.turned_at);
            if self.batch_s.is_none_or(|mean| mean < least) {
                self.learn(least);
            }
        }
        self.forget(id, now);
    }

    fn learn(&mut self, took: f64) {
        let Some(mean) = self.batch_s else {
            self.batch_s = Some(took);
            return;
        };
        self.stalled = took > STALL * mean && !self.stalled;
        if !self.stalled {
            self.batch_s = Some(mean + NEWEST * (took - mean));
        }
    }

    /// Removes a batch without learning from it: the prong turns to the next one.
    pub fn forget(&mut self, id: BatchId, now: f64) {
        if self.outstanding.first().is_some_and(|first| first.id == id) {
            self.turned_at = now;
        }
        self.take_off(id);
    }

    fn take_off(&mut self, id: BatchId) {
        self.outstanding.retain(|work| work.id != id);
        self.cancels.retain(|&cancel| cancel != id);
        self.probe = self.probe.filter(|&probe| probe != id);
    }

    /// Returns the seconds until the outstanding batch at `position` is done, by the rate; negative when it is overdue.
    /// `None` while the rate is unknown.
    pub fn remaining_s(&self, position: usize, now: f64) -> Option<f64> {
        let first = self.outstanding.first()?;
        let busy_since = first.since.max(self.turned_at);
        Some(self.batch_s? * (position + 1) as f64 - (now - busy_since))
    }

    /// Returns the seconds until everything outstanding is done, by the rate.
    pub fn backlog_s(&self, now: f64) -> Option<f64> {
        let batch_s = self.batch_s?;
        let count = self.outstanding.len();
        if count == 0 {
            return Some(0.0);
        }
        // The batch in work may be overdue; those behind it still cost their time.
        Some(self.remaining_s(count - 1, now)?.max(batch_s * (count - 1) as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(batch: u32) -> BatchId {
        BatchId { epoch: 0, batch }
    }

    #[test]
    fn time_per_batch_is_measured_between_completions() {
        let mut prong = Prong::default();
        prong.claim(id(0), 0.0);
        prong.claim(id(1), 0.0);
        prong.done(id(0), 2.0, true);
        assert_eq!(prong.batch_s, Some(2.0));
        prong.done(id(1), 4.0, true);
        assert_eq!(prong.batch_s, Some(2.0), "the second waited for the first");
    }

    #[test]
    fn backlog_counts_the_batches_behind_an_overdue_one() {
        let mut prong = Prong { batch_s: Some(1.0), ..Prong::default() };
        assert_eq!(prong.backlog_s(0.0), Some(0.0));
        prong.claim(id(0), 0.0);
        prong.claim(id(1), 0.0);
        assert_eq!(prong.backlog_s(0.5), Some(1.5));
        assert_eq!(prong.backlog_s(9.0), Some(1.0));
        assert_eq!(prong.remaining_s(0, 9.0), Some(-8.0));
    }

    /// A prong whose batches take a second each, with three in work since the time 10.
    fn measured() -> Prong {
        let mut prong = Prong { batch_s: Some(1.0), turned_at: 10.0, ..Prong::default() };
        (0..3).for_each(|batch| prong.claim(id(batch), 10.0));
        prong
    }

    #[test]
    fn one_stall_is_no_rate_and_two_in_a_row_are() {
        let mut prong = measured();
        prong.done(id(0), 15.0, true);
        assert_eq!(prong.batch_s, Some(1.0));
        prong.done(id(1), 20.0, true);
        assert_eq!(prong.batch_s, Some(2.0));
        let mut prong = measured();
        prong.done(id(0), 15.0, true);
        prong.done(id(1), 16.0, true);
        prong.done(id(2), 21.0, true);
        assert_eq!(prong.batch_s, Some(1.0), "two stalls with a batch between them");
        let mut prong = measured();
        prong.done(id(0), 14.0, true);
        assert_eq!(prong.batch_s, Some(1.75), "slow, and no stall");
    }

    #[test]
    fn a_short_batch_shows_no_rate() {
        let mut prong = measured();
        prong.done(id(0), 10.1, false);
        assert_eq!(prong.batch_s, Some(1.0));
        prong.done(id(1), 11.1, true);
        assert_eq!(prong.batch_s, Some(1.0), "counted from the end of the short one");
    }

    #[test]
    fn a_probe_is_the_rate_and_is_not_cancelled() {
        let mut prong = Prong { batch_s: Some(50.0), ..Prong::default() };
        prong.claim(id(0), 10.0);
        prong.probe = Some(id(0));
        prong.cancel(id(0));
        assert_eq!(prong.cancels, []);
        prong.done(id(0), 11.0, true);
        assert_eq!((prong.batch_s, prong.probe), (Some(1.0), None));
        prong.claim(id(1), 11.0);
        prong.cancel(id(1));
        assert_eq!(prong.cancels, [id(1)]);
    }

    #[test]
    fn a_batch_that_was_stopped_shows_how_slow_the_prong_is_at_least() {
        let mut prong = measured();
        prong.stopped(id(0), 12.0);
        assert_eq!(prong.batch_s, Some(1.25));
        let mut prong = measured();
        prong.stopped(id(0), 10.5);
        assert_eq!(prong.batch_s, Some(1.0), "the batch might have taken as long as any");
        let mut prong = measured();
        prong.stopped(id(2), 13.0);
        assert_eq!(prong.batch_s, Some(1.0), "the prong had not come to the batch");
        let mut unknown = Prong::default();
        unknown.claim(id(0), 10.0);
        unknown.stopped(id(0), 15.0);
        assert_eq!(unknown.batch_s, Some(5.0));
    }

    #[test]
    fn a_batch_counts_from_when_the_prong_turned_to_it() {
        let mut prong = measured();
        prong.forget(id(0), 12.0);
        prong.forget(id(2), 12.5);
        prong.done(id(1), 13.0, true);
        assert_eq!(prong.batch_s, Some(1.0));
    }
}
