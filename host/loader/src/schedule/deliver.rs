//! The order in which the consumer gets batches.

use super::epoch::{BatchState, Epoch, Order};
use super::{BatchId, CPU, ProngId, Schedule, Strategy};

impl Schedule {
    /// Returns the batch to deliver next, if it is ready, and the prong that prepared it. The caller confirms by
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

    /// Records that the consumer has the batch.
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

    /// Returns whether the batch is critical: delivery cannot reach the next epoch, or cannot continue at all, without
    /// it.
    pub fn is_critical(&self, id: BatchId) -> bool {
        let Some(epoch) = self.epochs.front().filter(|epoch| epoch.number == id.epoch) else { return false };
        match epoch.order {
            Order::Wrr => true,
            _ => epoch.critical() == Some(id.batch),
        }
    }

    /// Returns whether the batch is awaited: critical, and as far as the schedule knows, nothing can be delivered
    /// before it.
    pub fn is_awaited(&self, id: BatchId) -> bool {
        let any_ready = |epoch: &Epoch| epoch.any(|state| matches!(state, BatchState::Ready(_)));
        self.is_critical(id)
            && self.epochs.front().is_some_and(|epoch| !matches!(epoch.order, Order::Wrr) || !any_ready(epoch))
    }

    /// Gives up the ready batch that would be delivered last among those that `may_go`, and returns it with the prong
    /// that prepared it. Any prong may claim the batch again, unless a prong failed at it; under `csd` the CPU alone
    /// may.
    pub fn give_way(&mut self, may_go: impl Fn(BatchId) -> bool) -> Option<(BatchId, ProngId)> {
        let last = |epoch: &Epoch| {
            let ready = (epoch.first()..epoch.batches()).filter_map(|batch| match *epoch.state(batch) {
                BatchState::Ready(maker) => Some((BatchId { epoch: epoch.number, batch }, maker)),
                _ => None,
            });
            ready.filter(|&(id, _)| may_go(id)).max_by_key(|&(id, maker)| epoch.delivery_key(id.batch, maker))
        };
        let (id, maker) = self.epochs.iter().rev().find_map(last)?;
        let is_csd = self.config.strategy == Strategy::Csd;
        let epoch = self.epoch_mut(id.epoch).expect("found there");
        epoch.set(id.batch, BatchState::Open);
        if is_csd {
            // The slots of all drives may be full of later batches, which wait for this one.
            epoch.leave_to_cpu(id.batch);
        }
        self.turn_round();
        Some((id, maker))
    }

    /// Returns whether the last free buffer must be kept for a critical batch. A result in a drive's slot does not
    /// count, since its delivery frees no buffer; nor does a batch that the CPU has not begun, since it has no buffer.
    pub fn must_reserve(&self) -> bool {
        let Some(epoch) = self.epochs.front() else { return false };
        let has_buffer = |batch: u32| {
            is_cpus(epoch.state(batch)) && !self.prongs[CPU].will_begin(BatchId { epoch: epoch.number, batch })
        };
        match epoch.order {
            Order::Wrr => !(epoch.first()..epoch.batches()).any(has_buffer),
            _ => epoch.critical().is_some_and(|batch| !has_buffer(batch)),
        }
    }

    /// Returns whether a drive must keep its last free slot for the batch that is delivered next: in order, a drive
    /// whose slots are full of later batches could not take that batch over from a prong that is slow or stalls.
    pub fn must_reserve_slot(&self, prong: ProngId) -> bool {
        let Some(epoch) = self.epochs.front().filter(|_| self.config.strategy.is_sequential()) else { return false };
        let is_its = |state: &BatchState| match state {
            BatchState::Working(by) => by.contains(&prong),
            BatchState::Held(maker) | BatchState::Ready(maker) => *maker == prong,
            _ => false,
        };
        epoch.critical().is_some_and(|batch| !is_its(epoch.state(batch)))
    }

    /// Turns delivery round under `mte`, when it reaches a drive's batch and the CPU has none beyond it. Called after
    /// every change, so that all decisions agree on which batch is critical.
    pub(super) fn turn_round(&mut self) {
        let Some(epoch) = self.epochs.front_mut() else { return };
        if !matches!(epoch.order, Order::Mte { met: None }) {
            return;
        }
        let at = epoch.first();
        if !epoch.is_open(at) && !epoch.any(is_cpus) {
            epoch.order = Order::Mte { met: Some(at) };
        }
    }

    /// Chooses the next batch under `wrr`: one of the prong with the largest credit among those that have one ready.
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

    /// Updates the credits by smooth weighted round robin: every prong earns its weight, and the chosen one pays for
    /// all.
    fn charge(&mut self, chosen: ProngId) {
        let weights = self.weights();
        for (credit, weight) in self.credits.iter_mut().zip(&weights) {
            *credit = (*credit + weight).clamp(-2.0, 2.0);
        }
        self.credits[chosen] -= 1.0;
    }

    /// Returns the prongs' shares by measured rate, equal while no rate is known. The shares add up to 1.
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

/// Returns whether the CPU prong has the batch, whose rows lie in a buffer once they are made.
fn is_cpus(state: &BatchState) -> bool {
    match state {
        BatchState::Working(by) => by.contains(&CPU),
        BatchState::Held(prong) | BatchState::Ready(prong) => *prong == CPU,
        _ => false,
    }
}

impl Epoch {
    /// Returns a key that sorts ready batches by their order of delivery, as far as that is known.
    fn delivery_key(&self, batch: u32, maker: ProngId) -> i64 {
        let number = i64::from(batch);
        match &self.order {
            Order::Mte { met: Some(_) } => -number,
            // The tail comes after the head, and downwards.
            Order::Mte { met: None } if maker != CPU => 2 * i64::from(self.batches()) - number,
            Order::Planned(deliveries) => {
                deliveries.iter().position(|&(planned, _)| planned == batch).map_or(i64::MAX, |at| at as i64)
            }
            _ => number,
        }
    }

    /// Returns the one batch that must be delivered next; `None` for `wrr`, where any batch may be.
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

#[cfg(test)]
mod tests;
