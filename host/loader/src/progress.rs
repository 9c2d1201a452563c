//! How far a run is, seen from another thread.

use crate::engine::Engine;
use std::sync::Arc;

/// Shows how far a run is.
#[derive(Clone)]
pub struct ProgressHandle {
    pub(crate) engine: Arc<Engine>,
    pub(crate) epochs: u32,
    pub(crate) batches: u32,
}

/// How far a run is.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// The epoch that is delivered.
    pub epoch: u32,
    /// Number of epochs.
    pub epochs: u32,
    /// Batches of an epoch.
    pub batches: u32,
    /// Batches delivered of this epoch.
    pub delivered: u32,
    /// Batches of this epoch that the CPU claimed.
    pub head: u32,
    /// Batches of this epoch that drives claimed.
    pub tail: u32,
    /// Images delivered in the run.
    pub images: u64,
    /// Seconds since the first batch was asked for.
    pub elapsed_s: f64,
    /// One entry per prong.
    pub prongs: Vec<ProngProgress>,
    /// Faults so far; recoveries are none.
    pub faults: usize,
    /// Corrupt samples so far.
    pub corrupt: usize,
}

/// How far a prong is.
#[derive(Clone, Debug, Default)]
pub struct ProngProgress {
    /// `cpu`, or the drive's name.
    pub name: String,
    /// Images of it that were delivered.
    pub images: u64,
    /// Images of it that were prepared, delivered or not.
    pub prepared: u64,
    /// Images prepared per second of its work.
    pub images_per_s: f64,
    /// Batches in its work.
    pub outstanding: usize,
    /// False while the drive is away.
    pub is_up: bool,
}

impl ProgressHandle {
    /// How far the run is now.
    pub fn snapshot(&self) -> Progress {
        let core = self.engine.lock();
        let epoch = core.schedule.progress();
        let prongs = core.recorder.prongs().into_iter().enumerate().map(|(prong, report)| ProngProgress {
            name: report.name,
            images: report.images,
            prepared: report.prepared,
            images_per_s: report.images_per_s,
            outstanding: core.schedule.outstanding(prong),
            is_up: core.schedule.is_up(prong),
        });
        Progress {
            epoch: epoch.epoch,
            epochs: self.epochs,
            batches: self.batches,
            delivered: epoch.delivered,
            head: epoch.head,
            tail: epoch.tail,
            images: core.recorder.images(),
            elapsed_s: core.recorder.now(),
            prongs: prongs.collect(),
            faults: core.recorder.fault_count(),
            corrupt: core.recorder.corrupt_count(),
        }
    }
}
