//! Bundles: samples whose bytes lie side by side.

use ddlp_pixels::Fidelity;

/// How a dataset's samples lie in bundles, so that an order can read them a few bundles at a time.
///
/// Each sample has a *position*, from 0 on. A bundle has neighbouring positions, and its bytes lie side by side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundles {
    /// Samples of a bundle, at least 1; the last bundle may have fewer.
    pub samples: u64,
    /// Index of the sample at each position; `None` if positions are indices.
    pub indices: Option<Vec<u32>>,
    /// Most bytes that a bundle has of what decoding needs, if an order that reads a few bundles at a time may read
    /// each of them as a whole ([`Ahead::window`]); otherwise 0.
    pub bytes: u64,
}

impl Bundles {
    /// Samples of a bundle where the dataset has no bundles of its own, but its samples lie in the order of their
    /// indices.
    pub const NEIGHBOURS: u64 = 1024;

    /// Returns the index of the sample at a position.
    pub fn index(&self, position: u64) -> u64 {
        self.indices.as_ref().map_or(position, |indices| indices[position as usize].into())
    }
}

/// How samples that are announced will be read ([`Dataset::announce`](crate::Dataset::announce)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// The fidelity with which they are read.
    pub fidelity: Fidelity,
    /// Number of bundles from which samples are read at a time; `None` if samples come from anywhere. With a number,
    /// the other samples of these bundles will be read soon as well, so that bundles can be read in sequence.
    pub window: Option<u64>,
}

impl Ahead {
    /// Most bytes that a dataset whose reads have latency keeps of bundles that it has read as a whole. With bundles
    /// and a window that need more, each sample is read alone.
    pub const BYTES_MAX: u64 = 2 << 30;

    /// Returns the bytes of memory for a window of bundles that have these bytes each. Lanes pass from one bundle to
    /// the next while samples of the one before are still being read: that takes a few bundles more.
    pub fn memory(window: u64, bundle_bytes: u64) -> u64 {
        window.saturating_add(window.div_ceil(4).saturating_add(1)).saturating_mul(bundle_bytes)
    }
}
