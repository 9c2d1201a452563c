//! Streams of this crate's own, and events.

use crate::device::{Device, ended};
use crate::driver::{EVENT_SLEEPING, RawEvent, RawStream, STREAM_NON_BLOCKING};
use crate::error::CudaError;
use std::ptr;

/// A stream of this crate's own.
#[derive(Debug)]
pub(crate) struct Stream {
    device: Device,
    raw: RawStream,
}

// SAFETY: the handle of a stream may be used by any thread.
unsafe impl Send for Stream {}
// SAFETY: as above; calls of several threads queue one after the other.
unsafe impl Sync for Stream {}

impl Stream {
    pub fn new(device: &Device) -> Result<Self, CudaError> {
        let entered = device.enter()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the driver writes a handle; the context is current.
        unsafe { entered.driver().cuStreamCreate(&mut raw, STREAM_NON_BLOCKING) }
            .map_err(|error| device.refused(error, "a stream"))?;
        Ok(Self { device: device.clone(), raw })
    }

    pub fn raw(&self) -> RawStream {
        self.raw
    }

    /// Waits until everything is done that was queued.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        let entered = self.device.enter()?;
        // SAFETY: the stream exists, and the context is current.
        unsafe { entered.driver().cuStreamSynchronize(self.raw) }.map_err(|error| error.on(self.device.name()))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Ok(entered) = self.device.enter() {
            // SAFETY: made by this value. Queued work goes on.
            ended(unsafe { entered.driver().cuStreamDestroy_v2(self.raw) });
        }
    }
}

/// An event, which passes when the work is done that was queued on a stream before it.
#[derive(Debug)]
pub(crate) struct Event {
    device: Device,
    raw: RawEvent,
}

// SAFETY: the handle of an event may be used by any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    pub fn new(device: &Device) -> Result<Self, CudaError> {
        let entered = device.enter()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the driver writes a handle; the context is current.
        unsafe { entered.driver().cuEventCreate(&mut raw, EVENT_SLEEPING) }
            .map_err(|error| device.refused(error, "an event"))?;
        Ok(Self { device: device.clone(), raw })
    }

    pub fn raw(&self) -> RawEvent {
        self.raw
    }

    /// Queues the event on a stream.
    ///
    /// # Safety
    ///
    /// The stream exists, in the context of the event, which is current.
    pub unsafe fn record(&self, driver: &crate::driver::Driver, stream: RawStream) -> Result<(), CudaError> {
        // SAFETY: the caller's duty.
        unsafe { driver.cuEventRecord(self.raw, stream) }.map_err(|error| error.on(self.device.name()))
    }

    /// Waits until the event passes. Must be called on a thread on which the context is current.
    pub fn wait(&self, driver: &crate::driver::Driver) -> Result<(), CudaError> {
        // SAFETY: the event exists.
        unsafe { driver.cuEventSynchronize(self.raw) }.map_err(|error| error.on(self.device.name()))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Ok(entered) = self.device.enter() {
            // SAFETY: made by this value.
            ended(unsafe { entered.driver().cuEventDestroy_v2(self.raw) });
        }
    }
}
