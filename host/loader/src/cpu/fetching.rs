//! The threads that fetch samples for the threads that prepare them.

use super::{Activity, Desk};
use crate::engine::Engine;
use crate::fetch::FetchTicket;
use ddlp_csd::prepare::{SampleFetcher, announce, stored_at};
use ddlp_dataset::{FetchedSample, SampleToFetch};
use std::time::Instant;

/// Runs one thread of the stage until the run is over.
pub(crate) fn work(engine: &Engine, desk: &Desk) {
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
            if std::mem::replace(&mut bucket, wanted) != wanted {
                fetcher.change_program(&task.buckets[wanted].program);
            }
            let ahead = task.ahead(group[0].0.id.epoch);
            if ahead.window.is_some() {
                // Their neighbours will be fetched soon.
                let ids: Vec<u64> = group.iter().map(|(ticket, _)| ticket.sample_id).collect();
                announce(&*task.dataset, &ids, ahead);
            }
            samples.extend(group.iter_mut().map(|(ticket, fetched)| {
                let context = task.epoch_context(ticket.id.epoch);
                let (index, draw) = (stored_at(&*task.dataset, ticket.sample_id), context.draw(ticket.sample_id));
                SampleToFetch { index, draw, fidelity: context.fidelity, fetched: std::mem::take(fetched) }
            }));
            if let Err(error) = fetcher.fetch(&*task.dataset, &mut samples) {
                tracing::debug!(%error, "fetching ahead failed; the threads that prepare these samples will read them");
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
