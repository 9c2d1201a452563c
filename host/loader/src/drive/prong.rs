//! The thread of a drive prong: it keeps Execute commands in flight, takes results out of the slots, and survives whatever
//! happens to the drive.
//!
//! A batch whose Execute fails, whose result is damaged, or whose association is lost goes back to the schedule; nothing
//! that a drive does can lose a sample.

use super::link::{ADMIN_WITHIN, LEAVE_WITHIN};
use super::rejoin::Tries;
use super::results::Held;
use super::{Endpoint, Expected, Link, SlotTable};
use crate::engine::{Engine, GivenUp};
use crate::schedule::{BatchId, ProngId};
use ddlp_csd::log::Counters;
use ddlp_csd::request::BatchRequest;
use ddlp_driver::{Completion, DriverError, Ticket};
use ddlp_nvme::Status;
use memmap2::MmapMut;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the thread waits for a completion before it looks for other work.
const POLL_SLICE: Duration = Duration::from_millis(5);
/// The same while nothing else can turn up.
const POLL_SLICE_FULL: Duration = Duration::from_millis(20);
/// A drive has this many times its expected time for what is queued, if that is longer than the configured time-out.
const PATIENCE: f64 = 10.0;
/// A batch that takes this many times what was expected is a fault, if it takes long enough to matter.
const SLOW: f64 = 5.0;
const SLOW_LEAST: Duration = Duration::from_millis(200);
/// How long a slot that another host has is left alone.
const FOREIGN_LOOK: Duration = Duration::from_secs(1);
/// How long a drive may refuse every slot before it counts as lost, and how long it then does.
pub(super) const SLOTLESS_MAX: Duration = Duration::from_secs(10);
/// A drive of whose results so many in a row are not what was asked for counts as lost.
const REFUSED_MAX: u32 = 8;
/// How much less an agent may have been up than the time since it was asked first, before it counts as another process.
const UPTIME_SLACK: Duration = Duration::from_secs(2);

/// An Execute in flight.
pub(super) struct Flight {
    ticket: Ticket,
    pub id: BatchId,
    pub slot: u32,
    generation: u64,
    sample_ids: Vec<u64>,
    /// Seconds until its end by the drive's rate, when that is known.
    expected_s: Option<f64>,
    submitted: Instant,
    patience: Duration,
    deadline: Instant,
    cancelled: bool,
}

/// One drive and its thread's state.
pub(crate) struct DriveProng {
    pub(super) engine: Arc<Engine>,
    pub(super) prong: ProngId,
    /// Before the endpoint: the association ends before its agent does.
    pub(super) link: Option<Link>,
    pub(super) endpoint: Endpoint,
    pub(super) expected: Expected,
    pub(super) slots: Arc<SlotTable>,
    pub(super) flights: Vec<Flight>,
    /// Finished batches that wait for a buffer.
    pub(super) held: VecDeque<Held>,
    /// Room for a batch of pixels that are read, where they are not what is delivered.
    pub(super) pixels: Option<MmapMut>,
    /// Slots that the drive keeps for somebody else, and since when that is known.
    pub(super) foreign: Vec<(u32, Instant)>,
    /// Since when the drive has refused every slot.
    pub(super) without_slots: Option<Instant>,
    pub(super) tries: Tries,
    pub(super) depth: usize,
    pub(super) timeout: Duration,
    /// Results that were not what had been asked for, since the last good one.
    pub(super) refused_in_a_row: u32,
    /// How often there were too many of them.
    pub(super) useless: u32,
    generation: u64,
    /// What the agent had used before the run, and when it was asked.
    before: Option<(Counters, Instant)>,
}

/// What a drive prong is made of.
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
        link: Link,
        slots: SlotTable,
    ) -> Self {
        // Generations of an earlier run may still lie in the slots: begin elsewhere.
        let generation = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| since.as_nanos() as u64);
        engine.watch(setup.prong, link.controller());
        Self {
            engine,
            prong: setup.prong,
            endpoint,
            expected,
            before: link.counters().map(|counters| (counters, Instant::now())),
            link: Some(link),
            slots: Arc::new(slots),
            flights: Vec::new(),
            held: VecDeque::new(),
            pixels: None,
            foreign: Vec::new(),
            without_slots: None,
            tries: Tries::new(setup.prong as u64),
            refused_in_a_row: 0,
            useless: 0,
            generation,
            depth: setup.depth,
            timeout: setup.timeout,
        }
    }

    /// The thread of the prong; returns when the run is over. Should it panic, the drive counts as lost: its batches are not.
    pub fn run(self) {
        let (engine, prong) = (self.engine.clone(), self.prong);
        if catch_unwind(AssertUnwindSafe(|| self.work())).is_err() {
            engine.lose(prong, &[], "defect", "its thread panicked, which is a defect of this program".into());
        }
    }

    fn work(mut self) {
        while !self.is_over() {
            if self.link.is_some() {
                if let Err(error) = self.serve() {
                    self.lose_link(&error);
                }
            } else if !self.rejoin() {
                break;
            }
        }
        self.cancel_flights();
        self.report_usage();
    }

    /// Asks the drive to stop work on everything in flight: an association that the kernel owns does not end with this thread.
    pub(super) fn cancel_flights(&self) {
        let Some(link) = self.link.as_ref().filter(|link| link.is_alive()) else { return };
        for flight in &self.flights {
            if let Err(error) = link.cancel(flight.id, LEAVE_WITHIN) {
                tracing::debug!("batch not cancelled: {error}");
                return;
            }
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.engine.is_stopped() || self.engine.lock().schedule.is_done()
    }

    /// One round of work on a live association.
    fn serve(&mut self) -> Result<(), DriverError> {
        self.cancel_lost()?;
        self.fetch_held()?;
        self.look_at_foreign();
        self.submit()?;
        let is_full = self.flights.len() == self.depth && self.held.is_empty();
        let until = Instant::now() + if is_full { POLL_SLICE_FULL } else { POLL_SLICE };
        let link = self.link.as_mut().expect("served only with a link");
        if self.flights.is_empty() {
            if self.engine.sleep(POLL_SLICE) || link.is_alive() {
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
        if self.refused_in_a_row >= REFUSED_MAX {
            self.refused_in_a_row = 0;
            self.useless += 1;
            let what = format!("{REFUSED_MAX} results in a row were not what it had been asked for");
            return Err(DriverError::Protocol { peer: "drive".into(), what });
        }
        self.check_deadlines()
    }

    /// Tells the drive to stop work on batches that another prong finished first. That saves time and nothing else, so only a loss of
    /// the association matters; whether a late answer is one, the next command tells.
    fn cancel_lost(&mut self) -> Result<(), DriverError> {
        let lost = self.engine.lock().schedule.take_cancels(self.prong);
        for id in lost {
            if let Some(flight) = self.flights.iter_mut().find(|flight| flight.id == id) {
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

    /// Slots that another host had may be free by now.
    fn look_at_foreign(&mut self) {
        let slots = &self.slots;
        self.foreign.retain(|&(slot, seen)| {
            let is_old = seen.elapsed() > FOREIGN_LOOK;
            if is_old {
                slots.put(slot);
            }
            !is_old
        });
    }

    fn submit(&mut self) -> Result<(), DriverError> {
        while self.flights.len() < self.depth {
            let Some(slot) = self.slots.take() else {
                self.note_bounded_tail();
                return Ok(());
            };
            let Some((id, sample_ids)) = self.engine.claim_for_drive(self.prong) else {
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
            let expected_s = expected_s(batch_s, self.flights.len());
            let patience = patience(self.timeout, expected_s, self.flights.len());
            let submitted = self.link.as_mut().expect("served only with a link").execute(&request, patience);
            let ticket = match submitted {
                Ok(ticket) => ticket,
                Err(error) if error.ends_association() => {
                    self.slots.put(slot);
                    self.engine.give_up(self.prong, id, GivenUp::Returned);
                    return Err(error);
                }
                Err(error) => {
                    self.slots.put(slot);
                    let what = format!("the drive cannot be asked for it: {error}");
                    self.engine.give_up(self.prong, id, GivenUp::Failed { kind: "status", what });
                    continue;
                }
            };
            self.flights.push(Flight {
                ticket,
                id,
                slot,
                generation: self.generation,
                sample_ids: request.sample_ids,
                expected_s,
                submitted: Instant::now(),
                patience,
                deadline: Instant::now() + patience,
                cancelled: false,
            });
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

    /// A drive that has become much slower is a fault to name; the rate that is expected of it follows.
    fn note_slowness(&self, flight: &Flight) {
        let took = flight.submitted.elapsed();
        if let Some(expected_s) = flight.expected_s
            && took > SLOW_LEAST
            && took.as_secs_f64() > SLOW * expected_s
        {
            let times = took.as_secs_f64() / expected_s;
            let BatchId { epoch, batch } = flight.id;
            let what =
                format!("epoch {epoch} batch {batch} took {took:.1?}, {times:.0} times what was measured before");
            self.engine.fault(self.prong, "slow", what);
        }
    }

    fn check_deadlines(&self) -> Result<(), DriverError> {
        let now = Instant::now();
        match self.flights.iter().find(|flight| flight.deadline < now) {
            None => Ok(()),
            Some(flight) => Err(DriverError::TimedOut {
                peer: "drive".into(),
                what: format!("Execute of epoch {} batch {}", flight.id.epoch, flight.id.batch),
                after: flight.patience,
            }),
        }
    }

    fn complete(&mut self, ticket: Ticket, completion: Completion) -> Result<(), DriverError> {
        let Some(at) = self.flights.iter().position(|flight| flight.ticket == ticket) else { return Ok(()) };
        let status = Status(completion.status);
        let lost = |reason: &str| Err(DriverError::Lost { peer: "drive".into(), reason: reason.into() });
        if status.same_code(Status::NAMESPACE_NOT_READY) && status.is_do_not_retry() {
            return lost("it is about to end");
        }
        // The kernel reconnects by itself, and programs do not outlive a host's last association; another run of this host may have
        // loaded its own.
        if status.same_code(Status::NO_PROGRAM) || status.same_code(Status::PROGRAM_NOT_ACTIVATED) {
            return lost("it has another program or none: it was reconnected, or another run of this host uses it");
        }
        let flight = self.flights.swap_remove(at);
        if !status.is_success() {
            self.give_up(flight, status);
            // Whatever the strategy, the run does not wait for another host's end.
            return match self.without_slots {
                Some(since) if since.elapsed() > SLOTLESS_MAX => {
                    let reason = format!("it has given no result slot for {SLOTLESS_MAX:?}");
                    Err(DriverError::Lost { peer: "drive".into(), reason })
                }
                _ => Ok(()),
            };
        }
        self.note_slowness(&flight);
        let Flight { id, slot, generation, sample_ids, .. } = flight;
        if self.engine.executed(self.prong, id) {
            self.tries = Tries::new(self.prong as u64);
            self.without_slots = None;
            self.take_result(Held { id, slot, generation, sample_ids });
        } else {
            self.slots.put(slot);
        }
        Ok(())
    }

    /// An Execute that did not succeed.
    fn give_up(&mut self, flight: Flight, status: Status) {
        let is_foreign = status.same_code(Status::INSUFFICIENT_RESOURCES);
        if is_foreign {
            self.engine.lock().recorder.note("the drive's result slots are shared with another host".into());
        }
        // Otherwise its own host has it still, from an association that the drive does not know to be lost.
        let why = if is_foreign || status.same_code(Status::NAMESPACE_NOT_READY) {
            self.foreign.push((flight.slot, Instant::now()));
            self.without_slots.get_or_insert_with(Instant::now);
            GivenUp::Returned
        } else {
            self.slots.put(flight.slot);
            if flight.cancelled && status.same_code(Status::ABORT_REQUESTED) {
                GivenUp::Cancelled
            } else {
                GivenUp::Failed { kind: "status", what: format!("Execute was answered with {status}") }
            }
        };
        self.engine.give_up(self.prong, flight.id, why);
    }

    /// What the agent used during the run; nothing when it is not the process that it was at the start.
    fn report_usage(&mut self) {
        let Some(now) = self.link.as_ref().and_then(Link::counters) else { return };
        let Some((before, asked)) = self.before else { return };
        if Duration::from_secs(now.uptime_s) + UPTIME_SLACK < Duration::from_secs(before.uptime_s) + asked.elapsed() {
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

/// How long an Execute behind `ahead` others is likely to take, by the time of a batch.
fn expected_s(batch_s: Option<f64>, ahead: usize) -> Option<f64> {
    Some(batch_s? * (ahead + 1) as f64)
}

/// How long it may take. `timeout` is for a batch that nothing is ahead of.
fn patience(timeout: Duration, expected_s: Option<f64>, ahead: usize) -> Duration {
    match expected_s {
        Some(expected_s) => {
            timeout.max(Duration::try_from_secs_f64(expected_s * PATIENCE).unwrap_or(Duration::MAX / 4))
        }
        None => timeout.saturating_mul(u32::try_from(ahead + 1).unwrap_or(u32::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_covers_what_is_ahead() {
        let timeout = Duration::from_secs(10);
        let of = |batch_s, ahead| patience(timeout, expected_s(batch_s, ahead), ahead);
        assert_eq!([0, 1, 3].map(|ahead| of(None, ahead).as_secs()), [10, 20, 40]);
        assert_eq!([0, 1, 3].map(|ahead| expected_s(Some(2.0), ahead)), [2.0, 4.0, 8.0].map(Some));
        assert_eq!(of(Some(0.1), 3), timeout, "never less than that of one batch");
        assert_eq!(of(Some(100.0), 3).as_secs_f64(), 400.0 * PATIENCE);
    }
}
