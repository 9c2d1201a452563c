//! What a run has recorded of the silences of the drive that alone holds the dataset, so that the report names each
//! outage of the drive once. No I/O, no clock.

use crate::report::FaultKind;
use crate::schedule::ProngId;
use ddlp_dataset::{Dataset, Silence, Silences};
use std::time::{Duration, Instant};

/// Longest time between the end of a silence and the drive's thread noticing that its own association was lost
/// meanwhile: a keep alive time-out.
const NOTICED_WITHIN: Duration = Duration::from_secs(10);

/// What a run has recorded of silences. An outage of the drive ends the CPU's reads and the association of the drive's
/// own thread. The report has it once: as a silence or as the drive's loss, whatever shows first.
#[derive(Debug, Default)]
pub(crate) struct SilenceRecord {
    /// Time of all silences before the run.
    before: Duration,
    /// Time of all silences up to now.
    pub total: Duration,
    /// Part of `total` that has ended.
    ended: Duration,
    /// When the last silence ended.
    ended_at: Option<Instant>,
    /// Where the report names the silence that lasts.
    named: Option<NamedAs>,
    /// When the lost drive was back, while the silence that began with its loss lasts.
    regained_at: Option<Instant>,
    /// The drive while it is lost, and whether the report has its loss and not yet its return.
    lost: Option<(ProngId, bool)>,
}

/// Where the report names an outage of the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NamedAs {
    Silence,
    LostDrive,
}

impl SilenceRecord {
    /// Begins the record of a run over a dataset, which may have been silent before.
    pub fn of(dataset: &dyn Dataset) -> Self {
        let before = dataset.silences().total;
        Self { before, total: before, ended: before, ..Self::default() }
    }

    /// Returns the time of a run's silences, from the time of all silences.
    pub fn of_run(&self, total: Duration) -> Duration {
        total.saturating_sub(self.before)
    }

    /// Records the silences up to now. Returns what the report then says.
    pub fn observe(&mut self, silences: &Silences, now: Instant) -> Option<(FaultKind, String)> {
        self.total = self.total.max(silences.total);
        let Some(Silence { holder, .. }) = &silences.now else {
            if self.total == self.ended {
                return None;
            }
            let seconds = (self.total - self.ended).as_secs_f64();
            (self.ended, self.ended_at) = (self.total, Some(now));
            let (kind, did) = match (self.named.take(), &mut self.lost) {
                (Some(NamedAs::Silence), _) => (FaultKind::Rejoined, "answered again after"),
                // Reads are answered before the drive's own thread is back, which need not say so again.
                (_, Some((_, is_reported @ true))) => {
                    *is_reported = false;
                    (FaultKind::Rejoined, "answered again after")
                }
                (None, _) => (FaultKind::Lost, "did not answer for"),
                (Some(NamedAs::LostDrive), _) => return None,
            };
            return Some((kind, format!("the drive that holds the dataset {did} {seconds:.1} s")));
        };
        let is_back = self.regained_at.is_some_and(|at| now >= at + NOTICED_WITHIN);
        if self.named.is_some_and(|named| named == NamedAs::Silence || !is_back) {
            return None;
        }
        if self.named.is_none() && matches!(self.lost, Some((_, true))) {
            (self.named, self.regained_at) = (Some(NamedAs::LostDrive), None);
            return None;
        }
        self.named = Some(NamedAs::Silence);
        let what = format!(
            "{holder} holds the dataset and does not answer; the CPU prepares nothing until it answers; check that it \
             runs and that the network is up"
        );
        Some((FaultKind::Lost, what))
    }

    /// Records that the drive's own association is lost. Returns whether the report has yet to say so.
    pub fn lose(&mut self, prong: ProngId, now: Instant) -> bool {
        let has_just_ended = self.ended_at.is_some_and(|at| now < at + NOTICED_WITHIN);
        let is_new = self.named.is_none() && !has_just_ended;
        self.lost = Some((prong, is_new));
        is_new
    }

    /// Records that a drive is given up. Its loss has no return, and later silences are others.
    pub fn give_up(&mut self, prong: ProngId) {
        self.lost.take_if(|(lost, _)| *lost == prong);
    }

    /// Records that a drive works again. Returns whether the report has its loss, so that it needs its return.
    pub fn regain(&mut self, prong: ProngId, now: Instant) -> bool {
        let Some((_, is_reported)) = self.lost.take_if(|(lost, _)| *lost == prong) else { return true };
        self.regained_at = Some(now);
        is_reported
    }
}

#[cfg(test)]
mod tests;
