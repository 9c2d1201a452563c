//! The fetch stage: samples for its threads, and rows of fetched samples for the threads of the CPU prong.

use super::claims::wait_for_work;
use super::{Core, CpuJob, CpuWork, Engine};
use crate::fetch::FetchTicket;
use crate::schedule::{CPU, Room};
use ddlp_dataset::FetchedSample;
use std::sync::Arc;

impl Engine {
    /// Keeps what a fetch thread has fetched, and waits for the next samples for this thread: replaces the old ones in
    /// `group` by these, with memory for each. Returns false when the run is over.
    pub fn next_fetch(&self, group: &mut Vec<(FetchTicket, FetchedSample)>) -> bool {
        let mut seen = self.fetch.seen();
        let mut core = self.lock();
        self.keep_fetched(&mut core, group);
        loop {
            if self.is_stopped() || core.schedule.is_done() {
                return false;
            }
            self.close_lost_jobs(&mut core);
            let Core { fetching: Some(fetching), schedule, spare, .. } = &mut *core else { return false };
            let tickets = std::iter::from_fn(|| fetching.next(schedule)).take(self.fetch_depth.samples);
            group.extend(tickets.map(|ticket| (ticket, spare.pop().unwrap_or_default())));
            if !group.is_empty() {
                return true;
            }
            if self.claim_to_fetch(&mut core) {
                self.fetch.notify_all();
                continue;
            }
            core.idle_fetchers += 1;
            wait_for_work(&self.fetch, seen, core);
            seen = self.fetch.seen();
            core = self.lock();
            core.idle_fetchers -= 1;
        }
    }

    fn keep_fetched(&self, core: &mut Core, group: &mut Vec<(FetchTicket, FetchedSample)>) {
        let Core { fetching: Some(fetching), spare, .. } = core else { return };
        let came = group.len();
        for (ticket, sample) in group.drain(..) {
            spare.extend(fetching.fetched(ticket, sample.memory_bytes(), sample));
        }
        match came {
            0 => {}
            1 => self.work.notify_one(),
            _ => self.work.notify_all(),
        }
    }

    /// Claims a batch whose samples are to be fetched. Returns false if there is nothing to claim now.
    fn claim_to_fetch(&self, core: &mut Core) -> bool {
        let Some(room) = core.fetching.as_ref().and_then(|fetching| fetching.claim_room(&core.schedule)) else {
            return false;
        };
        let now = core.recorder.now();
        let Some(id) = core.schedule.claim_ahead(CPU, now, room) else { return false };
        let sample_ids = self.samples_of_claim(core, id);
        if let (Some(fetching), Some(sample_ids)) = (&mut core.fetching, sample_ids) {
            fetching.claimed(id, sample_ids);
        }
        true
    }

    /// Takes rows whose samples were fetched, of a batch that has begun or can begin now. Appends the samples to
    /// `samples`.
    pub(super) fn fetched_rows(
        &self,
        core: &mut Core,
        most: usize,
        samples: &mut Vec<FetchedSample>,
    ) -> Option<CpuWork> {
        let (job, rows) = loop {
            match core.fetching.as_mut()?.take(most, samples) {
                Some((id, rows)) => match core.jobs.iter().find(|job| job.id == id) {
                    Some(job) => break (job.clone(), rows),
                    // The batch was closed, since the dataset cannot be read.
                    None => {
                        core.stop_fetching(id);
                        core.take_back(samples);
                    }
                },
                None if !self.begin_fetched(core) => return None,
                None => {}
            }
        };
        if core.idle_fetchers > 0 && core.fetching.as_ref()?.has_work(&core.schedule) {
            self.fetch.notify_one();
        }
        Some(CpuWork { job, ahead: Vec::new(), fetched: Some(rows) })
    }

    /// Begins a batch that was claimed, if a row of it was fetched and there is a buffer for it.
    fn begin_fetched(&self, core: &mut Core) -> bool {
        let room = self.buffer_room(core);
        let only_critical = room != Some(Room::Any);
        let fetching = core.fetching.as_ref();
        let Some(id) = fetching.and_then(|fetching| fetching.to_begin(&core.schedule, only_critical)) else {
            return false;
        };
        if room.is_none() && !self.make_way(core) {
            return false;
        }
        let Some(Some(buffer)) = self.take_buffer(core, id) else { return false };
        // A silence before the batch begins does not disturb it.
        self.watch_silence(core);
        let now = core.recorder.now();
        core.schedule.begin(CPU, id, now);
        core.recorder.claimed(CPU, id);
        let sample_ids = core.fetching.as_mut().expect("asked above").begin(id);
        core.jobs.push_back(Arc::new(CpuJob::new(id, sample_ids, buffer, self.task.bucket(id).images.row_bytes())));
        self.work.notify_all();
        true
    }
}
