//! Making a pack.

use super::format::{
    BLOCK_BYTES, CLASS_NAME_BYTES_MAX, NAME_BYTES_MAX, Part, RAW_ALIGNMENT, RECORD_BYTES, SAMPLES_MAX,
    classes_to_bytes, round_up,
};
use super::forms::{Inspected, VerdictNote};
use super::inspection::{Event, Run, inspect_all};
use super::record::{IndexRecord, StoredForm, StoredVerdict};
use super::report::{
    LISTED_MAX, PackError, PackOptions, PackProgress, PackSummary, Phase, RejectedSample, RepairedSample, Tally,
};
use super::sections::{SectionWriter, pack_identity};
use super::staging::{Staging, Unnamed, directory};
use super::superblock::Layout;
use super::verification::{VerifyError, VerifyProgress, verify_file};
use crate::{CLASSES_MAX, Dataset, Identity, SAMPLE_BYTES_MAX};
use nix::fcntl::{FallocateFlags, PosixFadviseAdvice, fallocate, posix_fadvise};
use nix::sys::statvfs::statvfs;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Packs `source` into the file `out`.
///
/// Each encoded sample is decoded whole once, and the verdict is stored with it: a sample that only warns is stored
/// repaired, one that does not decode keeps its bytes and its place, so that indices and labels agree with the source. The
/// same source gives the same file, whatever the number of threads.
///
/// `out` appears when it is complete and on disk, not before, and not at all when this returns an error, panics or dies.
/// `progress` is called on this thread at least every 100 ms while samples are read; a `Break` ends the work with
/// [`PackError::Cancelled`].
pub fn pack(
    source: &dyn Dataset,
    out: &Path,
    options: &PackOptions,
    progress: &mut dyn FnMut(PackProgress) -> ControlFlow<()>,
) -> Result<PackSummary, PackError> {
    if !options.overwrite && out.symlink_metadata().is_ok() {
        return Err(PackError::Exists { path: out.to_owned() });
    }
    let plan = Plan::new(source)?;
    let staging = Staging::create(out, Unnamed::WherePossible).map_err(|source| create_error(out, source))?;
    plan.check_space(out)?;
    // Space that is reserved now cannot run out later. Not every file system can.
    let _ = fallocate(staging.file(), FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, plan.file_bytes.cast_signed());
    let failed = |source| write_error(out, plan.file_bytes, source);
    let mut writer = Writer::new(source, staging.file(), &plan, progress);
    let threads = match options.threads {
        0 => std::thread::available_parallelism().map_or(1, |cores| cores.get()),
        threads => threads,
    };
    inspect_all(source, threads, (options.format, options.limits), |event| writer.take(event)).map_err(|stop| {
        match stop {
            Stop::Cancelled => PackError::Cancelled,
            Stop::Io(source) => failed(source),
        }
    })?;
    let (summary, last) = writer.finish().map_err(failed)?;
    if options.verify {
        verify_written(&staging, out, threads, last, progress)?;
    }
    if progress(PackProgress { phase: Phase::Syncing, ..last }).is_break() {
        return Err(PackError::Cancelled);
    }
    staging.commit(options.overwrite).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => PackError::Exists { path: out.to_owned() },
        _ => failed(source),
    })?;
    Ok(summary)
}

/// Where everything will lie. The samples come last, since repairing may change their length.
struct Plan {
    classes: Vec<u8>,
    source_bytes: u64,
    /// Place and length of each section.
    sections: [(Part, u64, u64); 4],
    data_offset: u64,
    /// Expected length of the file.
    file_bytes: u64,
}

impl Plan {
    fn new(source: &dyn Dataset) -> Result<Self, PackError> {
        check_counts(source)?;
        let (mut names_bytes, mut source_bytes) = (0u64, 0u64);
        for index in 0..source.len() {
            let bytes = source.name(index).len();
            if bytes > NAME_BYTES_MAX as usize {
                return Err(PackError::NameTooLong { index, bytes });
            }
            names_bytes += bytes as u64;
            let length = source.location(index).length;
            source_bytes = source_bytes.saturating_add(if length > SAMPLE_BYTES_MAX { 0 } else { length });
        }
        let classes = classes_to_bytes(source.classes());
        let samples = source.len();
        Self::place(samples, names_bytes, classes, source_bytes).ok_or(PackError::TooLarge { samples })
    }

    fn place(samples: u64, names_bytes: u64, classes: Vec<u8>, source_bytes: u64) -> Option<Self> {
        let lengths = [
            (Part::Records, samples.checked_mul(RECORD_BYTES as u64)?),
            (Part::Labels, samples.checked_mul(4)?),
            (Part::Names, names_bytes),
            (Part::Classes, classes.len() as u64),
        ];
        let mut end = BLOCK_BYTES;
        let mut sections = [(Part::Superblock, 0, 0); 4];
        for (section, (part, length)) in sections.iter_mut().zip(lengths) {
            *section = (part, end, length);
            end = round_up(end.checked_add(length)?)?;
        }
        let file_bytes = round_up(end.checked_add(source_bytes)?)?;
        let plan = Self { classes, source_bytes, sections, data_offset: end, file_bytes };
        (file_bytes <= i64::MAX as u64).then_some(plan)
    }

    /// Refuses what cannot fit before hours are spent on it.
    fn check_space(&self, out: &Path) -> Result<(), PackError> {
        match available(out) {
            Some(available) if available < self.file_bytes => Err(PackError::NoSpace {
                path: out.to_owned(),
                needed: self.file_bytes,
                available: Some(available),
                source: None,
            }),
            _ => Ok(()),
        }
    }
}

/// Refuses what a reader would refuse.
fn check_counts(source: &dyn Dataset) -> Result<(), PackError> {
    let (samples, classes) = (source.len(), source.classes());
    if samples > SAMPLES_MAX || classes.len() > CLASSES_MAX {
        return Err(PackError::TooMany { samples, classes: classes.len() });
    }
    match classes.iter().map(String::len).enumerate().find(|&(_, bytes)| bytes > CLASS_NAME_BYTES_MAX as usize) {
        Some((class, bytes)) => Err(PackError::ClassNameTooLong { class, bytes }),
        None => Ok(()),
    }
}

/// Bytes that this user can still write where `out` is to lie.
fn available(out: &Path) -> Option<u64> {
    let status = statvfs(directory(out)).ok()?;
    status.blocks_available().checked_mul(status.fragment_size())
}

fn create_error(out: &Path, source: io::Error) -> PackError {
    match source.kind() {
        io::ErrorKind::WouldBlock => PackError::Busy { path: out.to_owned() },
        _ => PackError::Create { path: out.to_owned(), source },
    }
}

fn write_error(out: &Path, needed: u64, source: io::Error) -> PackError {
    let path = out.to_owned();
    match source.kind() {
        io::ErrorKind::StorageFull => {
            PackError::NoSpace { path, needed, available: available(out), source: Some(source) }
        }
        io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            PackError::NoSpace { path, needed, available: None, source: Some(source) }
        }
        _ => PackError::Write { path, source },
    }
}

/// Why the work ended early.
enum Stop {
    Cancelled,
    Io(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Stop::Io(error)
    }
}

/// Writes samples and their index entries as they come.
struct Writer<'a> {
    source: &'a dyn Dataset,
    file: &'a File,
    plan: &'a Plan,
    records: SectionWriter<'a>,
    labels: SectionWriter<'a>,
    names: SectionWriter<'a>,
    classes: SectionWriter<'a>,
    /// Where the next sample begins.
    data_end: u64,
    summary: PackSummary,
    progress: &'a mut dyn FnMut(PackProgress) -> ControlFlow<()>,
    state: PackProgress,
}

impl<'a> Writer<'a> {
    fn new(
        source: &'a dyn Dataset,
        file: &'a File,
        plan: &'a Plan,
        progress: &'a mut dyn FnMut(PackProgress) -> ControlFlow<()>,
    ) -> Self {
        let [records, labels, names, classes] =
            plan.sections.map(|(part, offset, length)| SectionWriter::new(file, part, offset, length));
        let samples_total = source.len();
        Self {
            source,
            file,
            plan,
            records,
            labels,
            names,
            classes,
            data_end: plan.data_offset,
            summary: PackSummary {
                samples: samples_total,
                source_bytes: plan.source_bytes,
                file_bytes: 0,
                identity: Identity::from_bytes([0; 32]),
                indexed: Tally::default(),
                transcoded: Tally::default(),
                raw: Tally::default(),
                shrunk: Tally::default(),
                kept: BTreeMap::new(),
                repaired_count: 0,
                repaired: Vec::new(),
                rejected_count: 0,
                rejected: Vec::new(),
            },
            progress,
            state: PackProgress {
                phase: Phase::Packing,
                samples: 0,
                samples_total,
                bytes: 0,
                bytes_total: plan.source_bytes,
                repaired: 0,
                rejected: 0,
            },
        }
    }

    fn take(&mut self, event: Event) -> Result<(), Stop> {
        if let Event::Run(run) = event {
            if run.samples.iter().any(|sample| sample.form == StoredForm::Raw) {
                self.data_end = self.data_end.next_multiple_of(RAW_ALIGNMENT);
            }
            let begin = self.data_end;
            self.file.write_all_at(&run.bytes, begin)?;
            for (index, sample) in (run.first..).zip(&run.samples) {
                self.record(index, begin + sample.start, sample)?;
            }
            self.state.samples += run.samples.len() as u64;
            self.state.bytes += run.source_bytes;
            self.note(run);
        }
        if (self.progress)(self.state).is_break() { Err(Stop::Cancelled) } else { Ok(()) }
    }

    /// Appends a sample's entries to the index.
    fn record(&mut self, index: u64, offset: u64, sample: &Inspected) -> io::Result<()> {
        let name = self.source.name(index);
        let record = IndexRecord {
            offset,
            length: sample.length,
            crc32c: sample.crc32c,
            width: sample.width,
            height: sample.height,
            form: sample.form,
            verdict: sample.verdict,
            name_offset: self.names.position(),
            name_length: name.len() as u32,
            name_crc32c: crc32c::crc32c(name.as_bytes()),
            detail_length: sample.detail_length,
            detail_crc32c: sample.detail_crc32c,
            orientation: sample.orientation,
            was_shrunk: sample.was_shrunk,
        };
        self.data_end = record.end();
        self.records.append(&record.to_bytes())?;
        self.names.append(name.as_bytes())?;
        self.labels.append(&self.source.label(index).to_le_bytes())
    }

    /// Keeps for the summary what is to be said of a run.
    fn note(&mut self, run: Run) {
        for (index, sample) in (run.first..).zip(run.samples) {
            self.tally(&sample);
            match (sample.note.verdict, sample.verdict) {
                (VerdictNote::Repaired { warnings, clamped }, _) => {
                    self.state.repaired += 1;
                    if self.summary.repaired.len() < LISTED_MAX {
                        let name = self.source.name(index);
                        self.summary.repaired.push(RepairedSample { index, name, warnings, clamped });
                    }
                }
                (VerdictNote::Rejected { message }, StoredVerdict::Rejected(reason)) => {
                    self.state.rejected += 1;
                    if self.summary.rejected.len() < LISTED_MAX {
                        let name = self.source.name(index);
                        self.summary.rejected.push(RejectedSample { index, name, reason, message });
                    }
                }
                _ => {}
            }
        }
    }

    /// Counts how a sample was stored.
    fn tally(&mut self, sample: &Inspected) {
        let (source, stored) = (sample.note.source_bytes, u64::from(sample.length) + u64::from(sample.detail_length));
        let summary = &mut self.summary;
        match sample.form {
            StoredForm::Indexed if sample.note.is_transcoded => summary.transcoded.add(source, stored),
            StoredForm::Indexed => summary.indexed.add(source, stored),
            StoredForm::Raw => summary.raw.add(source, stored),
            StoredForm::Kept | StoredForm::Planar => {}
        }
        if sample.was_shrunk {
            summary.shrunk.add(source, stored);
        }
        if let Some(why) = sample.note.why_kept {
            summary.kept.entry(why).or_default().add(source, stored);
        }
    }

    /// Completes the index and writes the superblock, which makes the file a pack.
    fn finish(mut self) -> io::Result<(PackSummary, PackProgress)> {
        self.classes.append(&self.plan.classes)?;
        let written = [self.records.finish()?, self.labels.finish()?, self.names.finish()?, self.classes.finish()?];
        let layout = Layout {
            file_bytes: self.data_end.next_multiple_of(BLOCK_BYTES),
            samples: self.source.len(),
            classes: self.source.classes().len() as u32,
            data_offset: self.plan.data_offset,
            data_bytes: self.data_end - self.plan.data_offset,
            identity: pack_identity(written.iter().map(|section| section.digest)),
            source_identity: self.source.identity(),
            source_kind: self.source.kind().to_owned(),
            sections: written.iter().map(|section| section.section).collect(),
        };
        self.file.set_len(layout.file_bytes)?;
        self.file.write_all_at(&layout.to_bytes(), 0)?;
        let summary = PackSummary {
            file_bytes: layout.file_bytes,
            identity: layout.identity,
            repaired_count: self.state.repaired,
            rejected_count: self.state.rejected,
            ..self.summary
        };
        Ok((summary, self.state))
    }
}

/// Reads the file back, from the disk rather than from memory where the system lets itself be asked.
fn verify_written(
    staging: &Staging,
    out: &Path,
    threads: usize,
    last: PackProgress,
    progress: &mut dyn FnMut(PackProgress) -> ControlFlow<()>,
) -> Result<(), PackError> {
    let unverified = |source| PackError::Write { path: out.to_owned(), source };
    staging.file().sync_all().map_err(unverified)?;
    let _ = posix_fadvise(staging.file(), 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
    let file = staging.file().try_clone().map_err(unverified)?;
    let mut forward = |seen: VerifyProgress| {
        progress(PackProgress {
            phase: Phase::Verifying,
            samples: seen.samples,
            bytes: seen.bytes,
            bytes_total: seen.bytes_total,
            ..last
        })
    };
    let report = verify_file(file, out, threads, &mut forward).map_err(|error| match error {
        VerifyError::Cancelled => PackError::Cancelled,
        VerifyError::Io { source, .. } => unverified(source),
    })?;
    match report.broken.into_iter().next() {
        None => Ok(()),
        Some(first) => Err(PackError::Damaged { path: out.to_owned(), count: report.broken_count, first }),
    }
}
