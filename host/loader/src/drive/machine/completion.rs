//! The ends of Execute commands: results, refused slots, failures, and answers that end the association.

use super::{Action, Machine, SLOTLESS_MAX};
use crate::drive::checks::SlotBatch;
use crate::drive::fault::DriveFault;
use crate::drive::flight::Flight;
use crate::engine::GivenUp;
use ddlp_driver::{DriverError, Ticket};
use ddlp_nvme::Status;
use std::time::Instant;

impl Machine {
    /// Records that an Execute command has ended.
    pub fn completed(&mut self, ticket: Ticket, status: Status, now: Instant) {
        let Some(at) = self.flights.iter().position(|flight| flight.ticket == ticket) else { return };
        let lost = |cause: &str| DriverError::Lost { peer: "drive".into(), source: cause.into() };
        if status.same_code(Status::NAMESPACE_NOT_READY) && status.is_do_not_retry() {
            return self.lost(lost("its agent is about to end"), now);
        }
        // The kernel reconnects by itself, and programs end with a host's last association. Another run of this host
        // may also have loaded its own program.
        if status.same_code(Status::NO_PROGRAM) || status.same_code(Status::PROGRAM_NOT_ACTIVATED) {
            let cause = "its program is gone: the drive was reconnected, or another run of this host uses it";
            return self.lost(lost(cause), now);
        }
        let flight = self.flights.swap_remove(at);
        if !status.is_success() {
            self.failed(flight, status, now);
            // No strategy may wait until another host releases its slots.
            if self.slots.without_for(now).is_some_and(|time| time > SLOTLESS_MAX) {
                self.lost(lost(&format!("it has refused every result slot for {SLOTLESS_MAX:?}")), now);
            }
            return;
        }
        self.slots.accepted();
        // A drive that has become much slower is a reported fault; its expected rate adapts.
        if let Some(fault) = flight.slowness(now, self.options.has_agent) {
            self.todo.push_back(Action::report(&fault));
        }
        self.todo.push_back(Action::Take(flight.batch));
    }

    /// Gives up a batch whose Execute command failed.
    fn failed(&mut self, flight: Flight, status: Status, now: Instant) {
        let SlotBatch { id, slot, .. } = flight.batch;
        let is_foreign = status.same_code(Status::INSUFFICIENT_RESOURCES);
        if is_foreign {
            self.todo.push_back(Action::Note("the drive's result slots are shared with another host"));
        }
        let is_short = status.same_code(Status::CAPACITY_EXCEEDED);
        if is_short {
            self.todo.push_back(Action::Note(
                "the drive has no memory for all of its result slots, and continues with fewer: the tail is shorter",
            ));
            // The other slots that were never used have no memory either.
            self.todo.push_back(Action::LeaveUnproven);
        }
        // NAMESPACE_NOT_READY: this host itself still holds the slot, through a lost association that the drive still
        // takes for live.
        if is_foreign || is_short || status.same_code(Status::NAMESPACE_NOT_READY) {
            self.slots.refused([slot], now);
            self.todo.push_back(Action::GiveUp { id, slot: None, why: GivenUp::Returned });
            return;
        }
        let why = if flight.cancelled && status.same_code(Status::ABORT_REQUESTED) {
            GivenUp::Cancelled
        } else {
            // A drive that refuses at once would otherwise take batch after batch from the others.
            self.pause();
            DriveFault::Execute(id, status).given_up()
        };
        self.todo.push_back(Action::GiveUp { id, slot: Some(slot), why });
    }

    /// Records the slots without a result that [`Action::LeaveUnproven`] took.
    pub fn left_unproven(&mut self, slots: Vec<u32>, now: Instant) {
        self.slots.refused(slots, now);
    }
}
