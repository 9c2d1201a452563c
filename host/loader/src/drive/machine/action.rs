//! What a drive's thread does next.

use crate::drive::checks::SlotBatch;
use crate::drive::fault::DriveFault;
use crate::drive::flight::Flight;
use crate::drive::link::LinkError;
use crate::engine::GivenUp;
use crate::report::FaultKind;
use crate::schedule::BatchId;
use ddlp_driver::DriverError;
use std::time::Instant;

/// An action of the thread. If the thread has to tell how the action ended, the variant names the methods of
/// [`Machine`](super::Machine) for that. The thread calls `lost` whenever the association turns out to be over.
#[derive(Debug)]
pub(in crate::drive) enum Action {
    /// Ask the engine for cancels and refuted claims: `looked`.
    Look,
    /// Get a finished batch out of its slot, if there is a buffer for one: `fetched`.
    Fetch,
    /// Claim a batch, and send it to the drive: `submitted`, `not_submitted` or `nothing_to_claim`.
    Claim,
    /// Wait for a completion until this time: `completed`.
    Poll(Instant),
    /// Wait until this time without a command in flight.
    Idle(Instant),
    /// Ask the drive to stop work on a batch in flight. Its command still completes.
    Cancel(BatchId),
    /// Deliver or keep a batch that the drive finished, if the batch is wanted: `taken`. Free its slot otherwise.
    Take(SlotBatch),
    /// Give a batch back to the schedule, and free its slot, unless the drive refuses the slot.
    GiveUp { id: BatchId, slot: Option<u32>, why: GivenUp },
    /// Free slots that were refused a while ago, to be used when no other slot is free.
    PutLast(Vec<u32>),
    /// Take the free slots that have never held a result: `left_unproven`.
    LeaveUnproven,
    /// Drop the association. Free the slots of these flights and the refused ones.
    Lose { error: DriverError, flights: Vec<Flight>, refused: Vec<u32> },
    /// Tell the schedule that the drive takes no batches for a while.
    Pause,
    /// Tell the schedule that the drive takes batches again, with a message for the report.
    Regain(Option<&'static str>),
    /// Add a fault to the report.
    Report(FaultKind, String),
    /// Add a note to the report.
    Note(&'static str),
    /// Wait until this time without an association.
    Sleep(Instant),
    /// Look whether the loader's own agent is running: `saw_agent`.
    LookAtAgent,
    /// Restart the loader's own agent.
    RestartAgent,
    /// Connect to the drive: `reached` or `not_reached`.
    Connect,
    /// End the run, since the drive cannot be used.
    Refuse(LinkError),
    /// End the thread: the drive is given up.
    End,
}

impl Action {
    pub(super) fn report(fault: &DriveFault<'_>) -> Self {
        Self::Report(fault.kind(), fault.to_string())
    }
}
