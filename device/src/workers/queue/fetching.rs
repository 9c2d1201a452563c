//! The queue as the thread sees it that fetches samples.

use super::{JobQueue, QueueState, QueuedJob};
use crate::job::{JobId, LoadedProgram};
use ddlp_csd::prepare::EpochContext;
use ddlp_dataset::FetchedSample;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Most bytes of memory of samples that are in flight or wait for a worker. It holds if the dataset knows the samples'
/// lengths; otherwise samples are expected to take as much as others before them.
const BYTES_MAX: u64 = 128 << 20;
/// Expected bytes of the first samples of unknown length. Later ones are expected to be as large as the average.
const FIRST_BYTES: u64 = 128 << 10;
/// Number of samples over which the average goes.
const AVERAGED: u64 = 16;

/// The bytes of the samples of all jobs.
pub(super) struct FetchedBytes {
    average: u64,
    /// Whether samples are not asked for until others have been taken.
    is_full: bool,
}

impl Default for FetchedBytes {
    fn default() -> Self {
        Self { average: FIRST_BYTES, is_full: false }
    }
}

/// A sample to ask for.
pub struct Ask {
    /// Its job.
    pub id: JobId,
    /// Its position in the job's batch.
    pub position: usize,
    /// Its id in the epoch.
    pub sample_id: u64,
    /// The epoch.
    pub context: EpochContext,
    /// The program that the job runs.
    pub program: Arc<LoadedProgram>,
    /// Bytes of memory to reserve for it.
    pub bytes: u64,
}

impl QueueState {
    fn waiting_bytes(&self) -> u64 {
        self.entries.iter().map(|entry| entry.supply.waiting_bytes()).sum()
    }

    /// Returns whether no more samples may be asked for until others are taken.
    pub(super) fn takes_full(&mut self) -> bool {
        std::mem::take(&mut self.bytes.is_full)
    }
}

impl JobQueue {
    /// Puts samples to ask for into `asks`, in the order of the jobs, while `reserved` bytes are reserved for others in
    /// flight: as many as their bytes allow, and at most `most`. `bytes_of` returns the bytes of memory that the sample
    /// with an id takes, if they are known, and does not wait. Returns whether there are more than `most`; `None` when
    /// the pool stops.
    pub fn asks(
        &self,
        most: usize,
        reserved: u64,
        bytes_of: impl Fn(u64) -> Option<u64>,
        asks: &mut Vec<Ask>,
    ) -> Option<bool> {
        let mut state = self.state();
        if self.is_stopping() {
            return None;
        }
        let (mut taken, average) = (reserved + state.waiting_bytes(), state.bytes.average);
        let (first, mut is_full) = (asks.len(), false);
        for entry in state.entries.iter_mut().filter(|entry| !entry.work.is_cancelled() && !entry.work.is_unread()) {
            let Some(supply) = entry.supply.fetched() else { continue };
            let (id, request) = (entry.work.job.id, &entry.work.job.request);
            let context = EpochContext { seed: request.seed, epoch: request.epoch, fidelity: request.fidelity };
            while let Some(position) = supply.unasked() {
                let sample_id = request.sample_ids[position];
                let bytes = bytes_of(sample_id).unwrap_or(average);
                // One sample is always asked for, whatever it takes.
                is_full = taken > 0 && taken.saturating_add(bytes) > BYTES_MAX;
                if asks.len() - first == most || is_full {
                    state.bytes.is_full = is_full;
                    return Some(!is_full);
                }
                supply.asked();
                taken += bytes;
                asks.push(Ask { id, position, sample_id, context, program: entry.work.job.program.clone(), bytes });
            }
        }
        state.bytes.is_full = is_full;
        Some(false)
    }

    /// Returns whether jobs are queued.
    pub fn has_jobs(&self) -> bool {
        !self.state().entries.is_empty()
    }

    /// Returns whether workers have samples of jobs that will have no more.
    pub fn has_unread_in_work(&self) -> bool {
        self.state().entries.iter().any(|entry| entry.work.is_unread() && entry.holders > 0)
    }

    /// Returns whether samples of a job that were asked for are still wanted.
    pub fn wants(&self, id: JobId) -> bool {
        let state = self.state();
        let entry = state.position(id).map(|at| &state.entries[at]);
        entry.is_some_and(|entry| !entry.work.is_cancelled() && !entry.work.is_unread())
    }

    /// Hands a sample that has come to the workers.
    pub fn came(&self, id: JobId, position: usize, sample: FetchedSample) {
        let mut state = self.state();
        let average = &mut state.bytes.average;
        *average = (*average * (AVERAGED - 1) + sample.memory_bytes()).div_ceil(AVERAGED);
        let Some(at) = state.position(id) else { return };
        if let Some(supply) = state.entries[at].supply.fetched() {
            supply.came(position, sample);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Records that the dataset cannot be read: this job, or all jobs whose samples are not all prepared, will have no
    /// more samples. The workers report those that are left as unavailable. A job whose samples have all come is meant,
    /// too, since workers read large samples, damaged ones and substitutes themselves.
    pub fn cannot_read(&self, id: Option<JobId>) {
        let state = self.state();
        let is_meant = |entry: &&QueuedJob| match id {
            Some(id) => entry.work.job.id == id,
            None => entry.done < entry.work.job.request.sample_ids.len(),
        };
        for entry in state.entries.iter().filter(is_meant) {
            entry.work.unread.store(true, Ordering::Relaxed);
        }
        drop(state);
        self.changed.notify_all();
    }
}
