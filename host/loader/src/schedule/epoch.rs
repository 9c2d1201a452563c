//! The batches of one epoch and their states.

use super::{CPU, EpochProgress, ProngId, Strategy};
use crate::plan::PlanEpoch;
use std::collections::BTreeSet;

/// State of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BatchState {
    /// No prong works on it. `failed`: only the CPU may still prepare it.
    Open {
        failed: bool,
    },
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
    /// Batches at which a prong failed.
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
            states: vec![BatchState::Open { failed: false }; batches as usize],
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

    /// Returns whether a prong failed at the batch before.
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
        if matches!(self.states[batch as usize], BatchState::Open { failed: true }) {
            self.failed.insert(batch);
        }
        let was_open = matches!(old, BatchState::Open { .. });
        let new = &self.states[batch as usize];
        assert!(!matches!(old, BatchState::Delivered(_)), "batch {batch} was delivered before");
        match (was_open, matches!(new, BatchState::Open { .. })) {
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
        let is_open = |state: &BatchState| matches!(state, BatchState::Open { .. });
        while self.first < self.batches() && matches!(self.states[self.first as usize], BatchState::Delivered(_)) {
            self.first += 1;
        }
        while self.open_start < self.open_end && !is_open(&self.states[self.open_start as usize]) {
            self.open_start += 1;
        }
        while self.open_end > self.open_start && !is_open(&self.states[self.open_end as usize - 1]) {
            self.open_end -= 1;
        }
    }

    /// Returns the open batches below `end`, upwards, each with its `failed` flag.
    pub fn open_up(&self, end: u32) -> impl Iterator<Item = (u32, bool)> {
        (self.open_start..self.open_end.min(end)).filter_map(|batch| self.open_at(batch))
    }

    /// Returns the open batches below `end`, downwards.
    pub fn open_down(&self, end: u32) -> impl Iterator<Item = (u32, bool)> {
        (self.open_start..self.open_end.min(end)).rev().filter_map(|batch| self.open_at(batch))
    }

    pub fn open_at(&self, batch: u32) -> Option<(u32, bool)> {
        match self.state(batch) {
            BatchState::Open { failed } => Some((batch, *failed)),
            _ => None,
        }
    }

    /// Gives up a prong's claim or result. `failed`: no drive may try the batch again.
    pub fn give_up(&mut self, prong: ProngId, batch: u32, failed: bool) {
        match self.state(batch).clone() {
            BatchState::Working(mut by) if by.contains(&prong) => {
                by.retain(|&other| other != prong);
                let left = if by.is_empty() { BatchState::Open { failed } } else { BatchState::Working(by) };
                self.set(batch, left);
            }
            BatchState::Held(holder) if holder == prong => self.set(batch, BatchState::Open { failed }),
            _ => {}
        }
    }

    /// Reopens every batch that the prong finished but has not handed over.
    pub fn reopen_held(&mut self, prong: ProngId) {
        for batch in self.first..self.batches() {
            if *self.state(batch) == BatchState::Held(prong) {
                self.set(batch, BatchState::Open { failed: true });
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
                BatchState::Open { .. } => {}
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
