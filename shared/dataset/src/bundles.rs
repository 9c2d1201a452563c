//! Bundles: samples whose bytes lie side by side.

/// How a dataset's samples lie in bundles, so that an order can read them a few bundles at a time.
///
/// Each sample has a *position*, from 0 on. A bundle has neighbouring positions, and its bytes lie side by side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundles {
    /// Samples of a bundle, at least 1; the last bundle may have fewer.
    pub samples: u64,
    /// Index of the sample at each position; `None` if positions are indices.
    pub indices: Option<Vec<u32>>,
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
