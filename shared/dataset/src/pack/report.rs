//! Interface of `pack`: progress, summary, errors.

use super::broken::Broken;
use super::bundles::{self, BUNDLE_SAMPLES_MAX};
use super::format::{CLASS_NAME_BYTES_MAX, NAME_BYTES_MAX, SAMPLES_MAX};
use crate::forms::StoredForm;
use crate::{CLASSES_MAX, Identity};
use ddlp_pixels::{CorruptReason, NotCut, NotIndexed};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Most samples that a list of repaired, rejected or broken ones names. The count beside the list includes all.
pub const LISTED_MAX: usize = 1 << 16;

/// Reason why a sample is stored as its whole file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum WhyKept {
    /// No other form was asked for, or one that holds no files.
    #[default]
    AskedFor,
    /// The file had to be repaired.
    Repaired,
    /// Decoding cannot start in the middle of the file, for this reason.
    NotIndexed(NotIndexed),
    /// The file cannot be cut into pieces, for this reason.
    NotCut(NotCut),
    /// The sample has no pixels to store, for this reason.
    NotDecoded(CorruptReason),
    /// The requested form does not hold pixels of files like this one, for this reason.
    Misfit(&'static str),
}

impl fmt::Display for WhyKept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AskedFor => f.write_str("asked for"),
            Self::Repaired => f.write_str("repaired"),
            Self::NotIndexed(why) => why.fmt(f),
            Self::NotCut(why) => why.fmt(f),
            Self::NotDecoded(reason) => reason.fmt(f),
            Self::Misfit(reason) => f.write_str(reason),
        }
    }
}

/// Number of samples, and their size before and after packing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of samples.
    pub samples: u64,
    /// Their bytes in the source.
    pub source_bytes: u64,
    /// Their bytes in the pack, details included.
    pub stored_bytes: u64,
}

impl Tally {
    pub(super) fn add(&mut self, source_bytes: u64, stored_bytes: u64) {
        self.samples += 1;
        self.source_bytes += source_bytes;
        self.stored_bytes += stored_bytes;
    }
}

/// Samples stored in one form. Those in `shrunk` are in one of the other tallies too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FormTally {
    /// Samples whose file did not have to be rewritten for the form.
    pub plain: Tally,
    /// Samples whose file was rewritten.
    pub rewritten: Tally,
    /// Samples that this packing shrank. A source that is a pack may hold others.
    pub shrunk: Tally,
}

/// Phase of [`pack`](super::pack()).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// Reading, decoding, writing.
    Packing,
    /// Checking the written file.
    Verifying,
    /// Waiting for the disk.
    Syncing,
}

/// Progress of [`pack`](super::pack()).
#[derive(Clone, Copy, Debug)]
pub struct PackProgress {
    /// The present phase.
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
    /// Samples rejected so far, including unreadable ones.
    pub rejected: u64,
    /// Unreadable samples so far.
    pub unreadable: u64,
}

/// A sample that was stored rewritten because its file was damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairedSample {
    /// Its index.
    pub index: u64,
    /// Its name.
    pub name: String,
    /// Number of the decoder's warnings.
    pub warnings: u32,
    /// Number of coefficients that were out of range.
    pub clamped: u32,
}

/// A sample that does not decode, or could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedSample {
    /// Its index.
    pub index: u64,
    /// Its name.
    pub name: String,
    /// Reason code in the index.
    pub reason: CorruptReason,
    /// The problem in words.
    pub message: String,
    /// Whether the sample's bytes could not be read; nothing of it is then stored.
    pub is_unreadable: bool,
}

/// Result of [`pack`](super::pack()). Each sample is counted in `forms`, `kept` or `undecodable`.
#[derive(Clone, Debug)]
pub struct PackSummary {
    /// Number of samples.
    pub samples: u64,
    /// Bytes of the source's samples.
    pub source_bytes: u64,
    /// Length of the pack.
    pub file_bytes: u64,
    /// The pack's identity.
    pub identity: Identity,
    /// Samples stored in each form that is not a whole file.
    pub forms: BTreeMap<StoredForm, FormTally>,
    /// Samples stored as whole files, by the reason.
    pub kept: BTreeMap<WhyKept, Tally>,
    /// Rejected samples; their readable bytes are kept.
    pub undecodable: Tally,
    /// How many samples were repaired.
    pub repaired_count: u64,
    /// The first [`LISTED_MAX`] repaired samples.
    pub repaired: Vec<RepairedSample>,
    /// How many samples were rejected.
    pub rejected_count: u64,
    /// The first [`LISTED_MAX`] unreadable samples and the first [`LISTED_MAX`] others, in the order of their indices.
    pub rejected: Vec<RejectedSample>,
}

impl PackSummary {
    /// Returns how many samples were stored in a form that is not a whole file.
    pub fn form(&self, form: StoredForm) -> FormTally {
        self.forms.get(&form).copied().unwrap_or_default()
    }

    /// Returns the bytes of all samples in the pack. The rest of the file is index and padding.
    pub fn stored_bytes(&self) -> u64 {
        let of_forms = self.forms.values().flat_map(|form| [&form.plain, &form.rewritten]);
        let tallies = of_forms.chain(self.kept.values()).chain([&self.undecodable]);
        tallies.map(|tally| tally.stored_bytes).sum()
    }
}

/// Describes how many samples would be lost, and why.
fn describe_losses(samples: u64, unreadable: u64, damaged: u64) -> String {
    match (unreadable, damaged) {
        (unreadable, 0) => format!("{unreadable} of {samples} samples cannot be read"),
        (0, damaged) => format!("{damaged} of {samples} samples cannot be decoded"),
        _ => format!("{unreadable} of {samples} samples cannot be read, and {damaged} cannot be decoded"),
    }
}

/// Reason why no pack was made. No file is left behind.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackError {
    /// A file of that name exists.
    #[error("{} exists: choose another name or ask for it to be overwritten", .path.display())]
    Exists {
        /// Path of the pack.
        path: PathBuf,
    },
    /// Something that is not a regular file has that name, and is not replaced.
    #[error("{} is {what}, and only regular files are overwritten: choose another name", .path.display())]
    NoFile {
        /// Path of the pack.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// The file cannot be created.
    #[error("cannot create {}: check that its folder exists and that you may write to it", .path.display())]
    Create {
        /// Path of the pack.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// Another process is making a file of that name.
    #[error("another process is writing {}", .path.display())]
    Busy {
        /// Path of the pack.
        path: PathBuf,
    },
    /// The disk is too small. This is checked before anything is read.
    #[error(
        "no space for {}: it needs at least {needed} bytes, but {available} are available: free some space or choose \
         another disk",
        .path.display()
    )]
    NoSpace {
        /// Path of the pack.
        path: PathBuf,
        /// Bytes of the whole pack, if its samples take as much space as in the source.
        needed: u64,
        /// Bytes available on the file system.
        available: u64,
    },
    /// The disk, the quota or the limit on a file's size was reached while writing.
    #[error(
        "no space for {} after {samples} of {samples_total} samples, at byte {written}{}: free some space or choose \
         another disk",
        .path.display(), .needed.map_or(String::new(), |bytes| format!(" of about {bytes}"))
    )]
    Full {
        /// Path of the pack.
        path: PathBuf,
        /// Number of samples written.
        samples: u64,
        /// Samples in all.
        samples_total: u64,
        /// Bytes of the pack so far.
        written: u64,
        /// Estimated bytes of the whole pack, if the rest of the source takes as much space as its beginning did.
        needed: Option<u64>,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// Writing failed.
    #[error("cannot write {}", .path.display())]
    Write {
        /// Path of the pack.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// A bundle has no samples, or too many.
    #[error("a bundle of {samples} samples is not possible: choose 1 to {BUNDLE_SAMPLES_MAX}")]
    BundleSize {
        /// Samples of a bundle.
        samples: u32,
    },
    /// A bundle's pieces of a scan group need too many bytes.
    #[error(
        "a bundle of {samples} samples needs 4 GiB or more for {}: choose a smaller bundle",
        match group { 0 => "markers".to_owned(), group => format!("scan group {group}") }
    )]
    BundleTooLarge {
        /// Samples of a bundle.
        samples: u32,
        /// Number of the scan group, 0 for the markers.
        group: u8,
    },
    /// The source has more samples than a pack of pieces can hold.
    #[error("the source has {samples} samples, a pack of pieces can hold {}", bundles::SAMPLES_MAX)]
    TooManyInPieces {
        /// Samples of the source.
        samples: u64,
    },
    /// A sample's name is longer than an index can hold.
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
    /// The source has more samples or classes than a pack can hold.
    #[error("the source has {samples} samples in {classes} classes, a pack at most {SAMPLES_MAX} in {CLASSES_MAX}")]
    TooMany {
        /// Number of samples.
        samples: u64,
        /// Number of classes.
        classes: usize,
    },
    /// The source is larger than any file.
    #[error("the {samples} samples of the source do not fit into a file")]
    TooLarge {
        /// Number of samples.
        samples: u64,
    },
    /// No sample decodes, so a run would deliver nothing of the pack.
    #[error(
        "none of its {samples} sample{} can be decoded; the first is {}: {}",
        if *.samples == 1 { "" } else { "s" }, .first.name, .first.message
    )]
    NoneDecodes {
        /// Number of samples.
        samples: u64,
        /// The first of them.
        first: RejectedSample,
    },
    /// Samples would be lost, and the options do not allow that.
    #[error("{}", describe_losses(*.samples, *.unreadable_count, *.damaged_count))]
    Lost {
        /// Number of samples.
        samples: u64,
        /// Number of unreadable samples.
        unreadable_count: u64,
        /// Number of samples that can be read but not decoded, if the option [`strict`](super::PackOptions::strict)
        /// refuses them.
        damaged_count: u64,
        /// The first [`LISTED_MAX`] of each kind.
        listed: Vec<RejectedSample>,
    },
    /// The source cannot be read any more or has changed since it was opened, or memory is refused.
    #[error("sample {name} cannot be packed: {problem}")]
    SourceUnavailable {
        /// The sample.
        name: String,
        /// The problem.
        problem: String,
    },
    /// The source is a pack with a damaged sample.
    #[error(
        "sample {name} cannot be packed again: {problem}: `ddlp verify` lists all damage in a pack; take an \
         intact copy of it, or pack its own source"
    )]
    SourceDamaged {
        /// The sample.
        name: String,
        /// The problem.
        problem: String,
    },
    /// The caller cancelled the packing.
    #[error("packing was cancelled, nothing was written")]
    Cancelled,
    /// The file reads back differently from what was written.
    #[error(
        "{} was written but reads back wrong in {count} places, the first: {first}: is the disk or memory failing?",
        .path.display()
    )]
    Damaged {
        /// Path of the pack.
        path: PathBuf,
        /// Number of differences.
        count: u64,
        /// The first difference.
        first: Broken,
    },
}
