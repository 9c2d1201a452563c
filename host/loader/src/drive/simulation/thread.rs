//! The simulated thread of a drive: performs the state machine's actions as `drive/prong.rs` does.
//!
//! `results`: finished batches.

mod results;

use super::agent::{Agent, AgentWorld, Outcome};
use super::host::Host;
use super::witness::{End, Witness};
use crate::delivery::SlotTable;
use crate::drive::checks::{Handover, SlotBatch};
use crate::drive::flight::Allowance;
use crate::drive::machine::{Action, Machine, MachineOptions};
use crate::schedule::{HeldResults, ProngId, Room};
use ddlp_driver::{DriverError, Ticket};
use ddlp_nvme::Status;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// What the thread waits for.
enum Waits {
    /// Nothing: it begins.
    No,
    /// A completion, which came or did not.
    Completion(Result<Option<(Ticket, Status)>, DriverError>),
    /// The end of a time with an association and nothing in flight.
    Idle,
    /// The end of a time without an association.
    Sleep,
    /// The end of an attempt to connect.
    Connection(Result<u32, crate::drive::link::LinkError>),
}

/// Options of a simulated thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct ThreadWorld {
    pub depth: usize,
    pub timeout: Duration,
    pub handover: Handover,
}

pub(super) struct Thread {
    prong: ProngId,
    world: ThreadWorld,
    machine: Machine,
    pub agent: Agent,
    pub witness: Witness,
    pub slots: SlotTable,
    /// Finished batches that wait for a buffer.
    held: VecDeque<(SlotBatch, Outcome)>,
    /// Those of a lost drive, which are in memory that host and drive share.
    outliving: VecDeque<(SlotBatch, Outcome)>,
    waits: Waits,
    /// When the wait ends; `None` after the thread's end.
    pub wakes_at: Option<Instant>,
    /// When the drive last got a batch.
    pub last_work: Instant,
}

impl Thread {
    pub fn new(prong: ProngId, world: ThreadWorld, agent: AgentWorld, begun: Instant, seed: u64) -> Self {
        // Where the drive has yet to be reached, its slots are not known, unless the loader makes their memory.
        let slots = if agent.is_linked || world.handover != Handover::Read { agent.slots } else { 0 };
        let options = MachineOptions {
            seed: prong as u64,
            depth: world.depth,
            timeout: world.timeout,
            has_agent: agent.is_local,
            slots,
            generation: 0,
        };
        Self {
            prong,
            world,
            machine: Machine::new(options, agent.is_linked, begun),
            witness: Witness::new(slots, world.depth, agent.is_local, agent.is_linked, agent.lag, begun),
            agent: Agent::new(agent, begun, seed),
            slots: SlotTable::remote(slots, 4096),
            held: VecDeque::new(),
            outliving: VecDeque::new(),
            waits: Waits::No,
            wakes_at: Some(begun),
            last_work: begun,
        }
    }

    /// Ends the wait, and performs actions until the next one.
    pub fn wake(&mut self, host: &mut Host, now: Instant) {
        self.end_wait(now);
        self.wakes_at = None;
        loop {
            let action = self.machine.next(now);
            self.witness.sees(&action, host.schedule.is_up(self.prong), now);
            if let Some(until) = self.perform(action, host, now) {
                self.wakes_at = Some(until.max(now) + self.agent.lag());
                break;
            }
            if self.witness.is_given_up() && matches!(self.machine.next(now), Action::End) {
                break;
            }
        }
        self.assert_no_slot_is_lost(host);
    }

    fn end_wait(&mut self, now: Instant) {
        match std::mem::replace(&mut self.waits, Waits::No) {
            Waits::Completion(Ok(Some((ticket, status)))) => {
                let is_refused =
                    [Status::INSUFFICIENT_RESOURCES, Status::CAPACITY_EXCEEDED, Status::NAMESPACE_NOT_READY];
                let ends_association =
                    status.is_do_not_retry() || [Status::NO_PROGRAM, Status::PROGRAM_NOT_ACTIVATED].contains(&status);
                let end = match status {
                    Status::SUCCESS => End::Success,
                    Status::ABORT_REQUESTED => End::Aborted,
                    _ if is_refused.contains(&status) => End::Refused { is_short: status == Status::CAPACITY_EXCEEDED },
                    _ => End::Failed,
                };
                if !ends_association {
                    self.witness.completed(ticket, end, now);
                }
                self.machine.completed(ticket, status, now);
            }
            Waits::Completion(Err(error)) => self.lost(error, now),
            Waits::Idle if !self.agent.is_alive(now) => {
                let error = DriverError::Lost { peer: "drive".into(), source: "closed".into() };
                self.lost(error, now);
            }
            Waits::Connection(Ok(slots)) => {
                let is_accepted = self.machine.reached(slots);
                self.witness.reached(slots, is_accepted);
                if is_accepted {
                    self.slots.know(slots);
                }
            }
            Waits::Connection(Err(error)) => {
                self.witness.not_reached(now);
                self.machine.not_reached(error, now);
            }
            Waits::No | Waits::Completion(Ok(None)) | Waits::Idle | Waits::Sleep => {}
        }
    }

    /// Performs an action. Returns the end of the wait that it begins.
    fn perform(&mut self, action: Action, host: &mut Host, now: Instant) -> Option<Instant> {
        match action {
            Action::Look => {
                let lost = host.schedule.take_cancels(self.prong);
                let refuted = std::mem::take(&mut host.refuted[self.prong]);
                self.witness.refuted(refuted);
                self.machine.looked(&lost, refuted);
            }
            Action::Fetch => {
                let fetched = self.fetch(host, now);
                self.witness.fetched(fetched);
                self.machine.fetched(fetched);
            }
            Action::Claim => self.claim(host, now),
            Action::Poll(until) => {
                let (end, at) = self.agent.poll(until, now);
                self.waits = Waits::Completion(end);
                return Some(at);
            }
            Action::Idle(until) => {
                self.waits = Waits::Idle;
                return Some(until);
            }
            Action::Cancel(id) => {
                if let Err(error) = self.agent.cancel(id, now) {
                    self.lost(error, now);
                }
            }
            Action::Take(batch) => self.take(batch, host, now),
            Action::GiveUp { id, slot, why } => {
                slot.into_iter().for_each(|slot| self.put(slot));
                host.give_up(self.prong, id, &why, now);
            }
            Action::PutLast(slots) => self.slots.put_last(slots),
            Action::LeaveUnproven => {
                let slots = self.slots.take_unproven();
                self.witness.refuse(slots.iter().copied(), now);
                self.machine.left_unproven(slots, now);
            }
            Action::Lose { flights, refused, .. } => {
                self.agent.drop_link(now);
                flights.iter().map(|flight| flight.batch.slot).chain(refused).for_each(|slot| self.put(slot));
                let held = if self.world.handover == Handover::Convert {
                    self.outliving.append(&mut self.held);
                    HeldResults::Kept
                } else {
                    std::mem::take(&mut self.held).into_iter().for_each(|(batch, _)| self.put(batch.slot));
                    HeldResults::Lost
                };
                host.schedule.prong_down(self.prong, held);
            }
            Action::Pause => host.schedule.prong_down(self.prong, HeldResults::Kept),
            Action::Regain(_) => host.schedule.prong_up(self.prong),
            Action::Report(..) | Action::Note(_) => {}
            Action::Sleep(until) => {
                self.waits = Waits::Sleep;
                return Some(until);
            }
            Action::LookAtAgent => {
                let is_running = self.agent.is_running(now);
                self.witness.saw_agent(is_running, now);
                self.machine.saw_agent(is_running, now);
            }
            Action::RestartAgent => {
                self.agent.restart(now);
            }
            Action::Connect => {
                let (end, at) = self.agent.connect(now);
                self.waits = Waits::Connection(end);
                return Some(at);
            }
            Action::Refuse(_) => host.is_refused = true,
            Action::End => {}
        }
        None
    }

    /// Ends what is in work when the run goes to another position, as `DriveProng::settle` does.
    pub fn settle(&mut self, host: &mut Host, now: Instant) {
        if self.wakes_at.is_none() {
            host.schedule.prong_down(self.prong, HeldResults::Kept);
            return;
        }
        let (flights, refused) = self.machine.settle();
        flights.iter().map(|flight| flight.batch.slot).chain(refused).for_each(|slot| self.slots.put(slot));
        for (batch, _) in self.held.drain(..).chain(self.outliving.drain(..)) {
            self.slots.put(batch.slot);
        }
        let is_kept = self.agent.ends_cancelled(now);
        if !is_kept {
            self.agent.drop_link(now);
            self.machine.not_kept(now);
        }
        self.witness.settled(is_kept, now);
        if !self.witness.is_linked() {
            host.schedule.prong_down(self.prong, HeldResults::Kept);
        }
        (self.waits, self.wakes_at) = (Waits::No, Some(now));
    }

    fn lost(&mut self, error: DriverError, now: Instant) {
        self.witness.lost();
        self.machine.lost(error, now);
    }

    fn claim(&mut self, host: &mut Host, now: Instant) {
        let Some(slot) = self.slots.take() else { return self.machine.nothing_to_claim() };
        let is_last = self.slots.free() == 0 && self.slots.count() as usize > self.world.depth;
        let room = match is_last && host.schedule.must_reserve_slot(self.prong) {
            true => Room::Critical,
            false => Room::Any,
        };
        let Some(id) = host.schedule.claim(self.prong, host.seconds(now), room) else {
            self.slots.put(slot);
            return self.machine.nothing_to_claim();
        };
        let batch_s = host.schedule.batch_s(self.prong);
        let (generation, allowance) = self.machine.order(batch_s);
        assert_eq!(allowance, Allowance::new(self.world.timeout, batch_s, self.witness.in_flight()));
        self.witness.claimed(generation);
        match self.agent.execute(id, slot, now) {
            Ok(ticket) => {
                self.last_work = now;
                self.witness.submitted(ticket, id, slot, allowance, now);
                let batch = SlotBatch { id, slot, generation, sample_ids: Vec::new(), found: None };
                self.machine.submitted(ticket, batch, allowance, now);
            }
            Err(error) => {
                if !error.ends_association() {
                    self.witness.not_sent();
                }
                self.machine.not_submitted(id, slot, error, now);
            }
        }
    }

    pub fn put(&mut self, slot: u32) {
        self.slots.put(slot);
    }

    /// Every slot is free, refused, in flight, or holds a result.
    fn assert_no_slot_is_lost(&self, host: &Host) {
        let finished = self.held.len() + self.outliving.len() + host.slots_of(self.prong);
        let all = self.slots.free() + self.witness.slots_away() + finished;
        assert_eq!(all, self.slots.count() as usize, "{} free, {finished} finished", self.slots.free());
    }

    pub fn prong(&self) -> ProngId {
        self.prong
    }
}
