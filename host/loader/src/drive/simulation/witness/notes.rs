//! What came of a thread's actions.

use super::{FIRST_DELAY, InFlight, PAUSE_MAX, UNREACHABLE, Witness};
use crate::drive::flight::Allowance;
use crate::drive::machine::Fetched;
use crate::drive::results::Verdict;
use crate::drive::simulation::agent::Outcome;
use crate::schedule::BatchId;
use ddlp_driver::Ticket;
use std::time::Instant;

/// End of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::drive::simulation) enum End {
    Success,
    Refused { is_short: bool },
    Aborted,
    Failed,
}

impl Witness {
    /// Notes that the run goes to another position, and whether the association is kept.
    pub fn settled(&mut self, is_kept: bool, now: Instant) {
        self.count("moves");
        self.flights.clear();
        self.refused.clear();
        (self.paused_at, self.must_pause, self.must_leave) = (None, false, false);
        if self.is_linked && !is_kept {
            (self.is_linked, self.is_missed) = (false, true);
            self.unreachable_since = now;
            self.expect_attempt(now);
        }
        // An attempt that was broken off is made again at once.
        self.attempt.1 = self.attempt.1.max(now);
    }

    /// Notes the claim of a batch.
    pub fn claimed(&mut self, generation: u64) {
        assert!(generation > self.generation, "generation {generation} after {}", self.generation);
        self.generation = generation;
    }

    pub fn submitted(&mut self, ticket: Ticket, id: BatchId, slot: u32, allowance: Allowance, now: Instant) {
        assert!(!self.refused.contains_key(&slot), "slot {slot} is refused");
        assert!(self.flights.values().all(|flight| flight.slot != slot), "slot {slot} is in use");
        self.count("batches");
        self.flights.insert(ticket, InFlight { id, slot, until: now + allowance.patience, is_cancelled: false });
    }

    /// Expects a pause, which is longer than the one before, unless a pause is due already or lasts.
    fn expect_pause(&mut self) {
        if self.paused_at.is_none() && !std::mem::replace(&mut self.must_pause, true) {
            self.pause_max = (FIRST_DELAY.1 * 2_u32.pow(self.pauses.min(10))).min(PAUSE_MAX);
            self.pauses += 1;
        }
    }

    pub fn fetched(&mut self, fetched: Fetched) {
        self.fetched = fetched;
    }

    /// Notes that a batch could not be sent, though the association lives.
    pub fn not_sent(&mut self) {
        self.expect_pause();
    }

    /// Notes the end of a command: whether it succeeded, whether its slot was refused, or whether it was aborted.
    pub fn completed(&mut self, ticket: Ticket, end: End, now: Instant) {
        let flight = self.flights.remove(&ticket).expect("a command in flight");
        match end {
            End::Success => self.all_refused_since = None,
            End::Refused { is_short } => {
                self.must_leave |= is_short;
                self.refuse([flight.slot], now);
            }
            End::Aborted if flight.is_cancelled => {}
            End::Aborted | End::Failed => self.expect_pause(),
        }
    }

    pub fn refuse(&mut self, slots: impl IntoIterator<Item = u32>, now: Instant) {
        self.refused.extend(slots.into_iter().map(|slot| (slot, now)));
        if self.refused.len() == self.slots as usize {
            self.all_refused_since.get_or_insert(now);
        }
    }

    /// Notes that a finished batch was wanted.
    pub fn worked(&mut self) {
        (self.attempts, self.restarts) = (0, 0);
    }

    pub fn judged(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Judged(Verdict::Good) => {
                (self.wrong, self.bad_associations, self.left, self.pauses) = (0, 0, 0, 0);
            }
            Outcome::Judged(Verdict::Wrong) => self.wrong += 1,
            Outcome::Judged(Verdict::Unavailable) => self.expect_pause(),
            Outcome::Judged(Verdict::LeftToHost) => {
                self.left += 1;
                if self.left >= 4 {
                    self.expect_pause();
                }
            }
            Outcome::Judged(Verdict::None) | Outcome::Refuted => {}
        }
    }

    pub fn lost(&mut self) {
        self.is_losing = self.is_linked;
    }

    pub fn refuted(&mut self, claims: u32) {
        self.wrong += claims;
    }

    /// Notes whether the loader's own agent is running: an agent that has ended, or has been out of reach for long, has
    /// to be restarted before the next attempt.
    pub fn saw_agent(&mut self, is_running: bool, now: Instant) {
        self.must_restart = !is_running || now >= self.unreachable_since + UNREACHABLE;
    }

    pub fn reached(&mut self, slots: u32, is_accepted: bool) {
        assert_eq!(is_accepted, slots >= self.slots, "{slots} slots instead of {}", self.slots);
        self.slots = if self.slots == 0 { slots } else { self.slots };
        (self.is_linked, self.is_new, self.was_reached) = (is_accepted, true, true);
    }

    pub fn not_reached(&mut self, now: Instant) {
        self.expect_attempt(now);
    }
}
