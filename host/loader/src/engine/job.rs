//! A batch of the CPU prong while its threads work on it.

use crate::delivery::BatchBuffer;
use crate::error::LoaderError;
use crate::fetch::Samples;
use crate::rows::RowClaims;
use crate::schedule::BatchId;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

/// Work for a thread of the CPU prong.
pub(crate) struct CpuWork {
    pub job: Arc<CpuJob>,
    /// Samples to announce to the dataset.
    pub ahead: Vec<u64>,
    /// Rows whose samples were fetched for this thread; `None` if the thread takes rows and reads their samples.
    pub fetched: Option<Range<usize>>,
}

/// A batch that the CPU prong works on.
pub(crate) struct CpuJob {
    pub id: BatchId,
    pub rows: RowClaims,
    pub sample_ids: Samples,
    pub row_bytes: usize,
    /// Why the batch cannot be prepared. Its rows are closed then.
    error: Mutex<Option<LoaderError>>,
}

impl CpuJob {
    pub fn new(id: BatchId, sample_ids: Samples, buffer: Box<dyn BatchBuffer>, row_bytes: usize) -> Self {
        let rows = RowClaims::new(buffer, sample_ids.len(), row_bytes);
        Self { id, rows, sample_ids, row_bytes, error: Mutex::default() }
    }

    /// Closes the batch's rows, since it cannot be prepared.
    pub fn close(&self, why: LoaderError) {
        *self.error() = Some(why);
        self.rows.close();
    }

    /// Takes the reason why the batch cannot be prepared.
    pub fn take_error(&self) -> Option<LoaderError> {
        self.error().take()
    }

    fn error(&self) -> MutexGuard<'_, Option<LoaderError>> {
        self.error.lock().expect("no panic while it is locked")
    }
}
