//! Why a sample cannot be read: its own bytes are damaged, or the dataset is not there as it was opened.
//!
//! The two are types of their own. The corrupt-sample policy may leave out or replace what is [`Corrupt`]; what is
//! [`Unavailable`] ends a run, or is another prong's work.

use crate::Location;
use ddlp_pixels::CorruptReason;
use nix::errno::Errno;
use std::io;
use std::path::{Path, PathBuf};

/// Why a sample cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The sample is damaged. The corrupt-sample policy decides what happens to it.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The dataset cannot be read now, or is another one by now. No policy applies.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// What is wrong with one sample. Each message names the sample and where it lies.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Corrupt {
    /// The storage device cannot read these bytes, however often it is asked.
    #[error("sample {name} cannot be read from its storage device ({location})")]
    Io {
        /// The sample.
        name: String,
        /// Its place.
        location: Location,
        /// What the operating system says.
        #[source]
        source: io::Error,
    },
    /// There was no file of the sample when the dataset was opened: a link that leads nowhere, or no regular file.
    #[error("sample {name} is a link that leads nowhere, or no regular file ({})", .location.file.display())]
    NoFile {
        /// The sample.
        name: String,
        /// Its place.
        location: Location,
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
}

/// Why a dataset cannot be read now, or is not the one that was opened. Each message names the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// The operating system refuses.
    #[error("{what} cannot be read")]
    Io {
        /// What was to be read: a sample with its place, or a file.
        what: String,
        /// What the operating system says.
        #[source]
        source: io::Error,
    },
    /// A file or folder that was there when the dataset was opened is not there any more.
    #[error("{} is gone: it was there when the dataset was opened", .path.display())]
    Gone {
        /// The topmost file or folder that is missing.
        path: PathBuf,
        /// What the operating system says.
        #[source]
        source: io::Error,
    },
    /// A file is another one than when the dataset was opened.
    #[error("the {kind} has changed since it was opened: {} {change}", .file.display())]
    Changed {
        /// What the file is: a pack, an image, …
        kind: &'static str,
        /// The file.
        file: PathBuf,
        /// What was expected and what is there, as a phrase behind the file's name.
        change: String,
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
    /// There is no such sample: a defect of whoever asks for it.
    #[error("sample {index} does not exist: the dataset has {samples}")]
    OutOfRange {
        /// The index asked for.
        index: u64,
        /// Number of samples.
        samples: u64,
    },
}

impl Corrupt {
    /// Returns the small code that crosses the link.
    pub fn reason(&self) -> CorruptReason {
        match self {
            Corrupt::Io { .. } | Corrupt::NoFile { .. } => CorruptReason::Io,
            Corrupt::Checksum { .. } | Corrupt::Record { .. } => CorruptReason::Checksum,
            Corrupt::Rejected { reason, .. } => *reason,
            Corrupt::TooLarge { .. } => CorruptReason::TooMuchMemory,
        }
    }
}

impl ReadError {
    /// Judges what the operating system says of a sample's bytes. Whether the dataset is still the one that was opened is for the
    /// caller to find out first.
    pub(crate) fn of_sample(name: String, location: Location, source: io::Error) -> Self {
        if is_medium_error(&source) {
            Corrupt::Io { name, location, source }.into()
        } else {
            Unavailable::Io { what: format!("sample {name} ({location})"), source }.into()
        }
    }
}

/// Whether the storage device, or what the file system keeps on it, is broken at this place. Everything else (not found, stale,
/// forbidden, timed out, no memory, too many open files) says nothing about the sample.
pub(crate) fn is_medium_error(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    // Beside EIO: what Linux makes of medium, target and protection errors of a disk, and of damaged file systems (EUCLEAN, EBADMSG).
    let medium = [Errno::EIO, Errno::ENODATA, Errno::EREMOTEIO, Errno::EILSEQ, Errno::EUCLEAN, Errno::EBADMSG];
    errno.is_some_and(|errno| medium.contains(&errno))
}

/// Returns the topmost of a dataset's `root` and what leads from there to a file that is missing; the file where all of them are there,
/// as when another folder has taken the root's place.
pub(crate) fn first_missing(root: &Path, file: &Path) -> PathBuf {
    let mut path = root.to_owned();
    for component in file.components() {
        if path.metadata().is_err() {
            return path;
        }
        path.push(component);
    }
    path
}
