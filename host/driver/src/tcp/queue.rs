//! An I/O queue: commands in flight, and reads straight into the caller's buffer.

use super::admin::entry_of;
use super::deadline::Deadline;
use super::exchange::{CommandData, Exchange, ExchangeStep};
use super::pool::QueuePool;
use crate::checks;
use crate::contract::{AbortOutcome, AdminData, BlockRead, Command, Completion, Controller, Queue, Ticket};
use crate::error::DriverError;
use crate::namespace::Geometries;
use crate::reads::{Place, ReadPlan, ReadWindow};
use ddlp_nvme::admin::Abort;
use ddlp_nvme::{AdminOpcode, Status};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(super) struct TcpQueue {
    controller: Box<dyn Controller>,
    pool: Arc<QueuePool>,
    geometries: Arc<Geometries>,
    queue_id: u16,
    /// Exchange of the queue; `Some` until the queue is dropped.
    exchange: Option<Exchange>,
    depth: usize,
    window: ReadWindow,
    in_flight: usize,
    /// First ticket of this user; smaller tickets belong to an earlier user of the connection.
    first: Ticket,
    finished: VecDeque<(Ticket, Completion)>,
}

impl TcpQueue {
    /// Makes a queue for a user who submits up to `depth` commands, beside the reads of a window. The pool gets the
    /// exchange back.
    pub(super) fn new(
        controller: Box<dyn Controller>,
        pool: Arc<QueuePool>,
        geometries: Arc<Geometries>,
        (queue_id, exchange): (u16, Exchange),
        (depth, window): (usize, ReadWindow),
    ) -> Self {
        let first = exchange.next_ticket();
        Self {
            controller,
            pool,
            geometries,
            queue_id,
            exchange: Some(exchange),
            depth,
            window,
            in_flight: 0,
            first,
            finished: VecDeque::new(),
        }
    }

    fn exchange(&mut self) -> &mut Exchange {
        let Some(exchange) = self.exchange.as_mut() else {
            unreachable!("a queue has its exchange until it is dropped")
        };
        exchange
    }

    /// Keeps the completion of a submitted command; drops those of an earlier user's commands.
    fn keep(&mut self, ticket: Ticket, completion: Completion) {
        if ticket >= self.first {
            self.in_flight -= 1;
            self.finished.push_back((ticket, completion));
        }
    }

    /// Runs all reads of `plan`. Returns the first status that is not success, if any, and the number of its buffer.
    fn run_reads(
        &mut self,
        plan: &mut ReadPlan,
        sinks: &mut [&mut [u8]],
        deadline: Deadline,
    ) -> Result<Option<(Status, usize)>, DriverError> {
        let mut reads: Vec<(Ticket, Place)> = Vec::with_capacity(self.window.commands);
        let (mut bytes, mut failed) = (0, None);
        loop {
            while failed.is_none()
                && let Some((command, place)) = plan.next_beside(reads.len(), bytes)
            {
                bytes += place.range.len();
                let ticket = self.exchange().submit(entry_of(&command), CommandData::Read(place.clone()))?;
                reads.push((ticket, place));
            }
            if reads.is_empty() {
                return Ok(failed);
            }
            match self.exchange().step(sinks, deadline.at, deadline)? {
                ExchangeStep::Progress => {}
                ExchangeStep::Idle => {
                    let link = self.exchange().link();
                    let error = deadline.timed_out(link.peer(), "read");
                    link.fail(error.cause());
                    return Err(error);
                }
                ExchangeStep::Done(done) => match reads.iter().position(|(ticket, _)| *ticket == done.ticket) {
                    None => self.keep(done.ticket, done.completion),
                    Some(index) => {
                        let (_, place) = reads.swap_remove(index);
                        bytes -= place.range.len();
                        let status = done.completion.status();
                        if !status.is_success() {
                            failed.get_or_insert((status, place.buffer));
                        }
                    }
                },
            }
        }
    }
}

impl Drop for TcpQueue {
    fn drop(&mut self) {
        if let Some(exchange) = self.exchange.take() {
            self.pool.park(self.queue_id, exchange);
        }
    }
}

impl Queue for TcpQueue {
    fn submit(&mut self, command: &Command, data: Vec<u8>, _within: Duration) -> Result<Ticket, DriverError> {
        let most = self.controller.transfer_bytes_max();
        checks::submission(command, data.len(), most, (self.in_flight, self.depth))?;
        let transfer = if data.is_empty() { CommandData::None } else { CommandData::Write(data) };
        let ticket = self.exchange().submit(entry_of(command), transfer)?;
        self.in_flight += 1;
        Ok(ticket)
    }

    fn poll(&mut self, deadline: Instant) -> Result<Option<(Ticket, Completion)>, DriverError> {
        let deadline = Deadline { at: deadline, after: Duration::ZERO };
        loop {
            if let Some(finished) = self.finished.pop_front() {
                return Ok(Some(finished));
            }
            match self.exchange().step(&mut [], deadline.at, deadline)? {
                ExchangeStep::Idle => return Ok(None),
                ExchangeStep::Progress => {}
                ExchangeStep::Done(done) => self.keep(done.ticket, done.completion),
            }
        }
    }

    fn read_many(&mut self, nsid: u32, reads: &mut [BlockRead<'_>], timeout: Duration) -> Result<(), DriverError> {
        let deadline = Deadline::after(timeout);
        let geometry = self.geometries.of(&*self.controller, nsid, timeout)?;
        let mut plan = ReadPlan::new(nsid, geometry, reads, self.controller.transfer_bytes_max(), self.window)?;
        let mut sinks: Vec<&mut [u8]> = reads.iter_mut().map(|read| &mut *read.buf).collect();
        match self.run_reads(&mut plan, &mut sinks, deadline)? {
            None => Ok(()),
            Some((status, buffer)) => Err(plan.refused(self.controller.peer(), status, buffer)),
        }
    }

    fn abort(&mut self, ticket: Ticket, timeout: Duration) -> Result<AbortOutcome, DriverError> {
        let queue_id = self.queue_id;
        let Some(command_id) = self.exchange().command_id(ticket).filter(|_| ticket >= self.first) else {
            return Ok(AbortOutcome::NotInFlight);
        };
        let request = Abort { queue_id, command_id };
        let command = Command { opcode: AdminOpcode::ABORT.0, cdw10_15: request.dwords(), ..Command::default() };
        let completion = self.controller.admin(&command, AdminData::None, timeout)?;
        let result = completion.success(self.controller.peer(), "abort")?;
        Ok(if Abort::was_aborted(result) { AbortOutcome::Aborted } else { AbortOutcome::NotAborted })
    }
}
