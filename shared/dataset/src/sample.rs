//! What is said of one sample: where its bytes lie, why they could not be read.

use ddlp_pixels::{CorruptReason, Source};
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Where a sample's bytes lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The file.
    pub file: PathBuf,
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}, {} bytes", self.file.display(), self.offset, self.length)
    }
}

/// What a dataset has of a sample.
#[derive(Clone, Copy, Debug)]
pub enum Stored<'a> {
    /// The sample.
    Source(Source<'a>),
    /// It was rejected when it was packed.
    Rejected {
        /// What was kept of it, nothing where it could not be read.
        bytes: &'a [u8],
        /// The verdict.
        reason: CorruptReason,
    },
}

/// Digest of a dataset's content, shown in hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity([u8; 32]);

impl Identity {
    /// Wraps a digest that was stored or received.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The digest.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({self})")
    }
}

/// A digest fed with fields that cannot run into each other: each is preceded by its length.
pub(crate) struct IdentityHasher(blake3::Hasher);

impl IdentityHasher {
    /// A digest of its own for each kind of source.
    pub(crate) fn new(domain: &str) -> Self {
        let mut hasher = Self(blake3::Hasher::new());
        hasher.field(domain.as_bytes());
        hasher
    }

    pub(crate) fn field(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.update(bytes);
    }

    pub(crate) fn number(&mut self, value: u64) {
        self.0.update(&value.to_le_bytes());
    }

    pub(crate) fn finish(&self) -> Identity {
        Identity(*self.0.finalize().as_bytes())
    }
}

/// Why a sample could not be read. Each message names the sample and where it lies.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The operating system says no.
    #[error("cannot read sample {name} ({location})")]
    Io {
        /// The sample.
        name: String,
        /// Its place.
        location: Location,
        /// What the operating system says.
        #[source]
        source: io::Error,
    },
    /// The file is not the one that was listed when the dataset was opened.
    #[error("sample {name} has changed since the dataset was opened ({location}): the file has {found} bytes now")]
    Changed {
        /// The sample.
        name: String,
        /// The place that was listed.
        location: Location,
        /// Size of the file now.
        found: u64,
    },
    /// The bytes are not the ones that were packed.
    #[error("checksum of sample {name} differs ({location}): {stored:08x} is stored, {computed:08x} computed")]
    Checksum {
        /// The sample.
        name: String,
        /// Its place.
        location: Location,
        /// The CRC32C in the index.
        stored: u32,
        /// The CRC32C of the bytes.
        computed: u32,
    },
    /// The sample was found undecodable when it was packed.
    #[error("sample {name} was rejected when it was packed: {reason} ({location})")]
    Rejected {
        /// The sample.
        name: String,
        /// Its place.
        location: Location,
        /// The verdict.
        reason: CorruptReason,
    },
    /// More bytes than any sample may have.
    #[error("sample {name} has {} bytes, more than the limit of {} ({})", .location.length, crate::SAMPLE_BYTES_MAX, .location.file.display())]
    TooLarge {
        /// The sample.
        name: String,
        /// Its place.
        location: Location,
    },
    /// The index says nothing valid about this sample.
    #[error("the index record of sample {index} in {} is damaged: {problem}", .file.display())]
    Record {
        /// The sample.
        index: u64,
        /// The pack.
        file: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The sample is stored in a way that this program does not know.
    #[error("sample {index} of {} is stored in form {form}, which this program does not know: update it, or pack the source again with --jpeg kept", .file.display())]
    UnknownForm {
        /// The sample.
        index: u64,
        /// The pack.
        file: PathBuf,
        /// The code of its form.
        form: u8,
    },
    /// There is no such sample.
    #[error("sample {index} does not exist: the dataset has {samples}")]
    OutOfRange {
        /// The index asked for.
        index: u64,
        /// Number of samples.
        samples: u64,
    },
}

impl ReadError {
    /// The small code that crosses the link.
    pub fn reason(&self) -> CorruptReason {
        match self {
            ReadError::Io { .. } | ReadError::Changed { .. } | ReadError::OutOfRange { .. } => CorruptReason::Io,
            ReadError::Checksum { .. } | ReadError::Record { .. } => CorruptReason::Checksum,
            ReadError::Rejected { reason, .. } => *reason,
            ReadError::TooLarge { .. } => CorruptReason::TooMuchMemory,
            ReadError::UnknownForm { .. } => CorruptReason::Unsupported,
        }
    }
}
