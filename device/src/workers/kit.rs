//! One worker's tools: a decoder with its scratch memory, kept while programs keep the same limits.

use super::queue::Task;
use super::row_crc::RowCrc;
use ddlp_csd::prepare::{EpochContext, SamplePreparer, StageTimes};
use ddlp_csd::program::Program;
use ddlp_csd::slot::SampleRecord;
use ddlp_dataset::Dataset;
use std::sync::Arc;

/// What a worker made of one sample.
#[derive(Debug)]
pub struct Made {
    pub(super) record: SampleRecord,
    pub(super) row_crc: u32,
    pub(super) times: StageTimes,
}

/// A worker's tools.
#[derive(Default)]
pub struct Kit {
    preparer: Option<(Arc<Program>, SamplePreparer)>,
    row_crc: Option<RowCrc>,
}

impl Kit {
    /// Prepares one sample into its row and takes the row's checksum.
    pub(super) fn prepare(&mut self, dataset: &dyn Dataset, task: &Task<'_>) -> Made {
        let job = &task.job;
        let sample_id = job.request.sample_ids[task.position];
        let context = EpochContext { seed: job.request.seed, epoch: job.request.epoch };
        let mut row = task.lease.row(task.position).expect("each position of a job is started once");
        let preparer = self.preparer_for(&job.program);
        let record = preparer.prepare(dataset, &job.program, context, sample_id, &mut row);
        let row_crc = if record.has_row() { crc32c::crc32c(&row) } else { 0 };
        Made { record, row_crc, times: preparer.take_times() }
    }

    /// The checksum operator for rows of this length.
    pub(super) fn row_crc(&mut self, row_bytes: usize) -> &RowCrc {
        super::row_crc_for(&mut self.row_crc, row_bytes)
    }

    fn preparer_for(&mut self, program: &Arc<Program>) -> &mut SamplePreparer {
        let fits = |made_for: &Arc<Program>| Arc::ptr_eq(made_for, program) || made_for.limits == program.limits;
        if self.preparer.as_ref().is_some_and(|(made_for, _)| !fits(made_for)) {
            self.preparer = None;
        }
        &mut self.preparer.get_or_insert_with(|| (program.clone(), SamplePreparer::new(program))).1
    }
}
