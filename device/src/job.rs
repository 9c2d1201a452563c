//! One Execute Program as the controller hands it to the workers.

use ddlp_csd::program::Program;
use ddlp_csd::request::BatchRequest;
use ddlp_csd::slot::SlotLayout;
use std::sync::Arc;

/// Names a job for as long as the agent runs; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// A validated work order: the batch fits its slot.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its name.
    pub id: JobId,
    /// Program to run. Running jobs keep theirs when the index is loaded anew.
    pub program: Arc<Program>,
    /// What to prepare, and into which slot.
    pub request: BatchRequest,
    /// How the batch lies in the slot.
    pub layout: SlotLayout,
}

/// What became of a job. A job gets one of these, and only when no worker touches its slot any more; it gets none when
/// the pool is dropped before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobEvent {
    /// The slot holds the batch.
    Done {
        /// The job.
        id: JobId,
        /// Samples that followed the corrupt-sample policy.
        corrupt: u32,
    },
    /// The job was cancelled, or its worker panicked; the slot's header is invalid.
    Released {
        /// The job.
        id: JobId,
    },
    /// There is no memory for the job's slot.
    NoMemory {
        /// The job.
        id: JobId,
    },
}
