//! The drive that alone holds the dataset. The time for which it does not answer counts as nobody's work, and the
//! report has that time, and the samples that come damaged from the drive.

use super::{Core, Engine};
use crate::report::FaultKind;
use crate::schedule::{BatchId, CPU};
use ddlp_dataset::Silent;
use std::time::Duration;

/// What a run has recorded of silences.
#[derive(Debug, Default)]
pub(crate) struct SilenceRecord {
    /// Time of all silences up to now.
    pub total: Duration,
    /// The time of silences that had been reported when the last report was made.
    reported: Duration,
    /// Whether the report names the silence that lasts.
    is_named: bool,
}

impl Engine {
    /// Records that samples of a batch came damaged over the network and, when they were read again, intact.
    pub fn healed(&self, id: BatchId, samples: u64) {
        if samples == 0 {
            return;
        }
        let (of, them) =
            if samples == 1 { ("a sample".to_owned(), "it was") } else { (format!("{samples} samples"), "they were") };
        let what = format!(
            "{of} of epoch {} batch {} came damaged over the network, and intact when {them} read again: the drive's \
             copy is intact; check the network and this machine's memory",
            id.epoch, id.batch
        );
        self.lock().recorder.fault(CPU, Some(id), FaultKind::Damaged, what);
    }

    /// Records how long reads have waited for the drive that holds the dataset, and returns the silence that lasts.
    /// Called when the CPU begins or ends a batch, and while the consumer waits.
    pub fn watch_silence(&self, core: &mut Core) -> Option<Silent> {
        let silence = self.task.dataset.silence();
        let Core { silence: record, schedule, recorder, .. } = core;
        let more = silence.total.saturating_sub(record.total);
        if !more.is_zero() {
            record.total = silence.total;
            schedule.disturbed(CPU);
            recorder.leave_out(CPU, more.as_secs_f64());
        }
        match &silence.now {
            Some(silent) if !record.is_named => {
                record.is_named = true;
                let what = format!(
                    "{silent}; this drive holds the dataset, so the CPU has nothing to prepare meanwhile: check that \
                     the drive's agent runs and that the network is up"
                );
                recorder.fault(CPU, None, FaultKind::Lost, what);
            }
            None if record.total > record.reported => {
                let seconds = (record.total - record.reported).as_secs_f64();
                let (kind, what) = match record.is_named {
                    true => {
                        (FaultKind::Rejoined, format!("the drive that holds the dataset answers after {seconds:.1} s"))
                    }
                    false => {
                        (FaultKind::Lost, format!("the drive that holds the dataset did not answer for {seconds:.1} s"))
                    }
                };
                recorder.fault(CPU, None, kind, what);
                (record.is_named, record.reported) = (false, record.total);
            }
            _ => {}
        }
        silence.now
    }
}
