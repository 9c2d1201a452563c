//! Which samples in flight are asked for a second time: those that take longer than most. No clock, no I/O.

use ddlp_dataset::Requests;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Answers that say how long an answer takes.
const ANSWERS_MIN: u64 = 100;

/// When samples are asked for a second time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hedge {
    percent: u32,
}

impl Hedge {
    /// Samples are asked for twice if they take longer than this share of all answers.
    pub fn new(percent: u32) -> Self {
        Self { percent }
    }

    /// Returns after which time a sample is asked for again; `None` as long as that is not known.
    pub fn after(self, requests: &Requests) -> Option<Duration> {
        let share = f64::from(self.percent) / 100.0;
        let known = (requests.count() >= ANSWERS_MIN).then(|| requests.latency_ms(share)).flatten();
        known.map(|ms| Duration::from_secs_f64(ms / 1e3))
    }

    /// Returns how many samples may be asked for twice at a time, of those in flight: a store that answers nobody gets
    /// few requests more.
    pub fn most(self, in_flight: usize) -> usize {
        1 + in_flight * (100 - self.percent as usize) / 100
    }
}

/// Second requests so far.
#[derive(Debug, Default)]
pub(crate) struct HedgeCounts {
    made: AtomicU64,
    won: AtomicU64,
}

impl HedgeCounts {
    /// Adds a second request.
    pub fn made(&self) {
        self.made.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds a second request that came first.
    pub fn won(&self) {
        self.won.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of second requests, and of those that came first.
    pub fn counts(&self) -> (u64, u64) {
        (self.made.load(Ordering::Relaxed), self.won.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_that_take_longer_than_most_are_asked_for_again_but_only_a_few_at_a_time() {
        let (hedge, mut requests) = (Hedge::new(95), Requests::default());
        let mut answered = |ms, times| {
            (0..times).for_each(|_| requests.answered(Duration::from_millis(ms), 1));
            hedge.after(&requests)
        };
        assert_eq!(answered(100, 99), None, "too few answers");
        assert_eq!(answered(4000, 2), Some(Duration::from_millis(128)));
        assert_eq!(answered(4000, 20), Some(Duration::from_millis(4096)));
        assert_eq!([0, 19, 20, 1000].map(|in_flight| hedge.most(in_flight)), [1, 1, 2, 51]);
    }
}
