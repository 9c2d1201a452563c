//! The schedule's record of a prong.

use super::BatchId;

/// Weight of the newest measurement in the moving average of the time per batch.
const NEWEST: f64 = 0.25;
/// A batch that takes more than this many times the average is a stall, which does not change the rate. Two in a row
/// do.
const STALL: f64 = 4.0;

/// A batch that a prong works on, or will work on once its samples have been fetched.
#[derive(Clone, Copy, Debug)]
pub(super) struct ActiveWork {
    pub id: BatchId,
    /// When the prong began the batch; until then, when it claimed the batch.
    pub since: f64,
    pub has_begun: bool,
    /// Whether something else delayed the batch: its time does not count towards the prong's rate.
    pub is_disturbed: bool,
}

/// A prong: its rate and what it has in work.
#[derive(Debug)]
pub(super) struct Prong {
    pub up: bool,
    /// Seconds per batch while the prong has work: a moving average, or the time of its last probe.
    pub batch_s: Option<f64>,
    /// Batches that have begun, in the order in which they began, and then the others in the order of their claims.
    pub outstanding: Vec<ActiveWork>,
    /// Outstanding batches that another prong finished.
    pub cancels: Vec<BatchId>,
    /// The outstanding batch that measures the rate of this prong again.
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
    /// Records a claim. The batch begins later, by [`begin`](Self::begin).
    pub fn claim_ahead(&mut self, id: BatchId, now: f64) {
        self.outstanding.push(ActiveWork { id, since: now, has_begun: false, is_disturbed: false });
    }

    /// Records that the prong begins a batch that it has claimed.
    pub fn begin(&mut self, id: BatchId, now: f64) {
        let Some(at) = self.outstanding.iter().position(|work| work.id == id && !work.has_begun) else { return };
        let work = self.outstanding.remove(at);
        let begun = self.outstanding.partition_point(|work| work.has_begun);
        self.outstanding.insert(begun, ActiveWork { since: now, has_begun: true, ..work });
    }

    /// Marks the batches that the prong has begun as delayed by something else.
    pub fn disturb(&mut self) {
        self.outstanding.iter_mut().for_each(|work| work.is_disturbed |= work.has_begun);
    }

    /// Returns whether the prong has claimed the batch, but not begun it.
    pub fn will_begin(&self, id: BatchId) -> bool {
        self.outstanding.iter().any(|work| work.id == id && !work.has_begun)
    }

    /// Returns whether the prong works on a batch now.
    pub fn is_working(&self) -> bool {
        self.outstanding.first().is_some_and(|first| first.has_begun)
    }

    /// Returns whether the prong has the batch in work, even if another prong has finished it.
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
        if !work.has_begun {
            self.take_off(id);
            return;
        }
        let took = (now - work.since.max(self.turned_at)).max(0.0);
        if work.is_disturbed {
            // The batch's time includes a wait, so the prong learns nothing from it.
        } else if self.probe == Some(id) {
            self.batch_s = Some(took);
        } else if shows_rate {
            self.learn(took);
        }
        self.take_off(id);
        self.turned_at = now;
    }

    /// Removes a batch that the prong stopped work on, and learns from the least time that it would have taken.
    pub fn stopped(&mut self, id: BatchId, now: f64) {
        let is_measured = |first: &&ActiveWork| first.id == id && first.has_begun && !first.is_disturbed;
        if let Some(first) = self.outstanding.first().filter(is_measured) {
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
        if self.outstanding.first().is_some_and(|first| first.id == id && first.has_begun) {
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
        let busy_s = if first.has_begun { now - first.since.max(self.turned_at) } else { 0.0 };
        Some(self.batch_s? * (position + 1) as f64 - busy_s)
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
mod tests;
