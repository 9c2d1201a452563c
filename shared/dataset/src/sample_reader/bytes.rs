//! The memory for a sample's bytes, and how many bytes were read.

use super::KEPT_BYTES;
use crate::extent::resize;
use std::io;
use std::ops::{Add, Range};

/// Bytes of a block, as most disks and file systems have them, and our drive.
const BLOCK_BYTES: u64 = 4096;

/// Room in front of a sample's bytes and behind them, so that a source of whole blocks can read them in place.
pub(super) const ROOM_BYTES: usize = BLOCK_BYTES as usize;

/// Bytes that were read from a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BytesRead {
    /// Bytes of samples, of the details that their forms need, and of index records that were read for a sample.
    pub bytes: u64,
    /// The same in whole blocks of 4096 bytes, as a disk or a drive reads them, counted for each read.
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
    pub(crate) fn count_sample(&mut self, bytes: u64) {
        // A header may name more bytes than there are.
        self.sample_bytes = self.sample_bytes.saturating_add(bytes);
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

/// Memory for the bytes of a sample, reused from sample to sample.
#[derive(Debug)]
pub(super) struct SampleMemory {
    bytes: Vec<u8>,
    /// Bytes in front of the sample's, and at least as many behind them.
    room: usize,
}

impl Default for SampleMemory {
    /// Returns memory with room for whole blocks.
    fn default() -> Self {
        Self { bytes: Vec::new(), room: ROOM_BYTES }
    }
}

impl SampleMemory {
    /// Uses memory without room for whole blocks.
    pub(super) fn without_room(bytes: Vec<u8>) -> Self {
        Self { bytes, room: 0 }
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Returns the memory from the sample's first byte on.
    pub(super) fn sample(&self) -> &[u8] {
        self.bytes.get(self.room..).unwrap_or_default()
    }

    /// Returns the memory from the sample's first byte on, for changes.
    pub(super) fn sample_mut(&mut self) -> &mut [u8] {
        self.bytes.get_mut(self.room..).unwrap_or_default()
    }

    /// Returns all of the memory.
    pub(super) fn all_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Returns the number of bytes that are allocated.
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Frees memory that is unusually large.
    pub(super) fn trim(&mut self) {
        if self.bytes.capacity() > KEPT_BYTES {
            self.bytes = Vec::new();
        }
    }

    /// Makes room for `more` bytes behind the `filled` ones, and for at least `spare` behind those. Returns the memory
    /// and the place of the `more` bytes in it, behind which a read may write.
    pub(super) fn behind(&mut self, filled: usize, more: u64, spare: usize) -> io::Result<(&mut [u8], Range<usize>)> {
        let start = self.room + filled;
        let end = usize::try_from(more).unwrap_or(usize::MAX).saturating_add(start);
        let needed = end.saturating_add(self.room.max(spare));
        // Never shortened: each byte of the memory is zeroed once.
        if self.bytes.len() < needed {
            resize(&mut self.bytes, needed)?;
        }
        Ok((&mut self.bytes, start..end))
    }
}
