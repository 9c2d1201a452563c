//! Commands in flight, and reads, through the generic nodes of namespaces.
//!
//! Reads go through the generic node as well, not through the block device: that one waits, unkillably, while the path to the drive is
//! away, until `ctrl_loss_tmo` or `fast_io_fail_tmo` have passed; the generic node fails at once.

use super::GRACE;
use super::controller::KernelController;
use super::lane::{Finished, Lane, Request};
use super::passthrough::{Data, Pages};
use crate::contract::{Command, Completion, Controller, Queue, Ticket};
use crate::error::DriverError;
use crate::reads::{READS_IN_FLIGHT, ReadPlan};
use ddlp_nvme::Status;
use ddlp_nvme::code::Direction;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::time::{Duration, Instant};

pub(super) struct KernelQueue {
    controller: KernelController,
    lane: Lane,
    depth: usize,
    /// Tags of submitted commands in flight. Others are reads, whose reader may have given up.
    in_flight: HashSet<u64>,
    next_tag: u64,
    finished: VecDeque<(Ticket, Completion)>,
    /// Buffers for reads, kept for the next ones.
    spare: Vec<Pages>,
}

impl KernelQueue {
    pub(super) fn new(controller: KernelController, lane: Lane, depth: usize) -> Self {
        Self {
            controller,
            lane,
            depth,
            in_flight: HashSet::new(),
            next_tag: 0,
            finished: VecDeque::new(),
            spare: Vec::new(),
        }
    }

    fn start(&mut self, command: &Command, data: Data, within: Duration) -> Result<u64, DriverError> {
        let association = self.controller.association();
        association.check()?;
        let node = association.nodes.namespace(command.nsid)?;
        let tag = self.next_tag;
        association.start(&mut self.lane, Request { tag, node, command: *command, data, within })?;
        self.next_tag += 1;
        Ok(tag)
    }

    fn next(&mut self, until: Instant) -> Result<Option<Finished>, DriverError> {
        self.controller.association().next(&mut self.lane, until)
    }

    /// Keeps the completion of a submitted command.
    fn keep(&mut self, finished: Finished) -> Result<(), DriverError> {
        if !self.in_flight.remove(&finished.tag) {
            return Ok(());
        }
        let completion = self.controller.association().judge(finished.outcome, "a command")?;
        self.finished.push_back((Ticket(finished.tag), completion));
        Ok(())
    }

    /// Runs all reads of `plan`; gives the first status that was no success.
    fn run_reads(&mut self, mut plan: ReadPlan, buf: &mut [u8], timeout: Duration) -> Result<Status, DriverError> {
        let until = Instant::now() + timeout;
        let mut places: HashMap<u64, Range<usize>> = HashMap::new();
        let mut status = Status::SUCCESS;
        loop {
            while places.len() < READS_IN_FLIGHT && status.is_success() {
                let Some((command, place)) = plan.next() else { break };
                let pages = self.spare.pop().filter(|pages| pages.bytes().len() >= place.len());
                let pages = pages.unwrap_or_else(|| Pages::new(plan.piece_bytes()));
                let tag = self.start(&command, Data::Read(pages, place.len()), timeout + GRACE)?;
                places.insert(tag, place);
            }
            if places.is_empty() {
                return Ok(status);
            }
            let Some(finished) = self.next(until)? else {
                return Err(self.controller.association().timed_out("read", timeout));
            };
            let Some(place) = places.remove(&finished.tag) else {
                self.keep(finished)?;
                continue;
            };
            let completion = self.controller.association().judge(finished.outcome, "read")?;
            if let Data::Read(pages, length) = finished.data {
                if completion.status().is_success() {
                    buf[place].copy_from_slice(&pages.bytes()[..length]);
                }
                self.spare.push(pages);
            }
            if status.is_success() {
                status = completion.status();
            }
        }
    }
}

impl Queue for KernelQueue {
    fn submit(&mut self, command: &Command, data: Vec<u8>, within: Duration) -> Result<Ticket, DriverError> {
        if self.in_flight.len() >= self.depth {
            return Err(DriverError::Invalid(format!("{} commands are in flight already", self.in_flight.len())));
        }
        let most = self.controller.transfer_bytes_max();
        if data.len() > most {
            let bytes = data.len();
            return Err(DriverError::Invalid(format!("transfer of {bytes} bytes, at most {most} allowed")));
        }
        if !data.is_empty() && Direction::of(command.opcode) != Direction::Write {
            let opcode = command.opcode;
            return Err(DriverError::Invalid(format!("opcode {opcode:02X}h takes no data from the host")));
        }
        let data = if data.is_empty() { Data::None } else { Data::Write(data) };
        let tag = self.start(command, data, within + GRACE)?;
        self.in_flight.insert(tag);
        Ok(Ticket(tag))
    }

    fn poll(&mut self, deadline: Instant) -> Result<Option<(Ticket, Completion)>, DriverError> {
        if let Some(finished) = self.finished.pop_front() {
            return Ok(Some(finished));
        }
        while self.finished.is_empty() {
            match self.next(deadline)? {
                Some(finished) => self.keep(finished)?,
                None => break,
            }
        }
        Ok(self.finished.pop_front())
    }

    fn read_blocks(&mut self, nsid: u32, lba: u64, buf: &mut [u8], timeout: Duration) -> Result<(), DriverError> {
        let geometry = self.controller.geometry(nsid, timeout)?;
        let plan = ReadPlan::new(nsid, geometry, lba, buf.len(), self.controller.transfer_bytes_max())?;
        let status = self.run_reads(plan, buf, timeout)?;
        let what = format!("read of {} bytes at block {lba} of namespace {nsid}", buf.len());
        Completion { result: 0, status: status.0 }.success(self.controller.peer(), &what).map(drop)
    }
}
