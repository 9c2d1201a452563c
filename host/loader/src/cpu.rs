//! The CPU prong: threads that prepare samples of the batches that the schedule gives to the host's CPU.
//!
//! Threads share batches by rows, so one slow sample holds up nothing but its own batch: the other threads finish the rest
//! of it and go on to the next.

use crate::batch::Pixels;
use crate::buffers::PooledBuffer;
use crate::engine::{Engine, GivenUp};
use crate::rows::{PutBack, RowClaims};
use crate::schedule::{BatchId, CPU};
use ddlp_csd::prepare::{EpochContext, SamplePreparer, close_gaps};
use ddlp_csd::slot::SampleRecord;
use memmap2::MmapMut;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// Work that a thread takes at a time, in time: small samples are taken several at once.
const CHUNK: Duration = Duration::from_micros(300);
/// Most rows taken at a time.
const CHUNK_ROWS_MAX: usize = 64;

/// A batch in the work of the CPU prong.
pub(crate) struct CpuJob {
    pub id: BatchId,
    pub rows: RowClaims,
    sample_ids: Vec<u64>,
    records: Vec<OnceLock<SampleRecord>>,
    row_bytes: usize,
}

impl CpuJob {
    pub fn new(id: BatchId, sample_ids: Vec<u64>, buffer: MmapMut, row_bytes: usize) -> Self {
        Self {
            id,
            rows: RowClaims::new(buffer, sample_ids.len(), row_bytes),
            records: sample_ids.iter().map(|_| OnceLock::new()).collect(),
            sample_ids,
            row_bytes,
        }
    }
}

/// What a CPU thread is doing, for the message that names what nothing arrives from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doing {
    pub id: BatchId,
    pub sample_id: u64,
    pub since: Instant,
}

/// Where each thread of the prong says what it is doing.
pub(crate) type DoingBoard = Vec<Mutex<Option<Doing>>>;

/// One thread of the prong; returns when the run is over.
pub(crate) fn work(engine: &Arc<Engine>, doing: &Mutex<Option<Doing>>) {
    let mut preparer = SamplePreparer::new(&engine.task.program);
    let mut per_sample = CHUNK;
    while let Some(job) = engine.next_cpu_job() {
        let chunk = (CHUNK.as_nanos() / per_sample.as_nanos().max(1)) as usize;
        if let Some(taken) = job.rows.take(chunk.clamp(1, CHUNK_ROWS_MAX)) {
            let (rows, start) = (taken.range().len(), Instant::now());
            prepare(engine, &mut preparer, &job, taken, doing);
            per_sample = start.elapsed() / rows as u32;
        }
    }
}

fn prepare(
    engine: &Engine,
    preparer: &mut SamplePreparer,
    job: &CpuJob,
    mut taken: crate::rows::RowsTaken<'_>,
    doing: &Mutex<Option<Doing>>,
) {
    let task = &engine.task;
    let context = EpochContext { seed: task.seed, epoch: job.id.epoch };
    for (number, row) in taken.rows() {
        if engine.is_stopped() {
            break;
        }
        let sample_id = job.sample_ids[number];
        *doing.lock().expect("no panic while the board is locked") =
            Some(Doing { id: job.id, sample_id, since: Instant::now() });
        let record = preparer.prepare(&*task.dataset, &task.program, context, sample_id, row);
        engine.memory.look();
        job.records[number].set(record).expect("each row is handed out once");
    }
    *doing.lock().expect("no panic while the board is locked") = None;
    match job.rows.put_back(taken) {
        PutBack::Pending => {}
        PutBack::Complete(buffer) if !engine.is_stopped() => finish(engine, job, buffer),
        PutBack::Complete(buffer) => engine.pool.put(buffer),
        PutBack::Closed(buffer) => {
            engine.pool.put(buffer);
            engine.give_up(CPU, job.id, GivenUp::Cancelled);
        }
    }
}

fn finish(engine: &Engine, job: &CpuJob, mut buffer: MmapMut) {
    let records: Option<Vec<SampleRecord>> = job.records.iter().map(|record| record.get().copied()).collect();
    // A record is missing when the run was stopped while rows were out.
    if let Some(records) = records
        && engine.executed(CPU, job.id)
    {
        close_gaps(&records, &mut buffer, job.row_bytes);
        let pixels = Pixels::Pooled(PooledBuffer::new(buffer, engine.pool.clone()));
        engine.ready(CPU, job.id, records, pixels);
    } else {
        engine.pool.put(buffer);
    }
}
