//! Claims of batches, for the CPU and for drives.

use super::{Core, CpuJob, Engine, GivenUp, ReadyBatch};
use crate::error::LoaderError;
use crate::schedule::{BatchId, CPU, ProngId, Room};
use std::sync::Arc;
use std::time::Duration;

/// Longest sleep of an idle CPU thread before it checks whether to take over another prong's batch.
const IDLE_LOOK: Duration = Duration::from_millis(20);

impl Engine {
    /// Waits for the next batch for an idle CPU thread, and returns it: a batch that others work on and that has rows
    /// left, or a new one. A new one comes with the samples that the thread has to announce. `None` when the run is
    /// over.
    pub fn next_cpu_job(&self) -> Option<(Arc<CpuJob>, Vec<u64>)> {
        let mut core = self.lock();
        loop {
            if self.is_stopped() || core.schedule.is_done() {
                return None;
            }
            self.close_lost_jobs(&mut core);
            core.jobs.retain(|job| !job.rows.is_exhausted());
            if let Some(job) = core.jobs.front() {
                return Some((job.clone(), Vec::new()));
            }
            if let Some(job) = self.claim_for_cpu(&mut core) {
                core.jobs.push_back(job.clone());
                let ahead = core.samples_ahead(job.id);
                drop(core);
                self.work.notify_all();
                return Some((job, ahead));
            }
            core = self.work.wait_timeout(core, IDLE_LOOK).expect("no thread panics while it holds the core").0;
        }
    }

    /// Stops work on batches that a drive finished first.
    fn close_lost_jobs(&self, core: &mut Core) {
        for id in core.schedule.take_cancels(CPU) {
            let Some(job) = core.jobs.iter().find(|job| job.id == id).cloned() else { continue };
            if job.rows.close() {
                core.give_up(CPU, id, GivenUp::Cancelled);
            }
        }
    }

    fn claim_for_cpu(&self, core: &mut Core) -> Option<Arc<CpuJob>> {
        if core.consumer_waits && self.target.free() == 0 && core.schedule.awaits_cpu() {
            self.make_way(core);
        }
        let room = self.buffer_room(core)?;
        let now = core.recorder.now();
        let id = core.schedule.claim(CPU, now, room)?;
        core.recorder.claimed(CPU, id);
        let sample_ids = match core.sample_ids(id) {
            Ok(sample_ids) => sample_ids,
            Err(source) => {
                core.executed(CPU, id);
                self.make_ready(core, CPU, id, Err(LoaderError::of_order(source)));
                return None;
            }
        };
        if sample_ids.is_empty() {
            // A rank's share of a short last batch can be empty.
            core.executed(CPU, id);
            self.make_ready(core, CPU, id, Ok(ReadyBatch::empty()));
            return None;
        }
        let buffer = match self.target.take() {
            Ok(Some(buffer)) => buffer,
            Ok(None) => {
                core.give_up(CPU, id, GivenUp::Returned);
                return None;
            }
            Err(source) => {
                // Without memory nobody can prepare the batch, so the run ends with this error.
                core.executed(CPU, id);
                self.make_ready(core, CPU, id, Err(LoaderError::System { what: "a batch buffer", source }));
                return None;
            }
        };
        Some(Arc::new(CpuJob::new(id, sample_ids, buffer, self.task.images.row_bytes())))
    }

    /// Claims a batch for a drive that has a free slot. Returns `None` if there is nothing to claim now.
    pub fn claim_for_drive(&self, prong: ProngId, is_last_slot: bool) -> Option<(BatchId, Vec<u64>)> {
        let mut core = self.lock();
        let now = core.recorder.now();
        let is_reserved = is_last_slot && core.schedule.must_reserve_slot(prong);
        let room = if is_reserved { Room::Critical } else { Room::Any };
        let id = core.schedule.claim(prong, now, room)?;
        core.recorder.claimed(prong, id);
        let sample_ids = core.sample_ids(id).unwrap_or_default();
        if sample_ids.is_empty() {
            // The CPU delivers the empty batch, as it does a failed one. If memory for the epoch's order was refused,
            // the CPU reports that.
            core.recorder.released(prong, id, false);
            core.schedule.failed(prong, id, now);
            self.work.notify_all();
            return None;
        }
        Some((id, sample_ids))
    }
}

impl Core {
    /// Returns the sample ids of this rank's share of a batch.
    fn sample_ids(&mut self, id: BatchId) -> std::io::Result<Vec<u64>> {
        self.orders.sample_ids(id, self.schedule.current_epoch())
    }

    /// Returns the ids of the samples to announce when the CPU has claimed a batch.
    fn samples_ahead(&mut self, id: BatchId) -> Vec<u64> {
        let batches = self.announced.ahead_of(id, &self.schedule);
        batches.into_iter().flat_map(|id| self.sample_ids(id).unwrap_or_default()).collect()
    }
}
