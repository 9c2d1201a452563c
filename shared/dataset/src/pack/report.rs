//! What is said to and by `pack`: options, progress, summary, errors.

use super::format::{CLASS_NAME_BYTES_MAX, NAME_BYTES_MAX, SAMPLES_MAX};
use super::verification::Broken;
use crate::{CLASSES_MAX, Identity};
use ddlp_pixels::{CorruptReason, Limits, NotIndexed};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Most samples that a list of repaired, rejected or broken ones names. The counts beside it count all.
pub const LISTED_MAX: usize = 1 << 16;

/// How samples are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PackFormat {
    /// Encoded, as the source has them.
    Encoded {
        /// Form of JPEG samples.
        jpeg: JpegForm,
    },
    /// Uncompressed: rows of RGB, 8 bits.
    Raw {
        /// Larger images are shrunk until their longer side has so many pixels.
        max_side: Option<u32>,
    },
}

impl Default for PackFormat {
    /// Encoded, with checkpoints.
    fn default() -> Self {
        Self::Encoded { jpeg: JpegForm::default() }
    }
}

/// In which form JPEG samples are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum JpegForm {
    /// The source's bytes.
    Kept,
    /// The source's bytes with places from which decoding can go on. What is spread over several scans is rewritten into one, of the
    /// same coefficients; what cannot be entered in between, or had to be repaired, is kept whole.
    #[default]
    Indexed,
}

/// Why the whole file of a sample was stored, though another form was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum WhyKept {
    /// It had to be repaired.
    Repaired,
    /// It cannot be entered in between.
    NotIndexed(NotIndexed),
    /// It has more pixels than a sample may have bytes for.
    TooLarge,
}

impl fmt::Display for WhyKept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Repaired => f.write_str("repaired"),
            Self::NotIndexed(why) => why.fmt(f),
            Self::TooLarge => f.write_str("too many pixels"),
        }
    }
}

/// Some of the samples, and what became of their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many.
    pub samples: u64,
    /// Their bytes in the source.
    pub source_bytes: u64,
    /// Their bytes in the pack, with what their form needs beside them.
    pub stored_bytes: u64,
}

impl Tally {
    pub(super) fn add(&mut self, source_bytes: u64, stored_bytes: u64) {
        self.samples += 1;
        self.source_bytes += source_bytes;
        self.stored_bytes += stored_bytes;
    }
}

/// How to pack.
#[derive(Clone, Debug, Default)]
pub struct PackOptions {
    /// Threads that read and decode; 0 means one per core.
    pub threads: usize,
    /// How samples are stored.
    pub format: PackFormat,
    /// Replace a file of that name.
    pub overwrite: bool,
    /// Check the whole file before it gets its name.
    pub verify: bool,
    /// Limits for the decoding of each sample.
    pub limits: Limits,
}

/// What [`pack`](super::pack()) is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// Reading, decoding, writing.
    Packing,
    /// Checking what was written.
    Verifying,
    /// Waiting for the disk.
    Syncing,
}

/// How far [`pack`](super::pack()) is.
#[derive(Clone, Copy, Debug)]
pub struct PackProgress {
    /// What is being done.
    pub phase: Phase,
    /// Samples done in this phase.
    pub samples: u64,
    /// Samples in all.
    pub samples_total: u64,
    /// Bytes done in this phase: of the source when packing, of the pack when verifying.
    pub bytes: u64,
    /// Bytes in all.
    pub bytes_total: u64,
    /// Samples repaired so far.
    pub repaired: u64,
    /// Samples rejected so far.
    pub rejected: u64,
}

/// A sample that was stored rewritten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairedSample {
    /// Its index.
    pub index: u64,
    /// Its name.
    pub name: String,
    /// How often its decoder warned.
    pub warnings: u32,
    /// Coefficients that were out of range.
    pub clamped: u32,
}

/// A sample that does not decode, or could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedSample {
    /// Its index.
    pub index: u64,
    /// Its name.
    pub name: String,
    /// The code that the index keeps.
    pub reason: CorruptReason,
    /// What is wrong in words.
    pub message: String,
}

/// What [`pack`](super::pack()) made.
#[derive(Clone, Debug)]
pub struct PackSummary {
    /// Number of samples.
    pub samples: u64,
    /// Bytes of the source's samples.
    pub source_bytes: u64,
    /// Length of the pack.
    pub file_bytes: u64,
    /// Its identity.
    pub identity: Identity,
    /// JPEG samples stored with checkpoints, as the source has them.
    pub indexed: Tally,
    /// JPEG samples stored with checkpoints, rewritten into one scan.
    pub transcoded: Tally,
    /// Samples stored uncompressed.
    pub raw: Tally,
    /// Those of them that were shrunk.
    pub shrunk: Tally,
    /// Samples stored whole, by the reason.
    pub kept: BTreeMap<WhyKept, Tally>,
    /// How many samples were repaired.
    pub repaired_count: u64,
    /// The first [`LISTED_MAX`] of them.
    pub repaired: Vec<RepairedSample>,
    /// How many samples were rejected.
    pub rejected_count: u64,
    /// The first [`LISTED_MAX`] of them.
    pub rejected: Vec<RejectedSample>,
}

/// Why no pack was made. Nothing is left behind then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackError {
    /// There is a file of that name.
    #[error("{} exists: choose another name or ask for it to be overwritten", .path.display())]
    Exists {
        /// The name.
        path: PathBuf,
    },
    /// The file cannot be made.
    #[error("cannot create {}: check that its directory exists and that you may write to it", .path.display())]
    Create {
        /// The name.
        path: PathBuf,
        /// What the operating system says.
        #[source]
        source: io::Error,
    },
    /// Another process is making a file of that name.
    #[error("another process is writing {}", .path.display())]
    Busy {
        /// The name.
        path: PathBuf,
    },
    /// The disk, quota or file size limit is too small.
    #[error("no space for {}: it needs at least {needed} bytes and {} are available: free some space or choose another disk", .path.display(), .available.map_or("fewer".to_owned(), |bytes| bytes.to_string()))]
    NoSpace {
        /// The name.
        path: PathBuf,
        /// Bytes of the whole pack, if its samples take what they have in the source.
        needed: u64,
        /// Bytes that the file system has left, where it is what says no.
        available: Option<u64>,
        /// What the operating system says, when the space ran out on the way.
        #[source]
        source: Option<io::Error>,
    },
    /// Writing failed.
    #[error("cannot write {}", .path.display())]
    Write {
        /// The name.
        path: PathBuf,
        /// What the operating system says.
        #[source]
        source: io::Error,
    },
    /// A name is longer than an index can hold.
    #[error("the name of sample {index} has {bytes} bytes, at most {NAME_BYTES_MAX} are possible")]
    NameTooLong {
        /// The sample.
        index: u64,
        /// Bytes of its name.
        bytes: usize,
    },
    /// The name of a class is longer than a pack can hold.
    #[error("the name of class {class} has {bytes} bytes, at most {CLASS_NAME_BYTES_MAX} are possible")]
    ClassNameTooLong {
        /// The class.
        class: usize,
        /// Bytes of its name.
        bytes: usize,
    },
    /// More samples or classes than a pack can hold.
    #[error("a source of {samples} samples in {classes} classes: a pack has at most {SAMPLES_MAX} and {CLASSES_MAX}")]
    TooMany {
        /// Number of samples.
        samples: u64,
        /// Number of classes.
        classes: usize,
    },
    /// The source is larger than any file.
    #[error("a source of {samples} samples does not fit into a file")]
    TooLarge {
        /// Number of samples.
        samples: u64,
    },
    /// The caller asked for it.
    #[error("packing was cancelled, nothing was written")]
    Cancelled,
    /// What was written is not what is read back.
    #[error("{} was written and reads back wrong in {count} places, the first: {first}: is the disk or memory failing?", .path.display())]
    Damaged {
        /// The name.
        path: PathBuf,
        /// How many.
        count: u64,
        /// The first.
        first: Broken,
    },
}
