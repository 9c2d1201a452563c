//! The drive that alone holds the dataset. While it does not answer, the CPU prong's busy time does not grow. The
//! report records the silence, and samples that arrived damaged.

use super::{Core, Engine};
use crate::report::FaultKind;
use crate::schedule::{BatchId, CPU};
use ddlp_dataset::Silence;
use std::time::Instant;

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
