//! Counters of the worker pool.

use ddlp_csd::prepare::StageTimes;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Totals since the start, which workers add to.
#[derive(Debug, Default)]
pub struct Stats {
    batches: AtomicU64,
    samples: AtomicU64,
    corrupt: AtomicU64,
    read_ns: AtomicU64,
    prepare_ns: AtomicU64,
    finish_ns: AtomicU64,
}

/// The totals at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Batches finished.
    pub batches: u64,
    /// Samples prepared, those of cancelled batches included.
    pub samples: u64,
    /// Samples of finished batches that followed the corrupt-sample policy.
    pub corrupt: u64,
    /// Time spent reading.
    pub read: Duration,
    /// Time spent on decoding and augmenting.
    pub prepare: Duration,
    /// Time spent on checksums and on finishing batches.
    pub finish: Duration,
}

fn add(total: &AtomicU64, time: Duration) {
    total.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Relaxed);
}

impl Stats {
    pub(super) fn chunk(&self, samples: usize, times: StageTimes, busy: Duration) {
        self.samples.fetch_add(samples as u64, Relaxed);
        add(&self.read_ns, times.read);
        add(&self.prepare_ns, times.prepare);
        add(&self.finish_ns, busy.saturating_sub(times.read + times.prepare));
    }

    pub(super) fn finish(&self, time: Duration) {
        add(&self.finish_ns, time);
    }

    pub(super) fn batch(&self, corrupt: u32) {
        self.batches.fetch_add(1, Relaxed);
        self.corrupt.fetch_add(corrupt.into(), Relaxed);
    }

    /// Returns the current totals.
    pub fn totals(&self) -> Totals {
        let time = |total: &AtomicU64| Duration::from_nanos(total.load(Relaxed));
        Totals {
            batches: self.batches.load(Relaxed),
            samples: self.samples.load(Relaxed),
            corrupt: self.corrupt.load(Relaxed),
            read: time(&self.read_ns),
            prepare: time(&self.prepare_ns),
            finish: time(&self.finish_ns),
        }
    }
}
