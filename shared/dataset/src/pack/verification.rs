//! Checking every byte of a pack.
//!
//! A reference in the file is followed only after the part that holds it has been checked: superblock, then sections,
//! then records, then samples. Bytes that belong to no part must be zero, so no bit can change unnoticed.
//!
//! Everything is read in pieces of a MiB, and the work can be stopped between two pieces: what a sparse file claims to
//! hold costs no memory, and no more time than the caller wants to spend.

mod samples;

use super::broken::Broken;
use super::bundles::BundleIndex;
use super::contents::{ClassNames, LabelCheck};
use super::format::{BLOCK_BYTES, FormatError, IndexPart, pieces};
use super::index::Index;
use super::reader::Pack;
use super::report::LISTED_MAX;
use super::sections::pack_identity;
use super::store::{Blocks, Store};
use super::superblock::Section;
use crate::parallel;
use ddlp_cause::with_causes;
use std::fs::File;
use std::io;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};

/// Result of [`verify`].
#[derive(Debug)]
pub struct VerifyReport {
    /// Samples whose bytes were checked.
    pub samples: u64,
    /// Length of the file.
    pub bytes: u64,
    /// Number of damaged places.
    pub broken_count: u64,
    /// The first [`LISTED_MAX`] damaged places: the index first, then by place in the file.
    pub broken: Vec<Broken>,
}

impl VerifyReport {
    /// Returns whether nothing is damaged.
    pub fn is_intact(&self) -> bool {
        self.broken_count == 0
    }
}

/// Progress of [`verify`].
#[derive(Clone, Copy, Debug)]
pub struct VerifyProgress {
    /// Number of samples checked.
    pub samples: u64,
    /// Number of all samples.
    pub samples_total: u64,
    /// Bytes of samples checked.
    pub bytes: u64,
    /// Bytes of all samples.
    pub bytes_total: u64,
}

/// Reason why a pack could not be checked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The file cannot be opened or read.
    #[error("cannot read {}", .path.display())]
    Io {
        /// The pack.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The caller cancelled the check.
    #[error("verifying was cancelled")]
    Cancelled,
}

/// Checks every byte of a pack on `threads` threads (0 means one per core) and lists the damage. Calls `progress` on
/// this thread for every MiB of a section or of padding, and at least every 100 ms while samples are checked; a `Break`
/// ends the work.
pub fn verify(
    path: &Path,
    threads: usize,
    progress: &mut dyn FnMut(VerifyProgress) -> ControlFlow<()>,
) -> Result<VerifyReport, VerifyError> {
    let file = File::open(path).map_err(|source| VerifyError::Io { path: path.to_owned(), source })?;
    verify_file(file, path, threads, progress)
}

/// Checks every byte of a pack that does not lie in a local file; messages call it `place`.
///
/// # Errors
///
/// As [`verify`].
pub fn verify_blocks(
    blocks: Box<dyn Blocks>,
    place: &Path,
    threads: usize,
    progress: &mut dyn FnMut(VerifyProgress) -> ControlFlow<()>,
) -> Result<VerifyReport, VerifyError> {
    verify_store(Store::of_blocks(blocks, place.to_owned()), threads, progress)
}

/// Checks every byte of one sample of an open pack, its detail and its entries in the index, and returns the damage.
///
/// # Panics
/// When there is no such sample.
pub fn verify_sample(pack: &Pack, index: u64) -> Vec<Broken> {
    samples::check_sample(&pack.index, pack.bundles.as_ref(), index)
}

pub(super) fn verify_file(
    file: File,
    path: &Path,
    threads: usize,
    progress: &mut dyn FnMut(VerifyProgress) -> ControlFlow<()>,
) -> Result<VerifyReport, VerifyError> {
    let store = Store::of_file(file, path).map_err(|source| VerifyError::Io { path: path.to_owned(), source })?;
    verify_store(store, threads, progress)
}

fn verify_store(
    store: Store,
    threads: usize,
    progress: &mut dyn FnMut(VerifyProgress) -> ControlFlow<()>,
) -> Result<VerifyReport, VerifyError> {
    let bytes = store.len_bytes();
    let index = match Index::read(store) {
        Err(FormatError::Io { path, source }) => return Err(VerifyError::Io { path, source }),
        Err(error) => return Ok(VerifyReport { samples: 0, bytes, broken_count: 1, broken: vec![error.into()] }),
        Ok(index) => index,
    };
    let threads = parallel::threads(threads);
    let mut findings = Findings::default();
    let mut watch = VerifyWatch::new(&index, progress);
    check_sections(&index, &mut findings, &mut watch)
        .and_then(|()| check_samples(&index, threads, &mut findings, &mut watch))
        .and_then(|()| check_padding(&index, &mut findings, &mut watch))
        .map_err(|Cancelled| VerifyError::Cancelled)?;
    findings.list.sort_by_key(Broken::place);
    let samples = watch.state.samples;
    Ok(VerifyReport { samples, bytes, broken_count: findings.count, broken: findings.list })
}

/// Checks all samples. The samples of a pack in pieces cannot be found if its bundles are damaged.
fn check_samples(
    index: &Index,
    threads: usize,
    findings: &mut Findings,
    watch: &mut VerifyWatch<'_>,
) -> Result<(), Cancelled> {
    if !index.has_bundles() {
        return samples::check_samples((index, None), threads, findings, watch);
    }
    let bundles = match BundleIndex::read(index) {
        Ok(bundles) => bundles,
        Err(error) => {
            // A wrong checksum has been found before.
            if !matches!(error, FormatError::Checksum { .. }) {
                findings.add(error.into());
            }
            return Ok(());
        }
    };
    samples::check_samples((index, Some(&bundles)), threads, findings, watch)?;
    for gap in bundles.gaps(&index.layout) {
        findings.note(check_zero(index, gap, || watch.tick()))?;
    }
    Ok(())
}

/// The caller has cancelled the work.
struct Cancelled;

/// Reports progress to the caller, who answers whether to continue.
struct VerifyWatch<'p> {
    state: VerifyProgress,
    progress: &'p mut dyn FnMut(VerifyProgress) -> ControlFlow<()>,
}

impl<'p> VerifyWatch<'p> {
    fn new(index: &Index, progress: &'p mut dyn FnMut(VerifyProgress) -> ControlFlow<()>) -> Self {
        let (samples_total, bytes_total) = (index.layout.samples, index.layout.data_bytes);
        Self { state: VerifyProgress { samples: 0, samples_total, bytes: 0, bytes_total }, progress }
    }

    fn tick(&mut self) -> Result<(), Cancelled> {
        if (self.progress)(self.state).is_break() { Err(Cancelled) } else { Ok(()) }
    }
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

/// Reason why a check of a part ends early.
enum Halt {
    Cancelled,
    Broken(Broken),
}

impl From<Cancelled> for Halt {
    fn from(Cancelled: Cancelled) -> Self {
        Halt::Cancelled
    }
}

impl From<Broken> for Halt {
    fn from(broken: Broken) -> Self {
        Halt::Broken(broken)
    }
}

impl Findings {
    /// Keeps the damage that was found; fails only if the work was cancelled.
    fn note<T>(&mut self, checked: Result<T, Halt>) -> Result<Option<T>, Cancelled> {
        match checked {
            Ok(value) => Ok(Some(value)),
            Err(Halt::Cancelled) => Err(Cancelled),
            Err(Halt::Broken(broken)) => {
                self.add(broken);
                Ok(None)
            }
        }
    }
}

/// Checks the sections' checksums, the identity over them, and their contents.
fn check_sections(index: &Index, findings: &mut Findings, watch: &mut VerifyWatch<'_>) -> Result<(), Cancelled> {
    let before = findings.count;
    let (mut labels, mut classes) = (LabelCheck::new(index.layout.classes), ClassNames::new(index.layout.classes));
    let mut digests = Vec::new();
    for &section in &index.layout.sections {
        let checked = check_section(index, section, |piece| {
            match section.part {
                IndexPart::Labels => labels.take(piece),
                IndexPart::Classes => classes.take(piece),
                _ => {}
            }
            watch.tick()
        });
        match findings.note(checked)? {
            Some(digest) if !matches!(section.part, IndexPart::Unknown(_)) => {
                digests.push((section.part.code(), digest))
            }
            _ => {}
        }
    }
    if findings.count > before {
        return Ok(());
    }
    digests.sort_unstable();
    let (stored, computed) = (index.layout.identity, pack_identity(digests.into_iter().map(|(_, digest)| digest)));
    if stored != computed {
        findings.add(Broken::Identity { stored, computed });
    }
    for (part, said) in [(IndexPart::Labels, labels.finish()), (IndexPart::Classes, classes.finish().map(drop))] {
        said.unwrap_or_else(|problem| findings.add(index.malformed(part, problem).into()));
    }
    Ok(())
}

/// Checks a section's checksum and returns its digest; passes its pieces to `take`.
fn check_section(
    index: &Index,
    section: Section,
    mut take: impl FnMut(&[u8]) -> Result<(), Cancelled>,
) -> Result<[u8; 32], Halt> {
    let (mut piece, mut computed, mut digest) = (Vec::new(), 0, blake3::Hasher::new());
    for (offset, length) in pieces(section.extent()) {
        read_piece(index, offset, length, &mut piece)?;
        computed = crc32c::crc32c_append(computed, &piece);
        digest.update(&piece);
        take(&piece)?;
    }
    if computed != section.crc32c {
        let path = index.file.path().to_owned();
        let error = FormatError::Checksum { path, part: section.part, stored: section.crc32c, computed };
        return Err(Broken::Format(error).into());
    }
    Ok(*digest.finalize().as_bytes())
}

fn read_piece(index: &Index, offset: u64, length: usize, piece: &mut Vec<u8>) -> Result<(), Broken> {
    index.file.read_extent(offset, length, piece).map_err(|error| Broken::Unreadable {
        offset,
        length: length as u64,
        problem: with_causes(&error),
    })
}

/// Checks that an extent holds only zeros; calls `tick` before each piece.
fn check_zero(index: &Index, extent: Range<u64>, mut tick: impl FnMut() -> Result<(), Cancelled>) -> Result<(), Halt> {
    let mut piece = Vec::new();
    for (offset, length) in pieces(extent) {
        tick()?;
        read_piece(index, offset, length, &mut piece)?;
        if let Some(position) = piece.iter().position(|&byte| byte != 0) {
            return Err(Broken::Padding { offset: offset + position as u64 }.into());
        }
    }
    Ok(())
}

/// Checks the bytes between the parts of the file. Those within the sample region are checked with the samples.
fn check_padding(index: &Index, findings: &mut Findings, watch: &mut VerifyWatch<'_>) -> Result<(), Cancelled> {
    let layout = &index.layout;
    let mut extents: Vec<_> = layout.sections.iter().map(|section| (section.offset, section.length)).collect();
    extents.extend([(0, BLOCK_BYTES), (layout.data_offset, layout.data_bytes), (layout.file_bytes, 0)]);
    extents.sort_unstable();
    for pair in extents.windows(2) {
        let (offset, length) = pair[0];
        findings.note(check_zero(index, offset + length..pair[1].0, || watch.tick()))?;
    }
    Ok(())
}
