//! The worker pool: prepares the samples of queued batches straight into their slots.
//!
//! - `queue`: which samples are next, and when a batch is finished or released.
//! - `kit`: one worker's tools, which turn samples into rows.
//! - `row_crc`: the batch's checksum from its rows' checksums.
//! - `stats`: counters for the vendor log.
//!
//! Workers take runs of samples (`ddlp_csd::run`) from the oldest batch, and go on to the next batch when it has no
//! unstarted sample left. With two batches queued, no worker idles at the end of a batch, and one slow sample holds up
//! only its own batch. The worker that takes the first run after a batch was queued announces all samples of that batch
//! to the dataset, so that the disk reads them while workers prepare others. The worker that takes a batch's first run
//! leases the batch's slot. If the slot has no memory yet, that worker waits for it, while the others go on with other
//! batches.
//!
//! A sample that makes its decoder panic is a corrupt sample. A panic anywhere else is a defect: the pool gives up the
//! batch and releases its slot, and the worker goes on.

mod kit;
mod queue;
mod row_crc;
mod stats;

use crate::job::{Job, JobEvent, JobId};
use crate::slots::{LeaseError, Slots};
use ddlp_csd::prepare;
use ddlp_csd::run::RunLength;
use ddlp_dataset::Dataset;
use kit::{Kit, log_unavailable};
use queue::{Finishing, Queue, Recorded, Task};
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
    queue: Queue,
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
        let (queue, stats) = (Queue::default(), Stats::default());
        let shared = Arc::new(Shared { dataset, slots, queue, stats, throttle, notify });
        let pool = Self { shared };
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

    /// Gives up a job: at once if no worker is at it, else after the current samples. Ignores a job that has already
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
        let (mut kit, mut length) = (Kit::default(), RunLength::default());
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

    fn run(&self, task: Task<'_>, kit: &mut Kit, length: &mut RunLength) {
        // Done by the worker and not when the job is queued: announcing may read the pack's index, a lease may allocate
        // memory, and the network thread must wait for neither.
        prepare::announce(&*self.dataset, &task.ahead);
        if task.is_first() {
            match self.slots.lease(task.work.job.request.slot, task.work.job.layout) {
                Ok(lease) => self.queue.leased(&task, lease),
                Err(error) => return self.not_leased(task, &error),
            }
        }
        let start = Instant::now();
        let times = kit.prepare(&*self.dataset, &task);
        let busy = start.elapsed();
        length.took(kit.made.len(), busy);
        self.stats.run(kit.made.len(), times, busy);
        self.queue.rest(task.id(), self.throttle.rest(busy));
        match self.queue.record(task, &kit.made, busy) {
            Recorded::More => {}
            Recorded::Complete(finishing) => self.finish(*finishing, kit),
            Recorded::Released(id) => self.released(id),
        }
    }

    fn not_leased(&self, task: Task<'_>, error: &LeaseError) {
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
mod tests {
    use super::*;
    use crate::slots::{Backing, Geometry, Slots};
    use ddlp_csd::program::{CorruptPolicy, Program};
    use ddlp_csd::request::BatchRequest;
    use ddlp_csd::slot::SlotLayout;
    use ddlp_dataset::{Identity, Location, ReadError};
    use ddlp_pixels::{Shape, Source};
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// Any wait longer than this is a failure, not slowness.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Dataset of ten gray images that records announced samples, and samples read without an announcement.
    #[derive(Default)]
    struct Grey {
        announced: Mutex<Vec<u64>>,
        unannounced: Mutex<Vec<u64>>,
        /// Channels by which a read reports its start, and by which it is released.
        gate: Option<Mutex<(Sender<()>, Receiver<()>)>>,
    }

    impl Dataset for Grey {
        fn len(&self) -> u64 {
            10
        }

        fn classes(&self) -> &[String] {
            &[]
        }

        fn label(&self, _index: u64) -> u32 {
            0
        }

        fn name(&self, index: u64) -> String {
            index.to_string()
        }

        fn location(&self, _index: u64) -> Location {
            Location { file: "memory".into(), offset: 0, length: 3072 }
        }

        fn sample<'a>(&'a self, index: u64, buf: &'a mut Vec<u8>) -> Result<Source<'a>, ReadError> {
            if !self.announced.lock().unwrap().contains(&index) {
                self.unannounced.lock().unwrap().push(index);
            }
            if let Some(gate) = &self.gate {
                let (begun, opened) = &*gate.lock().unwrap();
                begun.send(()).unwrap();
                opened.recv_timeout(PATIENCE).unwrap_or_default();
            }
            buf.clear();
            buf.resize(3072, 128);
            Ok(Source::Planar { width: 32, height: 32, bytes: buf })
        }

        fn announce(&self, indices: &[u64]) {
            self.announced.lock().unwrap().extend(indices);
        }

        fn identity(&self) -> Identity {
            Identity::from_bytes([0; 32])
        }

        fn kind(&self) -> &'static str {
            "grey"
        }
    }

    /// Makes a job of four samples from `first` on, with rows of this shape.
    fn job(number: u64, first: u64, program: &Arc<Program>, shape: Shape) -> Job {
        let layout = SlotLayout::new(4, shape).unwrap();
        let request = BatchRequest {
            program: 7,
            seed: 1,
            epoch: 2,
            batch: number as u32,
            slot: number as u32 % 2,
            generation: 4,
            epoch_samples: 20,
            sample_ids: (first..first + 4).collect(),
        };
        Job { id: JobId(number), program: program.clone(), request, layout }
    }

    fn slots(count: u32) -> Arc<Slots> {
        Arc::new(Slots::open(&Backing::Memory, Geometry { slots: count, slot_bytes: 1 << 20 }).unwrap())
    }

    #[test]
    fn samples_are_announced_before_they_are_read_and_once() {
        let dataset = Arc::new(Grey::default());
        let (events, received) = channel();
        let notify = Box::new(move |event| events.send(event).unwrap());
        let pool = Pool::start(dataset.clone(), slots(2), 1, Throttle::FULL, notify).unwrap();
        let program = Arc::new(crate::test_support::program("cifar-train", CorruptPolicy::Fail));
        // The epoch's samples 8 to 11 are the dataset's 8, 9, 0 and 1.
        for (number, first) in [(0, 2), (1, 8)] {
            pool.submit(job(number, first, &program, program.pipeline.output()));
        }
        for number in 0..2 {
            let expected = JobEvent::Done { id: JobId(number), corrupt: 0 };
            assert_eq!(received.recv_timeout(PATIENCE), Ok(expected));
        }
        assert_eq!(*dataset.announced.lock().unwrap(), [2, 3, 4, 5, 8, 9, 0, 1]);
        assert!(dataset.unannounced.lock().unwrap().is_empty());
    }

    #[test]
    fn a_pool_is_dropped_while_a_read_does_not_end() {
        let ((begun, has_begun), (open, opened)) = (channel(), channel());
        let dataset = Arc::new(Grey { gate: Some(Mutex::new((begun, opened))), ..Grey::default() });
        let pool = Pool::start(dataset.clone(), slots(2), 1, Throttle::FULL, Box::new(|_| {})).unwrap();
        let program = Arc::new(crate::test_support::program("cifar-train", CorruptPolicy::Fail));
        pool.submit(job(0, 0, &program, program.pipeline.output()));
        has_begun.recv_timeout(PATIENCE).unwrap();
        drop(pool);
        assert!(dataset.gate.as_ref().unwrap().try_lock().is_err(), "the read goes on");
        open.send(()).unwrap();
    }

    /// Makes a worker panic by a job whose rows do not have its program's shape. The controller never makes such a job.
    #[test]
    fn a_worker_that_panics_releases_its_job_and_goes_on() {
        let (events, received) = channel();
        let notify = Box::new(move |event| events.send(event).unwrap());
        let pool = Pool::start(Arc::new(Grey::default()), slots(2), 1, Throttle::FULL, notify).unwrap();
        let program = Arc::new(crate::test_support::program("cifar-train", CorruptPolicy::Fail));
        let good = program.pipeline.output();
        let bad = Shape { height: 1, ..good };
        for (number, shape) in (0..).zip([bad, good, bad, good]) {
            let id = JobId(number);
            // The slot of the first job is free again for the third one.
            pool.submit(job(number, 0, &program, shape));
            let expected = if shape == good { JobEvent::Done { id, corrupt: 0 } } else { JobEvent::Released { id } };
            assert_eq!(received.recv_timeout(PATIENCE), Ok(expected));
        }
    }
}
