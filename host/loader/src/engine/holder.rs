//! The drive that alone holds the dataset. While it does not answer, the CPU prong's busy time does not grow. The
//! report records the silence, and samples that arrived damaged.

use super::{Core, Engine};
use crate::report::FaultKind;
use crate::schedule::{BatchId, CPU};
use ddlp_dataset::{Dataset, Silence};
use std::time::Duration;

/// What a run has recorded of silences.
#[derive(Debug, Default)]
pub(crate) struct SilenceRecord {
    /// Time of all silences before the run.
    before: Duration,
    /// Time of all silences up to now.
    pub total: Duration,
    /// Part of `total` that faults have already reported.
    reported: Duration,
    /// Whether the report names the silence that lasts.
    is_named: bool,
}

impl SilenceRecord {
    /// Begins the record of a run over a dataset, which may have been silent before.
    pub fn of(dataset: &dyn Dataset) -> Self {
        let before = dataset.silences().total;
        Self { before, total: before, reported: before, is_named: false }
    }

    /// Returns the time of a run's silences, from the time of all silences.
    pub fn of_run(&self, total: Duration) -> Duration {
        total.saturating_sub(self.before)
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
            record.total = silences.total;
            schedule.disturbed(CPU);
            recorder.exclude(CPU, more.as_secs_f64());
        }
        match &silences.now {
            Some(Silence { drive, .. }) if !record.is_named => {
                record.is_named = true;
                let what = format!(
                    "the drive {drive}, which holds the dataset, stopped answering; the CPU can prepare nothing until \
                     it answers: check that its agent runs and that the network is up"
                );
                recorder.fault(CPU, None, FaultKind::Lost, what);
            }
            None if record.total > record.reported => {
                let seconds = (record.total - record.reported).as_secs_f64();
                let (kind, did) = match record.is_named {
                    true => (FaultKind::Rejoined, "answered again after"),
                    false => (FaultKind::Lost, "did not answer for"),
                };
                recorder.fault(CPU, None, kind, format!("the drive that holds the dataset {did} {seconds:.1} s"));
                (record.is_named, record.reported) = (false, record.total);
            }
            _ => {}
        }
        silences.now
    }
}
