//! Samples of an epoch: what they have in common, where they are stored, and hints about them.

use ddlp_dataset::{Ahead, Dataset, Half};
use ddlp_pixels::{Draw, Fidelity};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What all samples of an epoch have in common, whichever prong prepares them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochContext {
    /// Seed of the run.
    pub seed: u64,
    /// The epoch.
    pub epoch: u32,
    /// How exactly images are read.
    pub fidelity: Fidelity,
}

impl EpochContext {
    /// Returns the draw for a sample of the epoch.
    pub fn draw(self, sample_id: u64) -> Draw {
        Draw { seed: self.seed, epoch: self.epoch, sample_id }
    }
}

/// Returns the index in the dataset of a sample of an epoch. A sample that occurs again in the epoch has another id.
pub fn stored_at(dataset: &dyn Dataset, sample_id: u64) -> u64 {
    sample_id % dataset.len()
}

/// Tells the dataset which samples of an epoch will be read soon, and how, unless the list is empty. A panic of the
/// dataset is ignored: the hint is optional.
pub fn announce(dataset: &dyn Dataset, sample_ids: &[u64], ahead: Ahead) {
    if !sample_ids.is_empty() {
        let indices: Vec<u64> = sample_ids.iter().map(|&sample_id| stored_at(dataset, sample_id)).collect();
        advise(|| dataset.announce(&indices, ahead));
    }
}

/// Tells the dataset that this thread will probably read the sample with this index next, and which half of it to
/// prefetch now.
pub fn prefetch(dataset: &dyn Dataset, index: u64, half: Half) {
    advise(|| dataset.prefetch(index, half));
}

/// Gives the dataset a hint, and ignores a panic: nothing depends on a hint, and the panic hook has reported the panic.
fn advise(advice: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(advice));
}
