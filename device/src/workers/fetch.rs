//! The thread that fetches samples from a store. It has many of them in flight, each by itself, and waits for none in
//! particular. How many: as the loader decides for its own threads ([`Depth`]), and as many as their bytes allow.
//!
//! A request that fails in a way that may pass is made again below, by the dataset. If the store refuses a sample for
//! good, its job gets no more samples. If nothing at all has been answered for [`SILENCE_MAX`], no job gets more, even
//! if only a worker waits for a large sample. The workers then report the samples as unavailable: the host prepares
//! those batches itself, and asks again later. Whatever else is wrong with a sample, the worker finds out that prepares
//! it.

use super::Shared;
use super::kit::log_unavailable;
use super::queue::Ask;
use crate::job::{JobId, LoadedProgram};
use crate::log_limit::LogLimit;
use ddlp_csd::depth::Depth;
use ddlp_csd::prepare::{SampleFetcher, stored_at};
use ddlp_dataset::{Dataset, FetchedSample, ReadError, SampleToFetch, Unavailable, errno};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

/// Longest time without an answer from the store, or 20 s if the bytes of a waiting read may take longer
/// ([`Dataset::silences`]). A host waits 30 s for a batch by default. So it hears from the agent in time that the store
/// is away, and keeps the drive.
const SILENCE_MAX: Duration = Duration::from_secs(15);
/// Time between two looks at the silence of the store.
const LOOK: Duration = Duration::from_millis(500);

/// Starts the thread, which has at most `most` samples in flight.
pub(super) fn start(shared: Arc<Shared>, most: usize) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_time().build()?;
    let thread = std::thread::Builder::new().name("fetch".into());
    thread.spawn(move || run(&runtime, &shared, most)).map(drop)
}

fn run(runtime: &Runtime, shared: &Shared, most: usize) {
    runtime.block_on(async {
        let (mut stage, mut asks) = (Stage::new(shared, most), Vec::new());
        while let Some(is_more) = stage.next_asks(&mut asks) {
            asks.drain(..).for_each(|ask| stage.ask(ask));
            if is_more {
                stage.depth.reached();
            }
            tokio::select! {
                Some(came) = stage.flying.join_next() => {
                    if let Ok(came) = came {
                        stage.came(came);
                    }
                }
                () = shared.queue.asked.notified() => stage.abort_unwanted(),
                // Workers may wait for the store while nothing is in flight.
                () = sleep(LOOK), if shared.queue.has_jobs() => stage.look(),
            }
        }
    });
}

struct Stage<'s> {
    shared: &'s Shared,
    depth: Depth,
    /// Requests that the store could not take, when it was last asked for their number.
    pushed_back: u64,
    begun: Instant,
    flying: JoinSet<Came>,
    /// Bytes of memory that are reserved for what is in flight.
    reserved: Arc<AtomicU64>,
    /// What was asked for of each job.
    jobs: BTreeMap<JobId, Vec<AbortHandle>>,
    /// The fetcher of the last program.
    fetcher: Option<(Arc<LoadedProgram>, SampleFetcher)>,
}

/// Bytes of memory that are reserved for a sample until the sample has come, or is given up.
struct Reservation {
    bytes: u64,
    reserved: Arc<AtomicU64>,
}

impl Reservation {
    fn new(bytes: u64, reserved: Arc<AtomicU64>) -> Self {
        reserved.fetch_add(bytes, Ordering::Relaxed);
        Self { bytes, reserved }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.reserved.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A sample that has come, or has failed.
struct Came {
    _reservation: Reservation,
    id: JobId,
    position: usize,
    since: Instant,
    fetched: FetchedSample,
    outcome: Result<(), ReadError>,
}

impl<'s> Stage<'s> {
    fn new(shared: &'s Shared, most: usize) -> Self {
        let (depth, begun, flying) = (Depth::auto(most), Instant::now(), JoinSet::new());
        let (reserved, jobs) = Default::default();
        Self { shared, depth, pushed_back: 0, begun, flying, reserved, jobs, fetcher: None }
    }

    fn next_asks(&self, asks: &mut Vec<Ask>) -> Option<bool> {
        let room = self.depth.limit().saturating_sub(self.flying.len());
        let dataset = &*self.shared.dataset;
        let bytes_of = |sample_id| FetchedSample::memory_needed(dataset, stored_at(dataset, sample_id));
        self.shared.queue.asks(room, self.reserved.load(Ordering::Relaxed), bytes_of, asks)
    }

    fn ask(&mut self, ask: Ask) {
        self.fetcher.take_if(|(program, _)| !Arc::ptr_eq(program, &ask.program));
        let make = || (ask.program.clone(), SampleFetcher::new(&ask.program.program));
        let fetcher = self.fetcher.get_or_insert_with(make).1.another();
        let id = ask.id;
        let reservation = Reservation::new(ask.bytes, self.reserved.clone());
        let abort = self.flying.spawn(fetch(fetcher, self.shared.dataset.clone(), ask, reservation));
        self.jobs.entry(id).or_default().push(abort);
    }

    fn came(&mut self, came: Came) {
        let now = self.begun.elapsed().as_secs_f64();
        let pushed_back = self.shared.dataset.requests().map_or(0, |requests| requests.pushed_back);
        if std::mem::replace(&mut self.pushed_back, pushed_back) < pushed_back {
            self.depth.pushed_back(now);
        }
        self.depth.came(now, came.since.elapsed().as_secs_f64());
        match came.outcome {
            Err(ReadError::Unavailable(error)) if is_of_store(&error) => {
                log_unavailable(&error);
                self.shared.queue.cannot_read(Some(came.id));
                self.abort_unwanted();
            }
            _ => self.shared.queue.came(came.id, came.position, came.fetched),
        }
    }

    /// Gives up what is in flight for jobs that are over.
    fn abort_unwanted(&mut self) {
        self.jobs.retain(|&id, asked| {
            let is_wanted = self.shared.queue.wants(id);
            if !is_wanted {
                asked.iter().for_each(AbortHandle::abort);
            }
            is_wanted
        });
    }

    /// Gives up all samples if the store has been silent for too long.
    fn look(&mut self) {
        if self.shared.queue.has_unread_in_work() {
            // A worker may have begun to read in the moment in which its job was given up.
            self.shared.dataset.interrupt();
        }
        let silences = self.shared.dataset.silences();
        let Some(silence) = silences.now.filter(|silence| silence.lasts >= SILENCE_MAX) else { return };
        static LIMIT: LogLimit = LogLimit::new();
        if LIMIT.allows() {
            tracing::error!("{silence}; the host prepares the batches itself, and asks again later");
        }
        self.shared.queue.cannot_read(None);
        self.abort_unwanted();
        // Workers may wait for large samples.
        self.shared.dataset.interrupt();
    }
}

async fn fetch(mut fetcher: SampleFetcher, dataset: Arc<dyn Dataset>, ask: Ask, reservation: Reservation) -> Came {
    let (index, draw) = (stored_at(&*dataset, ask.sample_id), ask.context.draw(ask.sample_id));
    let since = Instant::now();
    let (fetched, outcome) = loop {
        let fetched = FetchedSample::default();
        let mut samples = [SampleToFetch { index, draw, fidelity: ask.context.fidelity, fetched }];
        match fetcher.start_fetch(&*dataset, &mut samples).await {
            // Meant for workers whose jobs were given up. This job is wanted, or its fetching would have been aborted.
            Err(ReadError::Unavailable(Unavailable::Io { source, .. })) if is_interrupt(&source) => {}
            outcome => {
                let [SampleToFetch { fetched, .. }] = samples;
                break (fetched, outcome);
            }
        }
    };
    Came { _reservation: reservation, id: ask.id, position: ask.position, since, fetched, outcome }
}

fn is_interrupt(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EINTR)
}

/// Returns whether a sample cannot be read because of the way to it, so that a worker would fail in the same way.
fn is_of_store(error: &Unavailable) -> bool {
    match error {
        Unavailable::Io { source, .. } => !errno::is_medium(source),
        Unavailable::Changed { .. } | Unavailable::Gone { .. } => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
