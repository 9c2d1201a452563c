//! The order of samples: global, and determined by (seed, epoch) alone.
//!
//! An epoch is a permutation of its samples, or their order in the dataset if the run does not shuffle, cut into global
//! batches. Each step takes one global batch, and each rank prepares its share of that batch. So the global batches do
//! not depend on the number of ranks.

use crate::schedule::BatchId;
use ddlp_pixels::draw::Rng;
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
    permutation: Vec<u32>,
}

/// Stream of the draws that shuffle epochs. Samples use other streams.
const SHUFFLE_STREAM: u32 = 0;

impl EpochOrder {
    /// Shuffles the samples of the epoch by Fisher–Yates, with draws from (seed, epoch); without a seed, keeps their
    /// order in the dataset. `cut.samples` is at most `u32::MAX`. Fails if the system refuses memory.
    pub fn new(seed: Option<u64>, epoch: u32, cut: EpochCut) -> io::Result<Self> {
        let samples = u32::try_from(cut.samples).expect("the builder bounds the samples of an epoch");
        let mut permutation = Vec::new();
        permutation.try_reserve_exact(samples as usize).map_err(|_| no_memory(samples))?;
        permutation.extend(0..samples);
        if let Some(seed) = seed {
            let mut rng = Rng::for_epoch(seed, epoch, SHUFFLE_STREAM);
            for last in (1..permutation.len()).rev() {
                permutation.swap(last, rng.below(last as u64 + 1) as usize);
            }
        }
        Ok(Self { cut, permutation })
    }

    /// Returns the sample ids of this rank's share of global batch `batch`.
    pub fn sample_ids(&self, batch: u32) -> Vec<u64> {
        let samples = self.permutation.len() as u64;
        self.cut.share(u64::from(batch)).map(|at| u64::from(self.permutation[(at % samples) as usize])).collect()
    }
}

/// The orders of the epochs from which prongs claim batches.
pub(crate) struct Orders {
    /// `None` if the run does not shuffle.
    seed: Option<u64>,
    cut: EpochCut,
    made: Vec<(u32, Arc<EpochOrder>)>,
}

impl Orders {
    pub fn new(seed: Option<u64>, cut: EpochCut) -> Self {
        Self { seed, cut, made: Vec::new() }
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
        let order = Arc::new(EpochOrder::new(self.seed, id.epoch, self.cut)?);
        self.keep(id.epoch, order.clone(), current);
        Ok(order.sample_ids(id.batch))
    }
}

fn no_memory(samples: u32) -> io::Error {
    let bytes = u64::from(samples) * size_of::<u32>() as u64;
    let message = format!(
        "{bytes} bytes for the order of {samples} samples are not available: free some memory, raise the limit of this \
         process (ulimit -v, the control group), or use shorter epochs (`epoch_samples`)"
    );
    io::Error::new(io::ErrorKind::OutOfMemory, message)
}

#[cfg(test)]
mod tests;
