//! Limits on the cost of decoding one sample, and buffers that keep to them.

use serde::{Deserialize, Serialize};
use zerocopy::IntoBytes;

use crate::error::PixelError;
use crate::passes::Branch;

/// Limits on the cost of decoding one sample. Exceeding one is a typed error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Most pixels (width × height) of the stored image.
    pub pixels: u64,
    /// Most scans of a JPEG: a few bytes of the file can make each scan cost a pass over the image.
    pub scans: u32,
    /// Most bytes of the decoder's image-sized buffers. The images between the first operation and the last may
    /// together take as many again. So this bounds the work of the operations too.
    pub memory_bytes: u64,
}

impl Default for Limits {
    /// Returns 178 956 970 pixels (Pillow's limit), 100 scans, 1 GiB.
    fn default() -> Self {
        Self { pixels: 178_956_970, scans: 100, memory_bytes: 1 << 30 }
    }
}

impl Limits {
    /// Returns whether no limit exceeds the same limit of `most`.
    pub fn is_within(&self, most: &Self) -> bool {
        self.pixels <= most.pixels && self.scans <= most.scans && self.memory_bytes <= most.memory_bytes
    }

    /// Checks the size of a stored image ([`PixelError::TooManyPixels`]).
    pub fn check_pixels(&self, width: u32, height: u32) -> Result<(), PixelError> {
        if u64::from(width) * u64::from(height) > self.pixels {
            return Err(PixelError::TooManyPixels { width, height, limit: self.pixels });
        }
        Ok(())
    }

    /// Checks the size of an image-sized buffer ([`PixelError::TooMuchMemory`]).
    pub fn check_memory(&self, bytes: u64) -> Result<(), PixelError> {
        if bytes > self.memory_bytes {
            return Err(PixelError::TooMuchMemory { limit: self.memory_bytes });
        }
        Ok(())
    }

    /// Empties a buffer and makes room for `bytes`. Returns an error if the limit does not allow them or the machine
    /// lacks the memory.
    pub(crate) fn make_room(&self, buffer: &mut Vec<u8>, bytes: u64) -> Result<(), PixelError> {
        self.check_memory(bytes)?;
        self.reserve(buffer, bytes as usize)
    }

    /// Empties a buffer and makes room for `values` values, which the caller has checked against the limit. Returns an
    /// error if the machine lacks the memory.
    pub(crate) fn reserve<T>(&self, buffer: &mut Vec<T>, values: usize) -> Result<(), PixelError> {
        buffer.clear();
        self.reserve_more(buffer, values)
    }

    /// Makes room for `values` more values at the end of a buffer. Otherwise like [`reserve`](Self::reserve).
    pub(crate) fn reserve_more<T>(&self, buffer: &mut Vec<T>, values: usize) -> Result<(), PixelError> {
        buffer.try_reserve_exact(values).map_err(|_| {
            let bytes = values.saturating_mul(size_of::<T>());
            PixelError::NoMemory { message: format!("{bytes} bytes are not there") }
        })
    }

    /// Makes a buffer `bytes` long, with any contents. Otherwise as [`make_room`](Self::make_room).
    pub(crate) fn resize<'b>(&self, buffer: &'b mut Vec<u8>, bytes: u64) -> Result<&'b mut [u8], PixelError> {
        self.check_memory(bytes)?;
        self.resize_allowed(buffer, bytes as usize)
    }

    /// Makes a buffer `values` long, with any contents. Otherwise as [`reserve`](Self::reserve).
    pub(crate) fn resize_allowed<'b, T: Copy + Default>(
        &self,
        buffer: &'b mut Vec<T>,
        values: usize,
    ) -> Result<&'b mut [T], PixelError> {
        if buffer.capacity() < values {
            self.reserve(buffer, values)?;
        }
        // The buffer has the room, so this does not allocate.
        buffer.resize(values, T::default());
        Ok(buffer)
    }
}

/// Scratch memory of a change of values. The limit on memory allows what [`MakeArea::images`](crate::ops::MakeArea)
/// counts.
pub(crate) struct Scratch<'m> {
    pub limits: Limits,
    pub memory: &'m mut Vec<u16>,
    pub branch: &'m mut Branch,
}

impl Scratch<'_> {
    /// Returns room for as many values, with any contents. Returns an error if the machine lacks the memory.
    pub fn values(&mut self, count: usize) -> Result<&mut [u16], PixelError> {
        self.limits.resize_allowed(self.memory, count)
    }

    /// Returns room for as many bytes. Otherwise as [`values`](Self::values).
    pub fn bytes(&mut self, count: usize) -> Result<&mut [u8], PixelError> {
        Ok(&mut self.values(count.div_ceil(size_of::<u16>()))?.as_mut_bytes()[..count])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_not_there_is_an_error() {
        let limits = Limits { memory_bytes: u64::MAX, ..Limits::default() };
        let mut buffer = vec![1; 10];
        for bytes in [u64::MAX, i64::MAX as u64] {
            let refused = limits.resize(&mut buffer, bytes);
            let message = format!("{bytes} bytes are not there");
            assert_eq!(refused, Err(PixelError::NoMemory { message }), "the limit allows them");
        }
        for bytes in [10, 3, 2000] {
            assert_eq!(limits.resize(&mut buffer, bytes).unwrap().len(), bytes as usize);
        }
        let little = Limits { memory_bytes: 9, ..limits };
        assert_eq!(little.resize(&mut buffer, 10), Err(PixelError::TooMuchMemory { limit: 9 }));
    }

    #[test]
    fn limits_lie_within_others_when_each_does() {
        let most = Limits::default();
        assert!(most.is_within(&most) && Limits { pixels: 0, scans: 0, memory_bytes: 0 }.is_within(&most));
        assert!(!Limits { pixels: most.pixels + 1, ..most }.is_within(&most));
        assert!(!Limits { scans: most.scans + 1, ..most }.is_within(&most));
        assert!(!Limits { memory_bytes: most.memory_bytes + 1, ..most }.is_within(&most));
    }
}
