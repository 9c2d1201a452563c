//! Reaches a drive, for the first time or again: the loader tries until the drive works or the run is over.

use super::endpoint::{Endpoint, connect};
use super::fault::DriveFault;
use super::handle::ProngHandle;
use super::link::{DriveLink, Expected, LinkError};
use super::local::RESTARTS_MAX;
use crate::delivery::SlotTable;
use ddlp_driver::{Backoff, BackoffLimits};
use std::time::{Duration, Instant};

/// A local agent that runs but cannot be reached for this long is restarted.
const UNREACHABLE: Duration = Duration::from_secs(10);
/// Delays between attempts to reach a drive: they double up to two seconds, and attempts end only with the run.
const BACKOFF: BackoffLimits =
    BackoffLimits { first: Duration::from_millis(100), cap: Duration::from_secs(2), attempts_max: u32::MAX };

/// A drive's endpoint, and the attempts to reach it.
pub(super) struct DriveAccess {
    handle: ProngHandle,
    endpoint: Endpoint,
    expected: Expected,
    /// Batches that an association has in work.
    depth: usize,
    tries: Tries,
    /// Whether the next attempt to reach the drive is the first.
    first_try: bool,
}

/// Attempts since the drive last finished a batch.
struct Tries {
    backoff: Backoff,
    /// Restarts of the loader's own agent.
    restarts: u32,
}

/// A drive that was reached.
pub(super) struct DriveReached {
    pub link: DriveLink,
    /// Whether the run had never reached the drive before.
    pub is_new: bool,
    /// The message, if the drive's absence was reported.
    pub said: Option<&'static str>,
}

impl Tries {
    fn new(handle: &ProngHandle) -> Self {
        Self { backoff: Backoff::new(BACKOFF, handle.prong as u64), restarts: 0 }
    }
}

impl DriveAccess {
    /// Creates the access to a drive. `is_reached` tells whether the run has an association already.
    pub fn new(handle: ProngHandle, endpoint: Endpoint, expected: Expected, depth: usize, is_reached: bool) -> Self {
        Self { tries: Tries::new(&handle), handle, endpoint, expected, depth, first_try: !is_reached }
    }

    /// Returns whether the drive works on this machine, as an agent that the loader started.
    pub fn is_local(&self) -> bool {
        self.endpoint.agent.is_some()
    }

    /// Returns whether the host's CPU reads the dataset from this drive.
    pub fn holds_dataset(&self) -> bool {
        self.endpoint.holds_dataset
    }

    /// Records that the drive has finished a batch.
    pub fn worked(&mut self) {
        self.tries = Tries::new(&self.handle);
    }

    /// Tries to reach the drive until it succeeds. Returns `None` if the drive cannot be used any more or the run is
    /// over.
    pub fn reach(&mut self, slots: &SlotTable) -> Option<DriveReached> {
        let engine = self.handle.engine.clone();
        let mut unreachable_since = Instant::now();
        while !engine.is_over() {
            let is_first = std::mem::take(&mut self.first_try);
            // The delay also applies to a drive that came back and failed again at once.
            let delay = self.tries.backoff.next_delay().filter(|_| !is_first).unwrap_or_default();
            if engine.sleep(delay) || !self.revive_agent(&mut unreachable_since) {
                return None;
            }
            let watch = |controller| engine.watch(self.handle.prong, controller);
            match connect(&self.endpoint, &self.expected, self.depth, watch) {
                Ok(link) if link.identity.slots < slots.count() => {
                    let (now, before) = (link.identity.slots, slots.count());
                    self.handle.report(&DriveFault::FewerSlots { now, before });
                    return None;
                }
                Ok(link) => {
                    let is_new = slots.count() == 0;
                    slots.know(link.identity.slots);
                    let what = match is_new {
                        true => "the drive was reached and joins the run",
                        false => "the drive works again",
                    };
                    return Some(DriveReached { link, is_new, said: (!is_first).then_some(what) });
                }
                Err(_) if engine.is_over() => return None,
                Err(error) if is_first && error.is_unreachable() => self.handle.report(&DriveFault::Away(&error)),
                // The address or the drive is wrong, and the user should learn that at the start of the run.
                Err(error) if is_first => {
                    engine.refuse(self.handle.prong, self.endpoint.unusable(error, ""));
                    return None;
                }
                Err(LinkError::Driver(error)) if error.is_transient() => tracing::debug!("drive still away: {error}"),
                Err(error) => {
                    self.handle.report(&DriveFault::Refused(&error));
                    return None;
                }
            }
        }
        None
    }

    /// Restarts the loader's own agent if it has ended, or runs but cannot be reached. Returns false after too many
    /// restarts without success.
    fn revive_agent(&mut self, unreachable_since: &mut Instant) -> bool {
        let Some(agent) = &mut self.endpoint.agent else { return true };
        if agent.is_running() && unreachable_since.elapsed() < UNREACHABLE {
            return true;
        }
        if self.tries.restarts == RESTARTS_MAX {
            self.handle.report(&DriveFault::AgentGivenUp(RESTARTS_MAX));
            return false;
        }
        self.tries.restarts += 1;
        *unreachable_since = Instant::now();
        let engine = &self.handle.engine;
        match self.endpoint.restart(&|| engine.is_stopped()) {
            Ok(()) => self.handle.report(&DriveFault::AgentRestarted),
            // The agent was not waited for.
            Err(_) if engine.is_stopped() => {}
            Err(error) => self.handle.report(&DriveFault::AgentFails(&error)),
        }
        true
    }
}
