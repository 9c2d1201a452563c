//! Finished batches of a simulated drive, as `drive/results.rs` treats them.

use super::Thread;
use crate::drive::checks::{Handover, SlotBatch};
use crate::drive::machine::Fetched;
use crate::drive::results::Verdict;
use crate::drive::simulation::agent::Outcome;
use crate::drive::simulation::host::Host;
use crate::engine::GivenUp;
use crate::report::FaultKind;
use crate::schedule::ResultUse;
use std::time::Instant;

impl Thread {
    pub(super) fn take(&mut self, batch: SlotBatch, host: &mut Host, now: Instant) {
        self.slots.prove(batch.slot);
        if host.schedule.executed(self.prong, batch.id, host.seconds(now)) != ResultUse::Used {
            return self.put(batch.slot);
        }
        self.witness.worked();
        let outcome = self.agent.outcome(now);
        let verdict = match self.world.handover {
            Handover::InPlace => self.end(batch, outcome, host, now),
            // A damaged header is found at once, a damaged payload later.
            Handover::Convert if outcome != Outcome::Judged(Verdict::Good) && batch.generation.is_multiple_of(2) => {
                self.end(batch, outcome, host, now)
            }
            _ => {
                self.held.push_back((batch, outcome));
                Verdict::None
            }
        };
        self.machine.taken(verdict);
    }

    pub(super) fn fetch(&mut self, host: &mut Host, now: Instant) -> Fetched {
        self.hand_over_outliving(host, now);
        if self.world.handover == Handover::InPlace || self.held.is_empty() {
            return Fetched::None;
        }
        let place = self.held.iter().position(|(batch, _)| host.has_place(self.prong, batch.id));
        let Some((batch, outcome)) = place.and_then(|at| self.held.remove(at)) else { return Fetched::Waiting };
        if !host.schedule.is_wanted(self.prong, batch.id) {
            self.put(batch.slot);
            return Fetched::One(Verdict::None);
        }
        Fetched::One(self.end(batch, outcome, host, now))
    }

    /// Hands over results of the lost drive for which there are buffers.
    pub fn hand_over_outliving(&mut self, host: &mut Host, now: Instant) {
        while let Some(at) = self.outliving.iter().position(|(batch, _)| host.has_place(self.prong, batch.id)) {
            let (batch, outcome) = self.outliving.remove(at).expect("found there");
            if !host.schedule.is_wanted(self.prong, batch.id) {
                self.put(batch.slot);
            } else if outcome == Outcome::Judged(Verdict::Good) {
                self.put(batch.slot);
                host.finish(self.prong, batch.id, None);
            } else {
                self.put(batch.slot);
                host.give_up(self.prong, batch.id, &failed(), now);
            }
        }
    }

    /// Ends a batch by its result. Returns the verdict on the drive.
    fn end(&mut self, batch: SlotBatch, outcome: Outcome, host: &mut Host, now: Instant) -> Verdict {
        self.witness.judged(outcome);
        let SlotBatch { id, slot, .. } = batch;
        if outcome == Outcome::Judged(Verdict::Good) {
            if self.world.handover == Handover::InPlace {
                host.finish(self.prong, id, Some(slot));
            } else {
                self.put(slot);
                host.finish(self.prong, id, None);
            }
            return Verdict::Good;
        }
        self.put(slot);
        match outcome {
            Outcome::Judged(verdict) => {
                host.give_up(self.prong, id, &failed(), now);
                verdict
            }
            Outcome::Refuted => {
                let what = String::new();
                host.give_up(self.prong, id, &GivenUp::Doubted { sample_id: 0, index: 0, what }, now);
                Verdict::None
            }
        }
    }
}

fn failed() -> GivenUp {
    GivenUp::Failed { kind: FaultKind::Damaged, what: String::new() }
}
