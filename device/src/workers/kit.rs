//! One worker's tools: a preparer with its scratch memory, kept as long as programs have the same decoders.

use super::queue::{Finishing, Sample, WorkerTask};
use super::row_crc::RowCrc;
use crate::job::LoadedProgram;
use crate::log_limit::LogLimit;
use ddlp_cause::with_causes;
use ddlp_csd::prepare::{EpochContext, SamplePreparer, StageTimes, stored_at};
use ddlp_csd::slot::{Outcome, SampleRecord};
use ddlp_dataset::{Dataset, Unavailable};
use std::sync::Arc;

/// A worker's tools.
#[derive(Default)]
pub struct Kit {
    preparer: Option<(Arc<LoadedProgram>, SamplePreparer)>,
    row_crc: Option<RowCrc>,
    /// Results of the last chunk, one per sample.
    pub(super) made: Vec<Sample>,
}

impl Kit {
    /// Prepares the samples of a chunk into their rows, until the job is over, and computes each row's checksum. The
    /// results are in `made`.
    pub(super) fn make_rows(&mut self, dataset: &dyn Dataset, task: &mut WorkerTask<'_>) -> StageTimes {
        let mut fetched = std::mem::take(&mut task.fetched).into_iter();
        let work = &task.work;
        let request = &work.job.request;
        let context = EpochContext { seed: request.seed, epoch: request.epoch, fidelity: request.fidelity };
        let mut rows = work.lease().rows(task.positions.clone()).expect("each position of a job is started once");
        let mut made = std::mem::take(&mut self.made);
        made.clear();
        let preparer = self.preparer_for(&work.job.program);
        for (&sample_id, row) in request.sample_ids[task.positions.clone()].iter().zip(rows.each()) {
            if task.is_over() {
                break;
            }
            let mut sample = fetched.next();
            let unavailable = || {
                let index = stored_at(dataset, sample_id);
                SampleRecord { sample_id, index, outcome: Outcome::Unavailable, warned: false }
            };
            let is_over = || task.is_over() || work.is_unread();
            let prepared = match work.is_unread() {
                true => Ok(None),
                false => preparer.prepare_unless(&is_over, dataset, context, sample_id, sample.as_mut(), row),
            };
            let record = match prepared {
                Ok(Some(record)) => record,
                Ok(None) if task.is_over() => break,
                // Another sample of the job could not be read, and the log says why.
                Ok(None) => unavailable(),
                Err(error) => {
                    log_unavailable(&error);
                    unavailable()
                }
            };
            made.push((record, if record.has_row() { crc32c::crc32c(row) } else { 0 }));
        }
        let times = preparer.take_times();
        self.made = made;
        times
    }

    /// Checks that the dataset is still the one that was opened, after this worker has prepared the batch's last
    /// samples.
    pub(super) fn check(&mut self, dataset: &dyn Dataset, finishing: &Finishing<'_>) -> Result<(), Unavailable> {
        let (_, preparer) = self.preparer.as_mut().expect("it prepared the last samples");
        preparer.check(dataset, &|| finishing.is_over())
    }

    /// Returns the checksum operator for rows of this length.
    pub(super) fn row_crc(&mut self, row_bytes: usize) -> &RowCrc {
        self.row_crc.take_if(|crc| crc.row_bytes() != row_bytes);
        self.row_crc.get_or_insert_with(|| RowCrc::new(row_bytes))
    }

    fn preparer_for(&mut self, loaded: &Arc<LoadedProgram>) -> &mut SamplePreparer {
        let LoadedProgram { program, agreed, .. } = &**loaded;
        self.preparer.take_if(|(made_for, _)| made_for.agreed != *agreed);
        let make = || (loaded.clone(), SamplePreparer::new(program).timed().for_drive(*agreed));
        let (made_for, preparer) = self.preparer.get_or_insert_with(make);
        if !Arc::ptr_eq(made_for, loaded) {
            *made_for = loaded.clone();
            preparer.change_program(program);
        }
        preparer
    }
}

/// Logs why samples are unavailable, at most once a second, since a host can ask for many.
pub(super) fn log_unavailable(error: &Unavailable) {
    static LIMIT: LogLimit = LogLimit::new();
    if LIMIT.allows() {
        tracing::error!("{}; the host prepares the batch itself", with_causes(error));
    }
}
