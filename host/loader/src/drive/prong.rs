//! The thread of a drive prong. It keeps Execute commands in flight, takes results out of the slots, and survives every
//! failure of the drive.
//!
//! The thread decides nothing: it performs the actions of its state machine ([`Machine`]), and tells the state machine
//! what came of them. A batch goes back to the schedule when its Execute command fails, its result is damaged, or its
//! association is lost. So no failure of a drive loses a sample. `ending`: the end of an association's work.

mod ending;

use super::checks::{Checks, SlotBatch};
use super::depth::DriveDepth;
use super::endpoint::{Endpoint, connect};
use super::fault::DriveFault;
use super::handle::ProngHandle;
use super::link::{ADMIN_WITHIN, DriveLink, Expected};
use super::machine::{Action, Machine, MachineOptions};
use super::results::Results;
use super::usage::AgentUsage;
use crate::delivery::SlotTable;
use crate::engine::{Engine, Loss};
use crate::report::FaultKind;
use crate::schedule::{BatchId, HeldResults, ProngId};
use ddlp_cause::with_causes;
use ddlp_csd::abilities::AgreedDecoders;
use ddlp_csd::request::BatchRequest;
use ddlp_driver::DriverError;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// One drive, and the means of its thread.
pub(crate) struct DriveProng {
    handle: ProngHandle,
    machine: Machine,
    /// Declared before `endpoint`, so that the association ends before its agent.
    link: Option<DriveLink>,
    endpoint: Endpoint,
    expected: Expected,
    slots: Arc<SlotTable>,
    results: Results,
    usage: AgentUsage,
    setup: DriveSetup,
}

/// Options of a drive prong.
pub(crate) struct DriveSetup {
    pub prong: ProngId,
    pub depth: DriveDepth,
    pub timeout: Duration,
}

impl DriveProng {
    pub fn new(
        engine: Arc<Engine>,
        setup: DriveSetup,
        endpoint: Endpoint,
        expected: Expected,
        link: Option<DriveLink>,
        slots: Arc<SlotTable>,
    ) -> Self {
        let options = MachineOptions {
            seed: setup.prong as u64,
            depth: setup.depth.least,
            timeout: setup.timeout,
            has_agent: endpoint.agent.is_some(),
            slots: slots.count(),
            // Slots may still have generations of an earlier run.
            generation: SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64),
        };
        if let Some(link) = &link {
            engine.watch(setup.prong, link.closing());
        }
        let handle = ProngHandle { engine, prong: setup.prong };
        Self {
            machine: Machine::new(options, link.is_some(), Instant::now()),
            results: Results::new(Checks {
                handle: handle.clone(),
                slots: slots.clone(),
                // Without a link, no result comes before `connect` knows more.
                agreed: link.as_ref().map_or(AgreedDecoders::ALL, |link| link.agreed),
            }),
            usage: AgentUsage::begin(link.as_ref()),
            link,
            endpoint,
            expected,
            slots,
            handle,
            setup,
        }
    }

    /// Runs the prong's thread until the run is over. If the thread panics, the drive counts as lost, but its batches
    /// do not: other prongs prepare them. Returns the prong if the run goes on at another position.
    pub fn run(mut self) -> Option<Self> {
        let ProngHandle { engine, prong } = self.handle.clone();
        if catch_unwind(AssertUnwindSafe(|| self.work())).is_err() {
            let what = "its thread panicked: this is a defect of this program".into();
            let (held, kind) = (HeldResults::Lost, FaultKind::Defect);
            engine.lose(prong, Loss { flights: &[], held, kind, what, of_dataset: false });
            return None;
        }
        if !engine.keeps_drives() {
            return None;
        }
        self.settle();
        Some(self)
    }

    /// Returns the number of the prong.
    pub fn number(&self) -> ProngId {
        self.handle.prong
    }

    /// Returns whether the drive has an association, so that it can take batches at once.
    pub fn is_linked(&self) -> bool {
        self.link.is_some()
    }

    fn work(&mut self) {
        loop {
            let now = Instant::now();
            let action = self.machine.next(now);
            if self.perform(action, now).is_break() {
                break;
            }
        }
        let in_flight: Vec<BatchId> = self.machine.in_flight().collect();
        self.cancel_all(&in_flight);
        self.results.join();
        if let Some(link) = &self.link {
            self.usage.report(link, &self.handle);
        }
    }

    /// Performs an action of the state machine, which chose it at this time. Breaks off when the run is over or the
    /// drive is given up.
    fn perform(&mut self, action: Action, now: Instant) -> ControlFlow<()> {
        let ProngHandle { engine, prong } = &self.handle;
        let prong = *prong;
        match action {
            Action::Look => {
                let Some((lost, refuted)) = engine.look(prong) else { return ControlFlow::Break(()) };
                self.machine.looked(&lost, refuted);
            }
            Action::Fetch => match self.results.fetch_held(linked(&mut self.link), self.setup.timeout) {
                Ok(fetched) => self.machine.fetched(fetched),
                Err(error) => self.lost(error),
            },
            Action::Claim => self.claim(),
            Action::Poll(until) => match linked(&mut self.link).poll(until) {
                Ok(Some((ticket, done))) => self.machine.completed(ticket, done.status(), Instant::now()),
                Ok(None) => {}
                Err(error) => self.lost(error),
            },
            Action::Idle(until) => {
                let is_stopped = engine.sleep(until.saturating_duration_since(now));
                if !is_stopped && !linked(&mut self.link).is_alive() {
                    let source = "keep alive unanswered or connection closed".into();
                    self.lost(DriverError::Lost { peer: "drive".into(), source });
                }
            }
            Action::Cancel(id) => self.cancel(id),
            Action::Take(batch) => self.take(batch),
            Action::GiveUp { id, slot, why } => {
                slot.into_iter().for_each(|slot| self.slots.put(slot));
                engine.give_up(prong, id, why);
            }
            Action::PutLast(slots) => self.slots.put_last(slots),
            Action::LeaveUnproven => self.machine.left_unproven(self.slots.take_unproven(), now),
            Action::Lose { error, flights, refused } => self.lose(&error, &flights, &refused),
            Action::Pause => engine.pause(prong),
            Action::Regain(what) => engine.regain(prong, what),
            Action::Report(kind, what) => engine.fault(prong, kind, what),
            Action::Note(what) => self.handle.note(what),
            Action::Sleep(until) => {
                if engine.is_over() || engine.sleep(until.saturating_duration_since(now)) {
                    return ControlFlow::Break(());
                }
            }
            Action::LookAtAgent => {
                if engine.is_over() {
                    return ControlFlow::Break(());
                }
                let is_running = self.endpoint.agent.as_mut().is_some_and(|agent| agent.is_running());
                self.machine.saw_agent(is_running, now);
            }
            Action::RestartAgent => match self.endpoint.restart(&|| engine.is_stopped()) {
                Ok(()) => self.handle.report(&DriveFault::AgentRestarted),
                // The agent was not waited for.
                Err(_) if engine.is_stopped() => {}
                Err(error) => self.handle.report(&DriveFault::AgentFails(&error)),
            },
            Action::Connect => return self.connect(),
            Action::Refuse(error) => engine.refuse(prong, self.endpoint.unusable(error, "")),
            Action::End => {
                engine.gave_up(prong);
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    fn connect(&mut self) -> ControlFlow<()> {
        let ProngHandle { engine, prong } = &self.handle;
        if engine.is_over() {
            return ControlFlow::Break(());
        }
        let watch = |controller| engine.watch(*prong, controller);
        match connect(&self.endpoint, &self.expected, self.setup.depth.most, watch) {
            Ok(link) => self.reached(link),
            Err(_) if engine.is_over() => return ControlFlow::Break(()),
            Err(error) => self.machine.not_reached(error, Instant::now()),
        }
        ControlFlow::Continue(())
    }

    fn reached(&mut self, link: DriveLink) {
        let is_new = self.slots.count() == 0;
        if !self.machine.reached(SlotTable::usable(link.identity.slots)) {
            return;
        }
        self.slots.know(link.identity.slots);
        if is_new {
            self.usage = AgentUsage::begin(Some(&link));
        }
        self.results.checks.agreed = link.agreed;
        self.link = Some(link);
    }

    fn lost(&mut self, error: DriverError) {
        self.machine.lost(error, Instant::now());
    }

    /// Tells the drive to stop work on a batch that another prong finished first. A failure to cancel matters only if
    /// it is a loss of the association; after a mere timeout, the next command shows whether the association lives.
    fn cancel(&mut self, id: BatchId) {
        match linked(&mut self.link).cancel(id, ADMIN_WITHIN) {
            Err(error @ (DriverError::Lost { .. } | DriverError::Protocol { .. })) => self.lost(error),
            Err(error) => tracing::debug!("batch not cancelled: {}", with_causes(&error)),
            Ok(()) => {}
        }
    }

    fn claim(&mut self) {
        let ProngHandle { engine, prong } = &self.handle;
        let Some(slot) = self.slots.take() else {
            self.note_bounded_tail();
            return self.machine.nothing_to_claim();
        };
        // A drive with no more slots than commands in flight reserves none: it needs them all.
        let is_last = self.slots.free() == 0 && self.slots.count() as usize > self.setup.depth.least;
        let Some((id, sample_ids)) = engine.claim_for_drive(*prong, is_last) else {
            self.slots.put(slot);
            return self.machine.nothing_to_claim();
        };
        let batch_s = engine.lock().schedule.batch_s(*prong);
        let round_trip = linked(&mut self.link).round_trip;
        self.machine.allow(self.depth_at(round_trip, batch_s));
        let (generation, allowance) = self.machine.order(batch_s);
        let task = &engine.task;
        let bucket = task.cut.bucket(id.batch);
        let link = linked(&mut self.link);
        let request = BatchRequest {
            program: link.programs[bucket],
            seed: task.seed,
            epoch: id.epoch,
            fidelity: task.epoch_context(id.epoch).fidelity,
            batch: id.batch,
            slot,
            generation,
            id_limit: task.walks.id_limit(),
            sample_ids,
        };
        match link.execute(bucket, &request, allowance.patience) {
            Ok(ticket) => {
                let batch = SlotBatch { id, slot, generation, sample_ids: request.sample_ids, found: None };
                self.machine.submitted(ticket, batch, allowance, Instant::now());
            }
            Err(error) => self.machine.not_submitted(id, slot, error, Instant::now()),
        }
    }

    /// Returns how many batches the drive may have in work: as many as the path to it needs, if there are slots. One
    /// more slot holds a result until it is read.
    fn depth_at(&self, round_trip: Duration, batch_s: Option<f64>) -> usize {
        let (needed, slots) = (self.setup.depth.at(round_trip, batch_s), self.slots.count() as usize);
        let allowed = needed.min(slots.saturating_sub(1)).max(self.setup.depth.least);
        if allowed < needed {
            self.handle.note(format!(
                "the drive is far away, and its {slots} slots allow too few batches in work to keep it busy: start its \
                 agent with --slots {}, or use larger batches",
                self.setup.depth.most + 1
            ));
        }
        allowed
    }

    fn note_bounded_tail(&self) {
        let mut core = self.handle.engine.lock();
        if self.machine.accepts_all_slots() && core.schedule.slots_bound_tail() {
            let slots = self.slots.count();
            let remedy = match self.endpoint.agent {
                Some(_) => "",
                None => "; start its agent with a larger --slots",
            };
            core.recorder.note(format!(
                "the drive waited for a result slot: its {slots} slots limit the tail to {slots} batches{remedy}"
            ));
        }
    }

    fn take(&mut self, batch: SlotBatch) {
        self.slots.prove(batch.slot);
        let ProngHandle { engine, prong } = self.handle.clone();
        let _making_ready = engine.making_ready();
        if engine.executed(prong, batch.id) {
            let verdict = self.results.take(batch);
            self.machine.taken(verdict);
        } else {
            self.slots.put(batch.slot);
        }
    }
}

/// Returns the association, which the state machine uses only after it was reached and before it is lost.
fn linked(link: &mut Option<DriveLink>) -> &mut DriveLink {
    link.as_mut().expect("the drive is linked")
}
