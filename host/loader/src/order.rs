//! The order of samples: global, and determined by the seed and the epoch alone.
//!
//! The samples of an epoch ([`walks`]), all of the dataset or a [`choice`], are cut into global batches. Each step
//! takes one global batch, and each rank prepares its share of that batch. So the global batches do not depend on the
//! number of ranks.
//!
//! If a run has [`buckets`], each global batch has samples of one of them.

mod buckets;
mod choice;
mod split;
mod walks;
mod windowed;

pub(crate) use buckets::{BUCKETS_MAX, Buckets};
pub use choice::{Choice, ChoiceRecord, Indices, IndicesOfEpoch, Weights};
pub(crate) use choice::{Chosen, Copies, read_indices};
pub use split::{split, split_evenly};
pub use walks::Portion;
pub(crate) use walks::{Walks, described, portions_of};
pub(crate) use windowed::{Lanes, ShuffleWindow};

use crate::schedule::BatchId;
use std::io;
use std::sync::Arc;

/// Treatment of a last batch that the samples do not fill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum LastBatch {
    /// Delivered with fewer samples, but with one for each rank: the first samples of the epoch's order, or of the
    /// bucket, are added if fewer are left.
    #[default]
    Short,
    /// Left out.
    Drop,
    /// Filled with the first samples of the epoch's order; in a batch of a bucket, with the bucket's first ones.
    Pad,
}

impl LastBatch {
    /// Returns into how many batches of `batch` samples these samples are cut.
    pub(crate) fn batches(self, samples: u64, batch: u64) -> u64 {
        match self {
            Self::Drop => samples / batch,
            Self::Short | Self::Pad => samples.div_ceil(batch),
        }
    }
}

/// The division of an epoch into batches and shares.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Copies of a sample in an epoch, one after the other. If there are several, each rank gets another one.
    pub repeats: u64,
    /// Draws of each sample in its batch. Samples are counted without them.
    pub views: u64,
    /// Buckets of the samples; `None` if all batches have images of one size.
    pub buckets: Option<Arc<Buckets>>,
}

/// Samples that are cut into batches: all samples of an epoch, or of one bucket.
#[derive(Clone, Copy)]
struct Section {
    /// Position of the first sample in the epoch's order.
    first: u64,
    samples: u64,
}

impl EpochCut {
    /// Returns the number of global batches of an epoch, which is also the number of steps of every rank.
    pub fn batches(&self) -> u64 {
        self.buckets.as_ref().map_or_else(|| self.last.batches(self.samples, self.batch), |buckets| buckets.batches())
    }

    /// Returns the bucket of a batch's samples; 0 if there are no buckets.
    pub fn bucket(&self, batch: u32) -> usize {
        self.buckets.as_ref().map_or(0, |buckets| buckets.of_batch(batch).0)
    }

    /// Returns whether the epoch's last batch has fewer samples than others.
    pub fn has_short_last(&self) -> bool {
        let samples = match self.buckets.as_ref().and_then(|buckets| Some((buckets, self.batches().checked_sub(1)?))) {
            Some((buckets, last)) => buckets.samples()[buckets.of_batch(last as u32).0],
            None => self.samples,
        };
        self.last == LastBatch::Short && self.batches() > 1 && !samples.is_multiple_of(self.batch)
    }

    /// Returns the rows of the largest share of a batch that one rank gets.
    pub fn rows(&self) -> usize {
        let buckets = self.buckets.as_ref().map_or(1, |buckets| buckets.samples().len());
        (0..buckets).map(|bucket| self.rows_of(bucket)).max().unwrap_or(0)
    }

    /// Returns the rows of the largest share that one rank gets of a batch of this bucket.
    pub fn rows_of(&self, bucket: usize) -> usize {
        let samples = self.buckets.as_ref().map_or(self.samples, |buckets| buckets.samples()[bucket]);
        let batch = match self.last {
            LastBatch::Drop if samples < self.batch => 0,
            LastBatch::Pad if samples == 0 => 0,
            LastBatch::Short => self.batch.min(samples),
            LastBatch::Drop | LastBatch::Pad => self.batch,
        };
        usize::try_from(batch.div_ceil(self.world) * self.views).unwrap_or(usize::MAX)
    }

    /// Returns the samples from which a global batch is cut, and its number among the batches of these samples.
    fn section(&self, batch: u32) -> (Section, u64) {
        match &self.buckets {
            None => (Section { first: 0, samples: self.samples }, batch.into()),
            Some(buckets) => {
                let (bucket, number) = buckets.of_batch(batch);
                (Section { first: buckets.first(bucket), samples: buckets.samples()[bucket] }, number)
            }
        }
    }

    /// Returns whether a batch may have samples that another batch of its epoch has, too, or fewer than others.
    pub fn may_wrap(&self, batch: u32) -> bool {
        let (Section { samples, .. }, number) = self.section(batch);
        (number + 1) * self.batch > samples
    }

    /// Returns the number of samples of an epoch that this rank gets.
    pub fn samples_of_rank(&self) -> u64 {
        (0..self.batches() as u32).map(|batch| self.share(batch).count() as u64).sum()
    }

    /// Returns the positions in the epoch's order that form this rank's share of global batch `batch`. Positions past
    /// the end wrap (padding). If samples repeat, ranks take turns, so that each gets another copy of a sample.
    fn share(&self, batch: u32) -> impl Iterator<Item = u64> {
        let (Section { first, samples }, number) = self.section(batch);
        let start = number * self.batch;
        let size = match self.last {
            // A rank without a sample would wait in vain for the gradients of the others, or they for its own.
            LastBatch::Short => self.batch.min(samples - start).max(self.world),
            LastBatch::Drop | LastBatch::Pad => self.batch,
        };
        let part = |rank: u64| start + (u128::from(size) * u128::from(rank) / u128::from(self.world)) as u64;
        let (positions, step) = if self.repeats > 1 {
            (start + self.rank..start + size, self.world)
        } else {
            (part(self.rank)..part(self.rank + 1), 1)
        };
        positions.step_by(step as usize).map(move |at| first + at % samples)
    }
}

/// The order of one epoch.
#[derive(Debug)]
pub struct EpochOrder {
    cut: EpochCut,
    /// Ids of the first views.
    ids: Vec<u64>,
    /// Samples of the dataset, by which the id of a sample's next view is greater.
    dataset: u64,
}

impl EpochOrder {
    /// Makes the order of an epoch. Fails if the system refuses memory, or (`InvalidInput`) the program's function does
    /// not name the epoch's samples.
    pub fn new(walks: &Walks, epoch: u32, cut: EpochCut) -> io::Result<Self> {
        let ids = walks.sample_ids(epoch)?;
        let ids = match &cut.buckets {
            Some(buckets) => buckets.sorted(&ids)?,
            None => ids,
        };
        Ok(Self { cut, ids, dataset: walks.copies().dataset })
    }

    /// Returns the sample ids of this rank's share of global batch `batch`: first the ids of the first views, then of
    /// the second views, and so on.
    pub fn sample_ids(&self, batch: u32) -> Vec<u64> {
        let view = |view: u64| self.cut.share(batch).map(move |at| self.ids[at as usize] + view * self.dataset);
        (0..self.cut.views).flat_map(view).collect()
    }
}

/// The orders of the epochs from which prongs claim batches.
pub(crate) struct Orders {
    walks: Arc<Walks>,
    cut: EpochCut,
    /// The order of an epoch, or why the program's function does not give one.
    made: Vec<(u32, Result<Arc<EpochOrder>, String>)>,
}

impl Orders {
    pub fn new(walks: Arc<Walks>, cut: EpochCut) -> Self {
        Self { walks, cut, made: Vec::new() }
    }

    /// Returns whether it is known what order this epoch has, or why it has none.
    pub fn has(&self, epoch: u32) -> bool {
        self.made.iter().any(|(number, _)| *number == epoch)
    }

    /// Keeps an order, or the reason for its absence. Drops the orders of epochs before `current`.
    pub fn keep(&mut self, epoch: u32, order: Result<Arc<EpochOrder>, String>, current: Option<u32>) {
        let current = current.unwrap_or(epoch);
        self.made.retain(|(number, _)| *number >= current && *number != epoch);
        self.made.push((epoch, order));
    }

    /// Returns the sample ids of this rank's share of a batch. Makes the epoch's order only if the prongs are a whole
    /// epoch ahead of the consumer, and never by a function of the program, which may wait for the lock that the caller
    /// holds. Fails if the system refuses memory for the order, or (`InvalidInput`) the function gave none.
    pub fn sample_ids(&mut self, id: BatchId, current: Option<u32>) -> io::Result<Vec<u64>> {
        if let Some((_, order)) = self.made.iter().find(|(number, _)| *number == id.epoch) {
            let order =
                order.as_ref().map_err(|problem| io::Error::new(io::ErrorKind::InvalidInput, problem.clone()))?;
            return Ok(order.sample_ids(id.batch));
        }
        if self.walks.calls_program() {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let order = Arc::new(EpochOrder::new(&self.walks, id.epoch, self.cut.clone())?);
        self.keep(id.epoch, Ok(order.clone()), current);
        Ok(order.sample_ids(id.batch))
    }
}

#[cfg(test)]
mod tests;
