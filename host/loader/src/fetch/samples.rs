//! The samples of a batch, in order. Out of order, a row that waits may get another sample.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The samples of a batch, one for each row. All clones are of the same batch. A sample that has been fetched keeps its
/// row.
#[derive(Clone, Debug)]
pub(crate) struct Samples(Arc<[AtomicU64]>);

impl Samples {
    /// Returns the number of samples.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the sample of a row that is there.
    pub fn of(&self, row: usize) -> u64 {
        // The lock under which rows get and give samples also hands them to the threads that prepare them.
        self.0[row].load(Ordering::Relaxed)
    }

    /// Returns the sample of a row, if there is such a row.
    pub fn get(&self, row: usize) -> Option<u64> {
        (row < self.len()).then(|| self.of(row))
    }

    /// Lets two rows, of two batches, change samples.
    pub fn exchange(&self, row: usize, other: &Self, of_other: usize) {
        let (one, two) = (self.of(row), other.of(of_other));
        self.0[row].store(two, Ordering::Relaxed);
        other.0[of_other].store(one, Ordering::Relaxed);
    }
}

impl FromIterator<u64> for Samples {
    fn from_iter<I: IntoIterator<Item = u64>>(samples: I) -> Self {
        Self(samples.into_iter().map(AtomicU64::new).collect())
    }
}
