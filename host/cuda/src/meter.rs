//! How fast a device copies batches and finishes them, for `ddlp bench gpu`.

use crate::delivery::{self, CudaTarget, megabytes};
use crate::device::{Device, DeviceMemory, ended};
use crate::error::CudaError;
use crate::pinned::Pinned;
use crate::queue::Stream;
use ddlp_host::pixels::Shape;
use ddlp_host::{BufferNeed, DType, DeliveryError, DeliveryTarget, Filled, Finishing};
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Memories of each kind on the device, used in turn: a batch of 256 × 224² in all of them exceeds the device's cache.
const MEMORIES: usize = 4;
/// Pairs of the delivery target, as many as a loader has.
const PAIRS: usize = 6;
/// Time after which this thread asks again whether a pair is back: much less than the copies of all pairs take.
const PAUSE: Duration = Duration::from_micros(20);

/// Something whose time is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    /// Copies a batch's rows to the device from memory that is not locked.
    CopyPlain,
    /// Copies a batch's rows to the device from locked memory.
    CopyLocked,
    /// Takes a buffer of the delivery target, makes it ready, and drops the batch that is on its way to the device.
    Deliver,
    /// Copies as many bytes within the device as finishing with this type moves: half of them are read, half written.
    CopyWithin(DType),
    /// Finishes a batch with elements of this type, in planes or not.
    Finish(DType, bool),
}

/// Batches on a device, made of noise, and what moves them.
#[derive(Debug)]
pub struct Meter {
    device: Device,
    stream: Stream,
    rows: u32,
    shape: Shape,
    plain: Vec<u8>,
    locked: Pinned,
    prepared: Vec<DeviceMemory>,
    elements: Vec<DeviceMemory>,
    table: DeviceMemory,
    target: Arc<dyn DeliveryTarget>,
}

impl Meter {
    /// Makes batches of this many rows.
    ///
    /// # Errors
    ///
    /// [`DeliveryError`] if a memory is refused, or the driver fails.
    pub fn new(device: &Device, rows: u32, shape: Shape) -> Result<Self, DeliveryError> {
        let bytes = rows as usize * shape.bytes();
        let memories = |bytes: usize, what: &str| {
            let what = format!("{MEMORIES} batches {what} of {}", megabytes(bytes));
            (0..MEMORIES).map(|_| DeviceMemory::new(device, bytes, &what)).collect::<Result<Vec<_>, _>>()
        };
        let table_bytes = 3 * 256 * DType::F32.bytes();
        let mut locked = Pinned::new(bytes).map_err(refused)?;
        fill(&mut locked.bytes_mut()[..bytes]);
        locked.register(device, &format!("a batch of {}", megabytes(bytes)))?;
        let mut meter = Self {
            stream: Stream::new(device)?,
            rows,
            shape,
            plain: locked.bytes()[..bytes].to_vec(),
            locked,
            prepared: memories(bytes, "as bytes")?,
            elements: memories(bytes * DType::F32.bytes(), "as float32")?,
            table: DeviceMemory::new(device, table_bytes, "a table of values")?,
            target: CudaTarget::on(device)(BufferNeed::new(PAIRS, bytes, Arc::default()))?,
            device: device.clone(),
        };
        // Every memory gets its values, and every buffer is locked, before anything is measured.
        meter.copy(&meter.table, &meter.locked.bytes()[..table_bytes.min(bytes)])?;
        meter.seconds(Work::CopyLocked, MEMORIES as u32)?;
        let buffers = (0..PAIRS).map(|_| meter.target.take()).collect::<Result<Vec<_>, _>>().map_err(refused)?;
        let mut delivered = Vec::new();
        for mut buffer in buffers.into_iter().flatten() {
            buffer.bytes_mut()[..bytes].copy_from_slice(&meter.plain);
            delivered.push(buffer.make_ready(Filled::new(bytes, &[]))?);
        }
        drop(delivered);
        meter.seconds(Work::Deliver, 1)?;
        Ok(meter)
    }

    /// Returns how many bytes a piece of work moves: the rows' bytes for copies to the device; the bytes read and
    /// written for work within it.
    pub fn bytes(&self, work: Work) -> u64 {
        let bytes = self.plain.len() as u64;
        match work {
            Work::CopyPlain | Work::CopyLocked | Work::Deliver => bytes,
            Work::CopyWithin(dtype) | Work::Finish(dtype, _) => bytes * (1 + dtype.bytes() as u64),
        }
    }

    /// Does the work `times` times without a pause, and returns the seconds that it takes once, on the average.
    ///
    /// # Errors
    ///
    /// [`DeliveryError`] says what failed.
    pub fn seconds(&mut self, work: Work, times: u32) -> Result<f64, DeliveryError> {
        // Kept until the end, so that what follows finds the context current.
        let device = self.device.clone();
        let _entered = device.enter()?;
        self.stream.synchronize()?;
        let begun = Instant::now();
        for time in 0..times as usize {
            self.queue(work, time % MEMORIES)?;
        }
        self.stream.synchronize()?;
        while self.target.free() < PAIRS {
            thread::sleep(PAUSE);
            // Fails if the context is lost, and no pair comes back.
            self.stream.synchronize()?;
        }
        Ok(begun.elapsed().as_secs_f64() / f64::from(times))
    }

    /// Sends a batch through the delivery target, as a loader does.
    fn deliver(&self) -> Result<(), DeliveryError> {
        let buffer = loop {
            match self.target.take().map_err(refused)? {
                Some(buffer) => break buffer,
                None => {
                    thread::sleep(PAUSE);
                    self.stream.synchronize()?;
                }
            }
        };
        buffer.make_ready(Filled::new(self.plain.len(), &[])).map(drop)
    }

    /// Queues work with one of the memories of each kind.
    fn queue(&self, work: Work, at: usize) -> Result<(), DeliveryError> {
        let (prepared, elements) = (&self.prepared[at], &self.elements[at]);
        match work {
            Work::CopyPlain => self.copy(prepared, &self.plain),
            Work::CopyLocked => self.copy(prepared, &self.locked.bytes()[..self.plain.len()]),
            Work::CopyWithin(_) => {
                let bytes = self.bytes(work) as usize / 2;
                let from = &self.elements[(at + 1) % MEMORIES];
                // SAFETY: both memories have room for the batch as float32, and the copy has no more bytes.
                unsafe {
                    let driver = self.device.driver();
                    driver.cuMemcpyDtoDAsync_v2(elements.address(), from.address(), bytes, self.stream.raw())
                }
            }
            Work::Finish(dtype, planar) => {
                let finishing = Finishing::unmixed(self.shape, dtype, planar, Arc::default());
                let places = [prepared.address(), self.table.address(), elements.address()];
                // SAFETY: the memories have the rows, a table of float32, and room for elements of float32, and only
                // this stream uses them.
                unsafe { self.device.kernels().launch(&finishing, self.rows, places, self.stream.raw()) }
            }
            Work::Deliver => return self.deliver(),
        }
        .map_err(|error| error.on(self.device.name()).into())
    }

    fn copy(&self, to: &DeviceMemory, from: &[u8]) -> Result<(), CudaError> {
        assert!(from.len() <= to.bytes(), "the memory has room");
        let entered = self.device.enter()?;
        // SAFETY: the memory of the device has room, as checked. `from` is memory of this value, which is not written
        // again, and which is freed after the stream's work is done.
        unsafe {
            entered.driver().cuMemcpyHtoDAsync_v2(to.address(), from.as_ptr().cast(), from.len(), self.stream.raw())
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        // The stream's work uses the memories.
        ended(self.stream.synchronize());
        self.target.end();
    }
}

fn refused(error: io::Error) -> CudaError {
    delivery::refused("memory for a batch", error)
}

/// Fills bytes with noise, always the same.
fn fill(bytes: &mut [u8]) {
    let mut state = 1u64;
    for byte in bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *byte = (state >> 56) as u8;
    }
}
