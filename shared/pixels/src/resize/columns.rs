//! The pass over columns: makes rows of pixels narrower or wider, and mirrors them if asked.

#![allow(unsafe_code)]

use std::ops::Range;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use super::groups::{Groups, VALUES_AT_ONCE};
use super::weights::{Lengths, Weights};
use crate::error::PixelError;
use crate::level::Level;
use crate::limits::Limits;

/// Rows made at once.
pub const ROWS_AT_ONCE: usize = 4;
/// Bytes that a row may need behind its pixels, because vector code writes whole groups.
const BEHIND: usize = 8;

/// Code that makes the columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kernel {
    /// Copies pixels.
    #[default]
    Copy,
    Portable,
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    Vectors,
}

/// Recipe for a part of the columns.
#[derive(Default)]
pub struct Columns {
    kernel: Kernel,
    /// Number of pixels in a row of outputs.
    outputs: usize,
    mirrored: bool,
    weights: Weights,
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    groups: Groups,
    made_for: Option<(Lengths, Range<u32>, bool)>,
}

impl Columns {
    /// Prepares for a part of the output columns. Rows then hold the [span](Lengths::span) of that part in the input
    /// columns.
    pub fn make(
        &mut self,
        level: Level,
        lengths: Lengths,
        part: &Range<u32>,
        mirrored: bool,
        limits: Limits,
    ) -> Result<(), PixelError> {
        let made_for = Some((lengths, part.clone(), mirrored));
        if self.made_for == made_for {
            return Ok(());
        }
        self.made_for = None;
        self.outputs = part.len();
        self.mirrored = mirrored;
        self.kernel = if lengths.are_equal() {
            Kernel::Copy
        } else {
            self.weights.make(lengths, part, limits)?;
            self.kernel_for(level, lengths.span(part).len() as u32)
        };
        self.made_for = made_for;
        Ok(())
    }

    #[cfg(target_arch = "x86_64")]
    fn kernel_for(&mut self, level: Level, width: u32) -> Kernel {
        let vectors = matches!(level, Level::Avx2(_)) && self.groups.make(&self.weights, width, self.mirrored);
        if vectors { Kernel::Vectors } else { Kernel::Portable }
    }

    #[cfg(target_arch = "aarch64")]
    fn kernel_for(&mut self, _: Level, width: u32) -> Kernel {
        if self.groups.make(&self.weights, width, self.mirrored) { Kernel::Vectors } else { Kernel::Portable }
    }

    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    fn kernel_for(&mut self, _: Level, _: u32) -> Kernel {
        Kernel::Portable
    }

    /// Returns the bytes from one row of outputs to the next.
    pub fn stride(&self) -> usize {
        (self.outputs * 3 + BEHIND).next_multiple_of(VALUES_AT_ONCE)
    }

    /// Makes rows, [`stride`](Self::stride) apart. Bytes behind their pixels are meaningless.
    pub fn make_rows(&self, level: Level, rows: [&[u8]; ROWS_AT_ONCE], out: &mut [u8]) {
        match (self.kernel, level) {
            #[cfg(target_arch = "x86_64")]
            (Kernel::Vectors, Level::Avx2(token)) => {
                super::x86::columns(token, &self.groups, self.weights.bits, rows, out, self.stride());
            }
            #[cfg(target_arch = "aarch64")]
            (Kernel::Vectors, _) => super::neon::columns(&self.groups, self.weights.bits, rows, out, self.stride()),
            _ => rows
                .iter()
                .zip(out.chunks_exact_mut(self.stride()))
                .for_each(|(row, out)| self.make_row(level, row, out)),
        }
    }

    /// Makes a row. Bytes behind its pixels are meaningless.
    pub fn make_row(&self, level: Level, row: &[u8], out: &mut [u8]) {
        match (self.kernel, level) {
            (Kernel::Copy, _) if self.mirrored => {
                let out = &mut out[..self.outputs * 3];
                out.as_chunks_mut::<3>()
                    .0
                    .iter_mut()
                    .rev()
                    .zip(row.as_chunks::<3>().0)
                    .for_each(|(to, from)| *to = *from);
            }
            (Kernel::Copy, _) => out[..self.outputs * 3].copy_from_slice(row),
            #[cfg(target_arch = "x86_64")]
            (Kernel::Vectors, Level::Avx2(token)) => {
                super::x86::columns(token, &self.groups, self.weights.bits, [row], out, self.stride());
            }
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a `Sse41` is made only where the processor has SSE4.1.
            (Kernel::Portable, Level::Sse41(_)) => unsafe { self.portable_sse41(row, out) },
            #[cfg(target_arch = "aarch64")]
            (Kernel::Vectors, _) => super::neon::columns(&self.groups, self.weights.bits, [row], out, self.stride()),
            _ => self.portable(row, out),
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "sse4.1")]
    fn portable_sse41(&self, row: &[u8], out: &mut [u8]) {
        self.portable(row, out);
    }

    #[inline(always)]
    fn portable(&self, row: &[u8], out: &mut [u8]) {
        let bits = self.weights.bits;
        let pixels = row.as_chunks::<3>().0;
        let (out, _) = out[..self.outputs * 3].as_chunks_mut::<3>();
        for (output, &(first, count)) in self.weights.inputs.iter().enumerate() {
            let inputs = &pixels[first as usize..][..count as usize];
            let mut sums = [1 << (bits - 1); 3];
            for (pixel, &weight) in inputs.iter().zip(self.weights.of(output)) {
                for (sum, &value) in sums.iter_mut().zip(pixel) {
                    *sum += i32::from(value) * i32::from(weight);
                }
            }
            let at = if self.mirrored { self.outputs - 1 - output } else { output };
            out[at] = sums.map(|sum| (sum >> bits).clamp(0, 255) as u8);
        }
    }

    /// Returns the bytes of memory in use.
    pub fn bytes(&self) -> usize {
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        return self.weights.bytes() + self.groups.bytes();
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        self.weights.bytes()
    }
}
