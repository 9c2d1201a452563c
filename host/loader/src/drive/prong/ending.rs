//! The end of an association's work: the run goes on at another position or is over, or the drive was lost.

use super::DriveProng;
use crate::delivery::SlotTable;
use crate::drive::fault::DriveFault;
use crate::drive::flight::Flight;
use crate::drive::link::{DriveLink, LEAVE_WITHIN};
use crate::engine::Loss;
use crate::schedule::BatchId;
use ddlp_cause::with_causes;
use ddlp_driver::DriverError;
use std::time::{Duration, Instant};

/// Longest wait for the end of cancelled commands, if the drive is kept for another position of the run.
const SETTLE_WITHIN: Duration = Duration::from_secs(1);

impl DriveProng {
    /// Frees all slots, except of batches that the consumer has. Keeps the association only if its cancelled commands
    /// end within [`SETTLE_WITHIN`]. Otherwise drops it, which makes the drive end the work.
    pub(super) fn settle(&mut self) {
        let now = Instant::now();
        let (mut flights, refused) = self.machine.settle();
        if let Some(link) = &mut self.link
            && let Err(reason) = end_flights(link, &mut flights, &self.slots, now + SETTLE_WITHIN)
        {
            self.link = None;
            self.machine.not_kept(now);
            self.handle.report(&DriveFault::NotKept(reason));
        }
        self.put_all(&flights, &refused);
        self.results.drop_all();
    }

    /// Drops a lost association: everything in flight goes back to the schedule, and so does every finished batch that
    /// can no longer be read.
    pub(super) fn lose(&mut self, error: &DriverError, flights: &[Flight], refused: &[u32]) {
        let ids: Vec<BatchId> = flights.iter().map(|flight| flight.batch.id).collect();
        // The drive may still be at work on a batch that took too long.
        self.cancel_all(&ids);
        self.link = None;
        self.put_all(flights, refused);
        let held = self.results.keep_held();
        let moves = self.handle.engine.keeps_drives();
        let of_dataset = self.endpoint.holds_dataset && !moves;
        let fault = match of_dataset {
            // The loader itself closes the link of a drive that does not answer when the run moves.
            _ if moves => DriveFault::NotKept(with_causes(error)),
            true => DriveFault::LostDataset(error),
            false => DriveFault::Lost(error),
        };
        let (kind, what) = (fault.kind(), fault.to_string());
        self.handle.engine.lose(self.handle.prong, Loss { flights: &ids, held, kind, what, of_dataset });
    }

    fn put_all(&self, flights: &[Flight], refused: &[u32]) {
        let slots = flights.iter().map(|flight| flight.batch.slot).chain(refused.iter().copied());
        slots.for_each(|slot| self.slots.put(slot));
    }

    /// Asks the drive to stop work on batches in flight, since an association that the kernel owns does not end with
    /// this thread.
    pub(super) fn cancel_all(&self, ids: &[BatchId]) {
        let Some(link) = self.link.as_ref().filter(|link| link.is_alive()) else { return };
        for &id in ids {
            if let Err(error) = link.cancel(id, LEAVE_WITHIN) {
                tracing::debug!("batch not cancelled: {}", with_causes(&error));
                return;
            }
        }
    }
}

/// Waits for the ends of commands in flight, and frees their slots. Fails with the reason if the association cannot be
/// kept.
fn end_flights(
    link: &mut DriveLink,
    flights: &mut Vec<Flight>,
    slots: &SlotTable,
    until: Instant,
) -> Result<(), String> {
    while !flights.is_empty() {
        match link.poll(until) {
            Ok(Some((ticket, _))) => {
                for flight in flights.extract_if(.., |flight| flight.ticket == ticket) {
                    slots.put(flight.batch.slot);
                }
            }
            Ok(None) => return Err(format!("the drive did not end cancelled batches within {SETTLE_WITHIN:?}")),
            Err(error) => return Err(with_causes(&error)),
        }
    }
    if link.is_alive() { Ok(()) } else { Err("the connection to the drive was closed".into()) }
}
