//! An Execute command in flight, and the time that it may take.

use super::checks::SlotBatch;
use super::fault::DriveFault;
use crate::schedule::BatchId;
use ddlp_driver::{DriverError, Ticket};
use std::time::{Duration, Instant};

/// A drive may take this many times its expected time for the queued batches, if that is longer than the configured
/// timeout.
const PATIENCE: f64 = 10.0;
/// A batch that takes more than this many times its expected time is a fault, if it also takes longer than
/// [`SLOW_LEAST`].
const SLOW: f64 = 5.0;
const SLOW_LEAST: Duration = Duration::from_millis(200);

/// An Execute command in flight.
#[derive(Debug)]
pub(super) struct Flight {
    pub ticket: Ticket,
    /// The batch that it prepares, and its slot.
    pub batch: SlotBatch,
    pub submitted: Instant,
    pub allowance: Allowance,
    /// Whether the drive was asked to give it up.
    pub cancelled: bool,
}

/// The time that an Execute command may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Allowance {
    /// Seconds until its end, if the drive's rate is known.
    expected_s: Option<f64>,
    pub patience: Duration,
}

impl Allowance {
    /// Computes the allowance for an Execute command queued behind `ahead` others, where a batch takes `batch_s`
    /// seconds. `timeout` applies to a command with none ahead of it.
    pub fn new(timeout: Duration, batch_s: Option<f64>, ahead: usize) -> Self {
        let expected_s = batch_s.map(|batch_s| batch_s * (ahead + 1) as f64);
        let patience = match expected_s {
            Some(expected_s) => {
                timeout.max(Duration::try_from_secs_f64(expected_s * PATIENCE).unwrap_or(Duration::MAX / 4))
            }
            None => timeout.saturating_mul(u32::try_from(ahead + 1).unwrap_or(u32::MAX)),
        };
        Self { expected_s, patience }
    }
}

impl Flight {
    /// Returns the fault of an Execute command that took much longer than expected, on a local drive or another one.
    pub fn slowness(&self, now: Instant, is_local: bool) -> Option<DriveFault<'static>> {
        let (took, expected_s) = (now.saturating_duration_since(self.submitted), self.allowance.expected_s?);
        if took <= SLOW_LEAST || took.as_secs_f64() <= SLOW * expected_s {
            return None;
        }
        let times = took.as_secs_f64() / expected_s;
        Some(DriveFault::Slow { id: self.batch.id, took, times, is_local })
    }

    /// Returns the error for a command whose time is over.
    pub fn timed_out(&self, now: Instant) -> Option<DriverError> {
        if now <= self.submitted + self.allowance.patience {
            return None;
        }
        let BatchId { epoch, batch } = self.batch.id;
        Some(DriverError::TimedOut {
            peer: "drive".into(),
            what: format!("Execute Program of epoch {epoch} batch {batch}"),
            after: self.allowance.patience,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::checks::SlotBatch;
    use crate::report::FaultKind;

    #[test]
    fn a_batch_is_named_only_if_it_took_much_longer_than_earlier_ones_and_than_a_moment() {
        let submitted = Instant::now();
        let slowness = |batch_s, took_ms| {
            let id = BatchId { epoch: 0, batch: 7 };
            let batch = SlotBatch { id, slot: 0, generation: 1, sample_ids: Vec::new(), found: None };
            let allowance = Allowance::new(Duration::from_secs(10), batch_s, 1);
            let flight = Flight { ticket: Ticket(1), batch, submitted, allowance, cancelled: false };
            flight.slowness(submitted + Duration::from_millis(took_ms), true)
        };
        // Two batches of 100 ms, five times as long.
        assert!(slowness(Some(0.1), 1000).is_none());
        let fault = slowness(Some(0.1), 1001).expect("it is slow");
        assert_eq!(fault.kind(), FaultKind::Slow);
        assert!(fault.to_string().contains("batch 7 took 1.0 s, 5 times"), "{fault}");
        assert!(slowness(Some(0.001), 200).is_none() && slowness(Some(0.001), 201).is_some());
        assert!(slowness(None, 60_000).is_none(), "nothing is known of earlier batches");
    }

    #[test]
    fn patience_covers_the_queued_batches() {
        let timeout = Duration::from_secs(10);
        let of = |batch_s, ahead| Allowance::new(timeout, batch_s, ahead);
        assert_eq!([0, 1, 3].map(|ahead| of(None, ahead).patience.as_secs()), [10, 20, 40]);
        assert_eq!([0, 1, 3].map(|ahead| of(Some(2.0), ahead).expected_s), [2.0, 4.0, 8.0].map(Some));
        assert_eq!(of(Some(0.1), 3).patience, timeout, "never less than that of one batch");
        assert_eq!(of(Some(100.0), 3).patience.as_secs_f64(), 400.0 * PATIENCE);
    }
}
