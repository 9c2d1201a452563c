//! The worker pool: prepares the samples of queued batches straight into their slots.
//!
//! - `queue`: which samples are next, and when a batch is finished or released.
//! - `fetch`: for a dataset in a store, the thread that fetches the samples before workers prepare them.
//! - `kit`: one worker's tools, which turn samples into rows.
//! - `row_crc`: the batch's checksum from its rows' checksums.
//! - `stats`: counters for the vendor log.
//!
//! Workers take chunks of samples (`ddlp_csd::chunk`) from the oldest batch, and go on to the next batch when it has no
//! unstarted sample left. With two batches queued, no worker idles at the end of a batch, and one slow sample holds up
//! only its own batch. The worker that takes the first chunk after a batch was queued announces all samples of that
//! batch to the dataset, so that the disk reads them while workers prepare others. The worker that takes a batch's
//! first chunk leases the batch's slot. If the slot has no memory yet, that worker waits for the memory, while the
//! others go on with other batches.
//!
//! If the dataset lies in a store, workers take samples that have come, in any order. They wait for no request, with
//! two exceptions: a sample of more than 4 MiB, and one that came damaged, are read by the worker that prepares them.
//!
//! A sample that makes its decoder panic is a corrupt sample. A panic anywhere else is a defect: the pool gives up the
//! batch and releases its slot, and the worker goes on.

mod fetch;
mod kit;
mod queue;
mod row_crc;
mod stats;

use crate::job::{Job, JobEvent, JobId};
use crate::slots::{LeaseError, Slots};
use ddlp_csd::chunk::ChunkLength;
use ddlp_csd::prepare;
use ddlp_dataset::{Ahead, Dataset};
use kit::{Kit, log_unavailable};
use queue::{Finishing, JobQueue, Recorded, WorkerTask};
use stats::Stats;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Largest number of worker threads.
pub const THREADS_MAX: usize = 256;

/// A fraction of full speed, above 0 and at most 1.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Throttle(f64);

impl Throttle {
    /// Full speed, without rests.
    pub const FULL: Self = Self(1.0);

    /// Makes a throttle from a fraction of at least 0.001 and at most 1.
    pub fn new(fraction: f64) -> Option<Self> {
        (0.001..=1.0).contains(&fraction).then_some(Self(fraction))
    }

    /// Returns the fraction of full speed.
    pub fn fraction(self) -> f64 {
        self.0
    }

    /// Returns how long to rest after working for `busy`.
    fn rest(self, busy: Duration) -> Duration {
        busy.mul_f64(1.0 / self.0 - 1.0)
    }
}

/// Receiver of each job's end; called from worker threads, and from the thread that cancels a job.
pub type Notify = Box<dyn Fn(JobEvent) + Send + Sync>;

struct Shared {
    dataset: Arc<dyn Dataset>,
    slots: Arc<Slots>,
    queue: JobQueue,
    stats: Stats,
    throttle: Throttle,
    notify: Notify,
}

/// The running workers. Dropping it stops them at their next sample, and does not wait for them: a read may never end.
pub struct Pool {
    shared: Arc<Shared>,
}

impl Pool {
    /// Starts `threads` workers.
    pub fn start(
        dataset: Arc<dyn Dataset>,
        slots: Arc<Slots>,
        threads: usize,
        throttle: Throttle,
        notify: Notify,
    ) -> std::io::Result<Self> {
        assert!((1..=THREADS_MAX).contains(&threads), "1 to {THREADS_MAX} workers");
        let in_flight = dataset.fetch_depth().at_once;
        let (queue, stats) = (JobQueue::new(in_flight.is_some()), Stats::default());
        let shared = Arc::new(Shared { dataset, slots, queue, stats, throttle, notify });
        let pool = Self { shared };
        if let Some(most) = in_flight {
            fetch::start(pool.shared.clone(), most)?;
        }
        for number in 0..threads {
            let shared = pool.shared.clone();
            let builder = std::thread::Builder::new().name(format!("worker-{number}"));
            builder.spawn(move || shared.work())?;
        }
        Ok(pool)
    }

    /// Queues a job. The job's event comes later, even if the job is cancelled.
    pub fn submit(&self, job: Job) {
        self.shared.queue.push(job);
    }

    /// Gives up a job: at once if no worker works on it, else after the current samples. Ignores a job that has already
    /// finished.
    pub fn cancel(&self, id: JobId) {
        if self.shared.queue.cancel(id) {
            self.shared.released(id);
        }
    }

    /// Returns the counters since the start.
    pub fn stats(&self) -> &Stats {
        &self.shared.stats
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.queue.stop();
    }
}

impl Shared {
    fn work(&self) {
        let (mut kit, mut length) = (Kit::default(), ChunkLength::default());
        while let Some(task) = self.queue.next(length.samples()) {
            let id = task.id();
            if catch_unwind(AssertUnwindSafe(|| self.run(task, &mut kit, &mut length))).is_err() {
                tracing::error!(job = id.0, "a worker panicked: a defect. Giving up its batch");
                kit = Kit::default();
                if self.queue.cancel(id) {
                    self.released(id);
                }
            }
        }
    }

    fn run(&self, mut task: WorkerTask<'_>, kit: &mut Kit, length: &mut ChunkLength) {
        // The worker does this, not the network thread that queues the job: announcing may read the pack's index, a
        // lease may allocate memory, and the network thread must not wait for either.
        let ahead = Ahead { fidelity: task.work.job.request.fidelity, window: None };
        prepare::announce(&*self.dataset, &task.ahead, ahead);
        if task.is_first() {
            let job = &task.work.job;
            match self.slots.lease(job.request.slot, job.layout, &job.host) {
                Ok(lease) => self.queue.leased(&task, lease),
                Err(error) => return self.not_leased(task, &error),
            }
        }
        let start = Instant::now();
        let times = kit.make_rows(&*self.dataset, &mut task);
        let busy = start.elapsed();
        length.took(kit.made.len(), busy);
        self.stats.chunk(kit.made.len(), times, busy);
        self.queue.rest(task.id(), self.throttle.rest(busy));
        match self.queue.record(task, &kit.made, busy) {
            Recorded::More => {}
            Recorded::Complete(finishing) => self.finish(*finishing, kit),
            Recorded::Released(id) => self.released(id),
        }
    }

    fn not_leased(&self, task: WorkerTask<'_>, error: &LeaseError) {
        let (id, slot) = (task.id(), task.work.job.request.slot);
        self.queue.remove(task);
        if let LeaseError::Memory(_) = error {
            tracing::info!(slot, "{error}");
            (self.notify)(JobEvent::NoMemory { id });
        } else {
            // This is a defect, since the subsystem gives a slot to one job at a time. Only this command fails.
            tracing::error!(slot, "{error}");
            self.released(id);
        }
    }

    fn finish(&self, mut finishing: Finishing<'_>, kit: &mut Kit) {
        let start = Instant::now();
        let id = finishing.id();
        if let Err(error) = kit.check(&*self.dataset, &finishing) {
            log_unavailable(&error);
            finishing.withdraw();
        }
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

#[cfg(test)]
mod tests;
