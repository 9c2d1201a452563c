//! The fetch stage: samples for its threads, and rows of fetched samples for the threads of the CPU prong.

use super::claims::wait_for_work;
use super::{Core, CpuJob, CpuWork, Engine};
use crate::fetch::{FetchPlan, FetchTicket};
use crate::report::RequestReport;
use crate::schedule::{CPU, Room};
use crate::signal::Signal;
use ddlp_dataset::FetchedSample;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Largest sample, on average, that is asked for together with its neighbours in storage, in bytes: a larger one comes
/// as fast by a request of its own, and waits for no other one.
const JOINED_BYTES_MAX: u64 = 32 << 10;

/// What a stage that has many samples in flight does next.
pub(crate) struct Exchanged {
    /// How many samples one read may get.
    pub together: usize,
    /// Samples in flight that no batch waits for any more.
    pub given_up: Vec<FetchTicket>,
}

impl Engine {
    /// Keeps what a fetch thread has fetched, and waits for the next samples for this thread: replaces the old ones in
    /// `group` by these, with memory for each. Returns false when the run is over.
    pub fn next_fetch(&self, group: &mut Vec<(FetchTicket, FetchedSample)>) -> bool {
        let mut seen = self.fetch.seen();
        let mut core = self.lock();
        self.keep_fetched(&mut core, group);
        loop {
            if !self.start_fetches(&mut core, self.fetch_plan.group, group) {
                return false;
            }
            if !group.is_empty() {
                return true;
            }
            core.idle_fetchers += 1;
            wait_for_work(&self.fetch, (seen, None), core);
            seen = self.fetch.seen();
            core = self.lock();
            core.idle_fetchers -= 1;
        }
    }

    /// Returns the requests to the store that holds the dataset, if there is one.
    pub fn requests(&self) -> Option<RequestReport> {
        let requests = self.task.dataset.requests()?;
        let (depth, (hedged, hedges_won)) = (self.lock().fetch_depth, self.hedges.counts());
        Some(RequestReport {
            answered: requests.count(),
            mb: requests.bytes as f64 / 1e6,
            half_within_ms: requests.latency_ms(0.5),
            most_within_ms: requests.latency_ms(0.99),
            retries: requests.retries,
            pushed_back: requests.pushed_back,
            hedged,
            hedges_won,
            in_flight: requests.in_flight,
            depth,
        })
    }

    /// Returns how samples are fetched.
    pub fn fetch_plan(&self) -> &FetchPlan {
        &self.fetch_plan
    }

    /// Returns the signal for which the fetch stage waits.
    pub fn fetch_signal(&self) -> &Arc<Signal> {
        &self.fetch
    }

    /// Keeps what has been fetched, and replaces it in `group` by the samples to ask for now, with memory for each.
    /// Waits after the signals that were `seen`, for a time at most, if there is nothing to do. `asked` has the times
    /// at which the samples that have come were asked for, and `in_flight` the others. Returns `None` when the run is
    /// over.
    pub fn exchange_fetches(
        &self,
        (seen, within): (u64, Option<Duration>),
        asked: &[Instant],
        in_flight: impl Iterator<Item = FetchTicket>,
        group: &mut Vec<(FetchTicket, FetchedSample)>,
    ) -> Option<Exchanged> {
        let pushed_back = self.task.dataset.requests().map_or(0, |requests| requests.pushed_back);
        let mut core = self.lock();
        let now = core.recorder.now();
        let is_pushed_back = std::mem::replace(&mut core.pushed_back, pushed_back) < pushed_back;
        if let Some(fetching) = &mut core.fetching {
            asked.iter().for_each(|asked| fetching.depth_mut().came(now, asked.elapsed().as_secs_f64()));
            if is_pushed_back {
                fetching.depth_mut().pushed_back(now);
            }
            core.fetch_depth = Some(fetching.depth_mut().limit());
        }
        let any_came = !group.is_empty();
        self.keep_fetched(&mut core, group);
        if !self.start_fetches(&mut core, usize::MAX, group) {
            return None;
        }
        let fetching = core.fetching.as_mut();
        let is_small = fetching.as_ref().is_some_and(|fetching| fetching.average_bytes() <= JOINED_BYTES_MAX);
        let given_up = fetching.map_or_else(Vec::new, |fetching| fetching.take_given_up(in_flight));
        if group.is_empty() && !any_came && given_up.is_empty() {
            core.idle_fetchers += 1;
            wait_for_work(&self.fetch, (seen, within), core);
            self.lock().idle_fetchers -= 1;
        }
        Some(Exchanged { together: if is_small { self.fetch_plan.group } else { 1 }, given_up })
    }

    /// Appends up to `most` samples to fetch now to `group`. Returns false when the run is over.
    fn start_fetches(&self, core: &mut Core, most: usize, group: &mut Vec<(FetchTicket, FetchedSample)>) -> bool {
        if self.is_stopped() || core.schedule.is_done() {
            return false;
        }
        self.close_lost_jobs(core);
        loop {
            let Core { fetching: Some(fetching), schedule, spare, .. } = &mut *core else { return false };
            let tickets = std::iter::from_fn(|| fetching.next(schedule)).take(most - group.len());
            group.extend(tickets.map(|ticket| (ticket, spare.pop().unwrap_or_default())));
            let is_enough = if self.fetch_plan.is_at_once { group.len() >= most } else { !group.is_empty() };
            if is_enough || !self.claim_to_fetch(core) {
                return true;
            }
            self.fetch.notify_all();
        }
    }

    fn keep_fetched(&self, core: &mut Core, group: &mut Vec<(FetchTicket, FetchedSample)>) {
        let Core { fetching: Some(fetching), spare, .. } = core else { return };
        let kept = group.len();
        for (ticket, sample) in group.drain(..) {
            spare.extend(fetching.fetched(ticket, sample.memory_bytes(), sample));
        }
        match kept {
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
        let among = self.task.exchanges_among(id);
        // A batch that was given up keeps the samples that it has exchanged.
        let exchanged = core.exchanging.get(&id).cloned();
        let Some(sample_ids) = exchanged.or_else(|| self.samples_of_claim(core, id)) else { return true };
        if among.is_some() {
            core.exchanging.insert(id, sample_ids.clone());
        }
        core.fetching.iter_mut().for_each(|fetching| fetching.claimed(id, sample_ids.clone(), among));
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
