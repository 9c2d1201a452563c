//! Buffers for batches: the room for another batch, buffers for results in drives' slots, and the step of the delivery
//! target between “all rows are written” and “ready for delivery”.

use super::{BatchPlace, Core, Engine, ReadyBatch};
use crate::bucket::Bucket;
use crate::delivery::{BatchBuffer, SlotRows};
use crate::error::LoaderError;
use crate::order::EpochCut;
use crate::schedule::{BatchId, ProngId, Room};
use ddlp_csd::slot::SampleRecord;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A place for a finished batch that lies in a drive's slot.
#[derive(Debug)]
pub(crate) enum ResultPlace {
    /// Buffer for the batch.
    Buffer(Box<dyn BatchBuffer>),
    /// The batch is no longer wanted.
    Unwanted,
}

/// A batch that will be ready soon: nobody works on it, but it is not yet ready for delivery.
pub(crate) struct MakingReady<'e>(&'e AtomicUsize);

impl Drop for MakingReady<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Engine {
    /// Counts a batch that will be ready soon, until the value is dropped. Call this before
    /// [`executed`](Self::executed), and before a result is moved to a buffer.
    pub fn making_ready(&self) -> MakingReady<'_> {
        self.making_ready.fetch_add(1, Ordering::AcqRel);
        MakingReady(&self.making_ready)
    }

    /// Returns whether a batch will be ready soon.
    pub(super) fn is_making_ready(&self) -> bool {
        self.making_ready.load(Ordering::Acquire) > 0
    }

    /// Returns the room for another batch in the target's buffers.
    pub(super) fn buffer_room(&self, core: &Core) -> Option<Room> {
        match self.target.free() {
            0 => None,
            1 if core.schedule.must_reserve() => Some(Room::Critical),
            _ => Some(Room::Any),
        }
    }

    /// Frees a buffer for a critical batch, by giving up the finished batch that would be delivered last. That is
    /// necessary when the consumer keeps batches, and so their buffers. Returns false when no batch can be given up.
    pub(super) fn make_way(&self, core: &mut Core) -> bool {
        if !core.consumer_waits || core.schedule.deliverable().is_some() {
            return false;
        }
        let Core { schedule, ready, recorder, .. } = core;
        let has_buffer = |id| matches!(ready.get(&id), Some(Ok(ReadyBatch { place: BatchPlace::Buffer, .. })));
        let Some((id, maker)) = schedule.give_way(has_buffer) else { return false };
        ready.remove(&id);
        recorder.wasted(maker, id);
        recorder.note(
            "finished batches were given up for earlier ones, since the consumer keeps batches: use more `buffers`"
                .into(),
        );
        true
    }

    /// Makes ready a filled buffer whose batch is wanted (see [`Self::executed`]). If the delivery target fails, the
    /// run ends with that error when the batch is due.
    pub fn ready_in_buffer(
        &self,
        prong: ProngId,
        id: BatchId,
        records: Vec<SampleRecord>,
        mut buffer: Box<dyn BatchBuffer>,
    ) {
        let bytes = self.task.bucket(id).delivered_bytes(&records);
        let mixed = self.task.mix_images(id, &mut buffer.bytes_mut()[..bytes]);
        match mixed.and_then(|()| buffer.on_ready(bytes).map_err(LoaderError::Delivery)) {
            Ok(memory) => self.ready(prong, id, records, BatchPlace::Buffer, memory),
            Err(error) => self.make_ready(&mut self.lock(), prong, id, Err(error)),
        }
    }

    /// Makes ready a filled slot whose batch is wanted (see [`Self::executed`]).
    pub fn ready_in_slot(&self, prong: ProngId, id: BatchId, records: Vec<SampleRecord>, mut slot: SlotRows) {
        let bytes = self.task.bucket(id).delivered_bytes(&records);
        match self.task.mix_images(id, &mut slot.bytes_mut()[..bytes]) {
            Ok(()) => self.ready(prong, id, records, BatchPlace::Slot, Box::new(slot)),
            Err(error) => self.make_ready(&mut self.lock(), prong, id, Err(error)),
        }
    }

    /// Returns a place for a drive's finished batch, if there is one now. Fails when the operating system refuses
    /// memory.
    pub fn place_for(&self, prong: ProngId, id: BatchId) -> std::io::Result<Option<ResultPlace>> {
        let mut core = self.lock();
        if !core.schedule.is_wanted(prong, id) {
            return Ok(Some(ResultPlace::Unwanted));
        }
        let has_room = match self.buffer_room(&core) {
            Some(Room::Any) => true,
            Some(Room::Critical) => core.schedule.is_critical(id),
            None => core.schedule.is_critical(id) && self.make_way(&mut core),
        };
        if !has_room {
            return Ok(None);
        }
        Ok(self.target.take()?.map(ResultPlace::Buffer))
    }
}

/// Returns the bytes of a batch buffer, which has room for the largest batch of any bucket: whole blocks, since a
/// drive's results are read in blocks.
pub(crate) fn buffer_bytes(cut: &EpochCut, buckets: &[Bucket]) -> usize {
    let bytes = |(number, bucket): (usize, &Bucket)| cut.rows_of(number).saturating_mul(bucket.images.row_bytes());
    let most = buckets.iter().enumerate().map(bytes).max().unwrap_or(0);
    most.checked_next_multiple_of(ddlp_csd::BLOCK_BYTES).unwrap_or(usize::MAX)
}
