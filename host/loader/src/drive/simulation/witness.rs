//! Watches a drive's thread from outside, and asserts what the state machine promises. It knows only the actions and
//! what came of them, and has none of the state machine's own state.
//!
//! `notes`: what came of the actions. `absence`: losses and returns.

mod absence;
mod notes;

pub(super) use notes::End;

use crate::drive::local::RESTARTS_MAX;
use crate::drive::machine::{Action, Fetched, SLOTLESS_MAX};
use crate::drive::trust::{ASSOCIATIONS_MAX, WRONG_MAX};
use crate::engine::GivenUp;
use crate::schedule::BatchId;
use ddlp_driver::Ticket;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// A slot that was refused is left alone for this long.
const REST: Duration = Duration::from_secs(1);
/// Longest pause of a drive.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Shortest and longest delay before the first attempt after a success, and the longest of all.
const FIRST_DELAY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(100));
const DELAY_MAX: Duration = Duration::from_secs(2);
/// Time for which the loader's own agent may be out of reach before it is restarted.
const UNREACHABLE: Duration = Duration::from_secs(10);
/// Longest wait of a thread with an association.
const WAIT_MAX: Duration = Duration::from_millis(20);
/// Actions without a wait between them.
const BUSY_MAX: u32 = 300;

/// A command in flight.
struct InFlight {
    id: BatchId,
    slot: u32,
    until: Instant,
    is_cancelled: bool,
}

/// How often something happened, by its name.
pub(super) type Counts = BTreeMap<&'static str, u32>;

pub(super) struct Witness {
    /// Number of slots; 0 until the drive is reached.
    slots: u32,
    depth: usize,
    is_local: bool,
    lag: Duration,
    is_linked: bool,
    /// Whether the association has not been used yet.
    is_new: bool,
    /// Whether the state machine has been told that the association is lost.
    is_losing: bool,
    was_reached: bool,
    paused_at: Option<Instant>,
    /// Whether something happened after which the drive has to pause.
    must_pause: bool,
    /// Length of the pause that is due or lasts, at most, and the pauses since the last good result.
    pause_max: Duration,
    pauses: u32,
    /// What the thread found when it last looked for a result to fetch.
    fetched: Fetched,
    /// Whether the drive answered that it has no memory for a slot.
    must_leave: bool,
    /// Whether the report has the drive's absence and not yet its return.
    is_missed: bool,
    is_given_up: bool,
    flights: HashMap<Ticket, InFlight>,
    /// Refused slots, with the time of the refusal.
    refused: BTreeMap<u32, Instant>,
    all_refused_since: Option<Instant>,
    /// Wrong results in a row, and associations that they ended.
    wrong: u32,
    bad_associations: u32,
    left: u32,
    /// Attempts and restarts since the last wanted batch.
    attempts: u32,
    restarts: u32,
    unreachable_since: Instant,
    must_restart: bool,
    /// Earliest and latest time of the next attempt to connect.
    attempt: (Instant, Instant),
    generation: u64,
    seen_at: Instant,
    /// Actions at this time.
    busy: u32,
    pub counts: Counts,
}

impl Witness {
    pub fn new(slots: u32, depth: usize, is_local: bool, is_linked: bool, lag: Duration, now: Instant) -> Self {
        Self {
            slots,
            depth,
            is_local,
            lag,
            is_linked,
            is_new: true,
            is_losing: false,
            was_reached: is_linked,
            paused_at: None,
            must_pause: false,
            pause_max: Duration::ZERO,
            pauses: 0,
            fetched: Fetched::None,
            must_leave: false,
            is_missed: false,
            is_given_up: false,
            flights: HashMap::new(),
            refused: BTreeMap::new(),
            all_refused_since: None,
            wrong: 0,
            bad_associations: 0,
            left: 0,
            // The first attempt counts, though it comes without a delay.
            attempts: u32::from(!is_linked),
            restarts: 0,
            unreachable_since: now,
            must_restart: false,
            attempt: (now, now),
            generation: 0,
            seen_at: now,
            busy: 0,
            counts: Counts::new(),
        }
    }

    /// Watches an action before it is performed. The schedule takes the drive for one that is `up`.
    pub fn sees(&mut self, action: &Action, is_up: bool, now: Instant) {
        self.busy = if now > self.seen_at { 0 } else { self.busy + 1 };
        self.seen_at = now;
        assert!(self.busy < BUSY_MAX, "the thread is busy without an end: {action:?}");
        assert!(!self.is_given_up || matches!(action, Action::End), "{action:?} for a drive that was given up");
        self.assert_fits(action);
        match action {
            Action::Look => self.sees_round(now),
            Action::Claim => self.sees_claim(is_up, now),
            Action::Poll(until) | Action::Idle(until) => {
                let is_poll = matches!(action, Action::Poll(_));
                assert_eq!(is_poll, !self.flights.is_empty(), "completions are waited for while there are flights");
                let most = match self.fetched {
                    Fetched::One(_) => Duration::ZERO,
                    Fetched::None if self.flights.len() == self.depth => WAIT_MAX,
                    Fetched::None | Fetched::Waiting => WAIT_MAX / 4,
                };
                assert!(*until <= now + most, "a wait of {:?} after {:?}", *until - now, self.fetched);
            }
            Action::Sleep(until) => {
                assert!(*until > now, "a sleep that is over");
                assert!((self.attempt.0..=self.attempt.1).contains(until), "an attempt in {:?}", *until - now);
            }
            Action::Cancel(id) => {
                let flight = self.flights.values_mut().find(|flight| flight.id == *id);
                let flight = flight.unwrap_or_else(|| panic!("{id:?} is cancelled, but not in flight"));
                assert!(!std::mem::replace(&mut flight.is_cancelled, true), "{id:?} is cancelled twice");
                self.count("cancels");
            }
            Action::Take(batch) => {
                assert!(self.flights.values().all(|flight| flight.id != batch.id), "a batch in flight is taken");
            }
            Action::Pause => {
                assert!(self.flights.is_empty(), "a pause begins when nothing is in flight");
                assert!(std::mem::take(&mut self.must_pause), "a pause for no reason");
                assert!(self.paused_at.replace(now).is_none(), "paused twice");
                self.count("pauses");
            }
            Action::Regain(None) if self.paused_at.is_some() => {
                let paused = now - self.paused_at.take().expect("asked above");
                let most = self.pause_max + WAIT_MAX + self.lag;
                assert!((self.pause_max / 2..=most).contains(&paused), "a pause of {paused:?}: {:?}", self.pause_max);
            }
            Action::Regain(said) => self.sees_return(*said),
            Action::Lose { error, flights, refused } => {
                assert_eq!(flights.len(), self.flights.len(), "all flights are given up");
                assert_eq!(refused.len(), self.refused.len(), "all refused slots are free again");
                self.sees_loss(error, now);
            }
            Action::Report(kind, what) => self.sees_report(*kind, what),
            Action::LookAtAgent => assert!(self.is_local && now >= self.attempt.0, "not yet"),
            Action::RestartAgent => {
                assert!(std::mem::take(&mut self.must_restart), "the agent is restarted for no reason");
                self.unreachable_since = now;
                self.restarts += 1;
                self.count("restarts");
                assert!(self.restarts <= RESTARTS_MAX, "{} restarts", self.restarts);
            }
            Action::Connect => {
                assert!(!self.must_restart, "an attempt without the agent");
                assert!(now >= self.attempt.0, "an attempt {:?} too early", self.attempt.0 - now);
                assert!(now <= self.attempt.1 + self.lag, "an attempt {:?} too late", now - self.attempt.1);
            }
            Action::PutLast(slots) => {
                for slot in slots {
                    let refused = self.refused.remove(slot).expect("a refused slot");
                    assert!(now - refused > REST, "slot {slot} is used again after {:?}", now - refused);
                }
            }
            Action::GiveUp { id, slot, why } => self.sees_batch_given_up(*id, *slot, why),
            Action::Refuse(_) => {
                assert!(!self.was_reached && self.attempts == 2, "only the first attempt ends the run");
                self.count("refused at first");
                self.is_given_up = true;
            }
            Action::End => assert!(self.is_given_up, "the thread ends for no reason"),
            Action::LeaveUnproven => {
                assert!(std::mem::take(&mut self.must_leave), "the drive has memory, as far as is known");
                self.count("short of memory");
            }
            Action::Note(what) if what.contains("another host") => self.count("notes of another host"),
            Action::Note(what) => {
                assert!(what.contains("no memory"), "{what}");
                self.count("notes of memory");
            }
            Action::Fetch => {}
        }
    }

    /// Asserts that the drive is linked, or is not, as the action needs it.
    fn assert_fits(&mut self, action: &Action) {
        let needs_link = matches!(
            action,
            Action::Look
                | Action::Fetch
                | Action::Claim
                | Action::Poll(_)
                | Action::Idle(_)
                | Action::Cancel(_)
                | Action::Take(_)
                | Action::PutLast(_)
                | Action::Lose { .. }
                | Action::Pause
        );
        assert!(self.is_linked || !needs_link, "{action:?} without an association");
        let needs_none = matches!(
            action,
            Action::Sleep(_) | Action::LookAtAgent | Action::RestartAgent | Action::Connect | Action::Refuse(_)
        );
        assert!(!self.is_linked || !needs_none, "{action:?} with an association");
        let uses_link = matches!(
            action,
            Action::Look | Action::Fetch | Action::Claim | Action::Poll(_) | Action::Idle(_) | Action::Cancel(_)
        );
        assert!(!self.is_losing || !uses_link, "{action:?} on an association that is lost");
        if uses_link {
            let is_first = std::mem::take(&mut self.is_new);
            assert!(!is_first || matches!(action, Action::Look), "a new association begins with {action:?}");
        }
        let is_useless = self.bad_associations >= ASSOCIATIONS_MAX;
        assert!(!is_useless || !needs_none, "{action:?} for a drive whose results are never right");
    }

    fn sees_round(&mut self, now: Instant) {
        for flight in self.flights.values() {
            assert!(now <= flight.until, "{:?} is {:?} late", flight.id, now - flight.until);
        }
        if let Some(at) = self.paused_at {
            assert!(now <= at + PAUSE_MAX + WAIT_MAX + self.lag, "a pause without an end");
        }
    }

    fn sees_claim(&mut self, is_up: bool, now: Instant) {
        assert!(is_up, "a claim for a drive that counts as away");
        assert!(self.paused_at.is_none(), "a claim during a pause");
        assert!(!self.must_pause, "a claim although a pause is due");
        assert!(!self.must_leave, "a claim although unused slots may have no memory");
        assert!(self.flights.len() < self.depth, "more flights than the depth");
        assert!(self.wrong < WRONG_MAX, "a claim after {} wrong results in a row", self.wrong);
        let oldest = self.refused.values().min();
        let patience = REST + WAIT_MAX + self.lag;
        assert!(oldest.is_none_or(|&at| now <= at + patience), "a refused slot is never tried again");
        let without = self.all_refused_since.map_or(Duration::ZERO, |since| now - since);
        // The answer that ends the association comes at most a rest and a wait later.
        let most = SLOTLESS_MAX + patience + Duration::from_secs(5);
        assert!(without < most, "all slots are refused for {without:?}, and the drive is tried still");
    }

    fn sees_batch_given_up(&mut self, id: BatchId, slot: Option<u32>, why: &GivenUp) {
        assert!(self.flights.values().all(|flight| flight.id != id), "{id:?} is in flight");
        if matches!(why, GivenUp::Failed { .. }) {
            assert!(self.must_pause || self.paused_at.is_some(), "a drive that failed pauses: {why:?}");
        }
        assert!(slot.is_some() || matches!(why, GivenUp::Returned), "only a refused slot is not free again: {why:?}");
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Returns the number of slots that the drive refuses and of those in flight.
    pub fn slots_away(&self) -> usize {
        self.refused.len() + self.flights.len()
    }

    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    pub fn is_given_up(&self) -> bool {
        self.is_given_up
    }

    pub fn is_linked(&self) -> bool {
        self.is_linked
    }
}
