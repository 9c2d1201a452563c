//! The drive that alone holds the dataset. While it does not answer, the CPU prong's busy time does not grow. The
//! report records the silence, and samples that arrived damaged.

use super::{Core, Engine};
use crate::report::FaultKind;
use crate::schedule::{BatchId, CPU, ProngId};
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
    fn observe(&mut self, silences: &Silences, now: Instant) -> Option<(FaultKind, String)> {
        self.total = self.total.max(silences.total);
        let Some(Silence { drive, .. }) = &silences.now else {
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
            "the drive {drive} holds the dataset and does not answer; the CPU prepares nothing until the drive \
             answers; check that the drive's agent runs and that the network is up"
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

    /// Records that a drive works again. Returns whether the report has its loss, so that it needs its return.
    pub fn regain(&mut self, prong: ProngId, now: Instant) -> bool {
        let Some((_, is_reported)) = self.lost.take_if(|(lost, _)| *lost == prong) else { return true };
        self.regained_at = Some(now);
        is_reported
    }
}

impl Engine {
    /// Records that samples of a batch arrived damaged over the network and were intact when they were read again.
    pub fn healed(&self, id: BatchId, samples: u64) {
        if samples == 0 {
            return;
        }
        let (who, were) =
            if samples == 1 { ("a sample".to_owned(), "was") } else { (format!("{samples} samples"), "were") };
        let what = format!(
            "{who} of epoch {} batch {} arrived damaged and {were} intact when read again, so the drive's copy is \
             good: check the network and this machine's memory",
            id.epoch, id.batch
        );
        self.lock().recorder.fault(CPU, Some(id), FaultKind::Damaged, what);
    }

    /// Records how long reads have waited for the drive that holds the dataset, and returns the silence that lasts.
    /// Called when the CPU begins or ends a batch, and while the consumer waits.
    pub fn watch_silence(&self, core: &mut Core) -> Option<Silence> {
        let silences = self.task.dataset.silences();
        let Core { silence: record, schedule, recorder, .. } = core;
        let more = silences.total.saturating_sub(record.total);
        if !more.is_zero() {
            schedule.disturbed(CPU);
            recorder.exclude(CPU, more.as_secs_f64());
        }
        if let Some((kind, what)) = record.observe(&silences, Instant::now()) {
            recorder.fault(CPU, None, kind, what);
        }
        silences.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn silences(total_s: u32, lasts_s: Option<u32>) -> Silences {
        let silence = |s| Silence { drive: "tcp://x".into(), lasts: s * SECOND, patience: 60 * SECOND, failure: None };
        Silences { total: total_s * SECOND, now: lasts_s.map(silence) }
    }

    /// Observes silences a second later each time. Returns the kinds of what the report says.
    fn observed(record: &mut SilenceRecord, at: &mut Instant, states: &[Silences]) -> Vec<FaultKind> {
        let observe = |state| {
            *at += SECOND;
            record.observe(state, *at).map(|(kind, _)| kind)
        };
        states.iter().filter_map(observe).collect()
    }

    #[test]
    fn an_outage_that_reads_notice_first_is_reported_as_a_silence_alone() {
        let (mut record, mut at) = (SilenceRecord::default(), Instant::now());
        let said = observed(&mut record, &mut at, &[silences(1, Some(1)), silences(2, Some(2))]);
        assert_eq!(said, [FaultKind::Lost]);
        assert!(!record.lose(1, at), "the report has it");
        assert!(!record.regain(1, at), "nor does it need the return");
        assert_eq!(observed(&mut record, &mut at, &[silences(3, None), silences(3, None)]), [FaultKind::Rejoined]);
        // The drive's thread had nothing to do, and notices late.
        assert!(!record.lose(1, at + NOTICED_WITHIN / 2) && !record.regain(1, at));
        assert!(record.lose(1, at + NOTICED_WITHIN) && record.regain(1, at), "another outage");
    }

    #[test]
    fn an_outage_that_the_drives_thread_notices_first_is_reported_as_its_loss_alone() {
        let (mut record, mut at) = (SilenceRecord::default(), Instant::now());
        assert!(record.lose(1, at));
        assert!(observed(&mut record, &mut at, &[silences(1, Some(1))]).is_empty());
        assert!(record.regain(1, at), "the return of what was reported");
        // Reads are answered a little later.
        assert!(observed(&mut record, &mut at, &[silences(2, Some(2)), silences(3, None)]).is_empty());
        let next = [silences(4, Some(1)), silences(5, None)];
        assert_eq!(observed(&mut record, &mut at, &next), [FaultKind::Lost, FaultKind::Rejoined], "the next outage");
    }

    #[test]
    fn an_outage_soon_after_another_one_is_reported_too() {
        let (mut record, mut at) = (SilenceRecord::default(), Instant::now());
        let said = observed(&mut record, &mut at, &[silences(1, Some(1)), silences(2, None)]);
        assert_eq!(said, [FaultKind::Lost, FaultKind::Rejoined]);
        assert!(!record.lose(1, at), "it may be the same outage");
        let said = observed(&mut record, &mut at, &[silences(3, Some(1)), silences(9, None)]);
        assert_eq!(said, [FaultKind::Lost, FaultKind::Rejoined]);
        // The drive's thread has given up; reads go on.
        let said = observed(&mut record, &mut at, &[silences(10, Some(1)), silences(11, None), silences(15, None)]);
        assert_eq!(said, [FaultKind::Lost, FaultKind::Rejoined, FaultKind::Lost]);
    }

    #[test]
    fn a_silence_that_outlasts_the_drives_return_is_reported() {
        let (mut record, mut at) = (SilenceRecord::default(), Instant::now());
        assert!(record.lose(1, at));
        assert!(observed(&mut record, &mut at, &[silences(1, Some(1))]).is_empty());
        assert!(record.regain(1, at));
        assert!(observed(&mut record, &mut at, &[silences(2, Some(2))]).is_empty());
        at += NOTICED_WITHIN;
        let said =
            observed(&mut record, &mut at, &[silences(13, Some(13)), silences(14, Some(14)), silences(15, None)]);
        assert_eq!(said, [FaultKind::Lost, FaultKind::Rejoined]);
    }

    #[test]
    fn a_silence_that_was_noticed_after_its_end_is_reported_once() {
        let (mut record, mut at) = (SilenceRecord::default(), Instant::now());
        assert_eq!(observed(&mut record, &mut at, &[silences(2, None), silences(2, None)]), [FaultKind::Lost]);
        assert!(record.lose(2, at + NOTICED_WITHIN), "a loss without a silence");
        assert!(record.regain(1, at), "a pause of another drive ends");
        assert_eq!(observed(&mut record, &mut at, &[silences(4, None)]), [FaultKind::Rejoined]);
        assert!(!record.regain(2, at), "the return is reported");
    }
}
