//! Checks of a drive's results: whether a slot holds the requested batch, undamaged. The tests of `ddlp_csd::slot`
//! cover these checks, and so does `tests/tests/suite/faults.rs` with damaged slots.

use super::fault::DriveFault;
use super::handle::ProngHandle;
use crate::delivery::{SlotRows, SlotTable};
use crate::engine::GivenUp;
use crate::report::FaultKind;
use crate::schedule::BatchId;
use ddlp_csd::abilities::AgreedDecoders;
use ddlp_csd::prepare;
use ddlp_csd::slot::{Found, Outcome, SampleRecord, SlotError, Wanted, decoder_name};
use ddlp_dataset::{Dataset, Decoder};
use ddlp_driver::DriverError;
use ddlp_pixels::AbilityNumber;
use std::io;
use std::sync::Arc;

/// How results of a drive become batches for delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handover {
    /// Pixels in shared memory are delivered in place.
    InPlace,
    /// Pixels in shared memory are copied, or converted to floats.
    Convert,
    /// Pixels in shared memory are handed to a delivery target that finishes batches.
    Pass,
    /// Pixels are read into a buffer.
    Read,
    /// Pixels are read, then converted to floats.
    ReadAndConvert,
}

/// A batch in its slot, on its way through the drive.
#[derive(Debug)]
pub(super) struct SlotBatch {
    pub id: BatchId,
    pub slot: u32,
    pub generation: u64,
    pub sample_ids: Vec<u64>,
    /// Checked contents of the batch's slot. A shared slot is checked as soon as the batch is finished, since an agent
    /// that restarts invalidates the headers of slots in a file.
    pub found: Option<Found>,
}

/// A result that was taken out of its slot.
pub(super) struct Taken {
    pub records: Vec<SampleRecord>,
    /// The slot, if the result's rows stay there until the delivery target has copied them.
    pub slot: Option<SlotRows>,
}

/// Why a result cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum ResultError {
    #[error(transparent)]
    Slot(#[from] SlotError),
    #[error(transparent)]
    Driver(#[from] DriverError),
    #[error("no memory for a batch")]
    Memory(#[from] io::Error),
}

/// Everything needed to check whether a drive's results are the requested ones.
#[derive(Clone)]
pub(super) struct Checks {
    pub handle: ProngHandle,
    pub slots: Arc<SlotTable>,
    /// Decoders that the drive may use on the current association.
    pub agreed: AgreedDecoders,
}

impl Checks {
    pub fn handover(&self) -> Handover {
        let task = &self.handle.engine.task;
        match (self.slots.is_shared(), task.is_as_prepared()) {
            (true, _) if task.is_finished_by_target() => Handover::Pass,
            (true, true) if self.handle.engine.target.accepts_slots() => Handover::InPlace,
            (true, _) => Handover::Convert,
            (false, true) => Handover::Read,
            (false, false) => Handover::ReadAndConvert,
        }
    }

    /// Returns what the slot must contain.
    pub fn wanted<'a>(&self, held: &'a SlotBatch) -> Wanted<'a> {
        let task = &self.handle.engine.task;
        Wanted {
            epoch: held.id.epoch,
            batch: held.id.batch,
            generation: held.generation,
            sample_ids: &held.sample_ids,
            shape: task.bucket(held.id).images.prepared(),
            dataset_samples: task.dataset.len(),
            policy: task.policy(),
        }
    }

    /// Explains why a result is refused, and names sample, file and remedy.
    pub fn why(&self, id: BatchId, error: &ResultError) -> GivenUp {
        let dataset: &dyn Dataset = &*self.handle.engine.task.dataset;
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
                GivenUp::Failed { kind: FaultKind::Unavailable, what }
            }
            ResultError::Slot(SlotError::OtherDecoder { decoder, .. }) if self.agreed.may_leave(*decoder) => {
                let note = format!(
                    "it leaves samples to the CPU that need {}; run the same version on both sides to have the drive \
                     prepare them too",
                    noted_name(*decoder)
                );
                GivenUp::LeftToHost { note }
            }
            ResultError::Slot(SlotError::OtherDecoder { sample_id, decoder }) => {
                let sample = sample(*sample_id, prepare::stored_at(dataset, *sample_id));
                let what = format!(
                    "the drive leaves {sample} to the CPU, as if it had not agreed on {}; the CPU prepares the batch; \
                     update or replace the drive's agent, which is defective",
                    decoder_name(*decoder)
                );
                GivenUp::Failed { kind: FaultKind::Damaged, what }
            }
            ResultError::Slot(error) => DriveFault::Damaged(id, error).given_up(),
            ResultError::Driver(error) => DriveFault::NotRead(id, error).given_up(),
            ResultError::Memory(error) => DriveFault::NoMemory(id, error).given_up(),
        }
    }

    /// Checks header and table of a slot in shared memory, and returns its contents.
    pub fn look_into(&self, held: &SlotBatch) -> Result<Found, SlotError> {
        let slot = self.slots.bytes(held.slot).expect("shared slots lie in the mapping");
        self.wanted(held).check(slot)
    }

    /// Returns the rows in a slot in shared memory, checked against their checksum.
    pub fn shared_rows(&self, slot: u32, found: &Found) -> Result<&[u8], SlotError> {
        let slot = self.slots.bytes(slot).expect("shared slots lie in the mapping");
        let payload = slot.get(found.payload.clone()).ok_or(SlotError::Inconsistent("payload extent"))?;
        found.check_payload(payload)?;
        Ok(payload)
    }

    /// Takes a result out of shared memory: converts it to rows in a buffer, or passes on its slot.
    pub fn take_shared(&self, held: &mut SlotBatch, buffer: &mut [u8]) -> Result<Taken, ResultError> {
        let found = held.found.take().expect("looked at when it was finished");
        let rows = self.shared_rows(held.slot, &found)?;
        if self.handover() == Handover::Pass {
            let slot = SlotRows::new(self.slots.clone(), held.slot, found.payload);
            return Ok(Taken { records: found.records, slot: Some(slot) });
        }
        self.handle.engine.task.bucket(held.id).images.write_rows(rows, buffer);
        Ok(Taken { records: found.records, slot: None })
    }
}

/// Returns words for a decoder in a note. All decoders of other versions have the same words: a drive may name any
/// number, and the report repeats no note.
fn noted_name(decoder: Option<AbilityNumber>) -> String {
    match decoder {
        Some(number) if Decoder::of_ability(number).is_none() => "a decoder of another version".into(),
        decoder => decoder_name(decoder),
    }
}
