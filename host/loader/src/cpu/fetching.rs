//! The threads that fetch samples for the threads that prepare them.

use super::{Activity, Desk};
use crate::engine::{Engine, RunTask};
use crate::fetch::FetchTicket;
use crate::signal::Signal;
use ddlp_csd::prepare::{SampleFetcher, announce, stored_at};
use ddlp_dataset::{BytesRead, FetchedSample, ReadError, SampleToFetch};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

/// Runs one thread of the stage until the run is over.
pub(crate) fn run(engine: &Engine, desk: &Desk) {
    match engine.fetch_plan().is_at_once {
        true => fetch_at_once(engine, desk),
        false => fetch_in_groups(engine, desk),
    }
}

/// Fetches one group of samples after the other.
fn fetch_in_groups(engine: &Engine, desk: &Desk) {
    let task = &engine.task;
    let mut fetcher = SampleFetcher::new(&task.buckets[0].program);
    let (mut group, mut samples, mut bucket) = (Vec::new(), Vec::new(), 0);
    while engine.next_fetch(&mut group) {
        let start = Instant::now();
        if let Some((ticket, _)) = group.first() {
            desk.begin(Activity::Fetching, ticket.id, ticket.sample_id);
        }
        let bucket_of = |(ticket, _): &(FetchTicket, FetchedSample)| task.cut.bucket(ticket.id.batch);
        for group in group.chunk_by_mut(|one, other| bucket_of(one) == bucket_of(other)) {
            let wanted = bucket_of(&group[0]);
            if mem::replace(&mut bucket, wanted) != wanted {
                fetcher.change_program(&task.buckets[wanted].program);
            }
            let ahead = task.ahead(group[0].0.id.epoch);
            if ahead.window.is_some() {
                // Their neighbours will be fetched soon.
                let ids: Vec<u64> = group.iter().map(|(ticket, _)| ticket.sample_id).collect();
                announce(&*task.dataset, &ids, ahead);
            }
            samples.extend(group.iter_mut().map(|(ticket, fetched)| to_fetch(engine, *ticket, mem::take(fetched))));
            if let Err(error) = fetcher.fetch(&*task.dataset, &mut samples) {
                left_to_preparers(&error);
            }
            for ((_, fetched), sample) in group.iter_mut().zip(samples.drain(..)) {
                *fetched = sample.fetched;
            }
        }
        desk.end();
        engine.work_times.fetched(start.elapsed());
        engine.read.add(fetcher.take_read());
    }
}

fn left_to_preparers(error: &ReadError) {
    tracing::debug!(%error, "fetching ahead failed; the threads that prepare these samples will read them");
}

fn to_fetch(engine: &Engine, ticket: FetchTicket, fetched: FetchedSample) -> SampleToFetch {
    let (task, context) = (&engine.task, engine.task.epoch_context(ticket.id.epoch));
    let (index, draw) = (stored_at(&*task.dataset, ticket.sample_id), context.draw(ticket.sample_id));
    SampleToFetch { index, draw, fidelity: context.fidelity, fetched }
}

/// Samples that were asked for together, and what came.
struct Came {
    /// Number of the request.
    number: u64,
    asked: Instant,
    tickets: Vec<FetchTicket>,
    samples: Vec<SampleToFetch>,
    read: BytesRead,
}

/// Wakes the thread of the stage when bytes have come.
struct WakesStage(Arc<Signal>);

impl Wake for WakesStage {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// Has many samples in flight, each by itself. At the end of the run, gives up those that have not come.
fn fetch_at_once(engine: &Engine, desk: &Desk) {
    let (task, signal) = (&engine.task, engine.fetch_signal());
    let fetchers: Vec<SampleFetcher> = task.buckets.iter().map(|bucket| SampleFetcher::new(&bucket.program)).collect();
    let waker = Waker::from(Arc::new(WakesStage(signal.clone())));
    let (mut flying, mut asked_for, mut number) = (FuturesUnordered::new(), BTreeMap::new(), 0);
    let (mut group, mut came_at, mut busy_since) = (Vec::new(), Vec::new(), Instant::now());
    loop {
        let seen = signal.seen();
        while let Poll::Ready(Some(came)) = flying.poll_next_unpin(&mut Context::from_waker(&waker)) {
            let Came { number, asked, tickets, samples, read } = came;
            asked_for.remove(&number);
            engine.read.add(read);
            came_at.extend(tickets.iter().map(|_| asked));
            group.extend(tickets.into_iter().zip(samples.into_iter().map(|sample| sample.fetched)));
        }
        let was_busy = mem::replace(&mut busy_since, Instant::now());
        if !asked_for.is_empty() || !group.is_empty() {
            engine.work_times.fetched(busy_since - was_busy);
        }
        show_oldest(desk, &asked_for);
        let Some(most) = engine.exchange_fetches(seen, &came_at, &mut group) else { return };
        came_at.clear();
        while !group.is_empty() {
            let together = neighbours(task, &group, most);
            let (tickets, fetched): (Vec<FetchTicket>, Vec<FetchedSample>) = group.drain(..together).unzip();
            let mut samples: Vec<SampleToFetch> =
                tickets.iter().zip(fetched).map(|(ticket, fetched)| to_fetch(engine, *ticket, fetched)).collect();
            let mut fetcher = fetchers[task.cut.bucket(tickets[0].id.batch)].another();
            asked_for.insert(number, (tickets[0], Instant::now()));
            let of_request = number;
            number += 1;
            flying.push(async move {
                let asked = Instant::now();
                if let Err(error) = fetcher.start_fetch(&*task.dataset, &mut samples).await {
                    left_to_preparers(&error);
                }
                Came { number: of_request, asked, tickets, samples, read: fetcher.take_read() }
            });
        }
    }
}

/// Returns how many samples at the beginning of `group` lie side by side in the dataset, at most `most`, so that one
/// read may get several.
fn neighbours(task: &RunTask, group: &[(FetchTicket, FetchedSample)], most: usize) -> usize {
    let place = |(ticket, _): &(FetchTicket, FetchedSample)| {
        (stored_at(&*task.dataset, ticket.sample_id), task.cut.bucket(ticket.id.batch))
    };
    let are_neighbours = |pair: &&[_]| {
        let [(first, bucket), (second, other)] = [&pair[0], &pair[1]].map(place);
        first + 1 == second && bucket == other
    };
    1 + group.windows(2).take(most.saturating_sub(1)).take_while(are_neighbours).count()
}

/// Publishes the sample for which the thread has waited longest.
fn show_oldest(desk: &Desk, asked: &BTreeMap<u64, (FetchTicket, Instant)>) {
    match asked.first_key_value() {
        Some((_, (ticket, since))) => desk.begin_at(Activity::Fetching, ticket.id, ticket.sample_id, *since),
        None => desk.end(),
    }
}
