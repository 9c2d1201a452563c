//! What can be damaged in a pack.

use super::format::FormatError;
use crate::pack::StoredForm;
use crate::{Identity, Location};

/// Damage in a pack.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Broken {
    /// The file, or a part of the index, cannot be used at all.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// A sample's index record is wrong.
    #[error("index record of sample {index}: {problem}")]
    Record {
        /// The sample.
        index: u64,
        /// The problem.
        problem: String,
    },
    /// A sample overlaps the sample before it.
    #[error("sample {name} ({location}) overlaps the one before it, which ends at {free}")]
    Overlap {
        /// The sample.
        index: u64,
        /// Its name.
        name: String,
        /// Its place.
        location: Location,
        /// End of the sample before it.
        free: u64,
    },
    /// The checksum of a sample's bytes is wrong.
    #[error("sample {name} ({location}): {stored:08x} is stored as its checksum, {computed:08x} computed")]
    Sample {
        /// The sample.
        index: u64,
        /// Its name.
        name: String,
        /// Its place.
        location: Location,
        /// The CRC32C in the index.
        stored: u32,
        /// The CRC32C of the bytes.
        computed: u32,
    },
    /// The checksum of a sample's detail is wrong.
    #[error(
        "{} of sample {name} ({location}): the stored checksum is {stored:08x}, the computed one {computed:08x}{}",
        .form.detail().unwrap_or("detail"),
        without_detail(*.form)
    )]
    Detail {
        /// The sample.
        index: u64,
        /// Its form.
        form: StoredForm,
        /// Its name.
        name: String,
        /// The place of the detail.
        location: Location,
        /// The CRC32C in the index.
        stored: u32,
        /// The CRC32C of the bytes.
        computed: u32,
    },
    /// Bytes cannot be read from the disk.
    #[error("{length} bytes at {offset} cannot be read: {problem}")]
    Unreadable {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
        /// The operating system's error.
        problem: String,
    },
    /// A byte that belongs to no part is not zero.
    #[error("padding at byte {offset} is not zero")]
    Padding {
        /// The byte.
        offset: u64,
    },
    /// The identity is not the digest of the index.
    #[error("identity {stored} is stored, {computed} computed from the index")]
    Identity {
        /// Identity in the superblock.
        stored: Identity,
        /// Digest of the sections.
        computed: Identity,
    },
}

/// Returns what a message says about a sample whose detail is damaged.
const fn without_detail(form: StoredForm) -> &'static str {
    if form.is_file() { "; the sample can still be read, since its file alone gives the same pixels" } else { "" }
}

impl Broken {
    /// Returns the place in the file, for the order of a report.
    pub(super) fn place(&self) -> u64 {
        match self {
            Broken::Format(_) | Broken::Identity { .. } | Broken::Record { .. } => 0,
            Broken::Overlap { location, .. } | Broken::Sample { location, .. } | Broken::Detail { location, .. } => {
                location.offset
            }
            Broken::Unreadable { offset, .. } | Broken::Padding { offset } => *offset,
        }
    }
}
