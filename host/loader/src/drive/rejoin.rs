//! A drive that went away: what it had goes back to the schedule, and it is tried again until it works.

use super::fault::Fault;
use super::local::RESTARTS_MAX;
use super::prong::{DriveProng, SLOTLESS_MAX};
use super::{LinkError, connect};
use crate::schedule::BatchId;
use ddlp_driver::{Backoff, BackoffLimits, DriverError};
use std::time::{Duration, Instant};

/// A local agent that is running but cannot be reached for this long is started again.
const UNREACHABLE: Duration = Duration::from_secs(10);
/// How often a drive is tried again: the first delays double up to two seconds; a run that lasts goes on trying.
const BACKOFF: BackoffLimits =
    BackoffLimits { first: Duration::from_millis(100), cap: Duration::from_secs(2), attempts_max: u32::MAX };

/// A drive whose results cannot be used is connected anew as often, less once.
const USELESS_MAX: u32 = 3;

/// The tries since a drive was of use last.
pub(super) struct Tries {
    backoff: Backoff,
    /// Starts of the loader's own agent.
    restarts: u32,
}

impl Tries {
    pub fn new(seed: u64) -> Self {
        Self { backoff: Backoff::new(BACKOFF, seed), restarts: 0 }
    }
}

impl DriveProng {
    /// The association is gone: everything in flight goes back to the schedule, and so does what can no longer be read.
    pub(super) fn lose_link(&mut self, error: &DriverError) {
        // A batch that took too long may be at work still.
        self.cancel_flights();
        self.link = None;
        let flights: Vec<BatchId> = self.flights.iter().map(|flight| flight.batch.id).collect();
        for slot in self.flights.drain(..).map(|flight| flight.batch.slot) {
            self.slots.put(slot);
        }
        for (slot, _) in self.foreign.drain(..) {
            self.slots.put(slot);
        }
        let held = self.keep_held();
        let fault = Fault::Lost(error);
        self.engine.lose(self.prong, &flights, held, fault.kind(), fault.to_string());
    }

    /// Tries until the drive works again; false when it never will, or the run is over.
    pub(super) fn rejoin(&mut self) -> bool {
        if self.useless >= USELESS_MAX {
            self.report(&Fault::Useless(USELESS_MAX));
            return false;
        }
        if self.without_slots.take().is_some() && self.engine.sleep(SLOTLESS_MAX) {
            return false;
        }
        let mut unreachable_since = Instant::now();
        while !self.engine.is_over() {
            // A drive that comes back and fails again at once has to wait as well.
            let delay = self.tries.backoff.next_delay().unwrap_or(BACKOFF.cap);
            if self.engine.sleep(delay) || !self.revive_agent(&mut unreachable_since) {
                return false;
            }
            let watch = |controller| self.engine.watch(self.prong, controller);
            match connect(&self.endpoint, &self.expected, &self.engine.task.program, self.depth, watch) {
                Ok(link) if link.identity.slots < self.slots.count() => {
                    let (now, before) = (link.identity.slots, self.slots.count());
                    self.report(&Fault::FewerSlots { now, before });
                    return false;
                }
                Ok(link) => {
                    let is_new = self.slots.count() == 0;
                    self.slots.know(link.identity.slots);
                    self.link = Some(link);
                    self.engine.regain(self.prong, is_new);
                    return true;
                }
                Err(LinkError::Driver(error)) if error.is_transient() => tracing::debug!("drive still away: {error}"),
                Err(error) => {
                    self.report(&Fault::Refused(&error));
                    return false;
                }
            }
        }
        false
    }

    /// Records a fault that changes nothing in the schedule.
    pub(super) fn report(&self, fault: &Fault<'_>) {
        self.engine.fault(self.prong, fault.kind(), fault.to_string());
    }

    /// Starts the loader's own agent again when it is gone, or runs without being reachable. False when that has been in vain too
    /// often.
    fn revive_agent(&mut self, unreachable_since: &mut Instant) -> bool {
        let Some(agent) = &mut self.endpoint.agent else { return true };
        if agent.is_running() && unreachable_since.elapsed() < UNREACHABLE {
            return true;
        }
        if self.tries.restarts == RESTARTS_MAX {
            self.report(&Fault::AgentGivenUp(RESTARTS_MAX));
            return false;
        }
        self.tries.restarts += 1;
        *unreachable_since = Instant::now();
        let engine = self.engine.clone();
        let restarted = self.endpoint.restart(&|| engine.is_stopped());
        match restarted {
            Ok(()) => self.report(&Fault::AgentRestarted),
            Err(error) => self.report(&Fault::AgentFails(&error)),
        }
        true
    }
}
