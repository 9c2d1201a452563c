//! Drives: their associations, their loss and return, and their faults.

use super::{Engine, GivenUp};
use crate::error::{DriveError, LoaderError};
use crate::report::FaultKind;
use crate::schedule::{BatchId, HeldResults, ProngId};
use std::time::Instant;

/// The loss of a drive.
pub(crate) struct Loss<'l> {
    /// The drive's batches in work.
    pub flights: &'l [BatchId],
    /// Whether the drive's finished batches are lost too.
    pub held: HeldResults,
    pub kind: FaultKind,
    /// Message for the report.
    pub what: String,
    /// Whether the CPU's reads depend on the drive too.
    pub of_dataset: bool,
}

impl Engine {
    /// Remembers how to end a drive's association or the attempt to make one, for [`Self::close_link`]. Ends it at
    /// once if the run has been stopped.
    pub fn watch(&self, prong: ProngId, close: impl Fn() + Send + 'static) {
        let mut links = self.links.lock().expect("no panic while the links are locked");
        if self.is_stopped() {
            close();
        }
        links.insert(prong, Box::new(close));
    }

    /// Ends a drive's association at once: its thread waits for the drive no longer.
    pub fn close_link(&self, prong: ProngId) {
        let links = self.links.lock().expect("no panic while the links are locked");
        links.get(&prong).into_iter().for_each(|close| close());
    }

    /// Gives up the batches among `ids` that a drive has finished but not handed over.
    pub fn give_up_held(&self, prong: ProngId, ids: &[BatchId], what: &str) {
        let mut core = self.lock();
        for &id in ids {
            if core.schedule.is_wanted(prong, id) {
                core.give_up(prong, id, GivenUp::Failed { kind: FaultKind::Defect, what: what.into() });
            }
        }
        drop(core);
        self.wake_cpu();
    }

    /// Records the loss of a drive.
    pub fn lose(&self, prong: ProngId, loss: Loss<'_>) {
        let mut core = self.lock();
        for &id in loss.flights {
            core.recorder.released(prong, id, false);
        }
        core.schedule.prong_down(prong, loss.held);
        if !loss.of_dataset || core.silence.lose(prong, Instant::now()) {
            core.recorder.fault(prong, loss.flights.first().copied(), loss.kind, loss.what);
        } else {
            tracing::debug!(prong, "the silent drive's association is lost: {}", loss.what);
        }
        drop(core);
        self.wake_cpu();
    }

    /// Records that a drive works, for the first time or again. `what` is the message for the report, unless the report
    /// has nothing about the drive's absence.
    pub fn regain(&self, prong: ProngId, what: Option<&str>) {
        let mut core = self.lock();
        core.schedule.prong_up(prong);
        self.watch_silence(&mut core);
        let is_awaited = core.silence.regain(prong, Instant::now());
        if let Some(what) = what.filter(|_| is_awaited) {
            core.recorder.fault(prong, None, FaultKind::Rejoined, what.into());
        }
    }

    /// Records that a drive is given up, which is lost.
    pub fn gave_up(&self, prong: ProngId) {
        self.lock().silence.give_up(prong);
    }

    /// Ends the run because a drive cannot be used, with the reason.
    pub fn refuse(&self, prong: ProngId, source: DriveError) {
        let mut core = self.lock();
        let drive = core.recorder.name(prong);
        core.failure.get_or_insert(LoaderError::Drive { drive, source });
        self.delivery.notify_all();
    }

    /// Records that a drive takes no batches until [`Self::regain`]. The drive must have no batch outstanding.
    pub fn pause(&self, prong: ProngId) {
        self.lock().schedule.prong_down(prong, HeldResults::Kept);
        self.wake_cpu();
    }

    /// Takes what concerns a drive's work: its batches that another prong finished first, and the number of its claims
    /// of corruption that the CPU has refuted. `None` when the run is over.
    pub fn look(&self, prong: ProngId) -> Option<(Vec<BatchId>, u32)> {
        let mut core = self.lock();
        if self.is_stopped() || core.schedule.is_done() {
            return None;
        }
        Some((core.schedule.take_cancels(prong), core.refuted.remove(&prong).unwrap_or_default()))
    }

    /// Records a fault that does not change the schedule.
    pub fn fault(&self, prong: ProngId, kind: FaultKind, what: String) {
        self.lock().recorder.fault(prong, None, kind, what);
    }
}
