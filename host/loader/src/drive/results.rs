//! Results of a drive: finished batches, until they are ready for delivery, in place or in a buffer.
//!
//! Results in shared memory outlive their drive: [`Results::keep_held`] has another thread hand them over.

use super::checks::{Checks, Handover, ResultError, SlotBatch, Taken};
use super::handle::ProngHandle;
use super::machine::Fetched;
use crate::delivery::SlotRows;
use crate::engine::{GivenUp, ResultPlace};
use crate::schedule::{BatchId, HeldResults};
use ddlp_csd::slot::{Found, SlotError};
use ddlp_driver::DriverError;
use memmap2::MmapMut;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::JoinHandle;
use std::time::Duration;

/// Interval at which the loader looks for buffers for the finished batches of a lost drive.
const BUFFER_LOOK: Duration = Duration::from_millis(5);

/// What a result says about its drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The result is the requested batch.
    Good,
    /// The result is wrong or damaged.
    Wrong,
    /// The drive could not read its dataset.
    Unavailable,
    /// The drive left a sample to the host, as it may.
    LeftToHost,
    /// Nothing yet, or nothing at all.
    None,
}

/// The finished batches of a drive that lie in its slots.
pub(super) struct Results {
    pub checks: Checks,
    /// Finished batches that wait for a buffer.
    held: VecDeque<SlotBatch>,
    /// Buffer for a batch of pixels that are read, if floats are delivered.
    pub pixels: Option<MmapMut>,
    /// Threads that hand over batches which the drive had finished before it was lost.
    outliving: Vec<JoinHandle<()>>,
}

impl Results {
    pub fn new(checks: Checks) -> Self {
        Self { checks, held: VecDeque::new(), pixels: None, outliving: Vec::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Makes a finished batch ready, or keeps it until there is a buffer for it.
    pub fn take(&mut self, mut held: SlotBatch) -> Verdict {
        match self.checks.handover() {
            Handover::InPlace => match self.checks.look_into(&held).and_then(|found| self.hand_over(&held, found)) {
                Ok(()) => return Verdict::Good,
                Err(error) => return self.refuse(&held, &error.into()),
            },
            Handover::Convert | Handover::Pass => match self.checks.look_into(&held) {
                Ok(found) => held.found = Some(found),
                Err(error) => return self.refuse(&held, &error.into()),
            },
            Handover::Read | Handover::ReadAndConvert => {}
        }
        self.held.push_back(held);
        Verdict::None
    }

    /// Makes a result in shared memory ready for delivery in place.
    fn hand_over(&self, held: &SlotBatch, found: Found) -> Result<(), SlotError> {
        let Checks { handle: ProngHandle { engine, prong }, slots, .. } = &self.checks;
        self.checks.shared_rows(held.slot, &found)?;
        let memory = SlotRows::new(slots.clone(), held.slot, found.payload);
        engine.ready_in_slot(*prong, held.id, found.records, memory);
        Ok(())
    }

    /// Gets one finished batch out of its slot by `fill`, if there is a buffer for it. It takes only one at a time,
    /// since the drive waits for requests meanwhile.
    pub fn fetch(
        &mut self,
        mut fill: impl FnMut(&Checks, &mut SlotBatch, &mut [u8]) -> Result<Taken, ResultError>,
    ) -> Result<Fetched, DriverError> {
        if self.held.is_empty() {
            return Ok(Fetched::None);
        }
        let running = self.checks.handle.engine.clone();
        let _making_ready = running.making_ready();
        let Checks { handle: ProngHandle { engine, prong }, slots, .. } = &self.checks;
        let placed = self.held.iter().enumerate().find_map(|(at, held)| {
            let place = engine.place_for(*prong, held.id).transpose()?;
            Some((at, place))
        });
        let Some((at, place)) = placed else { return Ok(Fetched::Waiting) };
        let mut held = self.held.remove(at).expect("found there");
        let filled = match place {
            Ok(ResultPlace::Buffer(mut buffer)) => {
                fill(&self.checks, &mut held, buffer.bytes_mut()).map(|taken| (taken, buffer))
            }
            Ok(ResultPlace::Unwanted) => {
                slots.put(held.slot);
                return Ok(Fetched::One(Verdict::None));
            }
            Err(error) => Err(error.into()),
        };
        let verdict = match filled {
            Ok((Taken { records, slot }, buffer)) => {
                if slot.is_none() {
                    slots.put(held.slot);
                }
                engine.ready_in_buffer(*prong, held.id, records, buffer, slot);
                Verdict::Good
            }
            Err(ResultError::Driver(error)) if error.ends_association() => {
                self.held.insert(at, held);
                return Err(error);
            }
            Err(error @ ResultError::Memory(_)) => {
                // This is not the drive's fault.
                slots.put(held.slot);
                engine.give_up(*prong, held.id, self.checks.why(held.id, &error));
                Verdict::None
            }
            Err(error) => self.refuse(&held, &error),
        };
        Ok(Fetched::One(verdict))
    }

    /// Refuses a wrong or damaged result: the CPU prepares the batch.
    fn refuse(&self, held: &SlotBatch, error: &ResultError) -> Verdict {
        let Checks { handle: ProngHandle { engine, prong }, slots, .. } = &self.checks;
        slots.put(held.slot);
        let why = self.checks.why(held.id, error);
        let verdict = match (error, &why) {
            (ResultError::Slot(SlotError::Unavailable { .. }), _) => Verdict::Unavailable,
            // Counted only if the CPU refutes the drive: see `Engine::look`.
            (_, GivenUp::Doubted { .. }) => Verdict::None,
            (_, GivenUp::LeftToHost { .. }) => Verdict::LeftToHost,
            _ => Verdict::Wrong,
        };
        engine.give_up(*prong, held.id, why);
        verdict
    }

    /// Drops all waiting batches, and frees their slots.
    pub fn drop_all(&mut self) {
        for held in self.held.drain(..) {
            self.checks.slots.put(held.slot);
        }
    }

    /// Hands over the waiting batches in shared memory without their drive, until all are handed over or the run is
    /// over. If that panics, which would be a defect, the CPU prepares the remaining batches, so none is lost.
    fn outlive_drive(mut self) {
        let ProngHandle { engine, prong } = self.checks.handle.clone();
        let ids: Vec<BatchId> = self.held.iter().map(|held| held.id).collect();
        let work = || {
            while !engine.is_over() && !self.is_empty() {
                let fetched = self.fetch(Checks::take_shared).expect("nothing is asked of the drive");
                if fetched == Fetched::Waiting && engine.sleep(BUFFER_LOOK) {
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
        }
        // The run may go on at another position, and needs the slots.
        self.drop_all();
    }

    /// Decides what happens to the waiting batches of a lost drive. Another thread hands over those in shared memory,
    /// since the drive's thread may be waiting for the drive while the consumer waits for them.
    pub fn keep_held(&mut self) -> HeldResults {
        if !matches!(self.checks.handover(), Handover::Convert | Handover::Pass) {
            self.drop_all();
            return HeldResults::Lost;
        }
        if self.is_empty() {
            return HeldResults::Kept;
        }
        let left = Self { held: std::mem::take(&mut self.held), ..Self::new(self.checks.clone()) };
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

    /// Waits for the threads that hand over batches without their drive.
    pub fn join(&mut self) {
        for thread in self.outliving.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the loader panicked");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::SlotTable;
    use crate::loader::Loader;
    use ddlp_csd::abilities::AgreedDecoders;
    use std::sync::Arc;

    #[test]
    fn slots_are_free_again_when_the_run_moves_before_their_batches_are_handed_over() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("data_batch_1.bin"), [3u8; 8 * 3073]).unwrap();
        let loader =
            Loader::builder().with(|o| (o.dataset, o.batch_size) = (Some(folder.path().into()), 4)).build().unwrap();
        let slots = Arc::new(SlotTable::remote(4, 4096));
        let engine = loader.engine.clone();
        let handle = ProngHandle { engine: engine.clone(), prong: 1 };
        let checks = Checks { handle, slots: slots.clone(), agreed: AgreedDecoders::ALL };
        let mut results = Results::new(checks);
        for batch in 0..2 {
            let (id, slot) = (BatchId { epoch: 0, batch }, slots.take().expect("four are free"));
            results.held.push_back(SlotBatch { id, slot, generation: 1, sample_ids: Vec::new(), found: None });
        }
        engine.stop_keeping_drives();
        results.outlive_drive();
        assert_eq!(slots.free(), 4);
    }
}
