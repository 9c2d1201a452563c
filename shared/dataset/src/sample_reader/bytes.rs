//! The bytes of a sample that have been read, one range after the other, and what was read.

use crate::extent::resize;
use crate::{Dataset, Header, ReadError, Unavailable};
use std::ops::{Add, Range};

use super::StoredAt;

/// Bytes of a block, as most disks and file systems have them, and our drive.
const BLOCK_BYTES: u64 = 4096;

/// Room in front of a sample's bytes and behind them, so that a source of whole blocks can read them in place.
pub(super) const ROOM_BYTES: usize = BLOCK_BYTES as usize;

/// Bytes that were read from a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BytesRead {
    /// Bytes of samples, of the details that their forms need, and of index records that were read for a sample.
    pub bytes: u64,
    /// The same in whole blocks of 4096 bytes, as a disk or a drive reads them: those of each read.
    pub block_bytes: u64,
    /// All bytes of the samples that were read, wholly or in part: files or pixels, without details.
    pub sample_bytes: u64,
}

impl BytesRead {
    /// Adds a read of one extent.
    pub(crate) fn count(&mut self, extent: &Range<u64>) {
        if !extent.is_empty() {
            self.count_read(extent, extent.end - extent.start);
        }
    }

    /// Adds a sample of which something was read.
    pub(crate) fn count_sample(&mut self, header: &Header) {
        // A header may name more bytes than there are.
        self.sample_bytes = self.sample_bytes.saturating_add(header.bytes.end - header.bytes.start);
    }

    /// Adds a read. `bytes` of its bytes belong to samples.
    pub(super) fn count_read(&mut self, read: &Range<u64>, bytes: u64) {
        self.bytes += bytes;
        self.block_bytes += read.end.next_multiple_of(BLOCK_BYTES) - read.start / BLOCK_BYTES * BLOCK_BYTES;
    }
}

impl Add for BytesRead {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            block_bytes: self.block_bytes + other.block_bytes,
            sample_bytes: self.sample_bytes + other.sample_bytes,
        }
    }
}

/// Memory with the bytes of a sample, which is reused from sample to sample.
pub(super) struct SampleBytes<'m> {
    memory: &'m mut Vec<u8>,
    /// Bytes in front of the sample's, and at least as many behind them.
    room: usize,
    filled: usize,
}

impl<'m> SampleBytes<'m> {
    /// Uses memory without room for whole blocks.
    pub(super) fn in_memory(memory: &'m mut Vec<u8>) -> Self {
        Self { memory, room: 0, filled: 0 }
    }

    /// Uses memory with room for whole blocks.
    pub(super) fn with_room(memory: &'m mut Vec<u8>) -> Self {
        Self { memory, room: ROOM_BYTES, filled: 0 }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.memory[self.range()]
    }

    pub(super) fn into_bytes(self) -> &'m [u8] {
        let range = self.range();
        &self.memory[range]
    }

    /// Returns where the bytes lie in the memory.
    pub(super) fn range(&self) -> Range<usize> {
        self.room..self.room + self.filled
    }

    /// Frees the memory.
    pub(super) fn free(&mut self) {
        (*self.memory, self.filled) = (Vec::new(), 0);
    }

    /// Discards the bytes.
    pub(super) fn clear(&mut self) {
        self.filled = 0;
    }

    /// Reads more bytes: extents, one after the other.
    pub(super) fn append(
        &mut self,
        sample: &StoredAt<'_, impl Dataset + ?Sized>,
        header: &Header,
        extents: &[Range<u64>],
        read: &mut BytesRead,
    ) -> Result<(), ReadError> {
        let &StoredAt { dataset, index } = sample;
        let bytes: u64 = extents.iter().map(|extent| extent.end - extent.start).sum();
        let more = usize::try_from(bytes).unwrap_or(usize::MAX);
        let end = self.range().end.saturating_add(more).saturating_add(self.room);
        // Never shortened: each byte of the memory is zeroed once.
        if self.memory.len() < end
            && let Err(error) = resize(self.memory, end)
        {
            let (name, location, problem) = (dataset.name(index), dataset.location(index), error.to_string());
            return Err(Unavailable::NoMemory { name, location, problem }.into());
        }
        for extent in extents.iter().filter(|extent| !extent.is_empty()) {
            let (start, length) = (self.range().end, (extent.end - extent.start) as usize);
            dataset.read_within(index, header, extent.start, self.memory, start..start + length)?;
            read.count(extent);
            self.filled += length;
        }
        if bytes == 0 && header.crc32c.is_none() {
            // An empty file may have been filled or removed since. Without a checksum, only a read finds that out.
            dataset.read(index, header, header.bytes.start, &mut [])?;
        }
        Ok(())
    }
}
