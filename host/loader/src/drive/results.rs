//! Results of a drive: checked, and made ready for delivery, where they lie or in a buffer that they are read into.

use super::prong::DriveProng;
use super::slots::SlotLease;
use crate::batch::Rows;
use crate::buffers::PooledBuffer;
use crate::engine::{GivenUp, Place};
use crate::schedule::BatchId;
use ddlp_csd::BLOCK_BYTES;
use ddlp_csd::slot::{Found, SampleRecord, SlotError, Wanted};
use ddlp_dataset::Dataset;
use ddlp_driver::DriverError;
use memmap2::MmapMut;
use std::io;

/// A finished batch that lies in its slot.
pub(super) struct Held {
    pub id: BatchId,
    pub slot: u32,
    pub generation: u64,
    pub sample_ids: Vec<u64>,
}

/// Why a result cannot be used.
#[derive(Debug, thiserror::Error)]
enum ResultError {
    #[error(transparent)]
    Slot(#[from] SlotError),
    #[error(transparent)]
    Driver(#[from] DriverError),
    #[error("no memory for a batch: {0}")]
    Memory(#[from] io::Error),
}

impl DriveProng {
    /// What a slot has to hold.
    fn wanted<'a>(&self, held: &'a Held) -> Wanted<'a> {
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

    /// Makes a batch that the drive finished ready, or keeps it until there is a buffer for it.
    pub(super) fn take_result(&mut self, held: Held) {
        let lies_right = self.slots.is_shared() && self.engine.task.output.is_pixels();
        if lies_right { self.hand_over_shared(held) } else { self.held.push_back(held) }
    }

    /// Makes a result in shared memory ready in place.
    fn hand_over_shared(&mut self, held: Held) {
        match self.check_shared(&held) {
            Ok((found, _)) => {
                self.refused_in_a_row = 0;
                let lease = SlotLease::new(self.slots.clone(), held.slot, found.payload);
                self.engine.ready(self.prong, held.id, found.records, Rows::Slot(lease));
            }
            Err(error) => self.refuse(&held, "damaged", &error),
        }
    }

    /// What a slot in shared memory holds, and its rows.
    fn check_shared(&self, held: &Held) -> Result<(Found, &[u8]), SlotError> {
        let slot = self.slots.bytes(held.slot).expect("shared slots lie in the mapping");
        let found = self.wanted(held).check(slot)?;
        check_labels(&*self.engine.task.dataset, &found.records)?;
        let payload = slot.get(found.payload.clone()).ok_or(SlotError::Inconsistent("payload extent"))?;
        found.check_payload(payload)?;
        Ok((found, payload))
    }

    /// Gets finished batches out of their slots, as far as there are buffers for them.
    pub(super) fn fetch_held(&mut self) -> Result<(), DriverError> {
        for _ in 0..self.held.len() {
            let held = self.held.pop_front().expect("counted above");
            let mut buffer = match self.engine.place_for(self.prong, held.id) {
                Place::Buffer(buffer) => buffer,
                Place::Later => {
                    self.held.push_back(held);
                    continue;
                }
                Place::Unwanted => {
                    self.slots.put(held.slot);
                    continue;
                }
            };
            match self.read_result(&held, &mut buffer) {
                Ok(records) => {
                    self.refused_in_a_row = 0;
                    self.slots.put(held.slot);
                    let rows = Rows::Pooled(PooledBuffer::new(buffer, self.engine.pool.clone()));
                    self.engine.ready(self.prong, held.id, records, rows);
                }
                Err(ResultError::Driver(error)) if error.ends_association() => {
                    self.engine.pool.put(buffer);
                    self.held.push_back(held);
                    return Err(error);
                }
                Err(error @ ResultError::Memory(_)) => {
                    // That is no fault of the drive's.
                    self.engine.pool.put(buffer);
                    self.slots.put(held.slot);
                    let why = GivenUp::Failed { kind: "memory", what: error.to_string() };
                    self.engine.give_up(self.prong, held.id, why);
                }
                Err(error) => {
                    self.engine.pool.put(buffer);
                    let kind = if matches!(error, ResultError::Slot(_)) { "damaged" } else { "status" };
                    self.refuse(&held, kind, &error);
                }
            }
        }
        Ok(())
    }

    /// Gets a result's rows into a buffer, as they are delivered.
    fn read_result(&mut self, held: &Held, buffer: &mut [u8]) -> Result<Vec<SampleRecord>, ResultError> {
        if self.slots.is_shared() {
            let (found, pixels) = self.check_shared(held)?;
            self.engine.task.write_rows(pixels, buffer);
            return Ok(found.records);
        }
        if self.engine.task.output.is_pixels() {
            return Ok(self.read_slot(held, buffer)?.records);
        }
        let mut pixels = match self.pixels.take() {
            Some(pixels) => pixels,
            None => MmapMut::map_anon(self.expected.slot_bytes)?,
        };
        let found = self.read_slot(held, &mut pixels);
        if let Ok(found) = &found {
            self.engine.task.write_rows(&pixels[..found.payload.len()], buffer);
        }
        self.pixels = Some(pixels);
        Ok(found?.records)
    }

    /// Reads a slot's rows by the drive's association.
    fn read_slot(&mut self, held: &Held, buffer: &mut [u8]) -> Result<Found, ResultError> {
        let wanted = self.wanted(held);
        let timeout = self.timeout;
        let link = self.link.as_mut().expect("served only with a link");
        let mut head = vec![0; wanted.layout().payload_offset];
        link.read_slot(held.slot, 0, &mut head, timeout)?;
        let found = wanted.check(&head)?;
        check_labels(&*self.engine.task.dataset, &found.records)?;
        let bytes = found.payload.len();
        let target = buffer.get_mut(..bytes.next_multiple_of(BLOCK_BYTES)).expect("a buffer has room for a batch");
        link.read_slot(held.slot, found.payload.start, target, timeout)?;
        found.check_payload(&target[..bytes])?;
        Ok(found)
    }

    /// A result that is not what was asked for: the CPU prepares the batch.
    fn refuse(&mut self, held: &Held, kind: &'static str, error: &dyn std::error::Error) {
        self.slots.put(held.slot);
        self.refused_in_a_row += 1;
        self.engine.give_up(self.prong, held.id, GivenUp::Failed { kind, what: error.to_string() });
    }
}

/// Labels are the dataset's, whoever prepared the rows.
fn check_labels(dataset: &dyn Dataset, records: &[SampleRecord]) -> Result<(), SlotError> {
    let is_right = |record: &SampleRecord| !record.has_row() || record.label == dataset.label(record.index);
    if records.iter().all(is_right) {
        Ok(())
    } else {
        Err(SlotError::Inconsistent("a row's label is not its sample's"))
    }
}
