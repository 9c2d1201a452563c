//! Memory of one batch alone, which no target lent: copies, values that the host fills, and none.

#![allow(unsafe_code)]

use super::BatchMemory;
use memmap2::{MmapMut, MmapRaw};
use std::collections::TryReserveError;
use std::io;
use std::ptr::NonNull;
use zerocopy::IntoBytes;

/// Memory that belongs to a copied batch alone.
#[derive(Debug)]
pub(crate) struct OwnedMemory {
    map: MmapRaw,
    bytes: usize,
}

impl OwnedMemory {
    /// Copies a batch's rows. Fails if the system refuses memory.
    pub fn copy(rows: &[u8]) -> io::Result<Self> {
        // A mapping has at least one byte.
        let mut map = MmapMut::map_anon(rows.len().max(1))?;
        map[..rows.len()].copy_from_slice(rows);
        Ok(Self { map: map.into(), bytes: rows.len() })
    }
}

// SAFETY: the value owns its mapping, which stays where it is and can be written.
unsafe impl BatchMemory for OwnedMemory {
    fn address(&self) -> NonNull<u8> {
        NonNull::new(self.map.as_mut_ptr()).expect("a mapping has an address")
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn bytes(&self) -> Option<&[u8]> {
        // SAFETY: the mapping has these bytes for as long as the value lives.
        Some(unsafe { std::slice::from_raw_parts(self.map.as_ptr(), self.bytes) })
    }
}

/// Values of a field that the host fills.
#[derive(Debug)]
pub(crate) struct HostValues {
    /// Words, so that the values are aligned.
    words: NonNull<[u64]>,
    bytes: usize,
}

impl HostValues {
    /// Puts the values of a batch's rows one after the other: `rows` values of `row_bytes` bytes. Fails if the system
    /// refuses memory.
    pub fn new(
        rows: usize,
        row_bytes: usize,
        mut values: impl Iterator<Item = impl AsRef<[u8]>>,
    ) -> Result<Self, TryReserveError> {
        Self::filled(rows, row_bytes, |_, place| {
            place.copy_from_slice(values.next().expect("a value for each row").as_ref());
        })
    }

    /// Has `fill` make the value of each row, from its number, in bytes that are 0. Fails if the system refuses memory.
    pub fn filled(
        rows: usize,
        row_bytes: usize,
        mut fill: impl FnMut(usize, &mut [u8]),
    ) -> Result<Self, TryReserveError> {
        let bytes = rows * row_bytes;
        let mut words = Vec::new();
        words.try_reserve_exact(bytes.div_ceil(size_of::<u64>()))?;
        words.resize(bytes.div_ceil(size_of::<u64>()), 0u64);
        for (row, place) in words.as_mut_bytes()[..bytes].chunks_exact_mut(row_bytes).enumerate() {
            fill(row, place);
        }
        Ok(Self { words: NonNull::from(Box::leak(words.into_boxed_slice())), bytes })
    }
}

// SAFETY: the value owns its memory as a box does.
unsafe impl Send for HostValues {}
// SAFETY: as above; a shared value only gives out what `BatchMemory` allows.
unsafe impl Sync for HostValues {}

// SAFETY: the memory stays where it is until the value is dropped, and can be written.
unsafe impl BatchMemory for HostValues {
    fn address(&self) -> NonNull<u8> {
        self.words.cast()
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn bytes(&self) -> Option<&[u8]> {
        // SAFETY: the memory holds this many initialised bytes for as long as the value lives.
        Some(unsafe { std::slice::from_raw_parts(self.words.cast().as_ptr(), self.bytes) })
    }
}

impl Drop for HostValues {
    fn drop(&mut self) {
        // SAFETY: the pointer came from a box, which nobody else owns.
        drop(unsafe { Box::from_raw(self.words.as_ptr()) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::BUFFER_ALIGNMENT;

    #[test]
    fn what_is_written_is_read() {
        let copy = OwnedMemory::copy(&[1, 2, 3]).unwrap();
        let labels = HostValues::new(2, 8, [7i64, -1].map(i64::to_ne_bytes).iter()).unwrap();
        for memory in [&copy as &dyn BatchMemory, &labels] {
            let last = memory.bytes().unwrap().len() - 1;
            assert!(memory.is_writable());
            // SAFETY: the memory has this byte, and no slice of it is in use.
            unsafe { memory.address().add(last).write(9) };
            assert_eq!(memory.bytes().unwrap()[last], 9);
        }
        assert_eq!(copy.bytes().unwrap(), [1, 2, 9]);
        assert_eq!(labels.bytes().unwrap()[..8], 7i64.to_ne_bytes());
    }

    #[test]
    fn memory_without_bytes_is_aligned_and_writable_like_any_other() {
        let (copy, labels) =
            (OwnedMemory::copy(&[]).unwrap(), HostValues::new(0, 8, std::iter::empty::<[u8; 8]>()).unwrap());
        for memory in [&copy as &dyn BatchMemory, &labels] {
            let (bytes, begins) = (memory.bytes().unwrap(), memory.address());
            assert!(bytes.is_empty() && memory.is_writable(), "{memory:?}");
            assert!(begins.addr().get().is_multiple_of(BUFFER_ALIGNMENT), "{memory:?}");
            assert_eq!(begins.as_ptr().cast_const(), bytes.as_ptr(), "{memory:?}");
        }
    }
}
