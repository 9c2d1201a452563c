//! Why a sample has no pixels: the error of this crate and the small code of it that crosses the link.

use std::fmt;

/// Why a sample could not be prepared. Stable codes: they cross the link and stand in packs as one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[non_exhaustive]
pub enum CorruptReason {
    /// No bytes at all.
    Empty = 1,
    /// The first bytes are those of no known image format.
    UnknownFormat = 2,
    /// The file ends before its image does.
    Truncated = 3,
    /// The decoder gave up on the contents.
    Malformed = 4,
    /// More pixels than [`Limits::pixels`](crate::Limits::pixels).
    TooManyPixels = 5,
    /// More scans than [`Limits::scans`](crate::Limits::scans).
    TooManyScans = 6,
    /// More memory than [`Limits::memory_bytes`](crate::Limits::memory_bytes).
    TooMuchMemory = 7,
    /// A well-formed file of a kind that is not decoded here, or one that the pipeline cannot take.
    Unsupported = 8,
    /// A foreign decoder panicked.
    DecoderPanic = 9,
    /// The stored checksum is another one.
    Checksum = 10,
    /// Reading failed.
    Io = 11,
    /// Packing had found the sample unusable.
    Rejected = 12,
}

impl CorruptReason {
    /// Every reason, in the order of the codes.
    pub const ALL: [Self; 12] = [
        Self::Empty,
        Self::UnknownFormat,
        Self::Truncated,
        Self::Malformed,
        Self::TooManyPixels,
        Self::TooManyScans,
        Self::TooMuchMemory,
        Self::Unsupported,
        Self::DecoderPanic,
        Self::Checksum,
        Self::Io,
        Self::Rejected,
    ];

    /// The reason of a code, `None` for a code of no reason.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.code() == code)
    }

    /// The code of a reason, never 0.
    pub const fn code(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for CorruptReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "empty",
            Self::UnknownFormat => "unknown format",
            Self::Truncated => "truncated",
            Self::Malformed => "malformed",
            Self::TooManyPixels => "too many pixels",
            Self::TooManyScans => "too many scans",
            Self::TooMuchMemory => "too much memory",
            Self::Unsupported => "unsupported",
            Self::DecoderPanic => "decoder panicked",
            Self::Checksum => "wrong checksum",
            Self::Io => "read failed",
            Self::Rejected => "rejected when packed",
        })
    }
}

/// Why a sample has no pixels, or why pixels could not be encoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PixelError {
    /// No bytes at all.
    #[error("the sample has no bytes")]
    Empty,
    /// The first bytes are those of no known image format.
    #[error("{}", said_of(first))]
    UnknownFormat {
        /// Up to eight bytes of the beginning.
        first: Vec<u8>,
    },
    /// The file ends before its image does.
    #[error("the file ends before its image does: {message}")]
    Truncated {
        /// What the decoder said.
        message: String,
    },
    /// The decoder gave up on the contents.
    #[error("malformed: {message}")]
    Malformed {
        /// What the decoder said.
        message: String,
    },
    /// More pixels than the limit.
    #[error("{width}x{height} pixels are more than {limit}")]
    TooManyPixels {
        /// Width of the image.
        width: u32,
        /// Height of the image.
        height: u32,
        /// [`Limits::pixels`](crate::Limits::pixels).
        limit: u64,
    },
    /// More scans than the limit.
    #[error("more than {limit} scans")]
    TooManyScans {
        /// [`Limits::scans`](crate::Limits::scans).
        limit: u32,
    },
    /// More memory than the limit, or than there is.
    #[error("preparing needs more memory than there is, or than {limit} bytes")]
    TooMuchMemory {
        /// [`Limits::memory_bytes`](crate::Limits::memory_bytes).
        limit: u64,
    },
    /// A well-formed file of a kind that is not decoded here, or one that the pipeline cannot take.
    #[error("unsupported: {message}")]
    Unsupported {
        /// What is unsupported.
        message: String,
    },
    /// Reading failed.
    #[error("reading pixels: {message}")]
    Io {
        /// What the operating system says.
        message: String,
    },
    /// Stored pixels are not those that were written.
    #[error("wrong checksum: {message}")]
    Checksum {
        /// Which ones.
        message: String,
    },
    /// A foreign decoder panicked; the panic is contained.
    #[error("the decoder panicked: {message}")]
    DecoderPanic {
        /// The panic's message.
        message: String,
    },
}

/// What a file is that begins in this way and is not decoded.
fn said_of(first: &[u8]) -> String {
    match first {
        // The extensions of image folders lead one to expect it.
        [b'I', b'I', b'*', 0, ..] | [b'M', b'M', 0, b'*', ..] => "TIFF is not decoded".to_owned(),
        _ => format!("no known image format begins with {first:02x?}"),
    }
}

impl PixelError {
    /// The code of the error.
    pub fn reason(&self) -> CorruptReason {
        match self {
            Self::Empty => CorruptReason::Empty,
            Self::UnknownFormat { .. } => CorruptReason::UnknownFormat,
            Self::Truncated { .. } => CorruptReason::Truncated,
            Self::Malformed { .. } => CorruptReason::Malformed,
            Self::TooManyPixels { .. } => CorruptReason::TooManyPixels,
            Self::TooManyScans { .. } => CorruptReason::TooManyScans,
            Self::TooMuchMemory { .. } => CorruptReason::TooMuchMemory,
            Self::Unsupported { .. } => CorruptReason::Unsupported,
            Self::Io { .. } => CorruptReason::Io,
            Self::Checksum { .. } => CorruptReason::Checksum,
            Self::DecoderPanic { .. } => CorruptReason::DecoderPanic,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_survive_a_round_trip_and_others_are_none() {
        let known: Vec<u8> = (0..=255).filter(|&code| CorruptReason::from_code(code).is_some()).collect();
        assert_eq!(known, (1..=12).collect::<Vec<u8>>());
        for reason in CorruptReason::ALL {
            assert_eq!(CorruptReason::from_code(reason.code()), Some(reason));
        }
    }
}
