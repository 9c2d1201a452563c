//! Buffers for batches: the room for another batch, buffers for results in drives' slots, and the step of the delivery
//! target between “all rows are written” and “ready for delivery”.

use super::{BatchPlace, Core, Engine, ReadyBatch};
use crate::bucket::Bucket;
use crate::delivery::{BatchBuffer, BatchMemory, FIELD_ALIGNMENT, Filled, SlotRows};
use crate::error::LoaderError;
use crate::finishing::Finishing;
use crate::order::EpochCut;
use crate::schedule::{BatchId, ProngId, Room};
use ddlp_csd::slot::SampleRecord;
use std::ops::Range;
use std::sync::Arc;
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

    /// Makes ready a filled buffer whose batch is wanted (see [`Self::executed`]). If the delivery target finishes
    /// batches, the rows may lie in a slot instead. If the target fails, the run ends with that error when the batch is
    /// due.
    pub fn ready_in_buffer(
        &self,
        prong: ProngId,
        id: BatchId,
        records: Vec<SampleRecord>,
        buffer: Box<dyn BatchBuffer>,
        slot: Option<SlotRows>,
    ) {
        // Names and values are read from the dataset before the lock is taken.
        let ready = self.look_up(id, &records).and_then(|looked_up| {
            let (images, finishing) = self.fill(id, &records, &looked_up.filled, buffer, slot)?;
            Ok(ReadyBatch::new(records, BatchPlace::Buffer, images, finishing, looked_up))
        });
        self.make_ready(&mut self.lock(), prong, id, ready);
    }

    /// Completes a filled buffer: mixes the images or, if the target finishes the batch, puts the values of the other
    /// fields behind the rows. Returns the batch's memory, and how to finish the batch.
    fn fill(
        &self,
        id: BatchId,
        records: &[SampleRecord],
        others: &[Arc<dyn BatchMemory>],
        mut buffer: Box<dyn BatchBuffer>,
        slot: Option<SlotRows>,
    ) -> Result<(Box<dyn BatchMemory>, Option<Finishing>), LoaderError> {
        let bucket = self.task.bucket(id);
        let rows = bucket.bytes_of_rows(records);
        let Some(finishing) = bucket.images.finishing() else {
            self.task.mix_images(id, &mut buffer.bytes_mut()[..rows])?;
            let memory = buffer.make_ready(Filled::new(rows, &[])).map_err(LoaderError::Delivery)?;
            return Ok((memory, None));
        };
        let values = || others.iter().map(|values| values.bytes().expect("the host has filled it"));
        let fields = field_places(rows, values().map(<[u8]>::len));
        for (place, values) in fields.iter().zip(values()) {
            buffer.bytes_mut()[place.clone()].copy_from_slice(values);
        }
        let filled = Filled::new(rows, &fields);
        let memory = match slot {
            Some(slot) => buffer.make_ready_from(Box::new(slot), filled),
            None => buffer.make_ready(filled),
        };
        let mix = self.task.mix(id, rows / bucket.images.row_bytes());
        Ok((memory.map_err(LoaderError::Delivery)?, Some(Finishing { mix, ..finishing.clone() })))
    }

    /// Makes ready a filled slot whose batch is wanted (see [`Self::executed`]).
    pub fn ready_in_slot(&self, prong: ProngId, id: BatchId, records: Vec<SampleRecord>, mut slot: SlotRows) {
        let bytes = self.task.bucket(id).bytes_of_rows(&records);
        let ready = self.look_up(id, &records).and_then(|looked_up| {
            self.task.mix_images(id, &mut slot.bytes_mut()[..bytes])?;
            Ok(ReadyBatch::new(records, BatchPlace::Slot, Box::new(slot), None, looked_up))
        });
        self.make_ready(&mut self.lock(), prong, id, ready);
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

/// Returns where the values of fields, with these numbers of bytes, lie behind rows.
fn field_places(rows: usize, bytes: impl Iterator<Item = usize>) -> Vec<Range<usize>> {
    let mut end = rows;
    let mut place = |bytes| {
        let start = end.next_multiple_of(FIELD_ALIGNMENT);
        end = start + bytes;
        start..end
    };
    bytes.map(&mut place).collect()
}

/// Returns the bytes of a batch buffer, which has room for the largest batch of any bucket: whole blocks of rows, since
/// a drive's results are read in blocks, and the other fields if the target finishes batches.
pub(crate) fn buffer_bytes(cut: &EpochCut, buckets: &[Bucket]) -> usize {
    let bytes = |(number, bucket): (usize, &Bucket)| {
        let rows = cut.rows_of(number);
        let whole = |bytes: usize, unit| bytes.checked_next_multiple_of(unit).unwrap_or(usize::MAX);
        let others = bucket.images.finishing().map_or(&[][..], |_| &bucket.fields[1..]);
        let others = others.iter().map(|field| whole(rows.saturating_mul(field.field().bytes()), FIELD_ALIGNMENT));
        let images = whole(rows.saturating_mul(bucket.images.row_bytes()), ddlp_csd::BLOCK_BYTES);
        others.fold(images, usize::saturating_add)
    };
    buckets.iter().enumerate().map(bytes).max().unwrap_or(0)
}
