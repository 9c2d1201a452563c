//! The order of samples: global, and determined by the seed and the epoch alone.
//!
//! The samples of an epoch ([`walks`]) are cut into global batches. Each step takes one global batch, and each rank
//! prepares its share of that batch. So the global batches do not depend on the number of ranks.

mod walks;

pub use walks::Portion;
pub(crate) use walks::{Walks, described, portions_of};

use crate::schedule::BatchId;
use std::io;
use std::sync::Arc;

/// Treatment of a last batch that the samples do not fill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum LastBatch {
    /// Delivered with fewer samples.
    #[default]
    Short,
    /// Left out.
    Drop,
    /// Filled with the first samples of the epoch's order.
    Pad,
}

/// The division of an epoch into batches and shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochCut {
    /// Samples of an epoch.
    pub samples: u64,
    /// Samples of a global batch.
    pub batch: u64,
    /// Treatment of the last batch.
    pub last: LastBatch,
    /// This rank, below `world`.
    pub rank: u64,
    /// Number of ranks.
    pub world: u64,
}

impl EpochCut {
    /// Returns the number of global batches of an epoch, which is also the number of steps of every rank.
    pub fn batches(&self) -> u64 {
        match self.last {
            LastBatch::Drop => self.samples / self.batch,
            LastBatch::Short | LastBatch::Pad => self.samples.div_ceil(self.batch),
        }
    }

    /// Returns the largest share of a batch that one rank gets.
    pub fn rows(&self) -> usize {
        let batch = match self.last {
            LastBatch::Short => self.batch.min(self.samples),
            LastBatch::Drop | LastBatch::Pad => self.batch,
        };
        usize::try_from(batch.div_ceil(self.world)).unwrap_or(usize::MAX)
    }

    /// Returns the positions in the epoch's order that form this rank's share of global batch `batch`. Positions past
    /// the end wrap (padding).
    fn share(&self, batch: u64) -> std::ops::Range<u64> {
        let start = batch * self.batch;
        let size = match self.last {
            LastBatch::Short => self.batch.min(self.samples - start),
            LastBatch::Drop | LastBatch::Pad => self.batch,
        };
        let part = |rank: u64| start + (u128::from(size) * u128::from(rank) / u128::from(self.world)) as u64;
        part(self.rank)..part(self.rank + 1)
    }
}

/// The order of one epoch.
#[derive(Debug)]
pub struct EpochOrder {
    cut: EpochCut,
    ids: Vec<u64>,
}

impl EpochOrder {
    /// Makes the order of an epoch. Fails if the system refuses memory.
    pub fn new(walks: &Walks, epoch: u32, cut: EpochCut) -> io::Result<Self> {
        Ok(Self { cut, ids: walks.sample_ids(epoch)? })
    }

    /// Returns the sample ids of this rank's share of global batch `batch`.
    pub fn sample_ids(&self, batch: u32) -> Vec<u64> {
        let samples = self.ids.len() as u64;
        self.cut.share(u64::from(batch)).map(|at| self.ids[(at % samples) as usize]).collect()
    }
}

/// The orders of the epochs from which prongs claim batches.
pub(crate) struct Orders {
    walks: Arc<Walks>,
    cut: EpochCut,
    made: Vec<(u32, Arc<EpochOrder>)>,
}

impl Orders {
    pub fn new(walks: Arc<Walks>, cut: EpochCut) -> Self {
        Self { walks, cut, made: Vec::new() }
    }

    /// Returns whether the order of this epoch is known.
    pub fn has(&self, epoch: u32) -> bool {
        self.made.iter().any(|(number, _)| *number == epoch)
    }

    /// Keeps an order, and drops the orders of epochs before `current`.
    pub fn keep(&mut self, epoch: u32, order: Arc<EpochOrder>, current: Option<u32>) {
        let current = current.unwrap_or(epoch);
        self.made.retain(|(number, _)| *number >= current && *number != epoch);
        self.made.push((epoch, order));
    }

    /// Returns the sample ids of this rank's share of a batch. Makes the epoch's order only if the prongs are a whole
    /// epoch ahead of the consumer. Fails if the system refuses memory for the order.
    pub fn sample_ids(&mut self, id: BatchId, current: Option<u32>) -> io::Result<Vec<u64>> {
        if let Some((_, order)) = self.made.iter().find(|(number, _)| *number == id.epoch) {
            return Ok(order.sample_ids(id.batch));
        }
        let order = Arc::new(EpochOrder::new(&self.walks, id.epoch, self.cut)?);
        self.keep(id.epoch, order.clone(), current);
        Ok(order.sample_ids(id.batch))
    }
}

#[cfg(test)]
mod tests;
