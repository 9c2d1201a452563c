//! A drive without an association: the attempts to reach it, which end only when it works, cannot be used any more, or
//! the run is over.

use super::{Action, Machine, State};
use crate::drive::fault::DriveFault;
use crate::drive::link::LinkError;
use crate::drive::local::RESTARTS_MAX;
use ddlp_cause::with_causes;
use ddlp_dataset::{Backoff, BackoffLimits};
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

    pub fn next_delay(&mut self) -> Duration {
        self.backoff.next_delay().unwrap_or(BACKOFF.cap)
    }
}

impl Machine {
    pub(super) fn next_while_away(&mut self, now: Instant) -> Action {
        match self.state {
            State::Away { attempt_at, .. } if now < attempt_at => Action::Sleep(attempt_at),
            _ if self.options.has_agent => Action::LookAtAgent,
            _ => Action::Connect,
        }
    }

    /// Lets the drive be reached again, not before this time.
    pub(super) fn leave(&mut self, from: Instant) {
        // The delay also applies to a drive that came back and failed again at once.
        let attempt_at = from + self.tries.next_delay();
        self.state = State::Away { attempt_at, unreachable_since: from, is_first: false };
    }

    /// Lets the drive be reached again, since its association was dropped when the run went to another position.
    pub fn not_kept(&mut self, now: Instant) {
        if self.is_linked() {
            self.leave(now);
        }
    }

    /// Records whether the loader's own agent is running. Restarts the agent if it has ended, or runs but cannot be
    /// reached.
    pub fn saw_agent(&mut self, is_running: bool, now: Instant) {
        let State::Away { unreachable_since, .. } = &mut self.state else { return };
        if !is_running || now >= *unreachable_since + UNREACHABLE {
            if self.tries.restarts == RESTARTS_MAX {
                self.give_up(&DriveFault::AgentGivenUp(RESTARTS_MAX));
                return;
            }
            self.tries.restarts += 1;
            *unreachable_since = now;
            self.todo.push_back(Action::RestartAgent);
        }
        self.todo.push_back(Action::Connect);
    }

    /// Records that the drive was reached, with this number of slots. Returns whether the association can be used.
    pub fn reached(&mut self, slots: u32) -> bool {
        let State::Away { is_first, .. } = self.state else { return false };
        let before = self.slots.count();
        if slots < before {
            self.give_up(&DriveFault::FewerSlots { now: slots, before });
            return false;
        }
        let what = match before {
            0 => "the drive was reached and joins the run",
            _ => "the drive works again",
        };
        self.slots.know(slots);
        self.state = State::Working;
        self.todo.push_back(Action::Regain((!is_first).then_some(what)));
        true
    }

    /// Records that an attempt to reach the drive failed.
    pub fn not_reached(&mut self, error: LinkError, now: Instant) {
        let State::Away { attempt_at, is_first, .. } = &mut self.state else { return };
        if std::mem::take(is_first) {
            if !error.is_unreachable() {
                // The address or the drive is wrong, and the user should learn that at the start of the run.
                self.todo.push_back(Action::Refuse(error));
                self.state = State::Ended;
                return;
            }
            self.todo.push_back(Action::report(&DriveFault::Away(&error)));
        } else {
            match error {
                LinkError::Driver(error) if error.is_transient() => {
                    tracing::debug!("drive still away: {}", with_causes(&error));
                }
                error => return self.give_up(&DriveFault::Refused(&error)),
            }
        }
        *attempt_at = now + self.tries.next_delay();
    }
}
