//! Commands in flight, and reads, through the generic nodes of namespaces.
//!
//! Reads do not use the block device: while the path to the drive is lost, a read of the block device waits until
//! `ctrl_loss_tmo` or `fast_io_fail_tmo` has passed, and cannot be killed. The generic node fails at once.

use super::GRACE;
use super::association::KernelAssociation;
use super::lane::{FinishedCommand, Lane};
use super::request::{Data, Pages};
use crate::checks;
use crate::contract::{BlockRead, Command, Completion, Controller, Queue, Ticket};
use crate::error::DriverError;
use crate::namespace::Geometries;
use crate::reads::{Place, ReadPlan, ReadWindow};
use ddlp_nvme::Status;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(super) struct KernelQueue {
    controller: Box<dyn Controller>,
    association: Arc<KernelAssociation>,
    geometries: Arc<Geometries>,
    lane: Lane,
    depth: usize,
    /// Tags of submitted commands in flight. Other tags belong to reads, whose reader may have given up.
    in_flight: HashSet<u64>,
    next_tag: u64,
    finished: VecDeque<(Ticket, Completion)>,
    /// Buffers kept for later reads.
    spare: Vec<Pages>,
}

impl KernelQueue {
    pub(super) fn new(
        controller: Box<dyn Controller>,
        association: Arc<KernelAssociation>,
        geometries: Arc<Geometries>,
        lane: Lane,
        depth: usize,
    ) -> Self {
        Self {
            controller,
            association,
            geometries,
            lane,
            depth,
            in_flight: HashSet::new(),
            next_tag: 0,
            finished: VecDeque::new(),
            spare: Vec::new(),
        }
    }

    fn start(&mut self, command: &Command, data: Data, within: Duration) -> Result<u64, DriverError> {
        let mut request = self.association.request(command, data, within)?;
        request.tag = self.next_tag;
        self.lane.start(request)?;
        self.next_tag += 1;
        Ok(self.next_tag - 1)
    }

    /// Keeps the completion of a submitted command.
    fn keep(&mut self, finished: FinishedCommand) -> Result<(), DriverError> {
        if !self.in_flight.remove(&finished.tag) {
            return Ok(());
        }
        self.finished.push_back((Ticket(finished.tag), finished.completion?));
        Ok(())
    }

    /// Runs all reads of `plan`. Returns the first status that is not success, if any, and the number of its buffer.
    fn run_reads(
        &mut self,
        plan: &mut ReadPlan,
        reads: &mut [BlockRead<'_>],
        timeout: Duration,
    ) -> Result<Option<(Status, usize)>, DriverError> {
        let until = Instant::now() + timeout;
        let mut places: HashMap<u64, Place> = HashMap::new();
        let (mut bytes, mut failed) = (0, None);
        loop {
            while failed.is_none()
                && let Some((command, place)) = plan.next_beside(places.len(), bytes)
            {
                let length = place.range.len();
                bytes += length;
                let pages = self.spare.pop().filter(|pages| pages.bytes().len() >= length);
                // A power of two, so that most later reads fit.
                let pages = pages.unwrap_or_else(|| Pages::new(length.next_power_of_two()));
                let tag = self.start(&command, Data::Read(pages, length), timeout + GRACE)?;
                places.insert(tag, place);
            }
            if places.is_empty() {
                return Ok(failed);
            }
            let Some(finished) = self.lane.next(until)? else {
                let (peer, what) = (self.controller.peer().to_owned(), "read".to_owned());
                return Err(DriverError::TimedOut { peer, what, after: timeout });
            };
            let Some(place) = places.remove(&finished.tag) else {
                self.keep(finished)?;
                continue;
            };
            bytes -= place.range.len();
            let status = finished.completion?.status();
            if let Data::Read(pages, length) = finished.data {
                if status.is_success() {
                    reads[place.buffer].buf[place.range].copy_from_slice(&pages.bytes()[..length]);
                }
                self.spare.push(pages);
            }
            if !status.is_success() {
                failed.get_or_insert((status, place.buffer));
            }
        }
    }
}

impl Queue for KernelQueue {
    fn submit(&mut self, command: &Command, data: Vec<u8>, within: Duration) -> Result<Ticket, DriverError> {
        let most = self.controller.transfer_bytes_max();
        checks::submission(command, data.len(), most, (self.in_flight.len(), self.depth))?;
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
            match self.lane.next(deadline)? {
                Some(finished) => self.keep(finished)?,
                None => break,
            }
        }
        Ok(self.finished.pop_front())
    }

    fn read_many(&mut self, nsid: u32, reads: &mut [BlockRead<'_>], timeout: Duration) -> Result<(), DriverError> {
        let geometry = self.geometries.of(&*self.controller, nsid, timeout)?;
        let most = self.controller.transfer_bytes_max();
        let mut plan = ReadPlan::new(nsid, geometry, reads, most, ReadWindow::NEAR)?;
        match self.run_reads(&mut plan, reads, timeout)? {
            None => Ok(()),
            Some((status, buffer)) => Err(plan.refused(self.controller.peer(), status, buffer)),
        }
    }
}
