//! Finished batches in memory of this crate's own, for consumers that take over memory, as DLPack lets them.
//!
//! The memory comes from [`Outputs`] of the target, and goes back there by a thread of its own, so that dropping a
//! [`FinishedBatch`] never waits. If only the legacy default stream has used the memory, an event on this stream tells
//! when it can be used again. Otherwise the thread frees the memory, for which the driver waits until nothing uses it:
//! other streams may have ended before.

use crate::delivery::{CudaMemory, Pairs, megabytes, refused};
use crate::device::{Device, DeviceMemory, ended};
use crate::driver::{Address, RawStream};
use crate::error::CudaError;
use crate::finish::{Consumer, check_capture, finish};
use crate::queue::Event;
use ddlp_host::{Batch, FIELD_ALIGNMENT, FieldView};
use std::error::Error;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, mpsc};
use std::thread;

/// Handle of the legacy default stream: `CU_STREAM_LEGACY`.
pub const LEGACY_STREAM: u64 = 1;

/// A finished batch in memory of the device that belongs to it alone. Its fields lie one after the other, in the order
/// in which [`Batch::fields`] has them. Dropping it never waits, on any thread, even after the driver has shut down.
#[derive(Debug)]
pub struct FinishedBatch {
    /// Address of each field; 0 if the batch has no rows.
    places: Box<[Address]>,
    /// `None` if the batch has no rows.
    lent: Option<Lent>,
}

/// Memory that a batch has, until it goes back.
#[derive(Debug)]
struct Lent {
    /// Has the only hold on the device, so that the last one is not given up on the consumer's thread.
    output: ManuallyDrop<Output>,
    back: ManuallyDrop<mpsc::Sender<Output>>,
    /// Whether other streams than the legacy default stream may use the memory.
    is_elsewhere: AtomicBool,
}

/// Memory of a batch, on its way back.
#[derive(Debug)]
struct Output {
    memory: DeviceMemory,
    /// Passes when the batch is finished and, once the memory is on its way back, when nothing uses it any more.
    passed: Event,
    /// Whether the event says when nothing uses the memory any more.
    is_reusable: bool,
    idle: Weak<Idle>,
}

/// Memory that no batch has; `None` when the run is over.
type Idle = Mutex<Option<Vec<DeviceMemory>>>;

/// The memory for finished batches of a target.
#[derive(Debug)]
pub(crate) struct Outputs {
    idle: Arc<Idle>,
    /// Leads to the thread that takes memory back; `None` until memory was first wanted.
    back: Mutex<Option<mpsc::Sender<Output>>>,
}

impl Default for Outputs {
    fn default() -> Self {
        Self { idle: Arc::new(Mutex::new(Some(Vec::new()))), back: Mutex::default() }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Outputs {
    /// Returns memory of at least this size, which nothing uses.
    fn take(&self, device: &Device, bytes: usize) -> Result<DeviceMemory, CudaError> {
        let mut too_small = None;
        if let Some(idle) = &mut *locked(&self.idle) {
            if let Some(at) = idle.iter().position(|memory| memory.bytes() >= bytes) {
                return Ok(idle.swap_remove(at));
            }
            // So that sizes which grow do not pile up.
            too_small = idle.pop();
        }
        drop(too_small);
        DeviceMemory::new(device, bytes, &format!("a finished batch of {}", megabytes(bytes)))
    }

    /// Frees all memory that no batch has, and from now on all that comes back.
    pub fn end(&self) {
        let idle = locked(&self.idle).take();
        drop(idle);
        *locked(&self.back) = None;
    }

    /// Returns a way to the thread that takes memory back, which ends after the last of these.
    fn back(&self) -> Result<mpsc::Sender<Output>, CudaError> {
        let mut back = locked(&self.back);
        if let Some(back) = &*back {
            return Ok(back.clone());
        }
        let (sender, outputs) = mpsc::channel();
        let take_back = move || outputs.into_iter().for_each(Output::take_back);
        let spawned = thread::Builder::new().name("ddlp-cuda-outputs".into()).spawn(take_back);
        spawned.map_err(|error| refused("a thread", error))?;
        // A batch that outlives its run needs a thread of its own.
        if locked(&self.idle).is_some() {
            *back = Some(sender.clone());
        }
        Ok(sender)
    }
}

impl Output {
    /// Waits until nothing uses the memory, and makes it available again; frees it if that cannot be.
    fn take_back(self) {
        let Self { memory, passed, is_reusable, idle } = self;
        let wait = || memory.device().enter().and_then(|entered| passed.wait(entered.driver()));
        let has_passed = is_reusable && wait().is_ok();
        if has_passed
            && let Some(idle) = idle.upgrade()
            && let Some(idle) = &mut *locked(&idle)
        {
            idle.push(memory);
        }
    }
}

/// Gives out places for the fields of a batch, one after the other in one piece of memory.
struct Placing<'p> {
    stream: u64,
    pairs: Option<&'p Pairs>,
    /// Bytes of all fields.
    bytes: usize,
    memory: Option<DeviceMemory>,
    places: Vec<Address>,
    used: usize,
}

// SAFETY: the stream is one of the context, as the caller of `FinishedBatch::new` promises. Each field has a place of
// its own in memory of the device, which nothing else uses.
unsafe impl Consumer for Placing<'_> {
    fn stream(&self) -> u64 {
        self.stream
    }

    fn place(&mut self, field: FieldView<'_>) -> Result<u64, Box<dyn Error + Send + Sync>> {
        let Some(pairs) = self.pairs else {
            self.places.push(0);
            return Ok(0);
        };
        let memory = match self.memory.take() {
            Some(memory) => memory,
            None => pairs.outputs.take(&pairs.device, self.bytes)?,
        };
        let place = self.memory.insert(memory).address() + self.used as Address;
        self.used += room(&field);
        self.places.push(place);
        Ok(place)
    }
}

/// Returns the bytes from the beginning of a field to the beginning of the next field.
fn room(field: &FieldView<'_>) -> usize {
    let bytes = field.shape().iter().product::<usize>() * field.dtype().bytes();
    bytes.next_multiple_of(FIELD_ALIGNMENT)
}

impl FinishedBatch {
    /// Finishes a batch on a stream, and returns at once.
    ///
    /// # Safety
    ///
    /// The handle belongs to a stream of the device's primary context.
    ///
    /// # Errors
    ///
    /// As [`finish`], and [`CudaError::OutOfMemory`].
    pub unsafe fn new(batch: &Batch, stream: u64) -> Result<Self, CudaError> {
        let pairs = batch.target_memory::<CudaMemory>().map(|memory| &*memory.pairs);
        let views = batch.fields().map(|field| batch.field(&field.name).expect("the batch names it"));
        let bytes = views.map(|view| room(&view)).sum();
        let mut placing = Placing { stream, pairs, bytes, memory: None, places: Vec::new(), used: 0 };
        let Some(pairs) = pairs else {
            finish(batch, &mut placing)?;
            return Ok(Self { places: placing.places.into(), lent: None });
        };
        // Kept until the end, so that what follows finds the context current.
        let entered = pairs.device.enter()?;
        let back = pairs.outputs.back()?;
        let passed = Event::new(&pairs.device)?;
        finish(batch, &mut placing)?;
        let memory = placing.memory.expect("images have a place");
        let output = Output { memory, passed, is_reusable: false, idle: Arc::downgrade(&pairs.outputs.idle) };
        let output = ManuallyDrop::new(output);
        let is_elsewhere = AtomicBool::new(stream != LEGACY_STREAM);
        let lent = Lent { output, back: ManuallyDrop::new(back), is_elsewhere };
        // From here on, the memory goes back by the thread.
        let finished = Self { places: placing.places.into(), lent: Some(lent) };
        let passed = &finished.lent.as_ref().expect("as above").output.passed;
        // SAFETY: the stream is one of the context, which is current.
        unsafe { passed.record(entered.driver(), stream as RawStream) }.map_err(|error| pairs.failed(error))?;
        Ok(finished)
    }

    /// Returns the address of a field, by its place in [`Batch::fields`]: a multiple of 256, or 0 if the batch has no
    /// rows.
    pub fn address(&self, field: usize) -> u64 {
        self.places[field]
    }

    /// Makes a stream wait until the batch is finished.
    ///
    /// # Safety
    ///
    /// As for [`new`](Self::new).
    ///
    /// # Errors
    ///
    /// [`CudaError::Capturing`] on a stream that records a graph; otherwise what the driver says.
    pub unsafe fn make_wait(&self, stream: u64) -> Result<(), CudaError> {
        let Some(lent) = &self.lent else { return Ok(()) };
        let entered = lent.output.memory.device().enter()?;
        // SAFETY: the caller's duty.
        unsafe {
            check_capture(entered.driver(), stream as RawStream)?;
            entered.driver().cuStreamWaitEvent(stream as RawStream, lent.output.passed.raw(), 0)?;
        }
        if stream != LEGACY_STREAM {
            self.use_elsewhere();
        }
        Ok(())
    }

    /// Notes that streams use the batch that this value does not know.
    pub fn use_elsewhere(&self) {
        if let Some(lent) = &self.lent {
            lent.is_elsewhere.store(true, Ordering::Release);
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // In a forked process, the channel's lock may be held for ever.
        if !self.output.memory.device().is_home() {
            return;
        }
        // SAFETY: neither is used again.
        let (mut output, back) = unsafe { (ManuallyDrop::take(&mut self.output), ManuallyDrop::take(&mut self.back)) };
        if !*self.is_elsewhere.get_mut() {
            // Fails if the driver has shut down, or while the stream cannot be used since a graph is captured.
            let recorded = output.memory.device().enter().and_then(|entered| {
                // SAFETY: the legacy default stream always exists, and the context is current.
                unsafe { output.passed.record(entered.driver(), LEGACY_STREAM as RawStream) }
            });
            output.is_reusable = recorded.is_ok();
            ended(recorded);
        }
        // The thread lives as long as there is a sender.
        drop(back.send(output));
    }
}
