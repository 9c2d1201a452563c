//! The end of a job: its records, and what makes its slot valid.

use super::super::row_crc::RowCrc;
use super::{Hold, SharedJob};
use crate::job::JobId;
use ddlp_csd::prepare::close_gaps;
use ddlp_csd::slot::{HEADER_BYTES, Outcome, SampleRecord, SlotHeader, table_to_bytes};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A job whose samples are all recorded. Fields are dropped in this order, so that the slot is released before the
/// hold.
pub struct Finishing<'a> {
    pub(super) work: Arc<SharedJob>,
    pub(super) records: Vec<SampleRecord>,
    pub(super) row_crcs: Vec<u32>,
    pub(super) busy: Duration,
    pub(super) hold: Hold<'a>,
}

/// Header and table that make a slot valid.
pub struct SlotSeal {
    pub(super) header: [u8; HEADER_BYTES],
    pub(super) table: Vec<u8>,
}

impl Finishing<'_> {
    /// Returns the job's identifier.
    pub fn id(&self) -> JobId {
        self.work.job.id
    }

    /// Returns whether the batch is no longer wanted, or the pool stops.
    pub fn is_over(&self) -> bool {
        self.work.is_cancelled() || self.hold.queue.is_stopping()
    }

    /// Returns the bytes of one row.
    pub fn row_bytes(&self) -> usize {
        self.work.job.layout.row_bytes
    }

    /// Returns the number of samples that followed the corrupt-sample policy.
    pub fn corrupt(&self) -> u32 {
        self.records.iter().filter(|record| record.is_corrupt()).count() as u32
    }

    /// Marks all samples as unavailable, because the dataset has changed since it was opened.
    pub fn withdraw(&mut self) {
        self.records.iter_mut().for_each(|record| record.outcome = Outcome::Unavailable);
    }

    /// Closes the gaps of skipped samples, and makes table and header.
    pub fn finish(&self, row_crc: &RowCrc, start: Instant) -> SlotSeal {
        let rows = self.work.lease().payload().expect("every row is back, and a job is finished once");
        let delivered = close_gaps(&self.records, rows, self.row_bytes());
        let kept = self.records.iter().zip(&self.row_crcs).filter(|(record, _)| record.has_row());
        let payload_crc = row_crc.of_rows(kept.map(|(_, &crc)| crc));
        let table = table_to_bytes(&self.records);
        let request = &self.work.job.request;
        let busy = self.busy + start.elapsed();
        let header = SlotHeader {
            epoch: request.epoch,
            batch: request.batch,
            generation: request.generation,
            requested: self.records.len() as u32,
            delivered: delivered as u32,
            shape: self.work.job.program.program.pipeline.output(),
            table_crc: crc32c::crc32c(&table),
            payload_crc,
            busy_us: u64::try_from(busy.as_micros()).unwrap_or(u64::MAX),
        };
        SlotSeal { header: header.to_block(), table }
    }
}
