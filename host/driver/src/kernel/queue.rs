//! Commands in flight, and reads, through the generic nodes of namespaces.
//!
//! Reads do not use the block device: while the path to the drive is lost, a read of the block device waits until
//! `ctrl_loss_tmo` or `fast_io_fail_tmo` has passed, and cannot be killed. The generic node fails at once.

use super::GRACE;
use super::association::KernelAssociation;
use super::lane::{FinishedCommand, Lane};
use super::request::{Data, Pages};
use crate::checks;
use crate::contract::{Command, Completion, Controller, Queue, Ticket};
use crate::error::DriverError;
use crate::namespace::Geometries;
use crate::reads::{READS_IN_FLIGHT, ReadPlan};
use ddlp_nvme::Status;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
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

    /// Runs all reads of `plan`; returns the first status that is not success, if any.
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
            let Some(finished) = self.lane.next(until)? else {
                let (peer, what) = (self.controller.peer().to_owned(), "read".to_owned());
                return Err(DriverError::TimedOut { peer, what, after: timeout });
            };
            let Some(place) = places.remove(&finished.tag) else {
                self.keep(finished)?;
                continue;
            };
            let completion = finished.completion?;
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

    fn read_blocks(&mut self, nsid: u32, lba: u64, buf: &mut [u8], timeout: Duration) -> Result<(), DriverError> {
        let geometry = self.geometries.of(&*self.controller, nsid, timeout)?;
        let plan = ReadPlan::new(nsid, geometry, lba, buf.len(), self.controller.transfer_bytes_max())?;
        let what = plan.what();
        let status = self.run_reads(plan, buf, timeout)?;
        Completion { result: 0, status: status.0 }.success(self.controller.peer(), &what).map(drop)
    }
}
