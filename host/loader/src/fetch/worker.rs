//! The threads of the fetch stage.

use crate::cpu::{Activity, Desk};
use crate::engine::Engine;
use ddlp_csd::prepare::{SampleFetcher, stored_at};
use ddlp_dataset::SampleToFetch;
use std::time::Instant;

/// Runs one thread of the stage until the run is over.
pub(crate) fn work(engine: &Engine, desk: &Desk) {
    let task = &engine.task;
    let mut fetcher = SampleFetcher::new(&task.program);
    let (mut group, mut samples) = (Vec::new(), Vec::new());
    while engine.next_fetch(&mut group) {
        let start = Instant::now();
        if let Some((ticket, _)) = group.first() {
            desk.begin(Activity::Fetching, ticket.id, ticket.sample_id);
        }
        samples.extend(group.iter_mut().map(|(ticket, fetched)| {
            let context = task.epoch_context(ticket.id.epoch);
            let (index, draw) = (stored_at(&*task.dataset, ticket.sample_id), context.draw(ticket.sample_id));
            SampleToFetch { index, draw, fetched: std::mem::take(fetched) }
        }));
        if let Err(error) = fetcher.fetch(&*task.dataset, &mut samples) {
            tracing::debug!(%error, "fetching ahead failed; the threads that prepare these samples will read them");
        }
        for ((_, fetched), sample) in group.iter_mut().zip(samples.drain(..)) {
            *fetched = sample.fetched;
        }
        desk.end();
        engine.work_times.fetched(start.elapsed());
        engine.read.add(fetcher.take_read());
    }
}
