//! Handing batches to the consumer, and what is taken down of their samples.

use super::{Core, Engine};
use crate::batch::Batch;
use crate::error::LoaderError;
use crate::order::EpochOrder;
use crate::plan::PlanEpoch;
use crate::report::CorruptReport;
use crate::schedule::{BatchId, ProngId};
use crate::value::Value;
use ddlp_csd::prepare;
use ddlp_csd::slot::{Outcome, SampleRecord};
use ddlp_pixels::CorruptReason;
use std::sync::Arc;

impl Engine {
    /// Takes the next batch out for the consumer, when it is ready.
    pub fn deliver<V: Value>(&self, core: &mut Core, asked_s: f64) -> Option<Result<Batch<V>, LoaderError>> {
        let (id, prong) = core.schedule.deliverable()?;
        let ready = core.ready.remove(&id).expect("what the schedule calls ready is kept here");
        let met = core.schedule.meeting_point();
        let ready = match ready {
            Ok(ready) => ready,
            Err(error) => return Some(Err(error)),
        };
        core.consumer_waits = false;
        core.schedule.deliver(id, prong);
        record_plan(&mut core.plan, id, prong);
        let batch = Batch::new(id, prong, self.task.shape, ready.records, ready.rows);
        core.recorder.delivered(prong, id, batch.len(), asked_s, met);
        self.work.notify_all();
        Some(Ok(batch))
    }

    /// Takes down what became of the samples of a delivered batch, and gets the next epoch's order ready. Without the lock:
    /// names are read from the dataset, and an order may be long.
    pub fn delivered<V: Value>(&self, batch: &Batch<V>) {
        let epoch = batch.epoch();
        let mut corrupt = Vec::new();
        for record in batch.records() {
            let (reason, action) = match record.outcome {
                Outcome::Prepared => continue,
                Outcome::Skipped(reason) => (reason, "skipped".to_string()),
                Outcome::Replaced(reason) => (reason, format!("replaced by {}", self.task.dataset.name(record.index))),
                Outcome::Failed(_) => unreachable!("a batch with a failed sample is delivered as an error"),
            };
            let (sample, reason) = (self.own_name(record), reason.to_string());
            corrupt.push(CorruptReport { sample, sample_id: record.sample_id, epoch, reason, action });
        }
        let warned = batch.records().iter().filter(|record| record.warned).count();
        if warned > 0 || !corrupt.is_empty() {
            let recorder = &mut self.lock().recorder;
            recorder.warned(warned);
            corrupt.into_iter().for_each(|sample| recorder.corrupt(sample));
        }
        self.prepare_order(epoch + 1);
    }

    fn own_name(&self, record: &SampleRecord) -> String {
        let dataset = &*self.task.dataset;
        dataset.name(prepare::stored_at(dataset, record.sample_id))
    }

    pub(super) fn corrupt_error(&self, id: BatchId, record: &SampleRecord, reason: CorruptReason) -> LoaderError {
        let dataset = &*self.task.dataset;
        LoaderError::CorruptSample {
            sample: self.own_name(record),
            sample_id: record.sample_id,
            location: dataset.location(prepare::stored_at(dataset, record.sample_id)).to_string(),
            epoch: id.epoch,
            reason: reason.to_string(),
        }
    }

    /// Makes the order of an epoch that will be claimed from, unless it is there.
    pub fn prepare_order(&self, epoch: u32) {
        if epoch < self.task.epochs && !self.lock().orders.has(epoch) {
            let order = Arc::new(EpochOrder::new(self.task.seed, epoch, self.task.cut));
            let core = &mut *self.lock();
            core.orders.keep(epoch, order, core.schedule.current_epoch());
        }
    }
}

fn record_plan(plan: &mut Vec<PlanEpoch>, id: BatchId, prong: ProngId) {
    if plan.last().is_none_or(|plan| plan.epoch != id.epoch) {
        plan.push(PlanEpoch { epoch: id.epoch, deliveries: Vec::new() });
    }
    plan.last_mut().expect("pushed above").deliveries.push((id.batch, prong));
}
