//! The worker pool: prepares the samples of queued batches straight into their slots.
//!
//! - [`queue`]: which sample is next, and when a batch is finished or let go.
//! - [`kit`]: one worker's tools; where a sample becomes a row.
//! - [`row_crc`]: the batch's checksum from its rows' checksums.
//! - [`stats`]: counters for the vendor log.
//!
//! Workers take samples of the oldest batch first and go on to the next queued batch when no unstarted sample is left: with two
//! batches queued nobody idles at a batch's end, and one slow sample holds up its own batch alone.

pub mod kit;
pub mod queue;
pub mod row_crc;
pub mod stats;

use crate::job::{Job, JobEvent, JobId};
use crate::slots::SlotLease;
use ddlp_dataset::Dataset;
use kit::Kit;
use queue::{Finishing, Queue};
use row_crc::RowCrc;
use stats::Stats;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Largest number of worker threads.
pub const THREADS_MAX: usize = 256;

/// A fraction of full speed, above 0 and at most 1.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Throttle(f64);

impl Throttle {
    /// Full speed.
    pub const FULL: Self = Self(1.0);

    /// Checks the range: at least 0.001, at most 1.
    pub fn new(fraction: f64) -> Option<Self> {
        (0.001..=1.0).contains(&fraction).then_some(Self(fraction))
    }

    /// How long to rest after working for `busy`.
    fn rest(self, busy: Duration) -> Duration {
        busy.mul_f64(1.0 / self.0 - 1.0)
    }
}

/// Receives what became of each job; called from worker threads, and from whoever cancels.
pub type Notify = Box<dyn Fn(JobEvent) + Send + Sync>;

struct Shared {
    dataset: Arc<dyn Dataset>,
    queue: Queue,
    stats: Stats,
    throttle: Throttle,
    notify: Notify,
}

/// The running workers. Dropping it stops them at their next sample boundary.
pub struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// Starts `threads` workers.
    pub fn start(
        dataset: Arc<dyn Dataset>,
        threads: usize,
        throttle: Throttle,
        notify: Notify,
    ) -> std::io::Result<Self> {
        assert!((1..=THREADS_MAX).contains(&threads), "1 to {THREADS_MAX} workers");
        let shared = Arc::new(Shared { dataset, queue: Queue::default(), stats: Stats::default(), throttle, notify });
        let mut pool = Self { shared, threads: Vec::with_capacity(threads) };
        for number in 0..threads {
            let shared = pool.shared.clone();
            let builder = std::thread::Builder::new().name(format!("worker-{number}"));
            pool.threads.push(builder.spawn(move || shared.work())?);
        }
        Ok(pool)
    }

    /// Queues a job. Its event comes later, also when it is cancelled.
    pub fn submit(&self, job: Job, lease: SlotLease) {
        self.shared.queue.push(job, lease);
    }

    /// Asks for a job to be given up: at once when no worker is at it, else at the next sample boundary. A job that is
    /// already finished is left alone.
    pub fn cancel(&self, id: JobId) {
        if self.shared.queue.cancel(id) {
            self.shared.released(id);
        }
    }

    /// Counters since the start.
    pub fn stats(&self) -> &Stats {
        &self.shared.stats
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.queue.stop();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a worker thread ended by a panic");
            }
        }
    }
}

impl Shared {
    fn work(&self) {
        let mut kit = Kit::default();
        while let Some(task) = self.queue.next() {
            let start = Instant::now();
            let made = kit.prepare(&*self.dataset, &task);
            let busy = start.elapsed();
            self.stats.sample(&made, busy);
            self.queue.rest(task.id(), self.throttle.rest(busy));
            match self.queue.record(task, made, busy) {
                queue::Recorded::More => {}
                queue::Recorded::Complete(finishing) => self.finish(*finishing, &mut kit),
                queue::Recorded::Released(id) => self.released(id),
            }
        }
    }

    fn finish(&self, finishing: Finishing, kit: &mut Kit) {
        let start = Instant::now();
        let id = finishing.id();
        let corrupt = finishing.corrupt();
        let finished = finishing.finish(kit.row_crc(finishing.row_bytes()), start);
        let published = self.queue.publish(finishing, &finished);
        self.stats.finish(start.elapsed());
        if published {
            self.stats.batch(corrupt);
            (self.notify)(JobEvent::Done { id, corrupt });
        } else {
            self.released(id);
        }
    }

    fn released(&self, id: JobId) {
        (self.notify)(JobEvent::Released { id });
    }
}

/// The operator for the row length asked for, worked out anew when the length changes.
fn row_crc_for(cached: &mut Option<RowCrc>, row_bytes: usize) -> &RowCrc {
    if cached.as_ref().is_none_or(|crc| crc.row_bytes() != row_bytes) {
        *cached = None;
    }
    cached.get_or_insert_with(|| RowCrc::new(row_bytes))
}
