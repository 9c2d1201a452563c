//! What a cache on this machine did for a dataset that comes over a network.

/// Bytes that a cache has read and kept since the dataset was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheUse {
    /// Bytes that were read from the cache, and not asked for.
    pub bytes: u64,
    /// Bytes that were asked for, and kept.
    pub kept_bytes: u64,
    /// Whether the cache has no room for more bytes.
    pub is_full: bool,
    /// Why the cache takes no more bytes, if it cannot be written.
    pub off: Option<String>,
}

impl CacheUse {
    /// Returns the use of this cache and another one.
    pub fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            kept_bytes: self.kept_bytes + other.kept_bytes,
            is_full: self.is_full || other.is_full,
            off: self.off.or(other.off),
        }
    }
}
