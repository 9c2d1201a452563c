//! One Execute Program as the controller hands it to the workers.

use crate::host::ConnectedHost;
use ddlp_csd::abilities::AgreedDecoders;
use ddlp_csd::program::Program;
use ddlp_csd::request::BatchRequest;
use ddlp_csd::slot::SlotLayout;
use std::sync::Arc;

/// Identifier of a job; never reused while the agent runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// A program that a host has loaded.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadedProgram {
    /// The program.
    pub program: Program,
    /// The decoders on which this drive agrees with the host.
    pub agreed: AgreedDecoders,
    /// Identifier of the program for this drive's dataset, which requests for the program repeat
    /// ([`ddlp_csd::program::program_id`]).
    pub id: u64,
}

/// A validated work order: the batch fits its slot.
#[derive(Clone, Debug)]
pub struct Job {
    /// Identifier of the job.
    pub id: JobId,
    /// Program to run. A running job keeps its program when the host loads another one at the same index.
    pub program: Arc<LoadedProgram>,
    /// Host that asked for the batch, and alone may read it.
    pub host: Arc<ConnectedHost>,
    /// Samples to prepare, and the slot for them.
    pub request: BatchRequest,
    /// Layout of the batch in the slot.
    pub layout: SlotLayout,
}

/// End of a job. A job has one event, sent when no worker touches the job's slot any more; no event if the pool is
/// dropped first.
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
