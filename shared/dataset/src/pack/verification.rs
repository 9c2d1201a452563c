//! Checking every byte of a pack.
//!
//! What the file says of itself is followed only where it has been checked: superblock, then sections, then records, then
//! samples. Bytes that belong to nothing must be zero, so there is no bit that could change unnoticed.

use super::format::{BLOCK_BYTES, FormatError, Part};
use super::index::Index;
use super::reader::{read_classes, read_labels};
use super::report::LISTED_MAX;
use super::sections::pack_identity;
use super::superblock::Section;
use crate::extent::read_extent;
use crate::{Identity, Location};
use std::fs::File;
use std::io;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

/// Samples that a thread takes at a time.
const CHUNK_SAMPLES: u64 = 64;
/// Bytes of a section or of padding that are read at a time.
const PIECE_BYTES: u64 = 1 << 20;
/// How often the caller is called although nothing is ready.
const TICK: Duration = Duration::from_millis(100);

/// Something in a pack that is not as it was written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Broken {
    /// The file cannot be used at all, or a part of the index not.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// A sample's index record.
    #[error("index record of sample {index}: {problem}")]
    Record {
        /// The sample.
        index: u64,
        /// What is wrong.
        problem: String,
    },
    /// A sample's bytes lie over those of the sample before it.
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
    /// A sample's bytes.
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
    /// Bytes that the disk does not give.
    #[error("{length} bytes at {offset} cannot be read: {problem}")]
    Unreadable {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
        /// What the operating system says.
        problem: String,
    },
    /// A byte that belongs to nothing is not zero.
    #[error("padding at byte {offset} is not zero")]
    Padding {
        /// The byte.
        offset: u64,
    },
    /// The identity is not the digest of the index.
    #[error("identity {stored} is stored, {computed} computed from the index")]
    Identity {
        /// What the superblock says.
        stored: Identity,
        /// What the sections give.
        computed: Identity,
    },
}

impl Broken {
    /// Where it is in the file, for the order of a report.
    fn place(&self) -> u64 {
        match self {
            Broken::Format(_) | Broken::Identity { .. } | Broken::Record { .. } => 0,
            Broken::Overlap { location, .. } | Broken::Sample { location, .. } => location.offset,
            Broken::Unreadable { offset, .. } | Broken::Padding { offset } => *offset,
        }
    }
}

/// What [`verify`] found.
#[derive(Debug)]
pub struct VerifyReport {
    /// Samples whose bytes were checked.
    pub samples: u64,
    /// Length of the file.
    pub bytes: u64,
    /// How many things are broken.
    pub broken_count: u64,
    /// The first [`LISTED_MAX`] of them: index first, then by place in the file.
    pub broken: Vec<Broken>,
}

impl VerifyReport {
    /// Whether nothing is broken.
    pub fn is_intact(&self) -> bool {
        self.broken_count == 0
    }
}

/// How far [`verify`] is.
#[derive(Clone, Copy, Debug)]
pub struct VerifyProgress {
    /// Samples checked.
    pub samples: u64,
    /// Samples in all.
    pub samples_total: u64,
    /// Bytes of samples checked.
    pub bytes: u64,
    /// Bytes of samples in all.
    pub bytes_total: u64,
}

/// Why a pack could not be checked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// It cannot be opened or read.
    #[error("cannot read {}", .path.display())]
    Io {
        /// The pack.
        path: PathBuf,
        /// What the operating system says.
        #[source]
        source: io::Error,
    },
    /// The caller asked for it.
    #[error("verifying was cancelled")]
    Cancelled,
}

/// Checks every byte of a pack on `threads` threads (0 means one per core) and names what is broken. `progress` is called on
/// this thread at least every 100 ms while samples are checked; a `Break` ends the work.
pub fn verify(
    path: &Path,
    threads: usize,
    progress: &mut dyn FnMut(VerifyProgress) -> ControlFlow<()>,
) -> Result<VerifyReport, VerifyError> {
    let file = File::open(path).map_err(|source| VerifyError::Io { path: path.to_owned(), source })?;
    verify_file(file, path, threads, progress)
}

pub(super) fn verify_file(
    file: File,
    path: &Path,
    threads: usize,
    progress: &mut dyn FnMut(VerifyProgress) -> ControlFlow<()>,
) -> Result<VerifyReport, VerifyError> {
    let bytes = file.metadata().map_err(|source| VerifyError::Io { path: path.to_owned(), source })?.len();
    let mut findings = Findings::default();
    let mut samples = 0;
    match Index::read(file, path) {
        Err(FormatError::Io { path, source }) => return Err(VerifyError::Io { path, source }),
        Err(error) => findings.add(error.into()),
        Ok(index) => {
            check_sections(&index, &mut findings);
            let threads = match threads {
                0 => thread::available_parallelism().map_or(1, |cores| cores.get()),
                threads => threads,
            };
            samples = check_samples(&index, threads, &mut findings, progress)?;
            check_padding(&index, &mut findings);
        }
    }
    findings.list.sort_by_key(Broken::place);
    Ok(VerifyReport { samples, bytes, broken_count: findings.count, broken: findings.list })
}

#[derive(Default)]
struct Findings {
    list: Vec<Broken>,
    count: u64,
}

impl Findings {
    fn add(&mut self, broken: Broken) {
        self.count += 1;
        if self.list.len() < LISTED_MAX {
            self.list.push(broken);
        }
    }
}

/// Checksums of the sections, the identity over them, and what they say.
fn check_sections(index: &Index, findings: &mut Findings) {
    let before = findings.count;
    let mut digests = Vec::new();
    for section in &index.layout.sections {
        match check_section(index, *section) {
            Ok(digest) if !matches!(section.part, Part::Unknown(_)) => digests.push((section.part.code(), digest)),
            Ok(_) => {}
            Err(broken) => findings.add(broken),
        }
    }
    if findings.count > before {
        return;
    }
    digests.sort_unstable();
    let (stored, computed) = (index.layout.identity, pack_identity(digests.into_iter().map(|(_, digest)| digest)));
    if stored != computed {
        findings.add(Broken::Identity { stored, computed });
    }
    for result in [read_labels(index).map(drop), read_classes(index).map(drop)] {
        result.unwrap_or_else(|error| findings.add(error.into()));
    }
}

fn check_section(index: &Index, section: Section) -> Result<[u8; 32], Broken> {
    let (mut computed, mut digest) = (0, blake3::Hasher::new());
    for_each_piece(index, section.offset..section.offset + section.length, |_, piece| {
        computed = crc32c::crc32c_append(computed, piece);
        digest.update(piece);
        None
    })?;
    if computed != section.crc32c {
        let path = index.file.path().to_owned();
        return Err(FormatError::Checksum { path, part: section.part, stored: section.crc32c, computed }.into());
    }
    Ok(*digest.finalize().as_bytes())
}

/// Reads an extent piece by piece until `look` finds something.
fn for_each_piece(
    index: &Index,
    extent: Range<u64>,
    mut look: impl FnMut(u64, &[u8]) -> Option<Broken>,
) -> Result<(), Broken> {
    let mut piece = Vec::new();
    let mut at = extent.start;
    while at < extent.end {
        let length = (extent.end - at).min(PIECE_BYTES);
        read_extent(index.file.file(), at, length as usize, &mut piece).map_err(|error| Broken::Unreadable {
            offset: at,
            length,
            problem: error.to_string(),
        })?;
        if let Some(broken) = look(at, &piece) {
            return Err(broken);
        }
        at += length;
    }
    Ok(())
}

fn check_zero(index: &Index, extent: Range<u64>) -> Result<(), Broken> {
    for_each_piece(index, extent, |at, piece| {
        let position = piece.iter().position(|&byte| byte != 0)?;
        Some(Broken::Padding { offset: at + position as u64 })
    })
}

/// The bytes between the parts of the file. Those within the sample region are checked with the samples.
fn check_padding(index: &Index, findings: &mut Findings) {
    let layout = &index.layout;
    let mut extents: Vec<_> = layout.sections.iter().map(|section| (section.offset, section.length)).collect();
    extents.extend([(0, BLOCK_BYTES), (layout.data_offset, layout.data_bytes), (layout.file_bytes, 0)]);
    extents.sort_unstable();
    for pair in extents.windows(2) {
        let (offset, length) = pair[0];
        if let Err(broken) = check_zero(index, offset + length..pair[1].0) {
            findings.add(broken);
        }
    }
}

/// What a thread has checked, or found on the way.
enum Message {
    Checked { samples: u64, bytes: u64 },
    Found(Broken),
}

fn check_samples(
    index: &Index,
    threads: usize,
    findings: &mut Findings,
    progress: &mut dyn FnMut(VerifyProgress) -> ControlFlow<()>,
) -> Result<u64, VerifyError> {
    let mut state = VerifyProgress {
        samples: 0,
        samples_total: index.layout.samples,
        bytes: 0,
        bytes_total: index.layout.data_bytes,
    };
    let (next, stopped) = (AtomicU64::new(0), AtomicBool::new(false));
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..threads {
            let checker = Checker { index, stopped: &stopped, sender: sender.clone() };
            let next = &next;
            scope.spawn(move || checker.run(next));
        }
        drop(sender);
        loop {
            match receiver.recv_timeout(TICK) {
                Ok(Message::Found(broken)) => {
                    findings.add(broken);
                    continue;
                }
                Ok(Message::Checked { samples, bytes }) => {
                    state.samples += samples;
                    state.bytes += bytes;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(state.samples),
            }
            if progress(state).is_break() {
                stopped.store(true, Ordering::Relaxed);
                return Err(VerifyError::Cancelled);
            }
        }
    })
}

/// One thread that checks samples.
struct Checker<'a> {
    index: &'a Index,
    stopped: &'a AtomicBool,
    sender: Sender<Message>,
}

impl Checker<'_> {
    fn run(&self, next: &AtomicU64) {
        let mut buf = Vec::new();
        let samples = self.index.layout.samples;
        while !self.stopped.load(Ordering::Relaxed) {
            let first = next.fetch_add(CHUNK_SAMPLES, Ordering::Relaxed);
            if first >= samples {
                return;
            }
            let checked = self.chunk(first..samples.min(first + CHUNK_SAMPLES), &mut buf);
            if self.sender.send(checked).is_err() {
                return;
            }
        }
    }

    fn found(&self, broken: Broken) {
        // The receiver is gone only when the work has been cancelled.
        let _ = self.sender.send(Message::Found(broken));
    }

    fn chunk(&self, chunk: Range<u64>, buf: &mut Vec<u8>) -> Message {
        let layout = &self.index.layout;
        // Where the sample before ends; unknown behind a broken record.
        let mut free = match chunk.start.checked_sub(1) {
            None => Some(layout.data_offset),
            Some(before) => self.index.record(before).ok().map(|record| record.end()),
        };
        let last = chunk.end == layout.samples;
        let (mut samples, mut bytes) = (0, 0);
        for number in chunk {
            if self.stopped.load(Ordering::Relaxed) {
                break;
            }
            free = self.sample(number, free, buf);
            samples += 1;
            bytes += buf.len() as u64;
        }
        if let (true, Some(free)) = (last, free) {
            self.zero(free..layout.data_offset + layout.data_bytes);
        }
        Message::Checked { samples, bytes }
    }

    /// Checks a sample and the padding before it; says where it ends.
    fn sample(&self, number: u64, free: Option<u64>, buf: &mut Vec<u8>) -> Option<u64> {
        buf.clear();
        let record = match self.index.record(number) {
            Ok(record) => record,
            Err(problem) => {
                self.found(Broken::Record { index: number, problem });
                return None;
            }
        };
        if let Err(problem) = self.index.name(&record) {
            self.found(Broken::Record { index: number, problem });
        }
        let name = || self.index.name_or_number(number, &record);
        let location = || self.index.location(&record);
        match free {
            Some(free) if record.offset < free => {
                self.found(Broken::Overlap { index: number, name: name(), location: location(), free });
            }
            Some(free) => self.zero(free..record.offset),
            None => {}
        }
        if let Err(error) = read_extent(self.index.file.file(), record.offset, record.length as usize, buf) {
            buf.clear();
            let (offset, length, problem) =
                (record.offset, record.length.into(), format!("{error} (sample {})", name()));
            self.found(Broken::Unreadable { offset, length, problem });
            return Some(record.end());
        }
        let (stored, computed) = (record.crc32c, crc32c::crc32c(buf));
        if stored != computed {
            self.found(Broken::Sample { index: number, name: name(), location: location(), stored, computed });
        }
        Some(record.end())
    }

    fn zero(&self, extent: Range<u64>) {
        if let Err(broken) = check_zero(self.index, extent) {
            self.found(broken);
        }
    }
}
