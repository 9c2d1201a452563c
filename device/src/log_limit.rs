//! A limit on log messages that a peer can cause.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Limit on log messages of one kind that a peer can cause: one per second.
pub(crate) struct LogLimit(AtomicU64);

impl LogLimit {
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    pub(crate) fn allows(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        self.0.swap(now, Ordering::Relaxed) != now
    }
}
