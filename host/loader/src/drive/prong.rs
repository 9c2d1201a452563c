//! The thread of a drive prong. It keeps Execute commands in flight, takes results out of the slots, and survives every
//! failure of the drive.
//!
//! A batch goes back to the schedule when its Execute command fails, its result is damaged, or its association is lost.
//! So no failure of a drive loses a sample. `ending`: the end of an association's work.

mod ending;

use super::checks::{Checks, SlotBatch};
use super::endpoint::Endpoint;
use super::fault::DriveFault;
use super::flight::{Allowance, Flight};
use super::handle::ProngHandle;
use super::link::{ADMIN_WITHIN, DriveLink, Expected};
use super::rejoin::{DriveAccess, DriveReached};
use super::results::Results;
use super::slot_use::SlotUse;
use super::trust::{ASSOCIATIONS_MAX, WRONG_MAX};
use super::usage::AgentUsage;
use crate::delivery::SlotTable;
use crate::engine::{Engine, GivenUp, Loss};
use crate::report::FaultKind;
use crate::schedule::{HeldResults, ProngId};
use ddlp_csd::abilities::AgreedDecoders;
use ddlp_csd::request::BatchRequest;
use ddlp_driver::{Completion, DriverError, Ticket};
use ddlp_nvme::Status;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the thread waits for a completion before it looks for other work.
const POLL_SLICE: Duration = Duration::from_millis(5);
/// The same wait while only a completion can bring new work.
const POLL_SLICE_FULL: Duration = Duration::from_millis(20);
/// How long to tolerate a drive that refuses every slot, and then to leave it alone.
const SLOTLESS_MAX: Duration = Duration::from_secs(10);

/// One drive, and the state of its thread.
pub(crate) struct DriveProng {
    handle: ProngHandle,
    /// Declared before `access`, so that the association ends before its agent.
    link: Option<DriveLink>,
    access: DriveAccess,
    slots: SlotUse,
    flights: Vec<Flight>,
    results: Results,
    usage: AgentUsage,
    setup: DriveSetup,
    /// End of the drive's pause.
    paused_until: Option<Instant>,
    generation: u64,
}

/// Options of a drive prong.
pub(crate) struct DriveSetup {
    pub prong: ProngId,
    pub depth: usize,
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
        // Start from the clock, since slots may still have generations of an earlier run.
        let generation = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| since.as_nanos() as u64);
        if let Some(link) = &link {
            engine.watch(setup.prong, link.closing());
        }
        let handle = ProngHandle { engine, prong: setup.prong };
        Self {
            access: DriveAccess::new(handle.clone(), endpoint, expected, setup.depth, link.is_some()),
            results: Results::new(Checks {
                handle: handle.clone(),
                slots: slots.clone(),
                // Without a link, no result comes before `rejoin` knows more.
                agreed: link.as_ref().map_or(AgreedDecoders::ALL, |link| link.agreed),
            }),
            slots: SlotUse::new(slots),
            flights: Vec::new(),
            usage: AgentUsage::begin(link.as_ref()),
            link,
            handle,
            setup,
            paused_until: None,
            generation,
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
        while !self.handle.engine.is_over() {
            if self.link.is_some() {
                if let Err(error) = self.serve() {
                    self.lose_link(&error);
                }
            } else if !self.rejoin() {
                break;
            }
        }
        self.cancel_flights();
        self.results.join();
        if let Some(link) = &self.link {
            self.usage.report(link, &self.handle);
        }
    }

    /// Tries to reach the drive, for the first time or again, until it succeeds. Returns false if the drive cannot be
    /// used any more or the run is over.
    fn rejoin(&mut self) -> bool {
        if self.results.trust.is_useless() {
            self.handle.report(&DriveFault::Useless(ASSOCIATIONS_MAX));
            return false;
        }
        let ProngHandle { engine, prong } = &self.handle;
        if self.slots.forget_refusal() && engine.sleep(SLOTLESS_MAX) {
            return false;
        }
        let Some(DriveReached { link, is_new, said }) = self.access.reach(&self.slots.table) else { return false };
        if is_new {
            self.usage = AgentUsage::begin(Some(&link));
        }
        self.results.checks.agreed = link.agreed;
        self.link = Some(link);
        engine.regain(*prong, said);
        true
    }

    /// Does one round of work on a live association.
    fn serve(&mut self) -> Result<(), DriverError> {
        self.cancel_lost()?;
        let link = self.link.as_mut().expect("served only with a link");
        let has_fetched = self.results.fetch_held(link, self.setup.timeout)?;
        self.slots.look_at_foreign();
        self.judge()?;
        if !self.pauses() {
            self.submit()?;
        }
        let is_full = self.flights.len() == self.setup.depth && self.results.is_empty();
        let slice = match (has_fetched, is_full) {
            (true, _) => Duration::ZERO,
            (false, true) => POLL_SLICE_FULL,
            (false, false) => POLL_SLICE,
        };
        let until = Instant::now() + slice;
        let link = self.link.as_mut().expect("served only with a link");
        if self.flights.is_empty() {
            if self.handle.engine.sleep(slice) || link.is_alive() {
                return Ok(());
            }
            return Err(DriverError::Lost {
                peer: "drive".into(),
                reason: "keep alive unanswered or connection closed".into(),
            });
        }
        if let Some((ticket, completion)) = link.poll(until)? {
            self.complete(ticket, completion)?;
        }
        let now = Instant::now();
        self.flights.iter().try_for_each(|flight| flight.check_deadline(now))
    }

    /// Ends an association with too many wrong results in a row.
    fn judge(&mut self) -> Result<(), DriverError> {
        let trust = &mut self.results.trust;
        trust.wrong(self.handle.engine.take_refuted(self.handle.prong));
        if trust.ends_association() {
            let what = format!("{WRONG_MAX} results in a row were wrong or damaged");
            return Err(DriverError::Protocol { peer: "drive".into(), what });
        }
        Ok(())
    }

    /// Returns whether the drive pauses, because it cannot read its dataset, refuses batches or leaves samples of batch
    /// after batch to the host. The pause begins as soon as nothing is in flight. During the pause the schedule leaves
    /// the drive out, so no strategy waits for it.
    fn pauses(&mut self) -> bool {
        if let Some(until) = self.paused_until {
            if Instant::now() < until {
                return true;
            }
            self.paused_until = None;
            self.handle.engine.regain(self.handle.prong, None);
        }
        if self.flights.is_empty()
            && let Some(pause) = self.results.trust.take_pause()
        {
            self.paused_until = Some(Instant::now() + pause);
            self.handle.engine.pause(self.handle.prong);
        }
        self.paused_until.is_some() || self.results.trust.pause_is_due()
    }

    /// Tells the drive to stop work on batches that another prong finished first. A failure to cancel matters only if
    /// it is a loss of the association; after a mere timeout, the next command shows whether the association lives.
    fn cancel_lost(&mut self) -> Result<(), DriverError> {
        let lost = self.handle.engine.lock().schedule.take_cancels(self.handle.prong);
        for id in lost {
            if let Some(flight) = self.flights.iter_mut().find(|flight| flight.batch.id == id) {
                flight.cancelled = true;
                match self.link.as_ref().expect("served only with a link").cancel(id, ADMIN_WITHIN) {
                    Err(error @ (DriverError::Lost { .. } | DriverError::Protocol { .. })) => return Err(error),
                    Err(error) => tracing::debug!("batch not cancelled: {error}"),
                    Ok(()) => {}
                }
            }
        }
        Ok(())
    }

    fn submit(&mut self) -> Result<(), DriverError> {
        while self.flights.len() < self.setup.depth {
            let Some(slot) = self.slots.table.take() else {
                self.note_bounded_tail();
                return Ok(());
            };
            // A drive with no more slots than commands in flight reserves none: it needs them all.
            let is_last = self.slots.table.free() == 0 && self.slots.table.count() as usize > self.setup.depth;
            let Some((id, sample_ids)) = self.handle.engine.claim_for_drive(self.handle.prong, is_last) else {
                self.slots.table.put(slot);
                return Ok(());
            };
            self.generation = self.generation.wrapping_add(1);
            let task = &self.handle.engine.task;
            let bucket = task.cut.bucket(id.batch);
            let request = BatchRequest {
                program: self.link.as_ref().expect("served only with a link").programs[bucket],
                seed: task.seed,
                epoch: id.epoch,
                batch: id.batch,
                slot,
                generation: self.generation,
                id_limit: task.walks.id_limit(),
                sample_ids,
            };
            let batch_s = self.handle.engine.lock().schedule.batch_s(self.handle.prong);
            let allowance = Allowance::new(self.setup.timeout, batch_s, self.flights.len());
            let link = self.link.as_mut().expect("served only with a link");
            let submitted = link.execute(bucket, &request, allowance.patience);
            let ticket = match submitted {
                Ok(ticket) => ticket,
                Err(error) if error.ends_association() => {
                    self.slots.table.put(slot);
                    self.handle.give_up(id, GivenUp::Returned);
                    return Err(error);
                }
                Err(error) => {
                    self.slots.table.put(slot);
                    self.results.trust.unavailable();
                    self.handle.give_up(id, DriveFault::NotSent(id, &error).given_up());
                    return Ok(());
                }
            };
            let sample_ids = request.sample_ids;
            let batch = SlotBatch { id, slot, generation: self.generation, sample_ids, found: None };
            self.flights.push(Flight { ticket, batch, submitted: Instant::now(), allowance, cancelled: false });
        }
        Ok(())
    }

    fn note_bounded_tail(&self) {
        let mut core = self.handle.engine.lock();
        if self.slots.are_all_accepted() && core.schedule.slots_bound_tail() {
            let slots = self.slots.table.count();
            let remedy = if self.access.is_local() { "" } else { "; start its agent with a larger --slots" };
            core.recorder.note(format!(
                "the drive waited for a result slot: its {slots} slots limit the tail to {slots} batches{remedy}"
            ));
        }
    }

    fn complete(&mut self, ticket: Ticket, completion: Completion) -> Result<(), DriverError> {
        let Some(at) = self.flights.iter().position(|flight| flight.ticket == ticket) else { return Ok(()) };
        let status = Status(completion.status);
        let lost = |reason: &str| Err(DriverError::Lost { peer: "drive".into(), reason: reason.into() });
        if status.same_code(Status::NAMESPACE_NOT_READY) && status.is_do_not_retry() {
            return lost("its agent is about to end");
        }
        // The kernel reconnects by itself, and programs end with a host's last association. Another run of this host
        // may also have loaded its own program.
        if status.same_code(Status::NO_PROGRAM) || status.same_code(Status::PROGRAM_NOT_ACTIVATED) {
            return lost("its program is gone: the drive was reconnected, or another run of this host uses it");
        }
        let flight = self.flights.swap_remove(at);
        if !status.is_success() {
            self.give_up(flight, status);
            // No strategy may wait until another host releases its slots.
            return match self.slots.without_for() {
                Some(time) if time > SLOTLESS_MAX => {
                    let reason = format!("it has refused every result slot for {SLOTLESS_MAX:?}");
                    Err(DriverError::Lost { peer: "drive".into(), reason })
                }
                _ => Ok(()),
            };
        }
        self.slots.filled(flight.batch.slot);
        // A drive that has become much slower is a reported fault; its expected rate adapts.
        if let Some(fault) = flight.slowness(self.access.is_local()) {
            self.handle.report(&fault);
        }
        let engine = self.handle.engine.clone();
        let _making_ready = engine.making_ready();
        if engine.executed(self.handle.prong, flight.batch.id) {
            self.access.worked();
            self.results.take(flight.batch);
        } else {
            self.slots.table.put(flight.batch.slot);
        }
        Ok(())
    }

    /// Gives up a batch whose Execute command failed.
    fn give_up(&mut self, flight: Flight, status: Status) {
        let is_foreign = status.same_code(Status::INSUFFICIENT_RESOURCES);
        if is_foreign {
            self.handle.note("the drive's result slots are shared with another host");
        }
        let is_short = status.same_code(Status::CAPACITY_EXCEEDED);
        if is_short {
            self.handle.note(
                "the drive has no memory for all of its result slots, and continues with fewer: the tail is shorter",
            );
            // The other slots that were never used have no memory either.
            self.slots.leave_unproven();
        }
        // NAMESPACE_NOT_READY: this host itself still holds the slot, through a lost association that the drive still
        // takes for live.
        let why = if is_foreign || is_short || status.same_code(Status::NAMESPACE_NOT_READY) {
            self.slots.refused(flight.batch.slot);
            GivenUp::Returned
        } else {
            self.slots.table.put(flight.batch.slot);
            if flight.cancelled && status.same_code(Status::ABORT_REQUESTED) {
                GivenUp::Cancelled
            } else {
                // A drive that refuses at once would otherwise take batch after batch from the others.
                self.results.trust.unavailable();
                DriveFault::Execute(flight.batch.id, status).given_up()
            }
        };
        self.handle.give_up(flight.batch.id, why);
    }
}
