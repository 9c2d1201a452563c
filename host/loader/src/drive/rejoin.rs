//! Loss and return of a drive: its batches go back to the schedule, and the loader tries to reach it until it works
//! again.

use super::fault::Fault;
use super::local::RESTARTS_MAX;
use super::prong::{DriveProng, SLOTLESS_MAX, read_counters};
use super::trust::ASSOCIATIONS_MAX;
use super::{LinkError, connect};
use crate::schedule::BatchId;
use ddlp_driver::{Backoff, BackoffLimits, DriverError};
use std::time::{Duration, Instant};

/// A local agent that runs but cannot be reached for this long is restarted.
const UNREACHABLE: Duration = Duration::from_secs(10);
/// Delays between attempts to reach a drive: they double up to two seconds, and attempts end only with the run.
const BACKOFF: BackoffLimits =
    BackoffLimits { first: Duration::from_millis(100), cap: Duration::from_secs(2), attempts_max: u32::MAX };

/// Attempts since the drive last finished a batch.
pub(super) struct Tries {
    backoff: Backoff,
    /// Restarts of the loader's own agent.
    restarts: u32,
}

impl Tries {
    pub fn new(seed: u64) -> Self {
        Self { backoff: Backoff::new(BACKOFF, seed), restarts: 0 }
    }
}

impl DriveProng {
    /// Drops a lost association: everything in flight goes back to the schedule, and so does every finished batch that
    /// can no longer be read.
    pub(super) fn lose_link(&mut self, error: &DriverError) {
        // The drive may still be at work on a batch that took too long.
        self.cancel_flights();
        (self.link, self.paused_until) = (None, None);
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

    /// Tries to reach the drive, for the first time or again, until it succeeds. Returns false if the drive cannot be
    /// used any more or the run is over.
    pub(super) fn rejoin(&mut self) -> bool {
        if self.waiting.trust.is_useless() {
            self.report(&Fault::Useless(ASSOCIATIONS_MAX));
            return false;
        }
        if self.without_slots.take().is_some() && self.engine.sleep(SLOTLESS_MAX) {
            return false;
        }
        let mut unreachable_since = Instant::now();
        while !self.engine.is_over() {
            let is_first = std::mem::take(&mut self.first_try);
            // The delay also applies to a drive that came back and failed again at once.
            let delay = self.tries.backoff.next_delay().filter(|_| !is_first).unwrap_or_default();
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
                    if is_new {
                        self.before = read_counters(&link);
                    }
                    self.link = Some(link);
                    let what = match is_new {
                        true => "the drive was reached and joins the run",
                        false => "the drive works again",
                    };
                    self.engine.regain(self.prong, (!is_first).then_some(what));
                    return true;
                }
                Err(_) if self.engine.is_over() => return false,
                Err(error) if is_first && error.is_unreachable() => self.report(&Fault::Away(&error)),
                // The address or the drive is wrong, and the user should learn that at the start of the run.
                Err(error) if is_first => {
                    self.engine.refuse(self.prong, self.endpoint.unusable(&error));
                    return false;
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

    /// Restarts the loader's own agent if it has ended, or runs but cannot be reached. Returns false after too many
    /// restarts without success.
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
            // The agent was not waited for.
            Err(_) if self.engine.is_stopped() => {}
            Err(error) => self.report(&Fault::AgentFails(&error)),
        }
        true
    }
}
