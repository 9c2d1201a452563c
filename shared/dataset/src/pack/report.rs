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

/// How samples are stored. Planes stay planes, and what the source has uncompressed stays uncompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PackFormat {
    /// Encoded.
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

/// Why the whole file of a sample was stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum WhyKept {
    /// No other form was asked for.
    #[default]
    AskedFor,
    /// It had to be repaired.
    Repaired,
    /// It cannot be entered in between.
    NotIndexed(NotIndexed),
    /// It has no pixels to store, for this reason.
    NotDecoded(CorruptReason),
}

impl fmt::Display for WhyKept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AskedFor => f.write_str("asked for"),
            Self::Repaired => f.write_str("repaired"),
            Self::NotIndexed(why) => why.fmt(f),
            Self::NotDecoded(reason) => reason.fmt(f),
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
    /// Store samples whose bytes cannot be read as rejected and empty, instead of making no pack.
    pub allow_unreadable: bool,
    /// Make no pack if a sample does not decode.
    pub strict: bool,
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
    /// Samples rejected so far, unreadable ones among them.
    pub rejected: u64,
    /// Samples so far whose bytes cannot be read.
    pub unreadable: u64,
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
    /// Whether its bytes could not be read: nothing of it is stored.
    pub is_unreadable: bool,
}

/// What [`pack`](super::pack()) made. Each sample is counted in one of the tallies, those of `shrunk` in `raw` too.
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
    /// Those of them that were shrunk now. A source that is a pack may hold others.
    pub shrunk: Tally,
    /// Samples stored as planes.
    pub planar: Tally,
    /// Samples stored as their files, by the reason.
    pub kept: BTreeMap<WhyKept, Tally>,
    /// Rejected samples, of which what could be read is kept.
    pub undecodable: Tally,
    /// How many samples were repaired.
    pub repaired_count: u64,
    /// The first [`LISTED_MAX`] of them.
    pub repaired: Vec<RepairedSample>,
    /// How many samples were rejected.
    pub rejected_count: u64,
    /// The first [`LISTED_MAX`] of them.
    pub rejected: Vec<RejectedSample>,
}

impl PackSummary {
    /// Bytes of all samples in the pack. The rest of it is index and padding.
    pub fn stored_bytes(&self) -> u64 {
        let Self { indexed, transcoded, raw, planar, kept, undecodable, .. } = self;
        let tallies = [indexed, transcoded, raw, planar, undecodable].into_iter().chain(kept.values());
        tallies.map(|tally| tally.stored_bytes).sum()
    }
}

/// Says how many samples would be lost, and why.
fn said_of_losses(samples: u64, unreadable: u64, damaged: u64) -> String {
    match (unreadable, damaged) {
        (unreadable, 0) => format!("{unreadable} of {samples} samples cannot be read"),
        (0, damaged) => format!("{damaged} of {samples} samples cannot be decoded"),
        _ => format!("{unreadable} of {samples} samples cannot be read, and {damaged} cannot be decoded"),
    }
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
    /// What has that name is no regular file, and is not replaced.
    #[error("{} is {what}, which is not overwritten: choose another name", .path.display())]
    NoFile {
        /// The name.
        path: PathBuf,
        /// What it is.
        what: &'static str,
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
    /// The disk is too small: found before anything is read.
    #[error("no space for {}: it needs at least {needed} bytes and {available} are available: free some space or choose another disk", .path.display())]
    NoSpace {
        /// The name.
        path: PathBuf,
        /// Bytes of the whole pack, if its samples take what they have in the source.
        needed: u64,
        /// Bytes that the file system has left.
        available: u64,
    },
    /// The disk, the quota or the limit on a file's size was reached on the way.
    #[error("no space for {} after {samples} of {samples_total} samples, at byte {written}{}: free some space or choose another disk", .path.display(), .needed.map_or(String::new(), |bytes| format!(" of about {bytes}")))]
    Full {
        /// The name.
        path: PathBuf,
        /// Samples that were written.
        samples: u64,
        /// Samples in all.
        samples_total: u64,
        /// Bytes of the pack until there.
        written: u64,
        /// Bytes of the whole pack, if the rest of the source takes what its beginning took.
        needed: Option<u64>,
        /// What the operating system says.
        #[source]
        source: io::Error,
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
    /// Of such a pack no run would deliver anything.
    #[error("not one of its {samples} sample{} can be decoded, the first: {}: {}", if *.samples == 1 { "" } else { "s" }, .first.name, .first.message)]
    NoneDecodes {
        /// Number of samples.
        samples: u64,
        /// The first of them.
        first: RejectedSample,
    },
    /// Samples would be lost, and the options do not allow it.
    #[error("{}", said_of_losses(*.samples, *.unreadable_count, *.damaged_count))]
    Lost {
        /// Number of samples.
        samples: u64,
        /// How many cannot be read.
        unreadable_count: u64,
        /// How many can be read and do not decode, where [`PackOptions::strict`] refuses them.
        damaged_count: u64,
        /// The first [`LISTED_MAX`] of both together.
        listed: Vec<RejectedSample>,
    },
    /// The source is a pack, and it cannot be read, or is another one than when it was opened.
    #[error("sample {name} cannot be packed again: {problem}")]
    SourceUnavailable {
        /// The sample.
        name: String,
        /// What is wrong.
        problem: String,
    },
    /// The source is a pack, and a sample in it is not as it was written.
    #[error(
        "sample {name} cannot be packed again: {problem}: `ddlp verify` names all that is damaged in a pack; take an intact copy of it, or pack its own source"
    )]
    SourceDamaged {
        /// The sample.
        name: String,
        /// What is wrong.
        problem: String,
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
