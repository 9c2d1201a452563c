//! The thread of a drive prong. It keeps Execute commands in flight, takes results out of the slots, and survives every
//! failure of the drive.
//!
//! A batch goes back to the schedule when its Execute command fails, its result is damaged, or its association is lost.
//! So no failure of a drive loses a sample.

use super::fault::Fault;
use super::flight::{Allowance, Flight};
use super::link::{ADMIN_WITHIN, LEAVE_WITHIN};
use super::rejoin::Tries;
use super::results::{Checks, Held, Waiting};
use super::trust::WRONG_MAX;
use super::{Endpoint, Expected, Link, SlotTable};
use crate::engine::{Engine, GivenUp};
use crate::schedule::{HeldResults, ProngId};
use ddlp_csd::log::Counters;
use ddlp_csd::request::BatchRequest;
use ddlp_driver::{Completion, DriverError, Ticket};
use ddlp_nvme::Status;
use memmap2::MmapMut;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the thread waits for a completion before it looks for other work.
const POLL_SLICE: Duration = Duration::from_millis(5);
/// The same wait while only a completion can bring new work.
const POLL_SLICE_FULL: Duration = Duration::from_millis(20);
/// How long to leave a slot alone that another host holds.
const FOREIGN_LOOK: Duration = Duration::from_secs(1);
/// How long to tolerate a drive that refuses every slot, and then to leave it alone.
pub(super) const SLOTLESS_MAX: Duration = Duration::from_secs(10);
/// Tolerance when the agent's uptime is compared with the time since its counters were first read. A larger gap means
/// that the agent is another process.
const UPTIME_SLACK: Duration = Duration::from_secs(2);

/// One drive, and the state of its thread.
pub(crate) struct DriveProng {
    pub(super) engine: Arc<Engine>,
    pub(super) prong: ProngId,
    /// Declared before the endpoint, so that the association ends before its agent.
    pub(super) link: Option<Link>,
    pub(super) endpoint: Endpoint,
    pub(super) expected: Expected,
    pub(super) slots: Arc<SlotTable>,
    pub(super) flights: Vec<Flight>,
    /// Finished batches that wait for a buffer.
    pub(super) waiting: Waiting,
    /// Threads that hand over batches which the drive had finished before it was lost.
    pub(super) outliving: Vec<JoinHandle<()>>,
    /// Buffer for a batch of pixels that are read, if floats are delivered.
    pub(super) pixels: Option<MmapMut>,
    /// Slots that another host holds or that the drive has no memory for, each with the time of that answer.
    pub(super) foreign: Vec<(u32, Instant)>,
    /// Time since which the drive has refused every slot.
    pub(super) without_slots: Option<Instant>,
    pub(super) tries: Tries,
    /// Whether the next attempt to reach the drive is the first.
    pub(super) first_try: bool,
    pub(super) depth: usize,
    pub(super) timeout: Duration,
    /// End of the drive's pause.
    pub(super) paused_until: Option<Instant>,
    generation: u64,
    /// The agent's counters when the run first reached it, and the time of that reading.
    pub(super) before: Option<(Counters, Instant)>,
}

/// Options of a drive prong.
pub(crate) struct DriveSetup {
    pub prong: ProngId,
    pub depth: usize,
    pub timeout: Duration,
}

/// Reads the agent's counters, with the time of the reading.
pub(super) fn read_counters(link: &Link) -> Option<(Counters, Instant)> {
    link.counters().map(|counters| (counters, Instant::now()))
}

impl DriveProng {
    pub fn new(
        engine: Arc<Engine>,
        setup: DriveSetup,
        endpoint: Endpoint,
        expected: Expected,
        link: Option<Link>,
        slots: Arc<SlotTable>,
    ) -> Self {
        // Start from the clock, since slots may still have generations of an earlier run.
        let generation = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| since.as_nanos() as u64);
        if let Some(link) = &link {
            engine.watch(setup.prong, link.closing());
        }
        Self {
            waiting: Waiting::new(Checks { engine: engine.clone(), prong: setup.prong, slots: slots.clone() }),
            outliving: Vec::new(),
            engine,
            prong: setup.prong,
            endpoint,
            expected,
            before: link.as_ref().and_then(read_counters),
            first_try: link.is_none(),
            link,
            slots,
            flights: Vec::new(),
            pixels: None,
            foreign: Vec::new(),
            without_slots: None,
            tries: Tries::new(setup.prong as u64),
            paused_until: None,
            generation,
            depth: setup.depth,
            timeout: setup.timeout,
        }
    }

    /// Runs the prong's thread until the run is over. If the thread panics, the drive counts as lost, but its batches
    /// do not: other prongs prepare them.
    pub fn run(self) {
        let (engine, prong) = (self.engine.clone(), self.prong);
        if catch_unwind(AssertUnwindSafe(|| self.work())).is_err() {
            engine.lose(
                prong,
                &[],
                HeldResults::Lost,
                "defect",
                "its thread panicked: this is a defect of this program".into(),
            );
        }
    }

    fn work(mut self) {
        while !self.engine.is_over() {
            if self.link.is_some() {
                if let Err(error) = self.serve() {
                    self.lose_link(&error);
                }
            } else if !self.rejoin() {
                break;
            }
        }
        self.cancel_flights();
        for thread in self.outliving.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the loader panicked");
            }
        }
        self.report_usage();
    }

    /// Asks the drive to stop work on everything in flight, since an association that the kernel owns does not end with
    /// this thread.
    pub(super) fn cancel_flights(&self) {
        let Some(link) = self.link.as_ref().filter(|link| link.is_alive()) else { return };
        for flight in &self.flights {
            if let Err(error) = link.cancel(flight.batch.id, LEAVE_WITHIN) {
                tracing::debug!("batch not cancelled: {error}");
                return;
            }
        }
    }

    /// Does one round of work on a live association.
    fn serve(&mut self) -> Result<(), DriverError> {
        self.cancel_lost()?;
        let has_fetched = self.fetch_held()?;
        self.look_at_foreign();
        self.judge()?;
        if !self.pauses() {
            self.submit()?;
        }
        let is_full = self.flights.len() == self.depth && self.waiting.is_empty();
        let slice = match (has_fetched, is_full) {
            (true, _) => Duration::ZERO,
            (false, true) => POLL_SLICE_FULL,
            (false, false) => POLL_SLICE,
        };
        let until = Instant::now() + slice;
        let link = self.link.as_mut().expect("served only with a link");
        if self.flights.is_empty() {
            if self.engine.sleep(slice) || link.is_alive() {
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
        let trust = &mut self.waiting.trust;
        trust.wrong(self.engine.take_refuted(self.prong));
        if trust.ends_association() {
            let what = format!("{WRONG_MAX} results in a row were wrong or damaged");
            return Err(DriverError::Protocol { peer: "drive".into(), what });
        }
        Ok(())
    }

    /// Returns whether the drive pauses, because it cannot read its dataset or refuses batches. The pause begins as
    /// soon as nothing is in flight. During the pause the schedule leaves the drive out, so no strategy waits for it.
    fn pauses(&mut self) -> bool {
        if let Some(until) = self.paused_until {
            if Instant::now() < until {
                return true;
            }
            self.paused_until = None;
            self.engine.regain(self.prong, None);
        }
        if self.flights.is_empty()
            && let Some(pause) = self.waiting.trust.take_pause()
        {
            self.paused_until = Some(Instant::now() + pause);
            self.engine.pause(self.prong);
        }
        self.paused_until.is_some() || self.waiting.trust.pause_is_due()
    }

    /// Tells the drive to stop work on batches that another prong finished first. A failure to cancel matters only if
    /// it is a loss of the association; after a mere timeout, the next command shows whether the association lives.
    fn cancel_lost(&mut self) -> Result<(), DriverError> {
        let lost = self.engine.lock().schedule.take_cancels(self.prong);
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

    /// Puts back slots that were left alone long enough, to be tried when no other slot is free: the drive may accept
    /// them by now.
    fn look_at_foreign(&mut self) {
        let old = self.foreign.extract_if(.., |(_, seen)| seen.elapsed() > FOREIGN_LOOK);
        self.slots.put_last(old.map(|(slot, _)| slot));
    }

    fn submit(&mut self) -> Result<(), DriverError> {
        while self.flights.len() < self.depth {
            let Some(slot) = self.slots.take() else {
                self.note_bounded_tail();
                return Ok(());
            };
            // A drive with no more slots than commands in flight reserves none: it needs them all.
            let is_last = self.slots.free() == 0 && self.slots.count() as usize > self.depth;
            let Some((id, sample_ids)) = self.engine.claim_for_drive(self.prong, is_last) else {
                self.slots.put(slot);
                return Ok(());
            };
            self.generation = self.generation.wrapping_add(1);
            let task = &self.engine.task;
            let request = BatchRequest {
                program: self.link.as_ref().expect("served only with a link").program,
                seed: task.seed,
                epoch: id.epoch,
                batch: id.batch,
                slot,
                generation: self.generation,
                epoch_samples: task.cut.samples,
                sample_ids,
            };
            let batch_s = self.engine.lock().schedule.batch_s(self.prong);
            let allowance = Allowance::new(self.timeout, batch_s, self.flights.len());
            let link = self.link.as_mut().expect("served only with a link");
            let submitted = link.execute(&request, allowance.patience);
            let ticket = match submitted {
                Ok(ticket) => ticket,
                Err(error) if error.ends_association() => {
                    self.slots.put(slot);
                    self.engine.give_up(self.prong, id, GivenUp::Returned);
                    return Err(error);
                }
                Err(error) => {
                    self.slots.put(slot);
                    self.waiting.trust.unavailable();
                    self.engine.give_up(self.prong, id, Fault::NotSent(id, &error).given_up());
                    return Ok(());
                }
            };
            let sample_ids = request.sample_ids;
            let batch = Held { id, slot, generation: self.generation, sample_ids, found: None };
            self.flights.push(Flight { ticket, batch, submitted: Instant::now(), allowance, cancelled: false });
        }
        Ok(())
    }

    fn note_bounded_tail(&self) {
        let mut core = self.engine.lock();
        if self.foreign.is_empty() && core.schedule.slots_bound_tail() {
            let slots = self.slots.count();
            core.recorder.note(format!(
                "the drive waited for a result slot: the tail is at most {slots} batches long, as many as it has slots"
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
            return match self.without_slots {
                Some(since) if since.elapsed() > SLOTLESS_MAX => {
                    let reason = format!("it has refused every result slot for {SLOTLESS_MAX:?}");
                    Err(DriverError::Lost { peer: "drive".into(), reason })
                }
                _ => Ok(()),
            };
        }
        self.slots.prove(flight.batch.slot);
        self.without_slots = None;
        // A drive that has become much slower is a reported fault; its expected rate adapts.
        if let Some(fault) = flight.slowness(self.endpoint.agent.is_some()) {
            self.report(&fault);
        }
        if self.engine.executed(self.prong, flight.batch.id) {
            self.tries = Tries::new(self.prong as u64);
            self.waiting.take(flight.batch);
        } else {
            self.slots.put(flight.batch.slot);
        }
        Ok(())
    }

    /// Gives up a batch whose Execute command failed.
    fn give_up(&mut self, flight: Flight, status: Status) {
        let is_foreign = status.same_code(Status::INSUFFICIENT_RESOURCES);
        if is_foreign {
            self.engine.lock().recorder.note("the drive's result slots are shared with another host".into());
        }
        let is_short = status.same_code(Status::CAPACITY_EXCEEDED);
        if is_short {
            let note =
                "the drive has no memory for all of its result slots, and continues with fewer: the tail is shorter";
            self.engine.lock().recorder.note(note.into());
            // The other slots that were never used have no memory either.
            self.foreign.extend(self.slots.take_unproven().into_iter().map(|slot| (slot, Instant::now())));
        }
        // NAMESPACE_NOT_READY: this host itself still holds the slot, through a lost association that the drive still
        // takes for live.
        let why = if is_foreign || is_short || status.same_code(Status::NAMESPACE_NOT_READY) {
            self.foreign.push((flight.batch.slot, Instant::now()));
            // While another slot holds a result or is at work, the drive is still useful.
            if self.foreign.len() >= self.slots.count() as usize {
                self.without_slots.get_or_insert_with(Instant::now);
            }
            GivenUp::Returned
        } else {
            self.slots.put(flight.batch.slot);
            if flight.cancelled && status.same_code(Status::ABORT_REQUESTED) {
                GivenUp::Cancelled
            } else {
                // A drive that refuses at once would otherwise take batch after batch from the others.
                self.waiting.trust.unavailable();
                Fault::Execute(flight.batch.id, status).given_up()
            }
        };
        self.engine.give_up(self.prong, flight.batch.id, why);
    }

    /// Reports what the agent used during the run, unless it is another process than at the start.
    fn report_usage(&mut self) {
        let Some(now) = self.link.as_ref().and_then(Link::counters) else { return };
        let Some((before, asked)) = self.before else { return };
        if Duration::from_secs(now.uptime_s).saturating_add(UPTIME_SLACK)
            < Duration::from_secs(before.uptime_s) + asked.elapsed()
        {
            return;
        }
        let cpu_s = now.cpu_us.saturating_sub(before.cpu_us) as f64 / 1e6;
        let energy_j = match (now.energy_mj, before.energy_mj) {
            (Some(end), Some(start)) => Some(end.saturating_sub(start) as f64 / 1e3),
            _ => None,
        };
        let peak_mb = now.peak_rss_bytes as f64 / 1e6;
        self.engine.lock().recorder.drive_usage(self.prong, Some(cpu_s), Some(peak_mb), energy_j);
    }
}
