//! Claims of batches, for the CPU and for drives.

use super::{Core, CpuJob, CpuWork, Engine, GivenUp};
use crate::delivery::BatchBuffer;
use crate::error::LoaderError;
use crate::fetch::Samples;
use crate::schedule::{BatchId, CPU, ProngId, Room};
use crate::signal::Signal;
use ddlp_dataset::FetchedSample;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

/// How often an idle thread of the CPU prong checks whether to take over a batch, while another prong works.
const IDLE_LOOK: Duration = Duration::from_millis(20);

impl Engine {
    /// Waits for the next work for an idle CPU thread, and returns it: a batch that others work on and that has rows
    /// left, or a new one. A new one comes with the samples that the thread has to announce. `None` when the run is
    /// over.
    ///
    /// If a fetch stage reads the samples, takes up to `most` rows, and replaces the used samples in `fetched` by those
    /// of the rows.
    pub fn next_cpu_work(&self, most: usize, fetched: &mut Vec<FetchedSample>) -> Option<CpuWork> {
        let mut seen = self.work.seen();
        let mut core = self.lock();
        core.take_back(fetched);
        loop {
            if self.is_stopped() || core.schedule.is_done() {
                return None;
            }
            self.close_lost_jobs(&mut core);
            core.jobs.retain(|job| !job.rows.is_exhausted());
            if core.fetching.is_some() {
                if let Some(work) = self.fetched_rows(&mut core, most, fetched) {
                    return Some(work);
                }
            } else if let Some(job) = core.jobs.front() {
                return Some(CpuWork { job: job.clone(), ahead: Vec::new(), fetched: None });
            } else if let Some(job) = self.claim_for_cpu(&mut core) {
                core.jobs.push_back(job.clone());
                let ahead = core.samples_ahead(job.id);
                drop(core);
                self.wake_cpu();
                return Some(CpuWork { job, ahead, fetched: None });
            }
            wait_for_work(&self.work, (seen, None), core);
            seen = self.work.seen();
            core = self.lock();
        }
    }

    /// Stops work on batches that a drive finished first.
    pub(super) fn close_lost_jobs(&self, core: &mut Core) {
        let lost = core.schedule.take_cancels(CPU);
        if !lost.is_empty() {
            // There is room for other samples.
            self.fetch.notify_all();
        }
        for id in lost {
            if core.fetching.as_ref().is_some_and(|fetching| fetching.will_begin(id)) {
                core.give_up(CPU, id, GivenUp::Cancelled);
                continue;
            }
            core.stop_fetching(id);
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
        let sample_ids = self.samples_of_claim(core, id)?;
        let Some(buffer) = self.take_buffer(core, id)? else {
            core.give_up(CPU, id, GivenUp::Returned);
            return None;
        };
        Some(Arc::new(CpuJob::new(id, sample_ids, buffer, self.task.bucket(id).images.row_bytes())))
    }

    /// Returns the samples of a batch that the CPU has claimed, unless the epoch has no order: then the reason why
    /// the run ends is ready.
    pub(super) fn samples_of_claim(&self, core: &mut Core, id: BatchId) -> Option<Samples> {
        let refused = match core.sample_ids(id) {
            Ok(sample_ids) => return Some(sample_ids.into_iter().collect()),
            Err(source) => LoaderError::of_order(source),
        };
        core.executed(CPU, id);
        self.make_ready(core, CPU, id, Err(refused));
        None
    }

    /// Takes a buffer for a batch that the CPU has claimed; `Some(None)` if none is free. If the system refuses memory,
    /// returns `None`, and the batch is ready with that error: without memory nobody can prepare it.
    pub(super) fn take_buffer(&self, core: &mut Core, id: BatchId) -> Option<Option<Box<dyn BatchBuffer>>> {
        match self.target.take() {
            Ok(buffer) => Some(buffer),
            Err(source) => {
                core.executed(CPU, id);
                self.make_ready(core, CPU, id, Err(LoaderError::System { what: "a batch buffer", source }));
                None
            }
        }
    }

    /// Claims a batch for a drive that has a free slot. Returns `None` if there is nothing to claim now.
    pub fn claim_for_drive(&self, prong: ProngId, is_last_slot: bool) -> Option<(BatchId, Vec<u64>)> {
        let mut core = self.lock();
        let now = core.recorder.now();
        let is_reserved = is_last_slot && core.schedule.must_reserve_slot(prong);
        let room = if is_reserved { Room::Critical } else { Room::Any };
        let was_idle = core.schedule.outstanding(prong) == 0;
        let id = core.schedule.claim(prong, now, room)?;
        if was_idle {
            // From now on, idle threads of the CPU have a batch to watch.
            self.wake_cpu();
        }
        core.recorder.claimed(prong, id);
        let Ok(sample_ids) = core.sample_ids(id) else {
            // The CPU claims the batch, and reports why the epoch has no order.
            core.recorder.released(prong, id, false);
            core.schedule.failed(prong, id, now);
            self.wake_cpu();
            return None;
        };
        Some((id, sample_ids))
    }
}

/// Waits until there may be work for a thread of the CPU prong or of its fetch stage, which has `seen` earlier signals.
/// Gives the core back meanwhile. Whether to take over another prong's batch depends on the time; everything else
/// comes with a signal.
pub(super) fn wait_for_work(signal: &Signal, (seen, within): (u64, Option<Duration>), core: MutexGuard<'_, Core>) {
    let look = core.schedule.any_other_works(CPU).then_some(IDLE_LOOK);
    let within = within.into_iter().chain(look).min();
    drop(core);
    signal.wait(seen, within);
}

impl Core {
    /// Returns the sample ids of this rank's share of a batch.
    fn sample_ids(&mut self, id: BatchId) -> std::io::Result<Vec<u64>> {
        let mut sample_ids = self.orders.sample_ids(id, self.schedule.current_epoch())?;
        self.moved.place(id, &mut sample_ids);
        Ok(sample_ids)
    }

    /// Takes back the memory of samples that were prepared.
    pub(super) fn take_back(&mut self, used: &mut Vec<FetchedSample>) {
        self.spare.append(used);
        self.spare.truncate(self.spare_max);
    }

    /// Forgets what was fetched of a batch that the CPU no longer prepares.
    pub(super) fn stop_fetching(&mut self, id: BatchId) {
        if let Some(fetching) = &mut self.fetching {
            fetching.remove(id);
        }
    }

    /// Returns the ids of the samples to announce when the CPU has claimed a batch.
    fn samples_ahead(&mut self, id: BatchId) -> Vec<u64> {
        let batches = self.announced.ahead_of(id, &self.schedule);
        batches.into_iter().flat_map(|id| self.sample_ids(id).unwrap_or_default()).collect()
    }
}
