//! Hand-over of a batch: what the consumer's stream does to make tensors of its rows.

use crate::delivery::{CudaMemory, Pair, Pairs};
use crate::driver::{Address, Driver, RawStream, code};
use crate::error::CudaError;
use ddlp_host::{Batch, Field, FieldView, Finishing};
use std::error::Error;
use std::ops::Range;

/// What takes a batch: a stream, and places for its fields in memory of the device.
///
/// # Safety
///
/// [`stream`](Self::stream) is a stream of the device's primary context, and stays one until [`finish`] returns. At
/// each address that [`place`](Self::place) returns there is memory of the device for all elements of the field.
/// Nothing but work that is queued on the stream uses this memory until what `finish` queues there has been done; work
/// that is queued on the stream later may use it.
pub unsafe trait Consumer {
    /// Returns the handle of the stream on which the batch will be used, as the driver (`CUstream`), PyTorch
    /// (`torch.cuda.current_stream().cuda_stream`) and DLPack number streams.
    fn stream(&self) -> u64;

    /// Returns the address of memory of the device for a field: as many elements as its shape says, without gaps, in
    /// the order that its strides say. The address is a multiple of the size of an element; the kernels are fastest at
    /// multiples of 16.
    ///
    /// # Errors
    ///
    /// An error ends the hand-over, and the batch stays as it is.
    fn place(&mut self, field: FieldView<'_>) -> Result<u64, Box<dyn Error + Send + Sync>>;
}

/// Finishes a batch: has the consumer's stream wait for the batch's copy, make the elements of the images, and copy the
/// other fields, in the order in which [`Batch::fields`] has them. Returns at once. The batch's buffer goes back to the
/// loader when the stream has done that; the batch itself keeps its labels and ids on the host, and may be kept.
///
/// # Errors
///
/// [`CudaError::Finished`] if the batch has been finished, [`CudaError::Place`] if the consumer has no place,
/// [`CudaError::Capturing`] on a stream that records a graph, [`CudaError::NotOnDevice`] for a batch of another target,
/// and otherwise what the driver says. After an error, the batch is as before, and can be finished again.
pub fn finish(batch: &Batch, consumer: &mut dyn Consumer) -> Result<(), CudaError> {
    if batch.is_empty() {
        return places(batch, consumer).map(drop);
    }
    let memory = batch.target_memory::<CudaMemory>().ok_or(CudaError::NotOnDevice)?;
    let finishing = batch.finishing().ok_or(CudaError::NotOnDevice)?;
    let pairs = &memory.pairs;
    // Kept until the end, so that what follows finds the context current. A forked process ends here, before any lock.
    let entered = pairs.device.enter()?;
    pairs.check()?;
    if memory.is_finished() {
        return Err(CudaError::Finished);
    }
    let stream = consumer.stream() as RawStream;
    // SAFETY: the stream is one of the context, as the consumer promises.
    unsafe { check_capture(entered.driver(), stream) }.map_err(|error| pairs.failed(error))?;
    let places = places(batch, consumer)?;
    let mut pair = memory.pair();
    let held = pair.as_ref().ok_or(CudaError::Finished)?;
    let work = Work { pairs, pair: held, finishing, rows: batch.len(), fields: &memory.fields, places: &places };
    // SAFETY: the stream and the places are what the consumer promises; the context is current.
    match unsafe { work.queue(stream) } {
        Ok(()) => {
            pairs.put_used(pair.take().expect("held above"));
            Ok(())
        }
        // The batch keeps its pair.
        Err(error) => {
            // What was queued may still read the pair, and write to the places.
            // SAFETY: as above.
            let ended = unsafe { entered.driver().cuStreamSynchronize(stream) };
            crate::device::ended(ended);
            Err(pairs.failed(error))
        }
    }
}

/// Refuses a stream that records a graph, and the legacy default stream while a stream does that waits for it.
///
/// # Safety
///
/// The stream exists, in the context that is current.
pub(crate) unsafe fn check_capture(driver: &Driver, stream: RawStream) -> Result<(), CudaError> {
    let mut capturing = 0;
    // SAFETY: the driver writes a number; the rest is the caller's duty.
    match unsafe { driver.cuStreamIsCapturing(stream, &mut capturing) } {
        Ok(()) if capturing == 0 => Ok(()),
        Ok(()) => Err(CudaError::Capturing),
        Err(error) if error.number() == Some(code::STREAM_CAPTURE_IMPLICIT) => Err(CudaError::Capturing),
        Err(error) => Err(error),
    }
}

/// Asks the consumer for the place of each field.
fn places(batch: &Batch, consumer: &mut dyn Consumer) -> Result<Vec<Address>, CudaError> {
    let place = |field: &Field| {
        let view = batch.field(&field.name).expect("the batch names it");
        consumer.place(view).map_err(|error| match error.downcast::<CudaError>() {
            Ok(error) => *error,
            Err(error) => CudaError::Place { field: field.name.clone(), source: error.into() },
        })
    };
    batch.fields().map(place).collect()
}

/// What a stream does to finish a batch.
struct Work<'b> {
    pairs: &'b Pairs,
    pair: &'b Pair,
    finishing: &'b Finishing,
    rows: usize,
    /// Where the fields after the images lie in the pair.
    fields: &'b [Range<usize>],
    /// Where the fields are wanted.
    places: &'b [Address],
}

impl Work<'_> {
    /// Queues the work on a stream.
    ///
    /// # Safety
    ///
    /// The stream exists, in the context of the device, which is current. The places have room for their fields.
    unsafe fn queue(&self, stream: RawStream) -> Result<(), CudaError> {
        let Self { pairs, pair, .. } = self;
        let driver = pairs.driver();
        let (images, others) = self.places.split_first().expect("images come first");
        let table = pairs.table.as_ref().map_or(0, |table| table.address());
        let rows = u32::try_from(self.rows).expect("a batch has few rows");
        // SAFETY: the pair has the rows and fields once its copy is done, and keeps them until `used` has passed. The
        // rest is the caller's duty.
        unsafe {
            driver.cuStreamWaitEvent(stream, pair.copied().raw(), 0)?;
            pairs.device.kernels().launch(self.finishing, rows, [pair.address(), table, *images], stream)?;
            for (from, to) in self.fields.iter().zip(others).filter(|(from, _)| !from.is_empty()) {
                driver.cuMemcpyDtoDAsync_v2(*to, pair.address() + from.start as Address, from.len(), stream)?;
            }
            pair.used().record(driver, stream)
        }
    }
}
