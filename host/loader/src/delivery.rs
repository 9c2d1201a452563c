//! Delivery targets: the memory in which the consumer gets batches.
//!
//! A [`DeliveryTarget`] lends buffers. A prong fills a [`BatchBuffer`] with a batch's rows; [`MakeReady`] turns the
//! filled buffer into the [`BatchMemory`] that the consumer reads. Dropping a buffer or a batch's memory gives it back
//! to its target. The number of buffers bounds how far the loader prepares ahead: while no buffer is free, prongs wait.
//!
//! - `host_pool`: the default target: buffers in this process's memory.
//! - `owned`: memory of one batch alone, which no target lent.
//! - `slots`: the result slots of a drive. A drive fills them, so they are not a target; but if a target
//!   [accepts slots](DeliveryTarget::accepts_slots), the consumer gets batches in slots that host and drive share.
//!   Otherwise the rows are copied from the slots into buffers.
//!
//! A target may [finish](crate::Finishing) batches itself. Its buffers then hold the rows as prepared and, behind them,
//! the values of the other fields.
//!
//! # To add a delivery target
//!
//! A target lends the buffers that prongs fill, and makes each filled buffer the memory that the consumer reads.
//!
//! 1. Implement `DeliveryTarget` of `host/loader/src/delivery.rs`: the number of buffers, how many are free, `take`.
//!    The loader calls these methods under its lock, so they must not wait. Memory may be allocated at the start or
//!    when a buffer is taken first. `accepts_slots` says whether the consumer may get pixels in a drive's shared slots;
//!    if not, they are copied into buffers.
//! 2. Implement `BatchBuffer` for a buffer on loan, aligned to `BUFFER_ALIGNMENT`. Several threads write its rows
//!    through one pointer, so the memory must not move, and nothing else may use it. Dropping the buffer gives it back
//!    and calls `BufferReturned::notify`.
//! 3. Implement `MakeReady` for the buffer: copy the batch elsewhere or wait, if necessary, and return the memory that
//!    the consumer holds (`BatchMemory`): its address, whether the consumer may write there, and the bytes if this
//!    process can read them. An error ends the run with `LoaderError::Delivery` when the batch is due.
//! 4. Pass a function that makes the target to `LoaderBuilder::deliver_to`, or to `deliver_prepared_to` if the target
//!    finishes batches itself. `host/loader/tests/suite/delivery.rs` has a target that fails, waits, or delivers into
//!    memory that only a device can read; `tests/src/finishing.rs` has one that finishes batches, value by value.
//!
//! A target that *finishes* batches gets rows of bytes as prepared, whatever the options say of types and layouts, and
//! makes the elements itself: `Batch::finishing` describes how, with MixUp and CutMix. Its buffers hold the other
//! fields behind the rows, so one copy takes all of a batch to a device. Rows in slots that drives share come by
//! `BatchBuffer::make_ready_from`, for a copy straight from there. The crate of the target finds its memory in a batch
//! by `Batch::target_memory`. `host/cuda/src/delivery.rs` is such a target.
//!
//! Prongs write into the buffer that is taken, so the host can read and write that buffer; on a device, it is pinned
//! memory. Everything that the loader itself checks or computes (checksums of slots, fields, floats) is done before
//! `make_ready`. After it, the loader reads no image. `Digest::update`, `FieldView::bytes` and `Batch::into_owned` need
//! images that this process can read, and are `FieldError::OnDevice` otherwise.
//!
//! Labels and other fields lie in host memory of their own (`delivery/owned.rs`), whatever the target: no prong makes
//! them, the host looks them up once a batch's rows are known, and training code reads them on the host too, to count
//! classes or samples. Only a target that finishes batches gets a copy of them.

mod host_pool;
mod owned;
mod slots;

pub(crate) use host_pool::HostPool;
pub(crate) use owned::{HostValues, OwnedMemory};
pub(crate) use slots::{HeldSlots, SlotRows, SlotTable, hold_slots};

use crate::signal::Signal;
use std::any::Any;
use std::error::Error;
use std::fmt;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

/// Memory for batches: a bounded number of buffers, each with room for one batch.
///
/// The loader calls all methods under its lock, so none of them may wait.
pub trait DeliveryTarget: fmt::Debug + Send + Sync {
    /// Returns the number of buffers.
    fn count(&self) -> usize;

    /// Returns the number of buffers that can be taken now.
    fn free(&self) -> usize;

    /// Returns whether buffers or slots will come back although the consumer does nothing more: a device still uses
    /// them. The loader then does not say that the consumer keeps batches.
    fn awaits_device(&self) -> bool {
        false
    }

    /// Returns whether the consumer may get batches in result slots that drives share with this host. A target that
    /// finishes batches is not asked: it gets the rows by [`BatchBuffer::make_ready_from`].
    fn accepts_slots(&self) -> bool;

    /// Returns the name of the device to which batches are delivered, for the report; `None` if they stay in this
    /// process's memory.
    fn device(&self) -> Option<String> {
        None
    }

    /// Takes a buffer; `None` when all are on loan. Allocates the buffer's memory, unless the target did so before.
    ///
    /// # Errors
    ///
    /// The system's error when it refuses the memory.
    fn take(&self) -> io::Result<Option<Box<dyn BatchBuffer>>>;

    /// Frees the memory of all buffers that are not on loan, and from now on the memory of each buffer that returns.
    /// The loader calls this at the end of the run, when its threads have ended; the consumer may still hold batches.
    /// By default, the memory is freed when the target is dropped: after the loader, and after the last handle that
    /// shows its figures.
    fn end(&self) {}
}

/// A buffer on loan, which a prong fills with the rows of a batch. It returns to its target when dropped.
///
/// # Safety
///
/// Every call of [`bytes_mut`](Self::bytes_mut) returns the same memory, which lies outside of the value itself.
/// Nothing else reads or writes this memory from the moment the buffer was taken until the buffer is dropped or made
/// ready ([`MakeReady::make_ready`]): several threads write rows through a pointer to it.
#[allow(unsafe_code)]
pub unsafe trait BatchBuffer: MakeReady + fmt::Debug + Send {
    /// Returns the memory for the rows: at least [`BufferNeed::bytes`] bytes, which begin at a multiple of
    /// [`BUFFER_ALIGNMENT`].
    fn bytes_mut(&mut self) -> &mut [u8];

    /// Turns rows in a result slot, which a drive shares with this host, into the memory that the consumer reads. The
    /// buffer holds the other fields as for [`MakeReady::make_ready`], but no rows. Dropping `rows` frees the slot. The
    /// loader calls this only if the target finishes batches. By default, the rows are copied to the buffer.
    ///
    /// # Errors
    ///
    /// As [`MakeReady::make_ready`].
    fn make_ready_from(
        mut self: Box<Self>,
        rows: Box<dyn BatchMemory>,
        filled: Filled<'_>,
    ) -> Result<Box<dyn BatchMemory>, DeliveryError> {
        let slot = rows.bytes().expect("host and drive share the slot");
        self.bytes_mut()[..filled.rows].copy_from_slice(&slot[..filled.rows]);
        drop(rows);
        self.make_ready(filled)
    }
}

/// What a buffer holds when it is filled.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Filled<'a> {
    /// Bytes of the batch's rows, with which the buffer begins.
    pub rows: usize,
    /// If the target finishes batches: where the values of each further field lie behind the rows, in the order of the
    /// batch's fields. Each begins at a multiple of [`FIELD_ALIGNMENT`].
    pub fields: &'a [Range<usize>],
}

impl<'a> Filled<'a> {
    /// Describes a buffer that holds rows, and behind them the fields.
    pub fn new(rows: usize, fields: &'a [Range<usize>]) -> Self {
        Self { rows, fields }
    }

    /// Returns the number of bytes in use, counted from the beginning of the buffer.
    pub fn end(&self) -> usize {
        self.fields.last().map_or(self.rows, |last| last.end)
    }
}

/// The step between “all rows are written” and “the batch is ready for delivery”.
pub trait MakeReady {
    /// Turns a filled buffer into the memory that the consumer reads. The batch is ready for delivery once this
    /// returns.
    ///
    /// The thread that wrote the last row calls this without holding a lock. The call may wait, for example until the
    /// rows are copied elsewhere; the thread prepares nothing meanwhile, and the run cannot end before the call has
    /// returned.
    ///
    /// # Errors
    ///
    /// [`DeliveryError`] ends the run when the batch is due.
    fn make_ready(self: Box<Self>, filled: Filled<'_>) -> Result<Box<dyn BatchMemory>, DeliveryError>;
}

/// The memory of a batch that is ready or delivered. Dropping it gives the buffer or slot back. The crate of a target
/// finds its own type again by [`Batch::target_memory`](crate::Batch::target_memory).
///
/// # Safety
///
/// All methods speak of the same memory at every call, until the value is dropped. Nothing but the batch's consumer
/// writes to this memory.
#[allow(unsafe_code)]
pub unsafe trait BatchMemory: Any + fmt::Debug + Send + Sync {
    /// Returns the address of the memory, which begins with the batch's rows, at a multiple of [`BUFFER_ALIGNMENT`].
    /// If the memory is not [`bytes`](Self::bytes) of this process, the address is one of the device that can read it;
    /// of a batch that its target has yet to finish, nobody reads at the address.
    fn address(&self) -> NonNull<u8>;

    /// Returns whether a consumer may write to the memory, such as an operation in place in another language. The
    /// consumer must write only while no slice of the memory is in use.
    fn is_writable(&self) -> bool {
        false
    }

    /// Returns the memory, if this process can read it: a slice that begins at the address.
    fn bytes(&self) -> Option<&[u8]>;

    /// Returns a hold on the mapping in which a result slot lies: the memory stays mapped until the hold is dropped,
    /// even when the slot is free or the run has ended.
    fn mapping(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }
}

/// Alignment of the memory of a batch, in bytes: enough for every type of elements.
pub const BUFFER_ALIGNMENT: usize = 8;
/// Alignment of the fields behind the rows in a buffer of a target that finishes batches, in bytes.
pub const FIELD_ALIGNMENT: usize = 256;

/// What a loader needs from its delivery target.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BufferNeed {
    /// Number of buffers.
    pub count: usize,
    /// Bytes of a buffer.
    pub bytes: usize,
    /// If the target finishes batches: the [table](crate::Finishing::table) of all batches.
    pub table: Arc<[u8]>,
    /// Wakes the loader when a buffer has come back.
    pub returned: BufferReturned,
}

impl BufferNeed {
    /// Describes buffers for measuring or testing a target without a loader: nobody is woken.
    pub fn new(count: usize, bytes: usize, table: Arc<[u8]>) -> Self {
        Self { count, bytes, table, returned: BufferReturned::default() }
    }
}

/// Handle by which a delivery target tells its loader that a buffer can be taken again.
#[derive(Clone, Debug, Default)]
pub struct BufferReturned(Arc<Signal>);

impl BufferReturned {
    /// Creates a handle that notifies `waiting`.
    pub(crate) fn new(waiting: Arc<Signal>) -> Self {
        Self(waiting)
    }

    /// Wakes the threads that wait for a buffer. Call this after each increase of
    /// [`free`](DeliveryTarget::free): nobody asks again by himself.
    pub fn notify(&self) {
        self.0.notify_all();
    }
}

/// A function that makes the delivery target of a loader.
pub(crate) type MakeTarget = dyn Fn(BufferNeed) -> Result<Arc<dyn DeliveryTarget>, DeliveryError> + Send + Sync;

/// The delivery target that the consumer chose.
#[derive(Clone)]
pub(crate) struct ChosenTarget {
    pub make: Arc<MakeTarget>,
    /// Whether the target finishes batches.
    pub finishes: bool,
}

/// Why a delivery target cannot serve, or cannot make a batch ready.
#[derive(Debug)]
pub struct DeliveryError(Box<dyn Error + Send + Sync>);

impl DeliveryError {
    /// Creates an error; its message says what failed.
    pub fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(error.into())
    }

    /// Returns the error that it was created from.
    pub fn inner(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.0
    }
}

impl fmt::Display for DeliveryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for DeliveryError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}
