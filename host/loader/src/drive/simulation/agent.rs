//! The simulated agent of a drive.

use super::trouble::{Planned, Trouble};
use crate::drive::link::LinkError;
use crate::drive::results::Verdict;
use crate::schedule::BatchId;
use ddlp_driver::{DriverError, Ticket};
use ddlp_nvme::Status;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Options of a simulated agent.
#[derive(Clone, Debug)]
pub(super) struct AgentWorld {
    pub slots: u32,
    pub batch: Duration,
    /// Whether the loader started the agent.
    pub is_local: bool,
    /// Whether the run has an association from the start.
    pub is_linked: bool,
    pub troubles: Vec<Planned>,
    /// Waits of the thread end this late.
    pub lag: Duration,
}

/// What becomes of a batch that the drive has finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The result is as the verdict says.
    Judged(Verdict),
    /// The result claims corruption, which the CPU refutes.
    Refuted,
}

struct Work {
    ticket: Ticket,
    id: BatchId,
    slot: u32,
    ends: Instant,
    status: Status,
}

/// The agent of one drive.
pub(super) struct Agent {
    pub world: AgentWorld,
    begun: Instant,
    rng: ChaCha8Rng,
    connected_at: Instant,
    restarted_at: Instant,
    work: Vec<Work>,
    /// Slots that work for a lost association still holds, with the time until which it does.
    held: Vec<(u32, Instant)>,
    /// Slots with memory.
    proven: HashSet<u32>,
    tickets: u64,
    results: u32,
}

fn lost() -> DriverError {
    DriverError::Lost { peer: "agent".into(), source: "simulated".into() }
}

impl Agent {
    pub fn new(world: AgentWorld, begun: Instant, seed: u64) -> Self {
        Self {
            world,
            begun,
            rng: ChaCha8Rng::seed_from_u64(seed),
            connected_at: begun,
            restarted_at: begun,
            work: Vec::new(),
            held: Vec::new(),
            proven: HashSet::new(),
            tickets: 0,
            results: 0,
        }
    }

    pub fn below(&mut self, n: u32) -> u32 {
        self.rng.next_u32() % n
    }

    /// Returns by how much the end of a wait is late.
    pub fn lag(&mut self) -> Duration {
        self.world.lag * self.below(4) / 3
    }

    /// Returns the troubles that began before or at this time, with their ends.
    fn begun_by(&self, now: Instant) -> impl Iterator<Item = (Trouble, Instant, Instant, u32)> {
        let of =
            |planned: &Planned| (planned.trouble, self.begun + planned.from, self.begun + planned.to, planned.extent);
        self.world.troubles.iter().map(of).filter(move |&(_, from, ..)| from <= now)
    }

    fn extent(&self, trouble: Trouble, now: Instant) -> Option<u32> {
        let lasting = self.begun_by(now).find(|&(one, _, to, _)| one == trouble && now < to);
        lasting.map(|(.., extent)| extent)
    }

    fn has(&self, trouble: Trouble, now: Instant) -> bool {
        self.extent(trouble, now).is_some()
    }

    /// Returns when the association is lost.
    fn cut_at(&self) -> Option<Instant> {
        let cuts = self.world.troubles.iter().filter(|planned| planned.trouble.cuts());
        cuts.map(|planned| self.begun + planned.from).filter(|&from| from > self.connected_at).min()
    }

    pub fn is_alive(&self, now: Instant) -> bool {
        self.cut_at().is_none_or(|at| now < at)
    }

    /// Returns whether the process of the agent exists.
    pub fn is_running(&self, now: Instant) -> bool {
        !self.begun_by(now).any(|(trouble, from, ..)| {
            matches!(trouble, Trouble::Death | Trouble::StartFails) && from >= self.restarted_at
        })
    }

    /// Restarts the loader's own agent. Returns whether it starts.
    pub fn restart(&mut self, now: Instant) -> bool {
        if self.has(Trouble::StartFails, now) {
            return false;
        }
        self.restarted_at = now;
        self.work.clear();
        self.held.clear();
        true
    }

    fn is_reachable(&self, now: Instant) -> bool {
        let away = [Trouble::Cut, Trouble::FewerSlots, Trouble::Ending];
        if away.into_iter().any(|trouble| self.has(trouble, now)) {
            return false;
        }
        if self.world.is_local {
            let hangs = self.begun_by(now).any(|(one, from, ..)| one == Trouble::Hang && from >= self.restarted_at);
            return self.is_running(now) && !hangs;
        }
        !self.has(Trouble::Death, now)
    }

    /// Connects. Returns the number of slots, and when the attempt ends.
    pub fn connect(&mut self, now: Instant) -> (Result<u32, LinkError>, Instant) {
        if !self.is_reachable(now) {
            return (Err(lost().into()), now);
        }
        if self.has(Trouble::Stall, now) {
            let after = Duration::from_millis(300);
            return (
                Err(DriverError::TimedOut { peer: "agent".into(), what: "Connect".into(), after }.into()),
                now + after,
            );
        }
        if self.begun_by(now).any(|(trouble, ..)| trouble == Trouble::Stranger) {
            return (Err(LinkError::Refused("it holds another dataset".into())), now);
        }
        let fewer = self.begun_by(now).any(|(trouble, ..)| trouble == Trouble::FewerSlots);
        self.connected_at = now;
        (Ok(self.world.slots - u32::from(fewer)), now)
    }

    /// Ends the association, whose work may go on for a while.
    pub fn drop_link(&mut self, now: Instant) {
        let goes_on = self.below(2) == 0;
        let until = now + Duration::from_millis(u64::from(200 + self.below(3000)));
        let work = self.work.drain(..).map(|work| (work.slot, until));
        if goes_on {
            self.held.extend(work);
        }
    }

    pub fn execute(&mut self, id: BatchId, slot: u32, now: Instant) -> Result<Ticket, DriverError> {
        if !self.is_alive(now) {
            return Err(lost());
        }
        if self.has(Trouble::NotSent, now) {
            return Err(DriverError::Invalid("simulated".into()));
        }
        assert!(self.work.iter().all(|work| work.slot != slot), "slot {slot} is at work already");
        let status = self.refusal(slot, now).unwrap_or(Status::SUCCESS);
        let ends = match status {
            Status::SUCCESS => {
                let before = self.work.iter().map(|work| work.ends).max().unwrap_or(now).max(now);
                let slowness = if self.has(Trouble::Slow, now) { 10 } else { 1 };
                let took = self.world.batch * slowness * (90 + self.below(20)) / 100;
                before + took
            }
            _ => now + Duration::from_millis(1),
        };
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.work.push(Work { ticket, id, slot, ends, status });
        Ok(ticket)
    }

    fn refusal(&mut self, slot: u32, now: Instant) -> Option<Status> {
        let gone = |&(trouble, from, to, _): &(Trouble, Instant, Instant, u32)| {
            trouble == Trouble::ProgramGone && now < to && self.connected_at < from
        };
        if self.has(Trouble::Ending, now) {
            return Some(Status::NAMESPACE_NOT_READY.do_not_retry());
        }
        if self.begun_by(now).any(|trouble| gone(&trouble)) {
            return Some([Status::NO_PROGRAM, Status::PROGRAM_NOT_ACTIVATED][slot as usize % 2]);
        }
        self.held.retain(|&(_, until)| now < until);
        if self.held.iter().any(|&(held, _)| held == slot) {
            return Some(Status::NAMESPACE_NOT_READY);
        }
        if self.extent(Trouble::Foreign, now).is_some_and(|slots| slot < slots) {
            return Some(Status::INSUFFICIENT_RESOURCES);
        }
        if let Some(slots) = self.extent(Trouble::Short, now)
            && !self.proven.contains(&slot)
            && self.proven.len() >= slots as usize
        {
            return Some(Status::CAPACITY_EXCEEDED);
        }
        if self.has(Trouble::Errors, now) && self.below(2) == 0 {
            return Some(Status::INTERNAL);
        }
        self.proven.insert(slot);
        None
    }

    /// Asks the agent to stop work on a batch, which succeeds three times out of four.
    pub fn cancel(&mut self, id: BatchId, now: Instant) -> Result<(), DriverError> {
        if !self.is_alive(now) {
            return Err(lost());
        }
        let obeys = self.below(4) > 0;
        if let Some(work) = self.work.iter_mut().find(|work| work.id == id && work.ends > now && obeys) {
            (work.status, work.ends) = (Status::ABORT_REQUESTED, now + Duration::from_millis(2));
        }
        Ok(())
    }

    /// Returns whether all cancelled commands end soon, so that the association can be kept.
    pub fn ends_cancelled(&mut self, now: Instant) -> bool {
        let ends = self.is_alive(now) && !self.has(Trouble::Stall, now) && self.below(4) > 0;
        if ends {
            self.work.clear();
        }
        ends
    }

    /// Waits for a completion until this time. Returns when the wait ends.
    pub fn poll(&mut self, until: Instant, now: Instant) -> (Result<Option<(Ticket, Status)>, DriverError>, Instant) {
        let stalls = self.begun_by(until).filter(|&(trouble, ..)| trouble == Trouble::Stall);
        let stalls: Vec<_> = stalls.map(|(_, from, to, _)| from..to).collect();
        let end_of = |ends: Instant| stalls.iter().find(|stall| stall.contains(&ends)).map_or(ends, |stall| stall.end);
        let first = self.work.iter().enumerate().map(|(at, work)| (end_of(work.ends), at)).min();
        let cut = self.cut_at().filter(|&at| at <= until);
        match first.filter(|&(ends, _)| ends <= until && cut.is_none_or(|at| ends <= at)) {
            Some((ends, at)) => {
                let work = self.work.remove(at);
                (Ok(Some((work.ticket, work.status))), ends.max(now))
            }
            None if cut.is_some() => (Err(lost()), cut.max(Some(now)).expect("asked above")),
            None => (Ok(None), until.max(now)),
        }
    }

    /// Returns what becomes of the batch that the drive has just finished.
    pub fn outcome(&mut self, now: Instant) -> Outcome {
        self.results += 1;
        let happens = |trouble| self.extent(trouble, now).is_some_and(|n| self.results.is_multiple_of(n));
        if happens(Trouble::Damage) {
            Outcome::Judged(Verdict::Wrong)
        } else if happens(Trouble::Refuted) {
            Outcome::Refuted
        } else if happens(Trouble::Unavailable) {
            Outcome::Judged(Verdict::Unavailable)
        } else if happens(Trouble::LeftToHost) {
            Outcome::Judged(Verdict::LeftToHost)
        } else {
            Outcome::Judged(Verdict::Good)
        }
    }
}
