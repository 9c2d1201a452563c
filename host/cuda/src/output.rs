//! A consumer of this crate's own, for programs that train nothing: it finishes batches on a stream and in memory of
//! its own, and can read them back.

use crate::delivery::{megabytes, refused};
use crate::device::{Device, DeviceMemory, ended};
use crate::error::CudaError;
use crate::finish::{Consumer, finish};
use crate::pinned::Pinned;
use crate::queue::Stream;
use ddlp_host::{Batch, BatchMemory, FieldView};
use std::error::Error;
use std::ptr::NonNull;
use std::sync::Arc;

/// A stream, and memory for one finished batch, which the next one overwrites.
#[derive(Debug)]
pub struct Output {
    device: Device,
    stream: Stream,
    places: Vec<DeviceMemory>,
    /// Memory to which finished batches are copied.
    host: Option<Pinned>,
}

/// Gives out the places of an output, one field after the other.
struct Placing<'o> {
    output: &'o mut Output,
    next: usize,
}

impl Output {
    /// Makes a stream on the device.
    ///
    /// # Errors
    ///
    /// What the driver says.
    pub fn new(device: &Device) -> Result<Self, CudaError> {
        Ok(Self { device: device.clone(), places: Vec::new(), host: None, stream: Stream::new(device)? })
    }

    /// Finishes a batch on the device, and returns at once. The batch's buffer goes back to the loader when that is
    /// done.
    ///
    /// # Errors
    ///
    /// As [`finish`].
    pub fn finish(&mut self, batch: &Batch) -> Result<(), CudaError> {
        finish(batch, &mut Placing { output: self, next: 0 })
    }

    /// Finishes a batch on the device, and reads it back. Returns the same batch with all fields in memory of this
    /// process.
    ///
    /// # Errors
    ///
    /// As [`finish`].
    pub fn read(&mut self, batch: Batch) -> Result<Batch, CudaError> {
        self.finish(&batch)?;
        let lengths: Vec<usize> = batch.fields().map(|field| field.bytes() * batch.len()).collect();
        let all = lengths.iter().sum();
        let mut host = match self.host.take().filter(|host| host.bytes().len() >= all) {
            Some(host) => host,
            None => Pinned::new(all).map_err(|error| refused("memory for a batch that is read back", error))?,
        };
        host.register(&self.device, &format!("a finished batch of {}", megabytes(all)))?;
        // Kept whatever happens, since copies to it may be queued.
        let host = self.host.insert(host);
        let entered = self.device.enter()?;
        let mut at = 0;
        for (place, &bytes) in self.places.iter().zip(&lengths).filter(|(_, bytes)| **bytes > 0) {
            let to = host.bytes_mut()[at..][..bytes].as_mut_ptr();
            at += bytes;
            // SAFETY: both memories have this many bytes, and nothing else uses them until the stream has been waited
            // for.
            let copied =
                unsafe { entered.driver().cuMemcpyDtoHAsync_v2(to.cast(), place.address(), bytes, self.stream.raw()) };
            copied.map_err(|error| error.on(self.device.name()))?;
        }
        self.stream.synchronize()?;
        let mut rest = &host.bytes()[..all];
        let mut memory = Vec::new();
        for bytes in lengths {
            memory.push(Arc::new(HostCopy::of(rest.split_off(..bytes).expect("as many"))) as Arc<dyn BatchMemory>);
        }
        Ok(batch.finished_in(memory))
    }

    /// Waits until all batches are finished.
    ///
    /// # Errors
    ///
    /// What the driver says.
    pub fn wait(&self) -> Result<(), CudaError> {
        self.stream.synchronize()
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // The stream's work uses the memory.
        ended(self.stream.synchronize());
    }
}

// SAFETY: the stream is the output's own. The memory has as many bytes as the field, and only the stream's work uses
// it: the next batch on the same stream, after this one.
unsafe impl Consumer for Placing<'_> {
    fn stream(&self) -> u64 {
        self.output.stream.raw() as u64
    }

    fn place(&mut self, field: FieldView<'_>) -> Result<u64, Box<dyn Error + Send + Sync>> {
        let Output { device, stream, places, .. } = &mut *self.output;
        let bytes = field.shape().iter().product::<usize>() * field.dtype().bytes();
        let at = self.next;
        self.next += 1;
        if places.get(at).is_none_or(|place| place.bytes() < bytes) {
            let place = DeviceMemory::new(device, bytes, &format!("a finished batch of {}", megabytes(bytes)))?;
            // Work that was queued before may use the former place.
            stream.synchronize()?;
            places.truncate(at);
            places.push(place);
        }
        Ok(places[at].address())
    }
}

/// A field that was read back.
#[derive(Debug)]
struct HostCopy {
    /// Words, so that the values are aligned.
    words: Vec<u64>,
    bytes: usize,
}

impl HostCopy {
    fn of(values: &[u8]) -> Self {
        let words = values.chunks(size_of::<u64>()).map(|chunk| {
            let mut word = [0; size_of::<u64>()];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_ne_bytes(word)
        });
        Self { words: words.collect(), bytes: values.len() }
    }
}

// SAFETY: the value owns its memory, which does not move before the value is dropped, and nothing writes to it.
unsafe impl BatchMemory for HostCopy {
    fn address(&self) -> NonNull<u8> {
        NonNull::from(&self.words[..]).cast()
    }

    fn bytes(&self) -> Option<&[u8]> {
        // SAFETY: the words have at least this many initialised bytes.
        Some(unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.bytes) })
    }
}
