//! The order in which the consumer gets batches.

use super::epoch::{BatchState, Epoch, Order};
use super::{BatchId, CPU, ProngId, Schedule};

impl Schedule {
    /// The batch to deliver next, when it is ready, and the prong that made it. The caller confirms by
    /// [`Self::deliver`].
    pub fn deliverable(&self) -> Option<(BatchId, ProngId)> {
        let epoch = self.epochs.front()?;
        let batch = match epoch.order {
            Order::Wrr => return self.weighted_pick(),
            _ => epoch.critical()?,
        };
        match epoch.state(batch) {
            BatchState::Ready(prong) => Some((BatchId { epoch: epoch.number, batch }, *prong)),
            _ => None,
        }
    }

    /// The consumer has the batch.
    pub fn deliver(&mut self, id: BatchId, prong: ProngId) {
        let epoch = self.epoch_mut(id.epoch).expect("a deliverable batch belongs to an active epoch");
        assert_eq!(*epoch.state(id.batch), BatchState::Ready(prong), "only what is ready is delivered");
        epoch.set(id.batch, BatchState::Delivered(prong));
        if matches!(epoch.order, Order::Wrr) {
            self.charge(prong);
        }
        self.close_epochs();
        self.turn_round();
    }

    /// True when delivery cannot go on to the next epoch without the batch, or cannot go on at all.
    pub fn is_critical(&self, id: BatchId) -> bool {
        let Some(epoch) = self.epochs.front().filter(|epoch| epoch.number == id.epoch) else { return false };
        match epoch.order {
            Order::Wrr => true,
            _ => epoch.critical() == Some(id.batch),
        }
    }

    /// True when nothing can be delivered before the batch is done, as far as the schedule knows.
    pub(super) fn is_awaited(&self, id: BatchId) -> bool {
        let any_ready = |epoch: &Epoch| epoch.any(|state| matches!(state, BatchState::Ready(_)));
        self.is_critical(id)
            && self.epochs.front().is_some_and(|epoch| !matches!(epoch.order, Order::Wrr) || !any_ready(epoch))
    }

    /// True when the last free buffer must be kept for a critical batch. A result that lies in a drive's slot frees no
    /// buffer when it is delivered, so it does not count.
    pub fn must_reserve(&self) -> bool {
        let Some(epoch) = self.epochs.front() else { return false };
        match epoch.order {
            Order::Wrr => !epoch.any(is_cpus),
            _ => epoch.critical().is_some_and(|batch| !is_cpus(epoch.state(batch))),
        }
    }

    /// `mte`: delivery turns round when it reaches a batch that is a drive's and the CPU has nothing beyond it.
    /// Called after every change, so that everybody agrees on which batch is critical.
    pub(super) fn turn_round(&mut self) {
        let Some(epoch) = self.epochs.front_mut() else { return };
        if !matches!(epoch.order, Order::Mte { met: None }) {
            return;
        }
        let at = epoch.first();
        let is_open = matches!(epoch.state(at), BatchState::Open { .. });
        if !is_open && !epoch.any(is_cpus) {
            epoch.order = Order::Mte { met: Some(at) };
        }
    }

    /// `wrr`: the prong with the largest credit that has something ready; the other ones otherwise.
    fn weighted_pick(&self) -> Option<(BatchId, ProngId)> {
        let epoch = self.epochs.front()?;
        let weights = self.weights();
        let mut ready: Vec<Option<u32>> = vec![None; self.prongs.len()];
        for batch in epoch.first()..epoch.batches() {
            if let BatchState::Ready(prong) = *epoch.state(batch) {
                // The CPU's batches go out from the head up, the drives' from the tail down.
                if prong != CPU || ready[CPU].is_none() {
                    ready[prong] = Some(batch);
                }
            }
        }
        let best = (0..ready.len())
            .filter(|&prong| ready[prong].is_some())
            .max_by(|&a, &b| (self.credits[a] + weights[a]).total_cmp(&(self.credits[b] + weights[b])))?;
        Some((BatchId { epoch: epoch.number, batch: ready[best]? }, best))
    }

    /// Smooth weighted round robin: every prong earns its weight, the chosen one pays for all.
    fn charge(&mut self, chosen: ProngId) {
        let weights = self.weights();
        for (credit, weight) in self.credits.iter_mut().zip(&weights) {
            *credit = (*credit + weight).clamp(-2.0, 2.0);
        }
        self.credits[chosen] -= 1.0;
    }

    /// Shares of the prongs by measured rate; equal while nothing is measured. They add up to 1.
    fn weights(&self) -> Vec<f64> {
        let known: Vec<f64> = self.prongs.iter().filter(|prong| prong.up).filter_map(|prong| prong.batch_s).collect();
        let mean = if known.is_empty() { 1.0 } else { known.iter().sum::<f64>() / known.len() as f64 };
        let rates: Vec<f64> = self
            .prongs
            .iter()
            .map(|prong| if prong.up { 1.0 / prong.batch_s.unwrap_or(mean).max(1e-9) } else { 0.0 })
            .collect();
        let total: f64 = rates.iter().sum();
        rates.iter().map(|rate| rate / total).collect()
    }
}

/// True while the batch takes a buffer of the CPU prong.
fn is_cpus(state: &BatchState) -> bool {
    match state {
        BatchState::Working(by) => by.contains(&CPU),
        BatchState::Held(prong) | BatchState::Ready(prong) => *prong == CPU,
        _ => false,
    }
}

impl Epoch {
    /// The one batch that must be delivered next; `None` for `wrr`, where any may be.
    pub(super) fn critical(&self) -> Option<u32> {
        if self.is_done() {
            return None;
        }
        match &self.order {
            Order::Sequence | Order::Mte { met: None } => Some(self.first()),
            Order::Mte { met: Some(_) } => (self.first()..self.batches())
                .rev()
                .find(|&batch| !matches!(self.state(batch), BatchState::Delivered(_))),
            Order::Planned(deliveries) => deliveries
                .iter()
                .map(|&(batch, _)| batch)
                .find(|&batch| !matches!(self.state(batch), BatchState::Delivered(_))),
            Order::Wrr => None,
        }
    }
}
