//! Reasons why a sample cannot be read: its own bytes are damaged, or the dataset is not there as it was opened.
//!
//! The two are types of their own. The corrupt-sample policy may skip or replace a [`Corrupt`] sample; an
//! [`Unavailable`] one ends a run, or is left to another prong.

use crate::Location;
use crate::errno::Class;
use ddlp_pixels::{CallError, CorruptReason, PixelError};
use std::io;
use std::path::{Path, PathBuf};

/// Reason why a sample cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The sample is damaged. The corrupt-sample policy decides what happens to it.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The dataset cannot be read now, or has become another one. No policy applies.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// Damage of one sample. Each message names the sample and where it lies.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Corrupt {
    /// The disk cannot read these bytes, however often it is asked.
    #[error("sample {name} cannot be read from its storage device ({location})")]
    Io {
        /// The sample.
        name: String,
        /// Its place.
        location: Location,
        /// The operating system's error.
        #[source]
        source: io::Error,
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
    /// The stored form of a sample that is no file does not open as a whole.
    #[error("sample {name} cannot be opened ({location})")]
    Pixels {
        /// The sample.
        name: String,
        /// Its place.
        location: Location,
        /// The reason.
        #[source]
        source: PixelError,
    },
    /// The sample has more bytes than any sample may have.
    #[error(
        "sample {name} has {} bytes, more than the limit of {} ({})",
        .location.length, crate::SAMPLE_BYTES_MAX, .location.file.display()
    )]
    TooLarge {
        /// The sample.
        name: String,
        /// Its place.
        location: Location,
    },
    /// The sample's index record is invalid.
    #[error("the index record of sample {index} in {} is damaged: {problem}", .file.display())]
    Record {
        /// The sample.
        index: u64,
        /// The pack, or the address of the drive that holds it.
        file: PathBuf,
        /// The problem with the record.
        problem: String,
    },
}

/// Reason why a dataset cannot be read now, or is not the one that was opened. Each message names the file or folder,
/// or the address of the drive that holds the dataset.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// The operating system refuses to read, or the drive is out of reach.
    #[error("{what} cannot be read")]
    Io {
        /// The object that was to be read: a sample with its place, a file, or a folder.
        what: String,
        /// The file or folder, or the drive's address.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The operating system refuses memory for a sample whose need is within the limits.
    #[error(
        "there is no memory for sample {name} ({location}): {problem}. Free some memory, raise the limit of this \
         process (ulimit -v, the control group), or use fewer threads"
    )]
    NoMemory {
        /// The sample.
        name: String,
        /// Its place.
        location: Location,
        /// The refused allocation.
        problem: String,
    },
    /// An operation of the pipeline cannot be applied to an image of this sample's size. The sample itself is intact.
    #[error(
        "sample {name} ({location}) does not suit the pipeline: {problem}. The image itself is not damaged, so the \
         corrupt-sample policy does not apply"
    )]
    Misfit {
        /// The sample.
        name: String,
        /// Its place.
        location: Location,
        /// The operation, the image's size, and what to do.
        problem: String,
    },
    /// A function of the program, which the pipeline calls, failed. The sample itself is intact.
    #[error("the pipeline's function failed on sample {name} ({location})")]
    Function {
        /// The sample.
        name: String,
        /// Its place.
        location: Location,
        /// The function's name and what it returned.
        #[source]
        source: CallError,
    },
    /// A file or folder that existed when the dataset was opened no longer exists.
    #[error("{} is gone: it existed when the dataset was opened", .path.display())]
    Gone {
        /// The topmost file or folder that is missing.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The sample had no file when the dataset was opened: a dangling link, or something that is not a regular file.
    #[error("sample {name} has no file: {} does not exist, or is no regular file", .file.display())]
    NoFile {
        /// The sample.
        name: String,
        /// The link, or what is there in place of a file.
        file: PathBuf,
    },
    /// The sample's row had no image when the table was opened.
    #[error("row {name} of {} has no image: add it, or remove the row where its label stands", .table.display())]
    NoImage {
        /// The row's key.
        name: String,
        /// The table's URL.
        table: PathBuf,
    },
    /// A file, or what a drive holds, differs from what was opened.
    #[error("the {kind} has changed since it was opened: {} {change}", .file.display())]
    Changed {
        /// Kind of the file: a pack, an image, …
        kind: &'static str,
        /// The file, or the drive's address.
        file: PathBuf,
        /// The difference between what was expected and what was found, as a phrase that follows the file's name.
        change: String,
    },
    /// The sample is stored in a form that this program does not know.
    #[error(
        "sample {index} of {} is stored in form {form}, which this program does not know: update it, or pack the \
         source again with `jpeg=\"kept\"`",
        .file.display()
    )]
    UnknownForm {
        /// The sample.
        index: u64,
        /// The pack, or the address of the drive that holds it.
        file: PathBuf,
        /// The code of its form.
        form: u8,
    },
    /// The sample does not exist: a defect of the caller.
    #[error("sample {index} does not exist: the dataset has {samples}")]
    OutOfRange {
        /// The requested index.
        index: u64,
        /// Number of samples.
        samples: u64,
    },
}

impl Corrupt {
    /// Returns the small code that crosses the link.
    pub fn reason(&self) -> CorruptReason {
        match self {
            Corrupt::Io { .. } => CorruptReason::Io,
            Corrupt::Checksum { .. } | Corrupt::Record { .. } => CorruptReason::Checksum,
            Corrupt::Rejected { reason, .. } => *reason,
            Corrupt::Pixels { source, .. } => source.reason(),
            Corrupt::TooLarge { .. } => CorruptReason::TooMuchMemory,
        }
    }
}

impl ReadError {
    /// Turns an operating system's error for a sample's bytes into the sample's error. The caller checks first whether
    /// the dataset is still the one that was opened.
    pub fn of_sample(name: String, location: Location, source: io::Error) -> Self {
        match Class::of(&source) {
            Class::Medium => Corrupt::Io { name, location, source }.into(),
            Class::Momentary | Class::Lasting => {
                let what = format!("sample {name} ({location})");
                Unavailable::Io { what, path: location.file, source }.into()
            }
        }
    }
}

impl Unavailable {
    /// Returns whether trying again soon may help: the server does not answer, or memory or file descriptors are short.
    pub fn is_momentary(&self) -> bool {
        match self {
            Unavailable::Io { source, .. } => Class::of(source) == Class::Momentary,
            Unavailable::NoMemory { .. } => true,
            _ => false,
        }
    }

    /// Returns whether the error concerns `file` alone, rather than the dataset as a whole or the system.
    pub(crate) fn is_of_file(&self, file: &Path) -> bool {
        match self {
            Unavailable::Io { path, source, .. } => path == file && Class::of(source) == Class::Lasting,
            Unavailable::Gone { path, .. } => path == file,
            Unavailable::Changed { .. } | Unavailable::NoFile { .. } | Unavailable::NoImage { .. } => true,
            _ => false,
        }
    }
}
