//! The admin queue: one command of a caller at a time, with keep alives between and during commands.

use super::deadline::Deadline;
use super::exchange::{CommandData, Done, Exchange, ExchangeStep};
use super::link::TcpLink;
use crate::contract::{AdminData, Command, Completion, Ticket};
use crate::error::DriverError;
use crate::reads::Place;
use ddlp_nvme::code::Direction;
use ddlp_nvme::{AdminOpcode, SubmissionEntry};
use std::time::{Duration, Instant};

/// Commands in flight on the admin queue: one of a caller, and one Keep Alive.
pub(super) const ADMIN_COMMANDS: usize = 2;
/// Entries of the admin submission queue, 0's based: the fewest that a controller must support (32).
pub(super) const ADMIN_ENTRIES_Z: u16 = 31;

#[derive(Debug)]
struct KeepAlive {
    timeout: Duration,
    due: Instant,
    outstanding: Option<(Ticket, Instant)>,
}

#[derive(Debug)]
pub(super) struct AdminQueue {
    exchange: Exchange,
    keep_alive: Option<KeepAlive>,
}

impl AdminQueue {
    pub(super) fn new(exchange: Exchange) -> Self {
        Self { exchange, keep_alive: None }
    }

    /// Sends a Keep Alive every half `timeout` from now on, whenever the queue has a turn.
    pub(super) fn start_keep_alive(&mut self, timeout: Duration) {
        self.keep_alive = Some(KeepAlive { timeout, due: Instant::now() + timeout / 2, outstanding: None });
    }

    pub(super) fn link(&self) -> &TcpLink {
        self.exchange.link()
    }

    pub(super) fn exchange(&mut self) -> &mut Exchange {
        &mut self.exchange
    }

    /// Runs a caller's command.
    pub(super) fn run(
        &mut self,
        command: &Command,
        data: AdminData<'_>,
        deadline: Deadline,
    ) -> Result<Completion, DriverError> {
        let entry = entry_of(command);
        let what = command.admin_name();
        let direction = Direction::of(command.opcode);
        let (transfer, sink) = match data {
            AdminData::None => (CommandData::None, &mut [][..]),
            AdminData::Write(data) if direction == Direction::Write => (CommandData::Write(data.to_vec()), &mut [][..]),
            AdminData::Read(sink) if direction == Direction::Read => {
                (CommandData::Read(Place { buffer: 0, range: 0..sink.len() }), sink)
            }
            _ => return Err(DriverError::Invalid(format!("{what} does not move data in that direction"))),
        };
        self.run_entry(entry, transfer, sink, &what, deadline).map(|done| done.completion)
    }

    /// Runs any command. If its time runs out, ends the association, since the answer may still come.
    pub(super) fn run_entry(
        &mut self,
        entry: SubmissionEntry,
        transfer: CommandData,
        sink: &mut [u8],
        what: &str,
        deadline: Deadline,
    ) -> Result<Done, DriverError> {
        let ticket = self.exchange.submit(entry, transfer)?;
        loop {
            self.tend()?;
            let wake = self.keep_alive.as_ref().map_or(deadline.at, |keep_alive| keep_alive.due.min(deadline.at));
            match self.exchange.step(&mut [&mut *sink], wake, deadline)? {
                ExchangeStep::Done(done) if done.ticket == ticket => return Ok(done),
                ExchangeStep::Done(done) => self.kept_alive(done)?,
                ExchangeStep::Progress => {}
                ExchangeStep::Idle if Instant::now() >= deadline.at => {
                    let error = deadline.timed_out(self.link().peer(), what);
                    self.link().fail(error.cause());
                    return Err(error);
                }
                ExchangeStep::Idle => {}
            }
        }
    }

    /// Takes PDUs that arrived while nobody waited, and keeps the association alive.
    pub(super) fn tick(&mut self) -> Result<(), DriverError> {
        let now = Deadline::after(Duration::ZERO);
        loop {
            match self.exchange.step(&mut [], now.at, now)? {
                ExchangeStep::Idle => return self.tend(),
                ExchangeStep::Progress => {}
                ExchangeStep::Done(done) => self.kept_alive(done)?,
            }
        }
    }

    /// Sends a Keep Alive if one is due. Fails if the last one has been unanswered for too long.
    fn tend(&mut self) -> Result<(), DriverError> {
        let now = Instant::now();
        let Some(keep_alive) = &mut self.keep_alive else { return Ok(()) };
        if now < keep_alive.due {
            return Ok(());
        }
        let timeout = keep_alive.timeout;
        keep_alive.due = now + timeout / 2;
        match keep_alive.outstanding {
            Some((_, sent)) if now.saturating_duration_since(sent) >= timeout => {
                let error = Deadline { at: now, after: timeout }.timed_out(self.link().peer(), "keep alive");
                self.link().fail(error.cause());
                Err(error)
            }
            Some(_) => Ok(()),
            None => {
                let entry = SubmissionEntry { opcode: AdminOpcode::KEEP_ALIVE.0, ..SubmissionEntry::default() };
                let ticket = self.exchange.submit(entry, CommandData::None)?;
                if let Some(keep_alive) = &mut self.keep_alive {
                    keep_alive.outstanding = Some((ticket, now));
                }
                Ok(())
            }
        }
    }

    /// Takes the answer to a Keep Alive.
    fn kept_alive(&mut self, done: Done) -> Result<(), DriverError> {
        if let Some(keep_alive) = &mut self.keep_alive {
            keep_alive.outstanding = None;
        }
        let outcome = done.completion.success(self.link().peer(), "keep alive").map(drop);
        outcome.inspect_err(|error| self.link().fail(error.cause()))
    }
}

/// Makes the entry of a command; the exchange fills in identifier and data pointer.
pub(super) fn entry_of(command: &Command) -> SubmissionEntry {
    let entry = SubmissionEntry {
        opcode: command.opcode,
        nsid: command.nsid.into(),
        cdw2: command.cdw2.into(),
        cdw3: command.cdw3.into(),
        ..SubmissionEntry::default()
    };
    entry.with_dwords(command.cdw10_15)
}
