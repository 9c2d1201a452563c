//! The thread of a drive prong: it keeps Execute commands in flight, takes results out of the slots, and survives whatever
//! happens to the drive.
//!
//! A batch whose Execute fails, whose result is damaged, or whose association is lost goes back to the schedule; nothing
//! that a drive does can lose a sample.

use super::local::RESTARTS_MAX;
use super::{Endpoint, Expected, Link, LinkError, SlotLease, SlotTable, connect};
use crate::batch::Pixels;
use crate::buffers::PooledBuffer;
use crate::engine::Engine;
use crate::schedule::{BatchId, Finished, ProngId, Room};
use ddlp_csd::BLOCK_BYTES;
use ddlp_csd::log::Counters;
use ddlp_csd::request::BatchRequest;
use ddlp_csd::slot::{HEADER_BYTES, SampleRecord, SlotError, SlotHeader, SlotLayout};
use ddlp_driver::{Backoff, BackoffLimits, Completion, DriverError, Ticket};
use ddlp_nvme::Status;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the thread waits for a completion before it looks for other work.
const POLL_SLICE: Duration = Duration::from_millis(5);
/// The same while nothing else can turn up.
const POLL_SLICE_FULL: Duration = Duration::from_millis(20);
/// A drive has this many times its expected time for what is queued, if that is longer than the configured time-out.
const PATIENCE: f64 = 10.0;
/// A local agent that is running but cannot be reached for this long is started again.
const UNREACHABLE: Duration = Duration::from_secs(10);
/// How long a slot that another host has is left alone.
const FOREIGN_LOOK: Duration = Duration::from_secs(1);
/// How often a drive is tried again: the first delays double up to two seconds; a run that lasts goes on trying.
const BACKOFF: BackoffLimits =
    BackoffLimits { first: Duration::from_millis(100), cap: Duration::from_secs(2), attempts_max: u32::MAX };

/// An Execute in flight.
struct Flight {
    ticket: Ticket,
    id: BatchId,
    slot: u32,
    generation: u64,
    sample_ids: Vec<u64>,
    deadline: Instant,
    cancelled: bool,
}

/// A finished batch that lies in its slot and waits for a buffer.
struct Held {
    id: BatchId,
    slot: u32,
    generation: u64,
    sample_ids: Vec<u64>,
}

/// Why a result cannot be used.
#[derive(Debug, thiserror::Error)]
enum ResultError {
    #[error(transparent)]
    Slot(#[from] SlotError),
    #[error(transparent)]
    Driver(#[from] DriverError),
}

/// One drive and its thread's state.
pub(crate) struct DriveProng {
    engine: Arc<Engine>,
    prong: ProngId,
    endpoint: Endpoint,
    expected: Expected,
    link: Option<Link>,
    slots: Arc<SlotTable>,
    flights: Vec<Flight>,
    held: VecDeque<Held>,
    /// Slots that another host has, and when that was seen.
    foreign: Vec<(u32, Instant)>,
    generation: u64,
    depth: usize,
    timeout: Duration,
    first_counters: Option<Counters>,
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
        Self {
            engine,
            prong: setup.prong,
            endpoint,
            expected,
            first_counters: link.counters(),
            link: Some(link),
            slots: Arc::new(slots),
            flights: Vec::new(),
            held: VecDeque::new(),
            foreign: Vec::new(),
            generation,
            depth: setup.depth,
            timeout: setup.timeout,
        }
    }

    /// The thread of the prong; returns when the run is over.
    pub fn run(mut self) {
        while !self.is_over() {
            if self.link.is_some() {
                if let Err(error) = self.serve() {
                    self.lose_link(&error);
                }
            } else if !self.rejoin() {
                break;
            }
        }
        self.report_usage();
        // The association ends before its agent does.
        self.link = None;
    }

    fn is_over(&self) -> bool {
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
        if let Some((ticket, completion)) = link.execute_queue().poll(until)? {
            self.complete(ticket, completion);
        }
        self.check_deadlines()
    }

    /// Tells the drive to stop work on batches that another prong finished first.
    fn cancel_lost(&mut self) -> Result<(), DriverError> {
        let lost = self.engine.lock().schedule.take_cancels(self.prong);
        for id in lost {
            if let Some(flight) = self.flights.iter_mut().find(|flight| flight.id == id) {
                flight.cancelled = true;
                self.link.as_ref().expect("served only with a link").cancel(id)?;
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
                seed: task.seed,
                epoch: id.epoch,
                batch: id.batch,
                slot,
                generation: self.generation,
                epoch_samples: task.cut.samples,
                sample_ids,
            };
            let submitted = self.link.as_mut().expect("served only with a link").execute(&request);
            let flight = Flight {
                ticket: *submitted.as_ref().unwrap_or(&Ticket(u64::MAX)),
                id,
                slot,
                generation: self.generation,
                sample_ids: request.sample_ids,
                deadline: Instant::now() + self.patience(),
                cancelled: false,
            };
            self.flights.push(flight);
            submitted?;
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

    /// How long an Execute may take that is submitted now.
    fn patience(&self) -> Duration {
        let batch_s = self.engine.lock().schedule.batch_s(self.prong).unwrap_or(0.0);
        let expected_s = batch_s * (self.flights.len() + 1) as f64;
        self.timeout.max(Duration::try_from_secs_f64(expected_s * PATIENCE).unwrap_or(Duration::MAX / 4))
    }

    fn check_deadlines(&self) -> Result<(), DriverError> {
        let now = Instant::now();
        match self.flights.iter().find(|flight| flight.deadline < now) {
            None => Ok(()),
            Some(flight) => Err(DriverError::TimedOut {
                peer: "drive".into(),
                what: format!("Execute of epoch {} batch {}", flight.id.epoch, flight.id.batch),
                after: self.timeout,
            }),
        }
    }

    fn complete(&mut self, ticket: Ticket, completion: Completion) {
        let Some(at) = self.flights.iter().position(|flight| flight.ticket == ticket) else { return };
        let flight = self.flights.swap_remove(at);
        if completion.status != 0 {
            return self.give_up(flight, completion.status);
        }
        let mut core = self.engine.lock();
        let now = core.recorder.now();
        let used = core.schedule.executed(self.prong, flight.id, now) == Finished::Used;
        core.recorder.released(self.prong, flight.id, used);
        drop(core);
        let held =
            Held { id: flight.id, slot: flight.slot, generation: flight.generation, sample_ids: flight.sample_ids };
        if !used {
            self.slots.put(held.slot);
        } else if self.slots.is_shared() {
            self.hand_over_shared(held);
        } else {
            self.held.push_back(held);
        }
    }

    /// An Execute that did not succeed.
    fn give_up(&mut self, flight: Flight, status: u16) {
        let mut core = self.engine.lock();
        core.recorder.released(self.prong, flight.id, false);
        if Status(status).same_code(Status::INSUFFICIENT_RESOURCES) {
            // Another host of this drive has the slot.
            core.schedule.returned(self.prong, flight.id);
            core.recorder.note("the drive's result slots are shared with another host".into());
            self.foreign.push((flight.slot, Instant::now()));
            return;
        }
        self.slots.put(flight.slot);
        if flight.cancelled && Status(status).same_code(Status::ABORT_REQUESTED) {
            core.schedule.cancelled(self.prong, flight.id);
        } else {
            core.schedule.failed(self.prong, flight.id);
            let status = Status(status);
            core.recorder.fault(self.prong, Some(flight.id), "status", format!("Execute was answered with {status}"));
        }
        drop(core);
        self.engine.wake_workers();
    }

    /// Checks a result in shared memory and makes it ready in place.
    fn hand_over_shared(&mut self, held: Held) {
        let checked = self.slots.bytes(held.slot).ok_or(SlotError::TooShort(0)).and_then(|slot| {
            let (header, records) = check_head(slot, &held)?;
            let offset = header.layout().map_or(slot.len(), |layout| layout.payload_offset);
            let payload = offset..offset + header.payload_bytes();
            header.check_payload(slot.get(payload.clone()).ok_or(SlotError::Inconsistent("payload extent"))?)?;
            Ok((records, payload))
        });
        match checked {
            Ok((records, payload)) => {
                let lease = SlotLease::new(self.slots.clone(), held.slot, payload);
                self.engine.make_ready(&mut self.engine.lock(), self.prong, held.id, records, Pixels::Slot(lease));
            }
            Err(error) => self.refuse_result(held, &error),
        }
    }

    fn refuse_result(&mut self, held: Held, error: &SlotError) {
        self.slots.put(held.slot);
        let mut core = self.engine.lock();
        core.schedule.failed(self.prong, held.id);
        core.recorder.fault(self.prong, Some(held.id), "damaged", error.to_string());
        drop(core);
        self.engine.wake_workers();
    }

    /// Reads finished batches out of their slots, as far as there are buffers for them.
    fn fetch_held(&mut self) -> Result<(), DriverError> {
        let mut at = 0;
        while at < self.held.len() {
            let id = self.held[at].id;
            let mut core = self.engine.lock();
            let is_wanted = core.schedule.is_wanted(self.prong, id);
            let has_room = match self.engine.buffer_room(&core) {
                Some(Room::Any) => true,
                Some(Room::Critical) => core.schedule.is_critical(id),
                None => false,
            };
            if is_wanted && !has_room {
                at += 1;
                continue;
            }
            let buffer = if is_wanted { self.engine.pool.take() } else { Ok(None) };
            drop(core);
            let held = self.held.remove(at).expect("checked above");
            match buffer {
                Ok(Some(mut buffer)) => match self.read_result(&held, &mut buffer) {
                    Ok(records) => {
                        self.slots.put(held.slot);
                        let pixels = Pixels::Pooled(PooledBuffer::new(buffer, self.engine.pool.clone()));
                        core = self.engine.lock();
                        self.engine.make_ready(&mut core, self.prong, held.id, records, pixels);
                    }
                    Err(error) => {
                        self.engine.pool.put(buffer);
                        match error {
                            ResultError::Slot(error) => self.refuse_result(held, &error),
                            ResultError::Driver(error) => {
                                self.held.push_back(held);
                                return Err(error);
                            }
                        }
                    }
                },
                // Another prong was first, or memory was refused: the schedule's state tells.
                Ok(None) | Err(_) => {
                    self.slots.put(held.slot);
                    self.engine.lock().schedule.failed(self.prong, held.id);
                }
            }
        }
        Ok(())
    }

    fn read_result(&mut self, held: &Held, buffer: &mut [u8]) -> Result<Vec<SampleRecord>, ResultError> {
        let link = self.link.as_mut().expect("served only with a link");
        let samples = held.sample_ids.len();
        let layout = SlotLayout::new(samples, self.engine.task.shape).expect("the builder checked the batch");
        let mut head = vec![0; layout.payload_offset];
        link.read_slot(held.slot, 0, &mut head, self.timeout)?;
        let (header, records) = check_head(&head, held)?;
        let padded = header.payload_bytes().next_multiple_of(BLOCK_BYTES);
        let target = buffer.get_mut(..padded).ok_or(SlotError::Inconsistent("payload larger than the batch"))?;
        link.read_slot(held.slot, layout.payload_offset, target, self.timeout)?;
        header.check_payload(&target[..header.payload_bytes()])?;
        Ok(records)
    }

    /// The association is gone: everything in flight goes back to the schedule.
    fn lose_link(&mut self, error: &DriverError) {
        self.link = None;
        let kind = if matches!(error, DriverError::TimedOut { .. }) { "timeout" } else { "lost" };
        let batch = self.flights.first().map(|flight| flight.id);
        let mut core = self.engine.lock();
        for flight in self.flights.drain(..) {
            core.recorder.released(self.prong, flight.id, false);
            self.slots.put(flight.slot);
        }
        for held in self.held.drain(..) {
            self.slots.put(held.slot);
        }
        for (slot, _) in self.foreign.drain(..) {
            self.slots.put(slot);
        }
        core.schedule.prong_down(self.prong);
        core.recorder.fault(self.prong, batch, kind, error.to_string());
        drop(core);
        self.engine.wake_workers();
    }

    /// Tries until the drive works again; false when it never will, or the run is over.
    fn rejoin(&mut self) -> bool {
        let mut backoff = Backoff::new(BACKOFF, self.prong as u64);
        let unreachable_since = Instant::now();
        let mut restarts = 0;
        while !self.is_over() {
            if let Some(agent) = &mut self.endpoint.agent {
                let is_hung = unreachable_since.elapsed() > UNREACHABLE * (restarts + 1);
                if !agent.is_running() || is_hung {
                    restarts += 1;
                    if restarts > RESTARTS_MAX {
                        self.fault("refused", format!("its agent was started {} times in vain", RESTARTS_MAX));
                        return false;
                    }
                    let restarted = Endpoint::restart(agent, &mut self.endpoint.target);
                    match restarted {
                        Ok(()) => self.fault("restart", "its agent was started again".into()),
                        Err(error) => self.fault("restart", format!("its agent cannot be started again: {error}")),
                    }
                }
            }
            match connect(&self.endpoint, &self.expected, &self.engine.task.program, self.depth) {
                Ok(link) => {
                    self.link = Some(link);
                    self.engine.lock().schedule.prong_up(self.prong);
                    self.fault("rejoined", "the drive works again".into());
                    return true;
                }
                Err(LinkError::Refused(reason)) => {
                    self.fault("refused", reason);
                    return false;
                }
                Err(LinkError::Driver(error)) if error.is_transient() => tracing::debug!("drive still away: {error}"),
                Err(LinkError::Driver(error)) => {
                    self.fault("refused", error.to_string());
                    return false;
                }
            }
            if self.engine.sleep(backoff.next_delay().unwrap_or(BACKOFF.cap)) {
                return false;
            }
        }
        false
    }

    fn fault(&self, kind: &'static str, what: String) {
        self.engine.lock().recorder.fault(self.prong, None, kind, what);
    }

    /// What the agent used during the run.
    fn report_usage(&mut self) {
        let Some(counters) = self.link.as_ref().and_then(Link::counters) else { return };
        let first = self.first_counters.unwrap_or_default();
        let cpu_s = counters.cpu_us.saturating_sub(first.cpu_us) as f64 / 1e6;
        let energy_j = match (counters.energy_mj, first.energy_mj) {
            (Some(end), Some(start)) => Some(end.saturating_sub(start) as f64 / 1e3),
            _ => None,
        };
        let peak_mb = counters.peak_rss_bytes as f64 / 1e6;
        self.engine.lock().recorder.drive_usage(self.prong, Some(cpu_s), Some(peak_mb), energy_j);
    }
}

/// Checks header and sample table against what was asked for. `head` holds at least both.
fn check_head(head: &[u8], held: &Held) -> Result<(SlotHeader, Vec<SampleRecord>), SlotError> {
    let header = SlotHeader::parse(head)?;
    header.check_is(held.id.epoch, held.id.batch, held.generation)?;
    let layout = header.layout().ok_or(SlotError::Inconsistent("sample count"))?;
    let table = head.get(HEADER_BYTES..HEADER_BYTES + layout.table_bytes()).ok_or(SlotError::Table)?;
    let records = header.parse_table(table, &held.sample_ids)?;
    Ok((header, records))
}
