//! A batch of the CPU prong while its threads work on it.

use crate::delivery::BatchBuffer;
use crate::fetch::Samples;
use crate::rows::RowClaims;
use crate::schedule::BatchId;
use ddlp_dataset::Unavailable;
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
    unavailable: Mutex<Option<Unavailable>>,
}

impl CpuJob {
    pub fn new(id: BatchId, sample_ids: Samples, buffer: Box<dyn BatchBuffer>, row_bytes: usize) -> Self {
        let rows = RowClaims::new(buffer, sample_ids.len(), row_bytes);
        Self { id, rows, sample_ids, row_bytes, unavailable: Mutex::default() }
    }

    /// Closes the batch's rows, since the dataset cannot be read.
    pub fn close(&self, why: Unavailable) {
        *self.unavailable() = Some(why);
        self.rows.close();
    }

    /// Takes the reason why the batch cannot be prepared.
    pub fn take_unavailable(&self) -> Option<Unavailable> {
        self.unavailable().take()
    }

    fn unavailable(&self) -> MutexGuard<'_, Option<Unavailable>> {
        self.unavailable.lock().expect("no panic while it is locked")
    }
}
