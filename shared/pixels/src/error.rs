//! Errors of this crate, and the code of one byte that carries an error's reason across the link.

use crate::function::CallError;
use ddlp_cause::Cause;
use std::fmt;

/// Reason why a sample could not be prepared. The codes are stable: packs, and the link between host and drive, carry
/// them as one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[non_exhaustive]
pub enum CorruptReason {
    /// The sample has no bytes.
    Empty = 1,
    /// The first bytes belong to no known image format.
    UnknownFormat = 2,
    /// The file ends before its image does.
    Truncated = 3,
    /// The decoder gave up on the contents.
    Malformed = 4,
    /// The image has more pixels than [`Limits::pixels`](crate::Limits::pixels).
    TooManyPixels = 5,
    /// The image has more scans than [`Limits::scans`](crate::Limits::scans).
    TooManyScans = 6,
    /// Preparing takes more memory than [`Limits::memory_bytes`](crate::Limits::memory_bytes).
    TooMuchMemory = 7,
    /// The file is well formed, but of a kind that this crate does not decode.
    Unsupported = 8,
    /// A foreign decoder panicked.
    DecoderPanic = 9,
    /// The bytes do not match the stored checksum.
    Checksum = 10,
    /// Reading failed.
    Io = 11,
    /// `ddlp pack` found the sample unusable.
    Rejected = 12,
}

impl CorruptReason {
    /// All reasons, in the order of their codes.
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

    /// Returns the reason with this code, or `None` if no reason has it.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.code() == code)
    }

    /// Returns the code of the reason, never 0.
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
            Self::Unsupported => "unsupported: a kind of file that is not decoded",
            Self::DecoderPanic => "decoder panicked",
            Self::Checksum => "wrong checksum",
            Self::Io => "read failed",
            Self::Rejected => "rejected when packed",
        })
    }
}

/// Error of preparing a sample, or of encoding pixels.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PixelError {
    /// The sample has no bytes.
    #[error("the sample has no bytes")]
    Empty,
    /// The first bytes belong to no known image format.
    #[error("{}", describe_format(first))]
    UnknownFormat {
        /// First bytes of the file, eight at most.
        first: Vec<u8>,
    },
    /// The file ends before its image does.
    #[error("the file ends before its image does")]
    Truncated {
        /// What the decoder says: its error, or words.
        source: Cause,
    },
    /// The decoder gave up on the contents.
    #[error("malformed")]
    Malformed {
        /// What the decoder says: its error, or words.
        source: Cause,
    },
    /// The image has more pixels than the limit.
    #[error("the image has {width}x{height} pixels, more than the limit of {limit}")]
    TooManyPixels {
        /// Width of the image.
        width: u32,
        /// Height of the image.
        height: u32,
        /// [`Limits::pixels`](crate::Limits::pixels).
        limit: u64,
    },
    /// The image has more scans than the limit.
    #[error("the image has more than {limit} scans")]
    TooManyScans {
        /// [`Limits::scans`](crate::Limits::scans).
        limit: u32,
    },
    /// Preparing takes more memory than the limit.
    #[error("preparing needs more memory than the limit of {limit} bytes")]
    TooMuchMemory {
        /// [`Limits::memory_bytes`](crate::Limits::memory_bytes).
        limit: u64,
    },
    /// The system refuses memory that the limit allows. This says nothing about the image.
    #[error("the system refuses memory: {message}")]
    NoMemory {
        /// The refused allocation.
        message: String,
    },
    /// An operation of the pipeline cannot be applied to an image of this size. The image may be intact.
    #[error("{message}")]
    Misfit {
        /// The operation, the image's size when the operation gets it, and what to do.
        message: String,
    },
    /// A function of the program failed. This says nothing about the image.
    #[error(transparent)]
    Function(CallError),
    /// The file is well formed, but of a kind that this crate does not decode.
    #[error("unsupported: {message}")]
    Unsupported {
        /// Name of the unsupported feature.
        message: String,
    },
    /// The stored pixels do not match their checksum.
    #[error("wrong checksum: {message}")]
    Checksum {
        /// Which pixels are wrong.
        message: String,
    },
    /// A foreign decoder panicked; the panic is contained.
    #[error("the decoder panicked: {message}")]
    DecoderPanic {
        /// Message of the panic.
        message: String,
    },
}

/// Describes a file that begins with these bytes and is not decoded.
fn describe_format(first: &[u8]) -> String {
    match first {
        [b'I', b'I', b'+', 0, ..] | [b'M', b'M', 0, b'+', ..] => "BigTIFF is not decoded".to_owned(),
        _ => format!("no known image format begins with the bytes {first:02x?}"),
    }
}

impl PixelError {
    /// Returns the code of the error. [`NoMemory`](Self::NoMemory) has the code of an image that needs too much memory;
    /// [`Misfit`](Self::Misfit) and [`Function`](Self::Function) have the code of an unsupported image. To decide about
    /// an image, call [`is_of_the_image`](Self::is_of_the_image) first.
    pub fn reason(&self) -> CorruptReason {
        match self {
            Self::Empty => CorruptReason::Empty,
            Self::UnknownFormat { .. } => CorruptReason::UnknownFormat,
            Self::Truncated { .. } => CorruptReason::Truncated,
            Self::Malformed { .. } => CorruptReason::Malformed,
            Self::TooManyPixels { .. } => CorruptReason::TooManyPixels,
            Self::TooManyScans { .. } => CorruptReason::TooManyScans,
            Self::TooMuchMemory { .. } | Self::NoMemory { .. } => CorruptReason::TooMuchMemory,
            Self::Misfit { .. } | Self::Function(_) | Self::Unsupported { .. } => CorruptReason::Unsupported,
            Self::Checksum { .. } => CorruptReason::Checksum,
            Self::DecoderPanic { .. } => CorruptReason::DecoderPanic,
        }
    }
}

impl PixelError {
    /// Returns whether the error concerns the image rather than the system, the pipeline or a function.
    pub fn is_of_the_image(&self) -> bool {
        !matches!(self, Self::NoMemory { .. } | Self::Misfit { .. } | Self::Function(_))
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
