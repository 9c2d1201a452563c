//! The engine as one drive's thread uses it.

use super::fault::DriveFault;
use crate::engine::Engine;
use crate::schedule::ProngId;
use std::sync::Arc;

/// The engine, and the number that it knows the drive by.
#[derive(Clone)]
pub(super) struct ProngHandle {
    pub engine: Arc<Engine>,
    pub prong: ProngId,
}

impl ProngHandle {
    /// Records a fault that changes nothing in the schedule.
    pub fn report(&self, fault: &DriveFault<'_>) {
        self.engine.fault(self.prong, fault.kind(), fault.to_string());
    }

    /// Adds a note to the report, unless it has that note already.
    pub fn note(&self, note: impl Into<String>) {
        self.engine.lock().recorder.note(note.into());
    }
}
