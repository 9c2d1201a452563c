//! The decisions of a drive's thread, as a state machine: no I/O, no clock, no lock, no thread.
//!
//! The thread asks for the next [`Action`], performs it, and tells the state machine what came of it. The time is an
//! argument. A simulation (`drive/simulation.rs`) performs the same actions under a virtual clock.
//!
//! | | *Away* | *Working* | *Draining* | *Pausing* |
//! |---|---|---|---|---|
//! | actions | sleep, restart the agent, connect | rounds | rounds without claims | rounds without claims |
//! | drive reached | *Working*, or *Ended* (1) | – | – | – |
//! | drive not reached | *Away*, or *Ended* (2) | – | – | – |
//! | pause due | – | *Draining* | – | – |
//! | last flight ended | – | – | *Pausing* | – |
//! | its time is over | an attempt | – | – | *Working* |
//! | association lost | – | *Away*, or *Ended* (3) | *Away*, or *Ended* (3) | *Away*, or *Ended* (3) |
//!
//! 1. The drive has fewer slots than before.
//! 2. The first attempt fails for another reason than absence, a later one because the drive does not fit any more, or
//!    the agent was restarted too often.
//! 3. Too many associations in a row brought wrong results only.
//!
//! A round looks for cancels, fetches a result, claims batches, and waits for a completion. While the drive pauses, no
//! strategy waits for it. A pause becomes due when the drive cannot read its dataset, refuses a batch, or leaves
//! samples of several batches in a row to the host. An association is lost by an error of the driver, a command that
//! is late, an agent that is about to end or has lost its program, wrong results in a row, or a refusal of all slots
//! that lasts, after which the next attempt comes later.
//!
//! - `action`: what the thread does. `away`: the attempts to reach the drive. `completion`: the ends of commands.

mod action;
mod away;
mod completion;

pub(super) use action::Action;

use super::checks::SlotBatch;
use super::fault::DriveFault;
use super::flight::{Allowance, Flight};
use super::results::Verdict;
use super::slot_use::SlotUse;
use super::trust::{ASSOCIATIONS_MAX, Trust, WRONG_MAX};
use crate::engine::GivenUp;
use crate::schedule::BatchId;
use away::Tries;
use ddlp_driver::{DriverError, Ticket};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long the thread waits for a completion before it looks for other work.
const POLL_SLICE: Duration = Duration::from_millis(5);
/// The same wait while only a completion can bring new work.
const POLL_SLICE_FULL: Duration = Duration::from_millis(20);
/// How long to tolerate a drive that refuses every slot, and then to leave it alone.
pub(super) const SLOTLESS_MAX: Duration = Duration::from_secs(10);

/// Options of a drive's state machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct MachineOptions {
    /// Seed of the jitter of delays and pauses.
    pub seed: u64,
    /// Batches in flight at most, until [`Machine::allow`] says otherwise.
    pub depth: usize,
    /// Time for a batch with none ahead of it.
    pub timeout: Duration,
    /// Whether the loader started the drive's agent.
    pub has_agent: bool,
    /// Slots of the drive; 0 until the drive is reached, if an agent somewhere else has them.
    pub slots: u32,
    /// Generation of the last batch before the first one.
    pub generation: u64,
}

/// The state machine of a drive's thread.
pub(super) struct Machine {
    options: MachineOptions,
    state: State,
    turn: Turn,
    /// Actions that follow from what the thread told.
    todo: VecDeque<Action>,
    flights: Vec<Flight>,
    slots: SlotUse,
    trust: Trust,
    tries: Tries,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Away { attempt_at: Instant, unreachable_since: Instant, is_first: bool },
    Working,
    Draining { pause: Duration },
    Pausing { until: Instant },
    Ended,
}

/// The steps of a round on a live association.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Turn {
    Look,
    Fetch,
    Claim(Fetched),
    Wait(Fetched),
}

/// Finished batches in their slots, when the thread looked for one to fetch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fetched {
    /// No finished batch waits.
    None,
    /// Finished batches wait, but no buffer is free for them.
    Waiting,
    /// The thread fetched one.
    One(Verdict),
}

impl Machine {
    /// Creates the state machine of a drive that has an association already (`is_linked`), or has yet to be reached for
    /// the first time.
    pub fn new(options: MachineOptions, is_linked: bool, now: Instant) -> Self {
        let mut machine = Self {
            state: State::Working,
            turn: Turn::Look,
            todo: VecDeque::new(),
            flights: Vec::new(),
            slots: SlotUse::new(options.slots),
            trust: Trust::new(options.seed),
            tries: Tries::new(options.seed),
            options,
        };
        if !is_linked {
            machine.state = State::Away { attempt_at: now, unreachable_since: now, is_first: true };
            // The first attempt takes the first delay without waiting for it.
            machine.tries.next_delay();
        }
        machine
    }

    /// Returns what the thread has to do next.
    pub fn next(&mut self, now: Instant) -> Action {
        loop {
            if let Some(action) = self.todo.pop_front() {
                return action;
            }
            let action = match self.state {
                State::Ended => Some(Action::End),
                State::Away { .. } => Some(self.next_while_away(now)),
                State::Working | State::Draining { .. } | State::Pausing { .. } => self.next_in_round(now),
            };
            if let Some(action) = action {
                return action;
            }
        }
    }

    /// Returns the next action of a round; `None` if the state or the turn has changed.
    fn next_in_round(&mut self, now: Instant) -> Option<Action> {
        match self.turn {
            Turn::Look => {
                if let Some(late) = self.flights.iter().find_map(|flight| flight.timed_out(now)) {
                    self.lost(late, now);
                    return None;
                }
                self.turn = Turn::Fetch;
                Some(Action::Look)
            }
            Turn::Fetch => {
                self.turn = Turn::Claim(Fetched::None);
                let rested = self.slots.take_rested(now);
                self.todo.extend((!rested.is_empty()).then_some(Action::PutLast(rested)));
                Some(Action::Fetch)
            }
            Turn::Claim(fetched) => {
                if self.trust.ends_association() {
                    let how = format!("{WRONG_MAX} results in a row were wrong or damaged");
                    self.lost(DriverError::Protocol { peer: "drive".into(), source: how.into() }, now);
                    return None;
                }
                self.next_claim(fetched, now)
            }
            Turn::Wait(fetched) => {
                self.turn = Turn::Look;
                let is_full = self.flights.len() >= self.options.depth;
                let until = match fetched {
                    Fetched::One(_) => now,
                    Fetched::None if is_full => now + POLL_SLICE_FULL,
                    Fetched::None | Fetched::Waiting => now + POLL_SLICE,
                };
                Some(if self.flights.is_empty() { Action::Idle(until) } else { Action::Poll(until) })
            }
        }
    }

    fn next_claim(&mut self, fetched: Fetched, now: Instant) -> Option<Action> {
        match self.state {
            State::Working if self.flights.len() < self.options.depth => return Some(Action::Claim),
            State::Draining { pause } if self.flights.is_empty() => {
                self.state = State::Pausing { until: now + pause };
                return Some(Action::Pause);
            }
            State::Pausing { until } if now >= until => {
                self.state = State::Working;
                return Some(Action::Regain(None));
            }
            _ => self.turn = Turn::Wait(fetched),
        }
        None
    }

    /// Records what the engine knew in [`Action::Look`]: batches that other prongs finished first, and how many claims
    /// of corruption the CPU refuted.
    pub fn looked(&mut self, lost: &[BatchId], refuted: u32) {
        for flight in self.flights.iter_mut().filter(|flight| lost.contains(&flight.batch.id)) {
            flight.cancelled = true;
            self.todo.push_back(Action::Cancel(flight.batch.id));
        }
        self.trust.wrong(refuted);
    }

    /// Records the end of [`Action::Fetch`].
    pub fn fetched(&mut self, fetched: Fetched) {
        self.turn = Turn::Claim(fetched);
        if let Fetched::One(verdict) = fetched {
            self.judge(verdict);
        }
    }

    /// Allows this number of batches in flight.
    pub fn allow(&mut self, depth: usize) {
        self.options.depth = depth;
    }

    /// Returns the generation of the next batch, and the time that it may take. A batch of the drive takes `batch_s`
    /// seconds, if that is known.
    pub fn order(&mut self, batch_s: Option<f64>) -> (u64, Allowance) {
        self.options.generation = self.options.generation.wrapping_add(1);
        (self.options.generation, Allowance::new(self.options.timeout, batch_s, self.flights.len()))
    }

    /// Records that a claimed batch was sent to the drive.
    pub fn submitted(&mut self, ticket: Ticket, batch: SlotBatch, allowance: Allowance, now: Instant) {
        self.flights.push(Flight { ticket, batch, submitted: now, allowance, cancelled: false });
    }

    /// Records that a claimed batch could not be sent.
    pub fn not_submitted(&mut self, id: BatchId, slot: u32, error: DriverError, now: Instant) {
        if error.ends_association() {
            self.todo.push_back(Action::GiveUp { id, slot: Some(slot), why: GivenUp::Returned });
            self.lost(error, now);
        } else {
            let why = DriveFault::NotSent(id, &error).given_up();
            self.todo.push_back(Action::GiveUp { id, slot: Some(slot), why });
            self.pause();
            self.nothing_to_claim();
        }
    }

    /// Records that there is no slot or no batch for the drive now.
    pub fn nothing_to_claim(&mut self) {
        if let Turn::Claim(fetched) = self.turn {
            self.turn = Turn::Wait(fetched);
        }
    }

    /// Records that a batch in [`Action::Take`] was wanted, and what its result says about the drive.
    pub fn taken(&mut self, verdict: Verdict) {
        self.tries = Tries::new(self.options.seed);
        self.judge(verdict);
    }

    fn judge(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Good => self.trust.good(),
            Verdict::Wrong => self.trust.wrong(1),
            Verdict::Unavailable => self.pause(),
            Verdict::LeftToHost if self.trust.left_to_host() => self.pause(),
            Verdict::LeftToHost | Verdict::None => {}
        }
    }

    /// Makes a pause due, unless one is due already or runs.
    fn pause(&mut self) {
        if self.state == State::Working {
            self.state = State::Draining { pause: self.trust.next_pause() };
        }
    }

    /// Records the loss of the association.
    pub fn lost(&mut self, error: DriverError, now: Instant) {
        if !self.is_linked() {
            return;
        }
        self.todo.retain(|action| !matches!(action, Action::Cancel(_) | Action::LeaveUnproven));
        let (flights, refused) = self.settle();
        self.todo.push_back(Action::Lose { error, flights, refused });
        if self.trust.is_useless() {
            self.give_up(&DriveFault::Useless(ASSOCIATIONS_MAX));
            return;
        }
        let rest = if self.slots.forget_refusal() { SLOTLESS_MAX } else { Duration::ZERO };
        self.leave(now + rest);
    }

    /// Gives the drive up for good.
    fn give_up(&mut self, fault: &DriveFault<'_>) {
        self.todo.push_back(Action::report(fault));
        self.state = State::Ended;
    }

    /// Takes all flights, and the slots that the drive refused, when the association is lost or its work ends for
    /// another reason. The next round begins anew.
    pub fn settle(&mut self) -> (Vec<Flight>, Vec<u32>) {
        if self.is_linked() {
            self.state = State::Working;
        }
        self.turn = Turn::Look;
        (std::mem::take(&mut self.flights), self.slots.take_refused())
    }

    /// Returns the batches in flight.
    pub fn in_flight(&self) -> impl Iterator<Item = BatchId> {
        self.flights.iter().map(|flight| flight.batch.id)
    }

    /// Returns whether the drive accepts all slots, as far as is known.
    pub fn accepts_all_slots(&self) -> bool {
        self.slots.are_all_accepted()
    }

    fn is_linked(&self) -> bool {
        matches!(self.state, State::Working | State::Draining { .. } | State::Pausing { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_during_the_first_of_two_cancels_leaves_the_second_one_out() {
        let now = Instant::now();
        let timeout = Duration::from_secs(1);
        let options = MachineOptions { seed: 1, depth: 2, timeout, has_agent: false, slots: 4, generation: 0 };
        let mut machine = Machine::new(options, true, now);
        let ids = [0, 1].map(|batch| BatchId { epoch: 0, batch });
        for (id, slot) in ids.into_iter().zip(0..) {
            let (generation, allowance) = machine.order(None);
            let batch = SlotBatch { id, slot, generation, sample_ids: Vec::new(), found: None };
            machine.submitted(Ticket(slot.into()), batch, allowance, now);
        }
        assert!(matches!(machine.next(now), Action::Look));
        machine.looked(&ids, 0);
        assert!(matches!(machine.next(now), Action::Cancel(id) if id == ids[0]));
        machine.lost(DriverError::Lost { peer: "drive".into(), source: "cut".into() }, now);
        assert!(matches!(machine.next(now), Action::Lose { flights, .. } if flights.len() == 2));
        assert!(matches!(machine.next(now), Action::Sleep(at) if at > now));
    }
}
