//! Place of the result slots: anonymous memory, a file on flash, or a file or memfd handed down by the loader.
//!
//! This module reserves space in a file. Slots in memory get their pages later, slot by slot; see `memory`.
//!
//! The agent takes over a file only if it is empty or begins with the mark of a slot, so that it overwrites nobody's
//! data; a new file gets the mark before it grows. The agent never shrinks a file: a process that has mapped the file
//! would be killed when it touches the missing bytes. Memory is sealed against shrinking. Somebody else can still
//! truncate a file on flash, which kills the agent.

use super::Geometry;
use crate::lock;
use ddlp_csd::BLOCK_BYTES;
use ddlp_csd::slot::{MAGIC, MAGIC_FREE};
use nix::fcntl::{FallocateFlags, FcntlArg, OFlag, SealFlag, fallocate, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::{Whence, lseek};
use std::fs::File;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Place of the slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Anonymous memory (a memfd), allocated slot by slot.
    Memory,
    /// A file at this path, made if missing, with its space reserved at the start. A larger file keeps its size.
    File(PathBuf),
    /// A descriptor inherited from the parent process: a regular file or memfd of sufficient size. The agent fills its
    /// holes.
    Inherited(RawFd),
}

impl FromStr for Backing {
    type Err = String;

    /// Parses `ram`, `fd:N`, or a path.
    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.strip_prefix("fd:")) {
            ("ram", _) => Ok(Self::Memory),
            ("", _) => Err("an empty path cannot hold results: give `ram`, `fd:N` or a file".into()),
            (_, Some(number)) => match number.parse() {
                Ok(fd) if fd > 2 => Ok(Self::Inherited(fd)),
                _ => Err(format!("`{text}` names no inherited descriptor: expected fd:N with N of 3 or more")),
            },
            (path, None) => Ok(Self::File(path.into())),
        }
    }
}

/// Reason why a place cannot hold the slots.
#[derive(Debug, thiserror::Error)]
pub enum BackingError {
    /// The geometry is not valid.
    #[error("{slots} slots of {slot_bytes} bytes: at least one slot, each a multiple of {BLOCK_BYTES} bytes")]
    Geometry {
        /// Number of slots.
        slots: u32,
        /// Bytes of one slot.
        slot_bytes: u64,
    },
    /// There is no memory for the slots.
    #[error("cannot make {bytes} bytes of anonymous memory for the slots")]
    Memory {
        /// Bytes asked for.
        bytes: u64,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file cannot be opened or made.
    #[error("cannot open {path} for the result slots")]
    Open {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file system has no room.
    #[error("cannot reserve {bytes} bytes for the result slots in {path}")]
    Reserve {
        /// The file.
        path: PathBuf,
        /// Bytes asked for.
        bytes: u64,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file does not hold result slots.
    #[error("{0} exists and does not hold result slots: it would be overwritten, so name another file or remove it")]
    Foreign(PathBuf),
    /// Another agent uses the file.
    #[error("{0} holds the result slots of another running agent: name another file")]
    InUse(PathBuf),
    /// The inherited descriptor does not exist.
    #[error("descriptor {fd} was not inherited")]
    Descriptor {
        /// The number.
        fd: RawFd,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The inherited descriptor is not a file that can be mapped for writing.
    #[error("descriptor {fd} cannot hold result slots: {what}")]
    Unfit {
        /// The number.
        fd: RawFd,
        /// What is wrong.
        what: String,
    },
    /// The mapping failed.
    #[error("cannot map {bytes} bytes of result slots")]
    Map {
        /// Bytes asked for.
        bytes: u64,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// A file that can hold the slots.
#[derive(Debug)]
pub(super) struct SlotFile {
    pub(super) file: File,
    pub(super) in_memory: bool,
}

/// Opens the backing, and reserves space in a file. Without the reservation, a full disk would later be a fatal signal
/// in the middle of a batch.
pub(super) fn open(backing: &Backing, geometry: Geometry) -> Result<SlotFile, BackingError> {
    let Geometry { slots, slot_bytes } = geometry;
    let total = u64::from(slots).checked_mul(slot_bytes);
    let fits = total.is_some_and(|bytes| bytes > 0 && i64::try_from(bytes).is_ok());
    if !fits || !slot_bytes.is_multiple_of(BLOCK_BYTES as u64) {
        return Err(BackingError::Geometry { slots, slot_bytes });
    }
    match backing {
        Backing::Memory => anonymous(geometry.total_bytes()),
        Backing::File(path) => on_flash(path, geometry),
        Backing::Inherited(fd) => inherited(*fd, geometry.total_bytes()),
    }
}

fn anonymous(bytes: u64) -> Result<SlotFile, BackingError> {
    let make = || -> io::Result<File> {
        ddlp_csd::memory::check_room(bytes)?;
        let fd = memfd_create(c"ddlp-slots", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
        let file = File::from(fd);
        file.set_len(bytes)?;
        seal(&file)?;
        Ok(file)
    };
    let file = make().map_err(|source| BackingError::Memory { bytes, source })?;
    Ok(SlotFile { file, in_memory: true })
}

/// Keeps anybody from shrinking a mapped memfd, which would kill this process.
fn seal(file: &File) -> io::Result<()> {
    fcntl(file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK))?;
    Ok(())
}

fn on_flash(path: &Path, geometry: Geometry) -> Result<SlotFile, BackingError> {
    let bytes = geometry.total_bytes();
    let failed = |source| BackingError::Open { path: path.to_owned(), source };
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(OFlag::O_CLOEXEC.bits())
        .open(path)
        .map_err(failed)?;
    let kind = file.metadata().map_err(failed)?.file_type();
    if !kind.is_file() {
        let what = if kind.is_block_device() { "a block device" } else { "not a regular file" };
        return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, what)));
    }
    match lock::lock(&file) {
        Ok(()) => {}
        Err(std::fs::TryLockError::WouldBlock) => return Err(BackingError::InUse(path.to_owned())),
        Err(std::fs::TryLockError::Error(source)) => return Err(failed(source)),
    }
    let present = file.metadata().map_err(failed)?.len();
    if present > 0 && !begins_like_a_slot(&file).map_err(failed)? {
        return Err(BackingError::Foreign(path.to_owned()));
    }
    if let Err(source) = reserve(&file, present, bytes) {
        if present == 0 {
            // The file is new and unused. If it cannot be removed, a later start recognises it by its mark.
            let _ = std::fs::remove_file(path);
        }
        return Err(BackingError::Reserve { path: path.to_owned(), bytes, source });
    }
    Ok(SlotFile { file, in_memory: false })
}

/// Makes sure that a file of `present` bytes has room for `bytes`.
fn reserve(file: &File, present: u64, bytes: u64) -> io::Result<()> {
    if present == 0 {
        // The mark comes first, so that a file left behind by a crash is recognised.
        file.write_all_at(&MAGIC_FREE, 0)?;
    }
    if present < bytes {
        file.set_len(bytes)?;
    }
    reserve_space(file, bytes)
}

fn reserve_space(file: &File, bytes: u64) -> io::Result<()> {
    match allocate(file, 0, bytes) {
        // This file system cannot reserve space, so the agent only sets the length.
        Err(error) if error.raw_os_error() == Some(nix::errno::Errno::EOPNOTSUPP as i32) => Ok(()),
        done => done,
    }
}

/// Allocates a part of a file. Bytes that are allocated already keep their contents.
pub(super) fn allocate(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    let too_large = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let (offset, bytes) = (i64::try_from(offset).map_err(too_large)?, i64::try_from(bytes).map_err(too_large)?);
    loop {
        match fallocate(file, FallocateFlags::empty(), offset, bytes) {
            Err(nix::Error::EINTR) => {}
            done => return Ok(done?),
        }
    }
}

/// Returns how many bytes of a range of an in-memory file lie in pages with contents. Pages that were allocated but
/// never touched do not count, since the kernel reports them as a hole.
pub(super) fn held_bytes(file: &File, offset: u64, bytes: u64) -> u64 {
    let (mut at, end, mut held) = (offset as i64, (offset + bytes) as i64, 0);
    // Moving the file's position is harmless: all access is by offset. An error means that no data follow.
    while let Ok(start) = lseek(file, at, Whence::SeekData) {
        let Ok(stop) = lseek(file, start, Whence::SeekHole) else { break };
        held += (stop.min(end) - start).max(0) as u64;
        if stop >= end {
            break;
        }
        at = stop;
    }
    held
}

/// Returns whether `path` holds something other than result slots, which [`open`] would not overwrite.
pub(crate) fn is_foreign(path: &Path) -> io::Result<bool> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        opened => opened?,
    };
    Ok(file.metadata()?.len() > 0 && !begins_like_a_slot(&file)?)
}

/// Returns whether a file begins with the mark of a slot, with or without a batch. Zeros are not a mark, since many
/// files begin with them.
fn begins_like_a_slot(file: &File) -> io::Result<bool> {
    let mut start = [0; MAGIC.len()];
    match file.read_exact_at(&mut start, 0) {
        Ok(()) => Ok(start == MAGIC || start == MAGIC_FREE),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

fn inherited(fd: RawFd, bytes: u64) -> Result<SlotFile, BackingError> {
    let unfit = |what: String| BackingError::Unfit { fd, what };
    let gone = |source: io::Error| BackingError::Descriptor { fd, source };
    let file = File::from(crate::inherit::take(fd).map_err(gone)?);
    let metadata = file.metadata().map_err(gone)?;
    if !metadata.file_type().is_file() {
        return Err(unfit("it is not a regular file".into()));
    }
    if metadata.size() < bytes {
        return Err(unfit(format!("it has {} bytes, {bytes} are needed", metadata.size())));
    }
    let flags = fcntl(&file, FcntlArg::F_GETFL).map_err(|errno| gone(errno.into()))?;
    if OFlag::from_bits_truncate(flags) & OFlag::O_ACCMODE != OFlag::O_RDWR {
        return Err(unfit("it is not open for reading and writing".into()));
    }
    let seals = fcntl(&file, FcntlArg::F_GET_SEALS).ok().map(SealFlag::from_bits_truncate);
    if let Some(seals) = seals
        && !seals.intersects(SealFlag::F_SEAL_SEAL | SealFlag::F_SEAL_SHRINK)
    {
        seal(&file).map_err(|error| unfit(error.to_string()))?;
    }
    // Only files in memory (memfd, tmpfs) know about seals.
    let in_memory = seals.is_some();
    if !in_memory {
        reserve_space(&file, bytes).map_err(|error| unfit(format!("{bytes} bytes cannot be reserved: {error}")))?;
    }
    Ok(SlotFile { file, in_memory })
}
