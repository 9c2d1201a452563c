//! Delivery of batches to the consumer, and records of their samples.

use super::{BatchPlace, Core, Engine, RunTask};
use crate::batch::{Batch, BatchField};
use crate::bucket::Bucket;
use crate::delivery::{BatchMemory, HostValues, SlotTable};
use crate::error::LoaderError;
use crate::fetch::FetchAhead;
use crate::order::EpochOrder;
use crate::recorder::Delivered;
use crate::report::CorruptReport;
use crate::schedule::{BatchId, CPU};
use ddlp_cause::with_causes;
use ddlp_csd::program::CorruptPolicy;
use ddlp_csd::slot::{Outcome, SampleRecord};
use ddlp_csd::{memory, prepare};
use ddlp_dataset::{Drawn, SampleError, SampleReader, StoredAt};
use ddlp_pixels::{CompiledPipeline, CorruptReason, LABEL, Preparer, SIZE};
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

/// Epochs for which the program's function is called ahead. Prongs work on two epochs. The first one may have a single
/// batch; when that batch is delivered, the third epoch has to be known.
const PROGRAM_AHEAD: usize = 3;

/// What the consumer keeps entirely, buffers or slots, and how many of them there are.
pub(crate) enum KeptPlaces {
    Buffers(usize),
    Slots(u32),
}

/// What the host adds to a batch's images.
pub(super) struct LookedUp {
    /// Samples that followed the corrupt-sample policy, each with its index in the dataset.
    pub corrupt: Vec<(u64, CorruptReport)>,
    /// Memory of the fields that the host fills, in the order of the batch's fields.
    pub filled: Vec<Arc<dyn BatchMemory>>,
}

impl Engine {
    /// Waits for a delivery or the timeout.
    pub fn wait_for_delivery<'a>(&self, core: MutexGuard<'a, Core>, timeout: Duration) -> MutexGuard<'a, Core> {
        self.delivery.wait_timeout(core, timeout).expect("no thread panics while it holds the core").0
    }

    /// Takes the next batch for the consumer, if it is ready, or the reason why the run ends.
    pub fn deliver(&self, core: &mut Core, asked_s: f64) -> Option<Result<Batch, LoaderError>> {
        if let Some(error) = core.failure.take() {
            return Some(Err(error));
        }
        let (id, prong) = core.schedule.deliverable()?;
        let ready = core.ready.remove(&id).expect("what the schedule calls ready is kept here");
        let met = core.schedule.meeting_point();
        let counted = ready.and_then(|ready| {
            core.corrupt.add(id.epoch, ready.records.len(), &ready.corrupt)?;
            Ok(ready)
        });
        let ready = match counted {
            Ok(ready) => ready,
            Err(error) => return Some(Err(error)),
        };
        let requested = ready.records.iter().map(|record| record.sample_id);
        if let Err(source) = core.count_moved(id, requested) {
            return Some(Err(LoaderError::of_order(source)));
        }
        core.consumer_waits = false;
        core.schedule.deliver(id, prong);
        core.fetching.iter_mut().for_each(FetchAhead::consumed);
        if !self.task.fetch.is_out_of_order() {
            // A plan names batches, which would have other samples.
            core.plan.delivered(id, prong);
        }
        ready.corrupt.into_iter().for_each(|(_, sample)| core.recorder.corrupt(sample));
        let (samples, fields) = (self.task.dataset.len(), self.task.bucket(id).fields.clone());
        let batch = Batch::new(samples, id, prong, fields, ready.records, ready.memory, ready.finishing);
        let delivered = Delivered { id, prong, images: batch.len() };
        core.recorder.delivered(delivered, asked_s, met);
        core.last = Some(delivered);
        self.wake_cpu();
        Some(Ok(batch))
    }

    /// Counts the batch that was delivered last as not delivered.
    pub fn take_back(&self) {
        let core = &mut *self.lock();
        let Some(last) = core.last.take() else { return };
        core.recorder.taken_back(last);
        core.plan.taken_back(last.id);
        core.taken_back = Some(last.id);
    }

    /// Returns the kind of batch places that the consumer keeps entirely, so that no further batch can be prepared: no
    /// place of that kind is free or holds a finished batch, no device uses one, no prong works on a batch, and none is
    /// about to be ready. While slots are full, the samples of a batch that needs a buffer may still be fetched.
    /// `slots` are the drives' slots.
    pub fn kept_whole(&self, core: &Core, slots: &[Arc<SlotTable>]) -> Option<KeptPlaces> {
        let any_ready_in = |place| core.ready.values().flatten().any(|ready| ready.place == place);
        if !core.schedule.is_idle() || self.is_making_ready() || self.target.awaits_device() {
            None
        } else if self.target.free() == 0 && !any_ready_in(BatchPlace::Buffer) {
            Some(KeptPlaces::Buffers(self.target.count()))
        } else if core.schedule.outstanding(CPU) == 0
            && !slots.is_empty()
            && slots.iter().all(|slots| slots.is_shared() && slots.free() == 0)
            && !any_ready_in(BatchPlace::Slot)
        {
            Some(KeptPlaces::Slots(slots.iter().map(|slots| slots.count()).sum()))
        } else {
            None
        }
    }

    /// Counts the warnings of a delivered batch, and makes the next epoch's order, without the lock, since an order may
    /// be long.
    pub fn delivered(&self, batch: &Batch) {
        let warned = batch.records().iter().filter(|record| record.warned).count();
        if warned > 0 {
            self.lock().recorder.warned(warned);
        }
        // If memory is refused now, the prong that needs the order tries again.
        let _ = self.make_orders(batch.epoch() + 1);
    }

    /// Looks up the names of a batch's corrupt samples, and the values of the fields that the host fills. Fails on a
    /// sample that the policy could not handle, and if the dataset panics: no other prong would learn more from it.
    pub(super) fn look_up(&self, id: BatchId, records: &[SampleRecord]) -> Result<LookedUp, LoaderError> {
        let look_up =
            || Ok(LookedUp { corrupt: self.corrupt_samples(id, records)?, filled: self.filled(id, records)? });
        let looked_up = catch_unwind(AssertUnwindSafe(look_up));
        looked_up.unwrap_or(Err(LoaderError::DatasetPanic { epoch: id.epoch, batch: id.batch }))
    }

    /// Returns the values of the fields that the host fills, in the order of the batch's fields. Each row has the
    /// values of the sample whose image the row has.
    fn filled(&self, id: BatchId, records: &[SampleRecord]) -> Result<Vec<Arc<dyn BatchMemory>>, LoaderError> {
        let RunTask { dataset, beside, mixing, .. } = &self.task;
        let bucket @ Bucket { images, fields, .. } = self.task.bucket(id);
        let context = self.task.epoch_context(id.epoch);
        let rows = || records.iter().filter(|record| record.has_row());
        let count = rows().count();
        let fill = |field: &BatchField| -> Result<Arc<dyn BatchMemory>, LoaderError> {
            let field = field.field();
            let values = match (beside.position(&field.name), mixing) {
                (at, Some(mixing)) if field.name == LABEL => {
                    let class = |record: &SampleRecord| {
                        let label = match at {
                            Some(at) => {
                                i64::from_ne_bytes(beside.value(at, record.index).try_into().expect("an int64"))
                            }
                            None => i64::from(dataset.label(record.index)),
                        };
                        mixing.class(label, || dataset.name(record.index))
                    };
                    let classes = rows().map(class).collect::<Result<Vec<u32>, _>>()?;
                    let mix = mixing.draw(id, count, images.prepared());
                    HostValues::filled(count, field.bytes(), |row, out| mix.mix_labels(&classes, row, out))
                }
                (None, _) if field.name == SIZE => {
                    let size = |record: &SampleRecord| {
                        let size = self.task.sizes[record.index as usize];
                        let [height, width] = bucket.size_on_canvas(size, context.draw(record.sample_id));
                        [height.to_ne_bytes(), width.to_ne_bytes()].concat()
                    };
                    HostValues::new(count, field.bytes(), rows().map(size))
                }
                (Some(at), _) => {
                    HostValues::new(count, field.bytes(), rows().map(|record| beside.value(at, record.index)))
                }
                (None, _) => {
                    let labels = rows().map(|record| i64::from(dataset.label(record.index)).to_ne_bytes());
                    HostValues::new(count, field.bytes(), labels)
                }
            };
            let bytes = (count * field.bytes()) as u64;
            values.map(|values| Arc::new(values) as _).map_err(|error| LoaderError::System {
                what: "memory for a field of a batch",
                source: memory::refused(bytes, error.into()),
            })
        };
        // The first field is the image.
        fields[1..].iter().map(fill).collect()
    }

    /// Returns the samples of a batch that followed the corrupt-sample policy, each with its index in the dataset.
    /// Fails on a sample that the policy could not handle.
    fn corrupt_samples(&self, id: BatchId, records: &[SampleRecord]) -> Result<Vec<(u64, CorruptReport)>, LoaderError> {
        let dataset = &*self.task.dataset;
        let mut corrupt = Vec::new();
        for record in records.iter().filter(|record| record.is_corrupt()) {
            let (reason, action) = match record.outcome {
                Outcome::Skipped(reason) => (reason, "skipped".to_string()),
                Outcome::Replaced(reason) => (reason, format!("replaced by {}", dataset.name(record.index))),
                Outcome::Failed(reason) => return Err(self.corrupt_error(id, record, reason)),
                Outcome::Prepared | Outcome::Unavailable | Outcome::OtherDecoder(_) => continue,
            };
            let index = prepare::stored_at(dataset, record.sample_id);
            let (sample, reason) = (dataset.name(index), reason.to_string());
            corrupt
                .push((index, CorruptReport { sample, sample_id: record.sample_id, epoch: id.epoch, reason, action }));
        }
        Ok(corrupt)
    }

    fn corrupt_error(&self, id: BatchId, record: &SampleRecord, reason: CorruptReason) -> LoaderError {
        let RunTask { dataset, max_corrupt, .. } = &self.task;
        let (sample_id, epoch, index) = (record.sample_id, id.epoch, prepare::stored_at(&**dataset, record.sample_id));
        let (sample, location) = (dataset.name(index), dataset.location(index).to_string());
        let problem = self.problem(id, sample_id, reason);
        match self.task.policy() {
            CorruptPolicy::Replace => {
                let tried = prepare::neighbours(&**dataset, *max_corrupt);
                LoaderError::NoReplacement { sample, sample_id, location, epoch, problem, tried }
            }
            _ => LoaderError::CorruptSample { sample, sample_id, location, epoch, reason, problem },
        }
    }

    /// Returns why a sample cannot be used, in words. A record has only the code of the reason, so this prepares the
    /// sample once more, in the same way.
    fn problem(&self, id: BatchId, sample_id: u64, reason: CorruptReason) -> String {
        let (dataset, program) = (&*self.task.dataset, &self.task.bucket(id).program);
        let prepare = || {
            let pipeline = CompiledPipeline::of(&program.pipeline).ok()?;
            let mut row = vec![0; pipeline.output().bytes()];
            let sample = StoredAt { dataset, index: prepare::stored_at(dataset, sample_id) };
            let context = self.task.epoch_context(id.epoch);
            let (draw, fidelity) = (context.draw(sample_id), context.fidelity);
            let drawn = Drawn { pipeline: &pipeline, draw, fidelity };
            SampleReader::default().prepare(sample, None, &mut Preparer::new(program.limits), drawn, &mut row).err()
        };
        // A decoder that panicked at this sample does so again.
        match catch_unwind(AssertUnwindSafe(prepare)) {
            Ok(Some(SampleError::Pixels(error))) if error.reason() == reason => with_causes(&error),
            _ => reason.to_string(),
        }
    }

    /// Asks the program's function, if it has one, for the fidelity of the epoch that is being delivered and of the
    /// next one, which may begin from then on. Fails if the epoch that is being delivered has no fidelity.
    pub fn ask_fidelity(&self) -> Result<(), LoaderError> {
        let fidelity = &self.task.fidelity;
        if !fidelity.calls_program() {
            return Ok(());
        }
        let Some(current) = self.lock().schedule.current_epoch() else { return Ok(()) };
        fidelity.ask(current).map_err(LoaderError::Options)?;
        let next = current + 1;
        let answer = if next < self.task.epochs { fidelity.ask(next).map(drop) } else { Ok(()) };
        let core = &mut *self.lock();
        if let Err(problem) = answer {
            // The run ends when it comes to that epoch.
            core.orders.keep(next, Err(problem), Some(current));
        }
        if core.schedule.let_begin(next) {
            self.wake_cpu();
        }
        Ok(())
    }

    /// Makes the order of an epoch from which prongs will claim, unless it exists, and further ones if prongs cannot
    /// make them. Fails if the system refuses memory, or the program's function does not name the samples of `epoch`.
    pub fn make_orders(&self, epoch: u32) -> Result<(), LoaderError> {
        let ahead = if self.task.walks.calls_program() { PROGRAM_AHEAD } else { 1 };
        for wanted in (epoch..self.task.epochs).take(ahead) {
            if self.lock().orders.has(wanted) {
                continue;
            }
            let made = match EpochOrder::new(&self.task.walks, wanted, self.task.cut.clone()) {
                Ok(order) => Ok(Arc::new(order)),
                // The run ends when it comes to that epoch.
                Err(error) if error.kind() == ErrorKind::InvalidInput && wanted > epoch => Err(error.to_string()),
                Err(error) => return Err(LoaderError::of_order(error)),
            };
            let core = &mut *self.lock();
            core.orders.keep(wanted, made, core.schedule.current_epoch());
        }
        Ok(())
    }
}

impl Core {
    /// Records which samples of a batch that is delivered are not those that the order names for it.
    fn count_moved(&mut self, id: BatchId, sample_ids: impl Iterator<Item = u64>) -> std::io::Result<()> {
        self.moved_before = self.moved.clone();
        if self.exchanging.remove(&id).is_some() || !self.moved.pairs(id.epoch).is_empty() {
            let ordered = self.orders.sample_ids(id, self.schedule.current_epoch())?;
            self.moved.delivered(id, &ordered, sample_ids);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loader::Loader;
    use crate::schedule::Room;

    /// Returns a loader that has not begun, with two buffers.
    fn loader() -> (tempfile::TempDir, Loader) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("data_batch_1.bin"), [3u8; 16 * 3073]).unwrap();
        let loader = Loader::builder()
            .with(|o| (o.dataset, o.batch_size, o.buffers) = (Some(folder.path().into()), 4, 2))
            .build()
            .unwrap();
        (folder, loader)
    }

    #[test]
    fn a_consumer_does_not_keep_a_buffer_whose_batch_is_about_to_be_ready() {
        let (_folder, loader) = loader();
        let engine = &loader.engine;
        let is_kept = || matches!(engine.kept_whole(&engine.lock(), &[]), Some(KeptPlaces::Buffers(2)));
        assert!(!is_kept());
        let _buffers = [(); 2].map(|()| engine.target.take().unwrap().expect("two are free"));
        assert!(is_kept());
        let making_ready = engine.making_ready();
        assert!(!is_kept());
        drop(making_ready);
        assert!(is_kept());
    }

    #[test]
    fn full_slots_hold_up_no_run_that_fetches_samples() {
        let (folder, loader) = loader();
        let file = std::fs::File::create_new(folder.path().join("slots")).unwrap();
        file.set_len(2 * 4096).unwrap();
        let file = std::fs::File::options().read(true).write(true).open(folder.path().join("slots")).unwrap();
        let slots = Arc::new(SlotTable::shared(2, 4096, &file).unwrap());
        while slots.take().is_some() {}
        let mut core = loader.engine.lock();
        let kept = |core: &Core| loader.engine.kept_whole(core, std::slice::from_ref(&slots));
        assert!(matches!(kept(&core), Some(KeptPlaces::Slots(2))));
        core.schedule.claim_ahead(CPU, 0.0, Room::Any).expect("an open batch");
        assert!(kept(&core).is_none(), "its samples are being fetched");
    }
}
