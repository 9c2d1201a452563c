//! Results of a drive: checks them, and makes them ready for delivery, in place or in a buffer.
//!
//! [`Checks`] checks results, and gives access to those in shared memory. [`Waiting`] holds finished batches until
//! there are buffers for them. Results in shared memory outlive their drive: [`DriveProng::keep_held`] has another
//! thread hand them over.

use super::fault::Fault;
use super::prong::DriveProng;
use super::slots::{SlotLease, SlotTable};
use super::trust::Trust;
use crate::batch::Rows;
use crate::engine::{Engine, GivenUp, Place};
use crate::schedule::{BatchId, HeldResults, ProngId};
use ddlp_csd::prepare;
use ddlp_csd::slot::{Found, Outcome, SampleRecord, SlotError, Wanted};
use ddlp_dataset::Dataset;
use ddlp_driver::DriverError;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Interval at which the loader looks for buffers for the finished batches of a lost drive.
const BUFFER_LOOK: Duration = Duration::from_millis(5);

/// How results of a drive become batches for delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Pixels in shared memory are delivered in place.
    InPlace,
    /// Pixels in shared memory are converted to floats.
    Convert,
    /// Pixels are read into a buffer.
    Read,
    /// Pixels are read, then converted to floats.
    ReadAndConvert,
}

/// A finished batch that lies in its slot.
pub(super) struct Held {
    pub id: BatchId,
    pub slot: u32,
    pub generation: u64,
    pub sample_ids: Vec<u64>,
    /// Checked contents of the batch's slot. A shared slot is checked as soon as the batch is finished, since an agent
    /// that restarts invalidates the headers of slots in a file.
    pub found: Option<Found>,
}

/// Why a result cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum ResultError {
    #[error(transparent)]
    Slot(#[from] SlotError),
    #[error(transparent)]
    Driver(#[from] DriverError),
    #[error("no memory for a batch: {0}")]
    Memory(#[from] io::Error),
}

/// Everything needed to check whether a drive's results are the requested ones.
#[derive(Clone)]
pub(super) struct Checks {
    pub engine: Arc<Engine>,
    pub prong: ProngId,
    pub slots: Arc<SlotTable>,
}

impl Checks {
    pub fn way(&self) -> Way {
        match (self.slots.is_shared(), self.engine.task.output.is_pixels()) {
            (true, true) => Way::InPlace,
            (true, false) => Way::Convert,
            (false, true) => Way::Read,
            (false, false) => Way::ReadAndConvert,
        }
    }

    /// Returns what the slot must contain.
    pub fn wanted<'a>(&self, held: &'a Held) -> Wanted<'a> {
        let task = &self.engine.task;
        Wanted {
            epoch: held.id.epoch,
            batch: held.id.batch,
            generation: held.generation,
            sample_ids: &held.sample_ids,
            shape: task.shape,
            dataset_samples: task.dataset.len(),
            policy: task.program.policy,
        }
    }

    /// Checks that every row has the label that the host's dataset gives for its sample.
    pub fn check_labels(&self, records: &[SampleRecord]) -> Result<(), SlotError> {
        let dataset: &dyn Dataset = &*self.engine.task.dataset;
        let is_right = |record: &SampleRecord| !record.has_row() || record.label == dataset.label(record.index);
        if records.iter().all(is_right) {
            Ok(())
        } else {
            Err(SlotError::Inconsistent("a row's label is not that of its sample"))
        }
    }

    /// Explains why a result is refused, and names sample, file and remedy.
    fn why(&self, id: BatchId, error: &ResultError) -> GivenUp {
        let dataset: &dyn Dataset = &*self.engine.task.dataset;
        let sample = |sample_id, index| {
            format!("sample {} (id {sample_id}, here {})", dataset.name(index), dataset.location(index))
        };
        let remedy = "check the drive's copy of the dataset: `ddlp verify` there, and its agent's log";
        match error {
            ResultError::Slot(SlotError::Outcome {
                sample_id,
                index,
                outcome: outcome @ (Outcome::Skipped(reason) | Outcome::Replaced(reason) | Outcome::Failed(reason)),
            }) => {
                let sample_id = *sample_id;
                let index = match outcome {
                    // The index of the sample, or of the replacement that the drive could not prepare.
                    Outcome::Failed(_) if *index < dataset.len() => *index,
                    _ => prepare::stored_at(dataset, sample_id),
                };
                let sample = sample(sample_id, index);
                let what = format!("the drive could not prepare {sample}, which the CPU could: {reason}; {remedy}");
                GivenUp::Doubted { sample_id, index, what }
            }
            ResultError::Slot(SlotError::Unavailable { sample_id }) => {
                let what = format!(
                    "the drive cannot read its dataset, beginning with {}; the CPU prepares the batch, and the drive \
                     gets batches again after a pause; {remedy}",
                    sample(*sample_id, prepare::stored_at(dataset, *sample_id))
                );
                GivenUp::Failed { kind: "unavailable", what }
            }
            ResultError::Slot(error) => Fault::Damaged(id, error).given_up(),
            ResultError::Driver(error) => Fault::NotRead(id, error).given_up(),
            ResultError::Memory(error) => Fault::NoMemory(id, error).given_up(),
        }
    }

    /// Checks header, table and labels of a slot in shared memory, and returns its contents.
    fn look_into(&self, held: &Held) -> Result<Found, SlotError> {
        let slot = self.slots.bytes(held.slot).expect("shared slots lie in the mapping");
        let found = self.wanted(held).check(slot)?;
        self.check_labels(&found.records)?;
        Ok(found)
    }

    /// Returns the rows in a slot in shared memory, checked against their checksum.
    fn shared_rows(&self, slot: u32, found: &Found) -> Result<&[u8], SlotError> {
        let slot = self.slots.bytes(slot).expect("shared slots lie in the mapping");
        let payload = slot.get(found.payload.clone()).ok_or(SlotError::Inconsistent("payload extent"))?;
        found.check_payload(payload)?;
        Ok(payload)
    }

    /// Converts a result in shared memory to rows in a buffer.
    pub fn convert_shared(&self, held: &mut Held, buffer: &mut [u8]) -> Result<Vec<SampleRecord>, ResultError> {
        let found = held.found.take().expect("looked at when it was finished");
        self.engine.task.write_rows(self.shared_rows(held.slot, &found)?, buffer);
        Ok(found.records)
    }
}

/// Finished batches that wait for a buffer.
pub(super) struct Waiting {
    pub checks: Checks,
    held: VecDeque<Held>,
    pub trust: Trust,
}

impl Waiting {
    pub fn new(checks: Checks) -> Self {
        Self { trust: Trust::new(checks.prong as u64), checks, held: VecDeque::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Makes a finished batch ready, or keeps it until there is a buffer for it.
    pub fn take(&mut self, mut held: Held) {
        match self.checks.way() {
            Way::InPlace => match self.checks.look_into(&held).and_then(|found| self.hand_over(&held, found)) {
                Ok(()) => self.trust.good(),
                Err(error) => self.refuse(&held, &error.into()),
            },
            Way::Convert => match self.checks.look_into(&held) {
                Ok(found) => {
                    held.found = Some(found);
                    self.held.push_back(held);
                }
                Err(error) => self.refuse(&held, &error.into()),
            },
            Way::Read | Way::ReadAndConvert => self.held.push_back(held),
        }
    }

    /// Makes a result in shared memory ready for delivery in place.
    fn hand_over(&self, held: &Held, found: Found) -> Result<(), SlotError> {
        let Checks { engine, prong, slots } = &self.checks;
        self.checks.shared_rows(held.slot, &found)?;
        let lease = SlotLease::new(slots.clone(), held.slot, found.payload);
        engine.ready(*prong, held.id, found.records, Rows::Slot(lease));
        Ok(())
    }

    /// Gets one finished batch out of its slot by `fill`, if there is a buffer for it. Returns whether it took a batch.
    /// It takes only one at a time, since the drive waits for requests meanwhile.
    pub fn fetch(
        &mut self,
        mut fill: impl FnMut(&Checks, &mut Held, &mut [u8]) -> Result<Vec<SampleRecord>, ResultError>,
    ) -> Result<bool, DriverError> {
        let Checks { engine, prong, slots } = &self.checks;
        let placed = self.held.iter().enumerate().find_map(|(at, held)| {
            let place = engine.place_for(*prong, held.id).transpose()?;
            Some((at, place))
        });
        let Some((at, place)) = placed else { return Ok(false) };
        let mut held = self.held.remove(at).expect("found there");
        let filled = match place {
            Ok(Place::Buffer(mut buffer)) => {
                fill(&self.checks, &mut held, &mut buffer).map(|records| (records, Rows::Pooled(buffer)))
            }
            Ok(Place::Unwanted) => {
                slots.put(held.slot);
                return Ok(true);
            }
            Err(error) => Err(error.into()),
        };
        match filled {
            Ok((records, rows)) => {
                self.trust.good();
                slots.put(held.slot);
                engine.ready(*prong, held.id, records, rows);
            }
            Err(ResultError::Driver(error)) if error.ends_association() => {
                self.held.insert(at, held);
                return Err(error);
            }
            Err(error @ ResultError::Memory(_)) => {
                // This is not the drive's fault.
                slots.put(held.slot);
                engine.give_up(*prong, held.id, self.checks.why(held.id, &error));
            }
            Err(error) => self.refuse(&held, &error),
        }
        Ok(true)
    }

    /// Refuses a wrong or damaged result: the CPU prepares the batch.
    fn refuse(&mut self, held: &Held, error: &ResultError) {
        let Checks { engine, prong, slots } = &self.checks;
        slots.put(held.slot);
        let why = self.checks.why(held.id, error);
        match error {
            ResultError::Slot(SlotError::Unavailable { .. }) => self.trust.unavailable(),
            // Counted only if the CPU refutes the drive: see `Engine::take_refuted`.
            _ if matches!(why, GivenUp::Doubted { .. }) => {}
            _ => self.trust.wrong(1),
        }
        engine.give_up(*prong, held.id, why);
    }

    /// Drops all waiting batches, and frees their slots.
    fn drop_all(&mut self) {
        for held in self.held.drain(..) {
            self.checks.slots.put(held.slot);
        }
    }

    /// Hands over the waiting batches in shared memory without their drive, until all are handed over or the run is
    /// over. If that panics, which would be a defect, the CPU prepares the remaining batches, so none is lost.
    fn outlive_drive(mut self) {
        let Checks { engine, prong, .. } = self.checks.clone();
        let ids: Vec<BatchId> = self.held.iter().map(|held| held.id).collect();
        let work = || {
            while !engine.is_over() && !self.is_empty() {
                let has_fetched = self.fetch(Checks::convert_shared).expect("nothing is asked of the drive");
                if !has_fetched && !self.is_empty() && engine.sleep(BUFFER_LOOK) {
                    return;
                }
            }
        };
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            engine.give_up_held(
                prong,
                &ids,
                "the thread that hands it over panicked: this is a defect of this program",
            );
            self.drop_all();
        }
    }
}

impl DriveProng {
    /// Decides what happens to the waiting batches of a lost drive. Another thread hands over those in shared memory,
    /// since this thread may be waiting for the drive while the consumer waits for them.
    pub(super) fn keep_held(&mut self) -> HeldResults {
        if self.waiting.checks.way() != Way::Convert {
            self.waiting.drop_all();
            return HeldResults::Lost;
        }
        if self.waiting.is_empty() {
            return HeldResults::Kept;
        }
        let next = Waiting::new(self.waiting.checks.clone());
        let mut left = std::mem::replace(&mut self.waiting, next);
        std::mem::swap(&mut left.trust, &mut self.waiting.trust);
        match std::thread::Builder::new().name("ddlp-results".into()).spawn(move || left.outlive_drive()) {
            Ok(thread) => {
                self.outliving.retain(|thread| !thread.is_finished());
                self.outliving.push(thread);
                HeldResults::Kept
            }
            Err(error) => {
                // The closure that failed to start took the batches with it, so their slots are never used again.
                tracing::warn!(%error, "results of a lost drive cannot be handed over, and are prepared again");
                HeldResults::Lost
            }
        }
    }
}
