//! What the schedule knows of a prong.

use super::BatchId;

/// Weight of the newest measurement in the moving average of the time per batch.
const NEWEST: f64 = 0.25;

/// A batch in the work of a prong.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub id: BatchId,
    pub since: f64,
}

/// A prong: its rate and what it has in work.
#[derive(Debug)]
pub(super) struct Prong {
    pub up: bool,
    /// Seconds per batch while it has work, a moving average.
    pub batch_s: Option<f64>,
    /// In the order of the claims.
    pub outstanding: Vec<Work>,
    /// Outstanding batches that another prong finished.
    pub cancels: Vec<BatchId>,
    last_done: f64,
}

impl Default for Prong {
    fn default() -> Self {
        Self { up: true, batch_s: None, outstanding: Vec::new(), cancels: Vec::new(), last_done: f64::NEG_INFINITY }
    }
}

impl Prong {
    pub fn claim(&mut self, id: BatchId, now: f64) {
        self.outstanding.push(Work { id, since: now });
    }

    /// Takes a batch off the outstanding ones and learns from the time it took.
    pub fn done(&mut self, id: BatchId, now: f64) {
        let Some(at) = self.outstanding.iter().position(|work| work.id == id) else { return };
        let work = self.outstanding.remove(at);
        let took = (now - work.since.max(self.last_done)).max(0.0);
        self.last_done = now;
        self.batch_s = Some(match self.batch_s {
            None => took,
            Some(mean) => mean + NEWEST * (took - mean),
        });
    }

    /// Takes a batch off without learning from it.
    pub fn forget(&mut self, id: BatchId) {
        self.outstanding.retain(|work| work.id != id);
        self.cancels.retain(|&cancel| cancel != id);
    }

    /// Seconds until the outstanding batch at `position` is done, by the rate; negative when it is overdue. `None`
    /// while the rate is unknown.
    pub fn remaining_s(&self, position: usize, now: f64) -> Option<f64> {
        let first = self.outstanding.first()?;
        let busy_since = first.since.max(self.last_done);
        Some(self.batch_s? * (position + 1) as f64 - (now - busy_since))
    }

    /// Seconds until everything outstanding is done, by the rate.
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
        prong.done(id(0), 2.0);
        assert_eq!(prong.batch_s, Some(2.0));
        prong.done(id(1), 4.0);
        assert_eq!(prong.batch_s, Some(2.0), "the second waited for the first");
    }

    #[test]
    fn backlog_counts_what_is_queued_behind_an_overdue_batch() {
        let mut prong = Prong { batch_s: Some(1.0), ..Prong::default() };
        assert_eq!(prong.backlog_s(0.0), Some(0.0));
        prong.claim(id(0), 0.0);
        prong.claim(id(1), 0.0);
        assert_eq!(prong.backlog_s(0.5), Some(1.5));
        assert_eq!(prong.backlog_s(9.0), Some(1.0));
        assert_eq!(prong.remaining_s(0, 9.0), Some(-8.0));
    }
}
