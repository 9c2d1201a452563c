//! The threads that fetch samples for the threads that prepare them.

use super::{Activity, Desk};
use crate::engine::{Engine, Exchanged, RunTask};
use crate::fetch::FetchTicket;
use crate::signal::Signal;
use ddlp_csd::prepare::{SampleFetcher, announce, stored_at};
use ddlp_dataset::{BytesRead, FetchedSample, ReadError, SampleToFetch};
use futures_util::future::{AbortHandle, Aborted, abortable};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// Samples that are fetched together if a larger group failed.
const FEW: usize = 8;

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
            announce_in_window(task, group.iter().map(|(ticket, _)| *ticket));
            samples.extend(group.iter_mut().map(|(ticket, fetched)| to_fetch(engine, *ticket, mem::take(fetched))));
            if let Err(error) = fetcher.fetch(&*task.dataset, &mut samples) {
                left_to_preparers(&error);
                // What one sample of many failed at, the others may not.
                for few in samples.chunks_mut(FEW).filter(|_| group.len() > FEW) {
                    fetcher.fetch(&*task.dataset, few).as_ref().err().into_iter().for_each(left_to_preparers);
                }
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

/// Announces samples of an epoch if their neighbours in storage will be fetched soon.
fn announce_in_window(task: &RunTask, tickets: impl Iterator<Item = FetchTicket> + Clone) {
    let Some(ahead) = tickets.clone().next().map(|first| task.ahead(first.id.epoch)) else { return };
    if ahead.window.is_some() {
        let ids: Vec<u64> = tickets.map(|ticket| ticket.sample_id).collect();
        announce(&*task.dataset, &ids, ahead);
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

/// Samples that were asked for together.
struct Asked {
    tickets: Vec<FetchTicket>,
    since: Instant,
    /// Gives up the request.
    abort: AbortHandle,
    /// Gives up the second request, if there is one.
    second: Option<AbortHandle>,
}

impl Asked {
    fn abort(&self) {
        self.abort.abort();
        self.second.iter().for_each(AbortHandle::abort);
    }
}

/// What came of samples that were asked for together.
struct Came {
    samples: Vec<SampleToFetch>,
    read: BytesRead,
    /// Whether all reads have succeeded.
    is_read: bool,
}

/// Wakes the thread of the stage when bytes have come.
struct WakesStage(Arc<Signal>);

impl Wake for WakesStage {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// Has many samples in flight, each by itself. Gives up those that no batch waits for any more, and at the end of the
/// run all that have not come.
fn fetch_at_once(engine: &Engine, desk: &Desk) {
    let (task, signal) = (&engine.task, engine.fetch_signal());
    let fetchers: Vec<SampleFetcher> = task.buckets.iter().map(|bucket| SampleFetcher::new(&bucket.program)).collect();
    // The key has the number of the request, and whether it is the second one.
    let ask = |key: (u64, bool), tickets: &[FetchTicket], mut samples: Vec<SampleToFetch>| {
        let mut fetcher = fetchers[task.cut.bucket(tickets[0].id.batch)].another();
        let (fetching, abort) = abortable(async move {
            let fetched = fetcher.start_fetch(&*task.dataset, &mut samples).await;
            fetched.as_ref().err().into_iter().for_each(left_to_preparers);
            Came { samples, read: fetcher.take_read(), is_read: fetched.is_ok() }
        });
        (fetching.map(move |came| (key, came)), abort)
    };
    let waker = Waker::from(Arc::new(WakesStage(signal.clone())));
    let (mut flying, mut asked_for, mut number) = (FuturesUnordered::new(), BTreeMap::<u64, Asked>::new(), 0);
    let (mut group, mut came_at, mut busy_since) = (Vec::new(), Vec::new(), Instant::now());
    loop {
        let seen = signal.seen();
        while let Poll::Ready(Some(((number, is_second), came))) =
            flying.poll_next_unpin(&mut Context::from_waker(&waker))
        {
            let Some(asked) = asked_for.get_mut(&number) else { continue };
            if is_second && !matches!(came, Ok(Came { is_read: true, .. })) {
                asked.second = None;
                continue;
            }
            let asked = asked_for.remove(&number).expect("found above");
            asked.abort();
            match came {
                Ok(Came { samples, read, .. }) => {
                    engine.read.add(read);
                    if is_second {
                        engine.hedges.won();
                    }
                    came_at.extend(asked.tickets.iter().map(|_| asked.since));
                    group.extend(asked.tickets.into_iter().zip(samples.into_iter().map(|sample| sample.fetched)));
                }
                Err(Aborted) => group.extend(asked.tickets.into_iter().map(|ticket| (ticket, Default::default()))),
            }
        }
        let was_busy = mem::replace(&mut busy_since, Instant::now());
        if !asked_for.is_empty() || !group.is_empty() {
            engine.work_times.fetched(busy_since - was_busy);
        }
        show_oldest(desk, &asked_for);
        let (late, within) = late_requests(engine, &asked_for, busy_since);
        for number in late {
            let asked = asked_for.get_mut(&number).expect("it is late");
            let again = |ticket: &FetchTicket| to_fetch(engine, *ticket, FetchedSample::default());
            let (fetching, abort) = ask((number, true), &asked.tickets, asked.tickets.iter().map(again).collect());
            asked.second = Some(abort);
            engine.hedges.made();
            flying.push(fetching);
        }
        let in_flight = asked_for.values().flat_map(|asked| asked.tickets.iter().copied());
        let exchanged = engine.exchange_fetches((seen, within), &came_at, in_flight, &mut group);
        let Some(Exchanged { together: most, given_up }) = exchanged else { return };
        came_at.clear();
        if !given_up.is_empty() {
            let is_given_up = |asked: &&Asked| asked.tickets.iter().all(|ticket| given_up.contains(ticket));
            asked_for.values().filter(is_given_up).for_each(Asked::abort);
        }
        announce_in_window(task, group.iter().map(|(ticket, _)| *ticket));
        while !group.is_empty() {
            let together = neighbours(task, &group, most);
            let (tickets, fetched): (Vec<FetchTicket>, Vec<FetchedSample>) = group.drain(..together).unzip();
            let samples = tickets.iter().zip(fetched).map(|(ticket, fetched)| to_fetch(engine, *ticket, fetched));
            let (fetching, abort) = ask((number, false), &tickets, samples.collect());
            asked_for.insert(number, Asked { tickets, since: Instant::now(), abort, second: None });
            flying.push(fetching);
            number += 1;
        }
    }
}

/// Returns the requests to make a second time now, and how long the thread may wait then.
fn late_requests(engine: &Engine, asked_for: &BTreeMap<u64, Asked>, now: Instant) -> (Vec<u64>, Option<Duration>) {
    let requests = engine.fetch_plan().hedge.zip(engine.task.dataset.requests());
    let Some((hedge, after)) = requests.and_then(|(hedge, requests)| Some((hedge, hedge.after(&requests)?))) else {
        return Default::default();
    };
    let seconds = asked_for.values().filter(|asked| asked.second.is_some()).count();
    let free = hedge.most(asked_for.len()).saturating_sub(seconds);
    let mut once = asked_for.iter().filter(|(_, asked)| asked.second.is_none()).peekable();
    let late = std::iter::from_fn(|| once.next_if(|(_, asked)| now - asked.since >= after)).take(free);
    let late: Vec<u64> = late.map(|(&number, _)| number).collect();
    // A request begins when it is polled.
    let begins = (!late.is_empty()).then_some(Duration::ZERO);
    // Others that are late wait for second requests to end, which wakes the thread.
    let next = once.peek().map(|(_, asked)| after.saturating_sub(now - asked.since)).filter(|wait| !wait.is_zero());
    (late, begins.or(next))
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
fn show_oldest(desk: &Desk, asked_for: &BTreeMap<u64, Asked>) {
    match asked_for.first_key_value() {
        Some((_, asked)) => {
            let ticket = asked.tickets[0];
            desk.begin_at(Activity::Fetching, ticket.id, ticket.sample_id, asked.since);
        }
        None => desk.end(),
    }
}
