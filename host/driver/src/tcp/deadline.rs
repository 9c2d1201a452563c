//! Until when a caller waits, and how long that is in messages.

use crate::error::DriverError;
use std::time::{Duration, Instant};

/// A point in time, and the time-out that it came from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    pub(super) at: Instant,
    pub(super) after: Duration,
}

impl Deadline {
    /// Upper bound of time-outs.
    const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

    pub(super) fn after(after: Duration) -> Self {
        Self { at: Instant::now() + after.min(Self::LONGEST), after }
    }

    pub(super) fn timed_out(self, peer: &str, what: &str) -> DriverError {
        DriverError::TimedOut { peer: peer.to_owned(), what: what.to_owned(), after: self.after }
    }
}
