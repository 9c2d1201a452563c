//! What a run makes of a drive that holds the dataset and does not answer: the time counts as nobody's work, and the
//! report says how long it was.

use super::{Core, Engine};
use crate::report::FaultKind;
use crate::schedule::CPU;
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
