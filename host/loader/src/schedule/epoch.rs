//! The batches of one epoch and their states.

use super::planned::PlanEpoch;
use super::strategy::Strategy;
use super::{CPU, EpochProgress, ProngId};
use std::collections::BTreeSet;

/// State of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BatchState {
    /// No prong works on it.
    Open,
    /// One or two prongs work on it.
    Working(Vec<ProngId>),
    /// Finished by this prong, not yet handed over.
    Held(ProngId),
    /// Ready for delivery.
    Ready(ProngId),
    Delivered(ProngId),
}

/// The order in which the batches of an epoch are delivered.
#[derive(Debug)]
pub(super) enum Order {
    /// 0, 1, 2, …
    Sequence,
    /// As written, each with the prong that is to make it.
    Planned(Vec<(u32, ProngId)>),
    /// The head in sequence, then from the end down. Holds where the prongs met, once delivery has turned round.
    Mte { met: Option<u32> },
    /// Any batch that is ready.
    Wrr,
}

#[derive(Debug)]
pub(super) struct Epoch {
    pub number: u32,
    pub order: Order,
    states: Vec<BatchState>,
    /// Batches below it are delivered (a lower bound for searches).
    first: u32,
    /// Batches from it on are not open (an upper bound for searches).
    open_end: u32,
    /// Batches below it are not open (a lower bound for searches).
    open_start: u32,
    open: u32,
    delivered: u32,
    /// Batches that only the CPU may still prepare: those at which a prong failed, and under `csd` those that gave way.
    failed: BTreeSet<u32>,
}

impl Epoch {
    pub fn new(number: u32, batches: u32, strategy: Strategy, plan: Option<&PlanEpoch>) -> Self {
        let order = match (plan, strategy) {
            (Some(plan), _) => Order::Planned(plan.deliveries.clone()),
            (None, Strategy::Mte) => Order::Mte { met: None },
            (None, Strategy::Wrr) => Order::Wrr,
            (None, Strategy::Cpu | Strategy::Csd | Strategy::Ordered) => Order::Sequence,
        };
        Self {
            number,
            order,
            states: vec![BatchState::Open; batches as usize],
            first: 0,
            open_start: 0,
            open_end: batches,
            open: batches,
            delivered: 0,
            failed: BTreeSet::new(),
        }
    }

    /// Marks batches as delivered in an earlier run.
    pub fn resume(&mut self, delivered: &[u32]) {
        for &batch in delivered {
            self.set(batch, BatchState::Delivered(CPU));
        }
        if let Order::Mte { met } = &mut self.order
            && matches!(self.states.last(), Some(BatchState::Delivered(_)))
        {
            *met = Some(self.first);
        }
    }

    /// Returns whether a prong failed at the batch, so that only the CPU may still prepare it.
    pub fn has_failed(&self, batch: u32) -> bool {
        self.failed.contains(&batch)
    }

    pub fn batches(&self) -> u32 {
        self.states.len() as u32
    }

    pub fn state(&self, batch: u32) -> &BatchState {
        &self.states[batch as usize]
    }

    /// Returns the first batch that is not delivered.
    pub fn first(&self) -> u32 {
        self.first
    }

    pub fn open_count(&self) -> u32 {
        self.open
    }

    pub fn is_done(&self) -> bool {
        self.delivered == self.batches()
    }

    pub fn set(&mut self, batch: u32, state: BatchState) {
        let old = std::mem::replace(&mut self.states[batch as usize], state);
        let new = &self.states[batch as usize];
        assert!(!matches!(old, BatchState::Delivered(_)), "batch {batch} was delivered before");
        match (old == BatchState::Open, *new == BatchState::Open) {
            (true, false) => self.open -= 1,
            (false, true) => {
                self.open += 1;
                self.open_start = self.open_start.min(batch);
                self.open_end = self.open_end.max(batch + 1);
            }
            _ => {}
        }
        self.delivered += u32::from(matches!(new, BatchState::Delivered(_)));
        self.tighten();
    }

    fn tighten(&mut self) {
        while self.first < self.batches() && matches!(self.states[self.first as usize], BatchState::Delivered(_)) {
            self.first += 1;
        }
        while self.open_start < self.open_end && !self.is_open(self.open_start) {
            self.open_start += 1;
        }
        while self.open_end > self.open_start && !self.is_open(self.open_end - 1) {
            self.open_end -= 1;
        }
    }

    /// Returns the open batches below `end`, upwards.
    pub fn open_up(&self, end: u32) -> impl Iterator<Item = u32> {
        (self.open_start..self.open_end.min(end)).filter(|&batch| self.is_open(batch))
    }

    /// Returns the open batches below `end`, downwards.
    pub fn open_down(&self, end: u32) -> impl Iterator<Item = u32> {
        (self.open_start..self.open_end.min(end)).rev().filter(|&batch| self.is_open(batch))
    }

    pub fn is_open(&self, batch: u32) -> bool {
        *self.state(batch) == BatchState::Open
    }

    /// Gives up a prong's claim or result. `failed`: no drive may try the batch again.
    pub fn give_up(&mut self, prong: ProngId, batch: u32, failed: bool) {
        let left = match self.state(batch).clone() {
            BatchState::Working(mut by) if by.contains(&prong) => {
                by.retain(|&other| other != prong);
                if by.is_empty() { BatchState::Open } else { BatchState::Working(by) }
            }
            BatchState::Held(holder) if holder == prong => BatchState::Open,
            _ => return,
        };
        if failed {
            self.failed.insert(batch);
        }
        self.set(batch, left);
    }

    /// Lets only the CPU prepare an open batch.
    pub fn leave_to_cpu(&mut self, batch: u32) {
        self.failed.insert(batch);
    }

    /// Reopens every batch that the prong finished but has not handed over, for the CPU alone.
    pub fn reopen_held(&mut self, prong: ProngId) {
        for batch in self.first..self.batches() {
            if *self.state(batch) == BatchState::Held(prong) {
                self.give_up(prong, batch, true);
            }
        }
    }

    pub fn delivered(&self) -> Vec<u32> {
        (0..self.batches()).filter(|&batch| matches!(self.state(batch), BatchState::Delivered(_))).collect()
    }

    pub fn meeting_point(&self) -> Option<u32> {
        match self.order {
            Order::Mte { met } => met,
            _ => None,
        }
    }

    pub fn is_planned(&self) -> bool {
        matches!(self.order, Order::Planned(_))
    }

    pub fn progress(&self) -> EpochProgress {
        let mut progress = EpochProgress { epoch: self.number, delivered: self.delivered, ..EpochProgress::default() };
        for state in &self.states {
            match state {
                BatchState::Open => {}
                BatchState::Working(by) if by[0] == CPU => progress.head += 1,
                BatchState::Held(prong) | BatchState::Ready(prong) | BatchState::Delivered(prong) if *prong == CPU => {
                    progress.head += 1;
                }
                _ => progress.tail += 1,
            }
        }
        progress
    }

    /// Returns whether `wanted` accepts the state of any batch that is not before the first undelivered one.
    pub fn any(&self, wanted: impl Fn(&BatchState) -> bool) -> bool {
        self.states[self.first as usize..].iter().any(wanted)
    }
}
