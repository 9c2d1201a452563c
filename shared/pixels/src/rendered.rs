//! Results of preparing a sample.

/// Result of preparing a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prepared {
    /// Number of the decoder's warnings about the bytes that it read. Pixels of a stream with warnings are promised to
    /// agree only between machines of one architecture.
    pub warnings: u32,
}

/// Result of rendering the bytes that a plan names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Rendered {
    /// The pixels are those of the whole file.
    Done(Prepared),
    /// The part of a file is damaged, or not that of its index: only the whole file can give the pixels, or the reason
    /// why it has none.
    NeedsFile,
}
