//! The CPU prong: threads that prepare samples of the batches that the schedule gives to the host's CPU.
//!
//! Threads share a batch by rows, so a slow sample delays only its own batch: the other threads finish the rest of that
//! batch and then begin the next one.
//!
//! - `fetching`: threads that fetch samples ahead, if reads of the dataset have latency.

pub(crate) mod fetching;

use crate::delivery::BatchBuffer;
use crate::engine::{CpuJob, CpuWork, Engine, GivenUp, RunTask};
use crate::error::LoaderError;
use crate::image_output::ImageOutput;
use crate::rows::{PutBack, RowsTaken};
use crate::schedule::{BatchId, CPU};
use crate::usage::CoreTimes;
use ddlp_csd::chunk::ChunkLength;
use ddlp_csd::prepare::{self, SamplePreparer, close_gaps};
use ddlp_csd::slot::SampleRecord;
use ddlp_dataset::{FetchedSample, Half};
use nix::unistd::{Pid, gettid};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Activity of a thread of the CPU prong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    /// Announcing samples to the dataset, this one first.
    Announcing,
    /// Fetching a sample.
    Fetching,
    /// Preparing a chunk of samples.
    Preparing,
}

/// Current activity of a thread, for the message about a stall.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doing {
    pub activity: Activity,
    pub id: BatchId,
    pub sample_id: u64,
    /// When the thread began to announce, to fetch, or to prepare the chunk of samples that this sample belongs to.
    pub since: Instant,
}

/// The place where a thread publishes its activity. The lock guards the work; the sample id changes without it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Desk {
    work: Mutex<Option<DeskWork>>,
    sample_id: AtomicU64,
    /// Id of the thread; 0 before the first one.
    thread: AtomicI32,
}

#[derive(Clone, Copy, Debug)]
struct DeskWork {
    activity: Activity,
    id: BatchId,
    since: Instant,
}

impl Desk {
    /// Returns what the thread is doing now; `None` while it waits for work.
    pub fn doing(&self) -> Option<Doing> {
        let work = *self.work.lock().expect("no panic while a desk is locked");
        work.map(|DeskWork { activity, id, since }| {
            let sample_id = self.sample_id.load(Ordering::Relaxed);
            Doing { activity, id, sample_id, since }
        })
    }

    /// Publishes that this thread works here from now on.
    pub fn enter(&self) {
        self.thread.store(gettid().as_raw(), Ordering::Release);
    }

    /// Returns the thread's times, if it runs and the kernel counts them.
    pub fn core_times(&self) -> Option<CoreTimes> {
        CoreTimes::of_thread(Pid::from_raw(self.thread.load(Ordering::Acquire)))
    }

    /// Publishes what the thread begins to do.
    pub fn begin(&self, activity: Activity, id: BatchId, sample_id: u64) {
        self.begin_at(activity, id, sample_id, Instant::now());
    }

    /// Publishes what the thread has done `since` then.
    pub fn begin_at(&self, activity: Activity, id: BatchId, sample_id: u64, since: Instant) {
        self.sample_id.store(sample_id, Ordering::Relaxed);
        self.set_work(Some(DeskWork { activity, id, since }));
    }

    /// Publishes that the thread waits for work.
    pub fn end(&self) {
        self.set_work(None);
    }

    fn set_work(&self, work: Option<DeskWork>) {
        *self.work.lock().expect("no panic while a desk is locked") = work;
    }
}

/// Runs one thread of the prong until the run is over.
pub(crate) fn work(engine: &Arc<Engine>, desk: &Desk) {
    desk.enter();
    let mut preparer = RowPreparer::new(engine);
    let (mut length, mut samples) = (ChunkLength::default(), Vec::new());
    while let Some(CpuWork { job, ahead, fetched }) = engine.next_cpu_work(length.samples(), &mut samples) {
        if let Some(&first) = ahead.first() {
            desk.begin(Activity::Announcing, job.id, first);
            prepare::announce(&*engine.task.dataset, &ahead, engine.task.ahead(job.id.epoch));
            desk.end();
        }
        let taken = match fetched {
            Some(range) => job.rows.take_range(range),
            None => job.rows.take(length.samples()),
        };
        if let Some(taken) = taken {
            let (rows, start) = (taken.range(), Instant::now());
            desk.begin(Activity::Preparing, job.id, job.sample_ids.of(rows.start));
            make_rows(engine, &mut preparer, &job, taken, &mut samples, desk);
            let busy = start.elapsed();
            length.took(rows.len(), busy);
            engine.work_times.prepared(busy, preparer.preparer.take_times().read);
        }
        samples.iter_mut().for_each(FetchedSample::clear);
    }
}

/// One thread's preparer, which makes rows in the form in which they are delivered.
struct RowPreparer {
    preparer: SamplePreparer,
    /// Bucket of the samples that are prepared now.
    bucket: usize,
    /// Scratch row of pixels, if floats are delivered.
    pixels: Vec<u8>,
}

impl RowPreparer {
    fn new(engine: &Engine) -> Self {
        let task = &engine.task;
        let preparer =
            SamplePreparer::new(&task.buckets[0].program).trying(task.max_corrupt).calling(task.functions.clone());
        let preparer = if engine.work_times.measures_reading() { preparer.timed() } else { preparer };
        Self { preparer, bucket: 0, pixels: Vec::new() }
    }

    /// Prepares samples of this batch from now on. Returns how its images are delivered.
    fn begin<'t>(&mut self, task: &'t RunTask, id: BatchId) -> &'t ImageOutput {
        let (number, bucket) = (task.cut.bucket(id.batch), task.bucket(id));
        if std::mem::replace(&mut self.bucket, number) != number {
            self.preparer.change_program(&bucket.program);
        }
        let bytes = if bucket.images.is_as_prepared() { 0 } else { bucket.images.prepared().bytes() };
        self.pixels.resize(bytes, 0);
        &bucket.images
    }

    /// Prepares a sample while it prefetches the `next` one, unless the samples were `fetched`. Returns `None` if the
    /// run is stopped meanwhile.
    fn make_row(
        &mut self,
        engine: &Engine,
        (epoch, images): (u32, &ImageOutput),
        sample_id: u64,
        next: Option<u64>,
        fetched: Option<&mut FetchedSample>,
        row: &mut [u8],
    ) -> Result<Option<SampleRecord>, LoaderError> {
        let task = &engine.task;
        let next = next.filter(|_| fetched.is_none()).map(|next| prepare::stored_at(&*task.dataset, next));
        let prefetch = |half| next.into_iter().for_each(|next| prepare::prefetch(&*task.dataset, next, half));
        let context = task.epoch_context(epoch);
        let Self { preparer, pixels, .. } = self;
        let is_over = || engine.is_stopped();
        let prepare =
            |row: &mut [u8]| preparer.prepare_unless(&is_over, &*task.dataset, context, sample_id, fetched, row);
        prefetch(Half::First);
        if images.is_as_prepared() {
            prefetch(Half::Second);
            return prepare(row).map_err(LoaderError::of_sample);
        }
        let record = prepare(pixels).map_err(LoaderError::of_sample)?;
        prefetch(Half::Second);
        if record.is_some_and(|record| record.has_row()) {
            // The pixels are still in the core's cache.
            images.write(pixels, row);
        }
        Ok(record)
    }
}

/// Prepares rows of a batch. `fetched` has their samples, or nothing if this thread reads them.
fn make_rows(
    engine: &Engine,
    preparer: &mut RowPreparer,
    job: &CpuJob,
    mut taken: RowsTaken<'_>,
    fetched: &mut [FetchedSample],
    desk: &Desk,
) {
    let (first, mut failed) = (taken.range().start, None);
    let images = preparer.begin(&engine.task, job.id);
    taken.make(|(number, row)| {
        if engine.is_stopped() {
            return None;
        }
        let (sample_id, next) = (job.sample_ids.of(number), job.sample_ids.get(number + 1));
        desk.sample_id.store(sample_id, Ordering::Relaxed);
        let prepared =
            preparer.make_row(engine, (job.id.epoch, images), sample_id, next, fetched.get_mut(number - first), row);
        prepared.map_err(|error| failed = Some(error)).ok().flatten()
    });
    if let Some(error) = failed {
        job.close(error);
    }
    desk.end();
    engine.memory.look();
    engine.read.add(preparer.preparer.take_read());
    engine.healed(job.id, preparer.preparer.take_healed());
    match job.rows.put_back(taken) {
        PutBack::Pending => {}
        PutBack::Complete(buffer, Some(records)) if !engine.is_stopped() => {
            finish(engine, preparer, job, buffer, records);
        }
        // The run was stopped, possibly before all rows were made.
        PutBack::Complete(..) => {}
        PutBack::Closed => match job.take_error() {
            Some(error) => engine.failed(job.id, error),
            None => engine.give_up(CPU, job.id, GivenUp::Cancelled),
        },
    }
}

fn finish(
    engine: &Engine,
    preparer: &mut RowPreparer,
    job: &CpuJob,
    mut buffer: Box<dyn BatchBuffer>,
    records: Vec<SampleRecord>,
) {
    let _making_ready = engine.making_ready();
    if let Err(error) = preparer.preparer.check(&*engine.task.dataset, &|| engine.is_stopped()) {
        engine.failed(job.id, LoaderError::Unavailable(error));
    } else if engine.executed(CPU, job.id) {
        close_gaps(&records, buffer.bytes_mut(), job.row_bytes);
        engine.ready_in_buffer(CPU, job.id, records, buffer, None);
        // That may have woken the consumer on this core. If it had to wait for the end of this thread's time slice,
        // finished batches would pile up and their buffers would leave the caches.
        std::thread::yield_now();
    }
}
