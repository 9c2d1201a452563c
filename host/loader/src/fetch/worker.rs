//! The threads of the fetch stage.

use crate::cpu::{Activity, Desk};
use crate::engine::Engine;
use ddlp_csd::prepare::{EpochContext, SampleFetcher};

/// Runs one thread of the stage until the run is over.
pub(crate) fn work(engine: &Engine, desk: &Desk) {
    let task = &engine.task;
    let mut fetcher = SampleFetcher::new(&task.program);
    let mut done = None;
    while let Some((ticket, mut sample)) = engine.next_fetch(done.take()) {
        desk.begin(Activity::Fetching, ticket.id, ticket.sample_id);
        let context = EpochContext { seed: task.seed, epoch: ticket.id.epoch };
        fetcher.fetch(&*task.dataset, context, ticket.sample_id, &mut sample);
        desk.end();
        engine.read.add(fetcher.take_read());
        done = Some((ticket, sample));
    }
}
