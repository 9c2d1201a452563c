//! The delivery target: buffers that are pairs of memory of this process and of the device.
//!
//! A prong fills the first half of a [`Pair`]. Once the rows are there, the copy to the other half is queued on the
//! target's one stream, and the batch is ready. The pair comes back when the consumer's work on the rows is done, or,
//! if the consumer drops the batch without finishing it, when the copy is done. `filling`: a pair on its way to the
//! consumer. `returning`: its way back.

mod filling;
mod returning;

pub(crate) use filling::CudaMemory;

use crate::device::{Device, DeviceMemory};
use crate::driver::{Address, Driver};
use crate::error::CudaError;
use crate::finished::Outputs;
use crate::pinned::{Pinned, PinnedSlots};
use crate::queue::{Event, Stream};
use ddlp_host::{BatchBuffer, BufferNeed, DeliveryError, DeliveryTarget};
use filling::Filling;
use returning::{Returning, wait_for_pairs};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// Delivers batches to the memory of a device. [`finish`](crate::finish) makes tensors of them there.
#[derive(Debug)]
pub struct CudaTarget(Arc<Pairs>);

/// The pairs of a loader, and what they share.
#[derive(Debug)]
pub(crate) struct Pairs {
    pub device: Device,
    /// Stream of all copies to the device.
    copies: Stream,
    /// Table of the values of floats; `None` for uint8.
    pub table: Option<DeviceMemory>,
    /// Memory for batches that this crate finishes for a consumer.
    pub outputs: Outputs,
    slots: PinnedSlots,
    need: BufferNeed,
    state: Mutex<State>,
    /// Something is to be waited for, or the target is gone.
    changed: Condvar,
}

/// Where the pairs are.
#[derive(Debug)]
struct State {
    idle: Vec<Pair>,
    /// Pairs that a prong or the consumer has, or that wait for the device.
    lent: usize,
    /// Pairs and slots that come back when the device is done with them.
    returning: Returning,
    /// Whether pairs that come back are freed.
    is_over: bool,
    /// Whether the target was dropped.
    is_gone: bool,
    /// Why nothing can be delivered any more.
    lost: Option<CudaError>,
}

/// Memory of this process and memory of the device, of one size.
#[derive(Debug)]
pub(crate) struct Pair {
    /// `None` until the pair is first taken.
    host: Option<Pinned>,
    memory: DeviceMemory,
    /// Passes when the rows are on the device.
    copied: Event,
    /// Passes when the consumer's stream has used the rows.
    used: Event,
}

impl Pair {
    pub fn address(&self) -> Address {
        self.memory.address()
    }

    pub fn copied(&self) -> &Event {
        &self.copied
    }

    pub fn used(&self) -> &Event {
        &self.used
    }
}

impl CudaTarget {
    /// Returns a function for [`LoaderBuilder::deliver_prepared_to`](ddlp_host::LoaderBuilder::deliver_prepared_to),
    /// which makes the target of a loader on this device.
    pub fn on(
        device: &Device,
    ) -> impl Fn(BufferNeed) -> Result<Arc<dyn DeliveryTarget>, DeliveryError> + Send + Sync + 'static {
        let device = device.clone();
        move |need| Ok(Arc::new(Self::new(&device, need)?))
    }

    fn new(device: &Device, need: BufferNeed) -> Result<Self, CudaError> {
        // Kept until the end, so that what follows finds the context current.
        let entered = device.enter()?;
        let copies = Stream::new(device)?;
        let table = (!need.table.is_empty()).then(|| DeviceMemory::new(device, need.table.len(), "a table of values"));
        let table = table.transpose()?;
        if let Some(table) = &table {
            let mut values = Pinned::new(need.table.len()).map_err(|error| refused("memory", error))?;
            values.bytes_mut()[..need.table.len()].copy_from_slice(&need.table);
            values.register(device, "a table of values")?;
            // SAFETY: both memories have this many bytes and live until the copy is done.
            unsafe {
                entered.driver().cuMemcpyHtoDAsync_v2(
                    table.address(),
                    values.bytes().as_ptr().cast(),
                    need.table.len(),
                    copies.raw(),
                )
            }
            .map_err(|error| error.on(device.name()))?;
            copies.synchronize()?;
        }
        let idle = (0..need.count).map(|_| Pair::new(device, &need)).collect::<Result<_, _>>()?;
        let returning = Returning::default();
        let state = State { idle, lent: 0, returning, is_over: false, is_gone: false, lost: None };
        let pairs = Pairs {
            device: device.clone(),
            copies,
            table,
            outputs: Outputs::default(),
            slots: PinnedSlots::default(),
            need,
            state: Mutex::new(state),
            changed: Condvar::new(),
        };
        let pairs = Arc::new(pairs);
        let waited_for = pairs.clone();
        std::thread::Builder::new()
            .name("ddlp-cuda".into())
            .spawn(move || wait_for_pairs(&waited_for))
            .map_err(|error| refused("a thread", error))?;
        Ok(Self(pairs))
    }
}

impl Pair {
    fn new(device: &Device, need: &BufferNeed) -> Result<Self, CudaError> {
        let what = format!("{} buffers of {}", need.count, megabytes(need.bytes));
        let memory = DeviceMemory::new(device, need.bytes, &what)?;
        Ok(Self { host: None, memory, copied: Event::new(device)?, used: Event::new(device)? })
    }
}

/// Returns a size in words.
pub(crate) fn megabytes(bytes: usize) -> String {
    format!("{} MB", bytes.div_ceil(1_000_000))
}

/// Returns the error for something that the system refuses.
pub(crate) fn refused(what: &'static str, error: io::Error) -> CudaError {
    CudaError::System { what, source: error.into() }
}

impl Pairs {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while the pairs are locked")
    }

    /// Returns the error that ended delivery, if it has ended.
    pub fn check(&self) -> Result<(), CudaError> {
        self.lock().lost.clone().map_or(Ok(()), Err)
    }

    pub fn driver(&self) -> &'static Driver {
        self.device.driver()
    }

    /// Returns the error of a call with the device's name. If the context is lost, nothing is delivered any more.
    pub fn failed(&self, error: CudaError) -> CudaError {
        let error = error.on(self.device.name());
        if error.is_loss() {
            self.lock().lost.get_or_insert_with(|| error.clone());
        }
        error
    }

    /// Takes back a pair that the device no longer uses.
    fn put(&self, pair: Pair) {
        let mut state = self.lock();
        state.lent -= 1;
        let freed = if state.is_over {
            Some(pair)
        } else {
            state.idle.push(pair);
            None
        };
        drop(state);
        drop(freed);
        self.need.returned.notify();
        self.changed.notify_all();
    }

    /// Takes back a pair from the consumer, whose stream still uses it.
    pub fn put_used(&self, pair: Pair) {
        self.lock().returning.add_used(pair);
        self.changed.notify_all();
    }

    /// Takes back a pair that the consumer never used, and whose copy may not be done.
    pub fn put_unused(&self, pair: Pair) {
        self.lock().returning.add_copied(pair);
        self.changed.notify_all();
    }

    /// Queues copies to the device, of parts of this process's memory, each with its place in the pair; then events.
    fn copy(&self, driver: &Driver, pair: &Pair, parts: &[(&[u8], usize)], events: &[&Event]) -> Result<(), CudaError> {
        for (from, at) in parts.iter().filter(|(from, _)| !from.is_empty()) {
            assert!(at + from.len() <= pair.memory.bytes(), "the pair has room");
            let to = pair.address() + *at as Address;
            // SAFETY: the memory of the device is the pair's, as checked. The memory of this process stays where it is
            // and is not written until the events have passed: pair and slot are kept until then.
            unsafe { driver.cuMemcpyHtoDAsync_v2(to, from.as_ptr().cast(), from.len(), self.copies.raw()) }
                .map_err(|error| error.on(self.device.name()))?;
        }
        // SAFETY: the stream is this value's.
        events.iter().try_for_each(|event| unsafe { event.record(driver, self.copies.raw()) })
    }
}

impl DeliveryTarget for CudaTarget {
    fn count(&self) -> usize {
        self.0.need.count
    }

    fn free(&self) -> usize {
        self.0.need.count - self.0.lock().lent
    }

    fn awaits_device(&self) -> bool {
        !self.0.lock().returning.is_empty()
    }

    /// A target that finishes batches gets slots by `make_ready_from`.
    fn accepts_slots(&self) -> bool {
        false
    }

    fn device(&self) -> Option<String> {
        Some(self.0.device.name().to_owned())
    }

    fn take(&self) -> io::Result<Option<Box<dyn BatchBuffer>>> {
        let mut state = self.0.lock();
        let Some(mut pair) = state.idle.pop() else { return Ok(None) };
        if pair.host.is_none() {
            match Pinned::new(self.0.need.bytes) {
                Ok(memory) => pair.host = Some(memory),
                Err(error) => {
                    state.idle.push(pair);
                    return Err(error);
                }
            }
        }
        state.lent += 1;
        Ok(Some(Box::new(Filling { pair: Some(pair), pairs: self.0.clone() })))
    }

    fn end(&self) {
        let mut state = self.0.lock();
        state.is_over = true;
        let idle = std::mem::take(&mut state.idle);
        let copied = state.returning.slots();
        drop(state);
        drop(idle);
        self.0.outputs.end();
        // The slots are about to be unmapped.
        self.0.slots.clear(&copied);
    }
}

impl Drop for CudaTarget {
    fn drop(&mut self) {
        if self.0.device.is_home() {
            self.0.lock().is_gone = true;
            self.0.changed.notify_all();
        }
    }
}
