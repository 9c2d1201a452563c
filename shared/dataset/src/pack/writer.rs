//! Making a pack.

use super::bundling::{Bundling, Untaken};
use super::chunks::{Chunk, Event, store_all};
use super::dealt::Dealt;
use super::format::BLOCK_BYTES;
use super::options::PackOptions;
use super::plan::PackPlan;
use super::record::{IndexRecord, StoredVerdict};
use super::report::{LISTED_MAX, PackError, PackProgress, PackSummary, Phase, RejectedSample, RepairedSample, Tally};
use super::sections::{SectionWriter, pack_identity};
use super::space::{Reached, check_room};
use super::staging::{NotNamed, Staging, Unnamed, check_name};
use super::storing::{Fault, Note, PackedSample};
use super::superblock::PackLayout;
use super::verification::{VerifyError, VerifyProgress, verify_file};
use crate::forms::StoredForm;
use crate::{Dataset, Identity, parallel};
use ddlp_cause::with_causes;
use nix::fcntl::{FallocateFlags, PosixFadviseAdvice, fallocate, posix_fadvise};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Packs `source` into the file `out`.
///
/// Each encoded sample is decoded once, as a whole, and its verdict is stored with it. A sample that decodes with
/// warnings is stored repaired. A sample that does not decode keeps its bytes and its place, so that indices and labels
/// agree with the source. The same source gives the same file, whatever the number of threads.
///
/// `out` appears only when it is complete and on disk, and not at all if this function fails, panics or is killed.
/// Calls `progress` on this thread at least every 100 ms while samples are read; a `Break` ends the work with
/// [`PackError::Cancelled`].
pub fn pack(
    source: &dyn Dataset,
    out: &Path,
    options: &PackOptions,
    progress: &mut dyn FnMut(PackProgress) -> ControlFlow<()>,
) -> Result<PackSummary, PackError> {
    check_name(out, options.overwrite).map_err(|error| naming_error(out, error))?;
    let (staging, summary, reached) = write(source, out, options, progress)?;
    if progress(PackProgress { phase: Phase::Syncing, ..reached.state }).is_break() {
        return Err(PackError::Cancelled);
    }
    staging.commit(options.overwrite).map_err(|error| match error {
        NotNamed::Io(source) => reached.error(out, source),
        error => naming_error(out, error),
    })?;
    Ok(summary)
}

/// Writes the pack into a file that has no name yet.
pub(super) fn write(
    source: &dyn Dataset,
    out: &Path,
    options: &PackOptions,
    progress: &mut dyn FnMut(PackProgress) -> ControlFlow<()>,
) -> Result<(Staging, PackSummary, Reached), PackError> {
    let part = options.part.clone().map(|samples| Dealt::range(source, samples));
    let source = part.as_ref().map_or(source, |part| part as &dyn Dataset);
    let plan = PackPlan::new(source, options)?;
    let staging = Staging::create(out, Unnamed::WherePossible).map_err(|source| create_error(out, source))?;
    check_room(out, plan.least_bytes)?;
    // Space that is reserved now cannot run out later. Not every file system can reserve it.
    let _ = fallocate(staging.file(), FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, plan.least_bytes.cast_signed());
    let threads = parallel::threads(options.threads);
    let dealt = plan.bundles.as_ref().map(|_| Dealt::new(source));
    let reading = dealt.as_ref().map_or(source, |dealt| dealt as &dyn Dataset);
    let mut writer = Writer::new(source, staging.file(), (&plan, dealt.as_ref()), progress)
        .map_err(|source| PackError::Write { path: out.to_owned(), source })?;
    let stored = store_all(reading, threads, options, |event| writer.take(event));
    let reached = writer.reached();
    stored.map_err(|stop| match stop {
        Stop::Cancelled => PackError::Cancelled,
        Stop::Fault(index, Fault::Damaged(problem)) => PackError::SourceDamaged { name: reading.name(index), problem },
        Stop::Fault(index, Fault::Unavailable(error)) => {
            PackError::SourceUnavailable { name: reading.name(index), problem: with_causes(&error) }
        }
        Stop::TooLarge(group) => PackError::BundleTooLarge { samples: options.bundle_samples, group },
        Stop::Io(source) => reached.error(out, source),
    })?;
    let summary = writer.finish().map_err(|source| reached.error(out, source))?;
    check_losses(&summary, reached.state.unreadable, options)?;
    let is_useless = summary.rejected_count == summary.samples && options.part.is_none();
    if let Some(first) = summary.rejected.first().filter(|_| is_useless) {
        return Err(PackError::NoneDecodes { samples: summary.samples, first: first.clone() });
    }
    if options.verify {
        verify_written(&staging, out, threads, reached.state, progress)?;
    }
    Ok((staging, summary, reached))
}

/// Refuses a pack that lacks samples, unless the options allow their loss.
fn check_losses(summary: &PackSummary, unreadable: u64, options: &PackOptions) -> Result<(), PackError> {
    let damaged = summary.rejected_count - unreadable;
    let is_refused = (unreadable > 0 && !options.allow_unreadable) || (summary.rejected_count > 0 && options.strict);
    if !is_refused {
        return Ok(());
    }
    let is_listed = |sample: &&RejectedSample| sample.is_unreadable || options.strict;
    Err(PackError::Lost {
        samples: summary.samples,
        unreadable_count: unreadable,
        damaged_count: if options.strict { damaged } else { 0 },
        listed: summary.rejected.iter().filter(is_listed).cloned().collect(),
    })
}

fn create_error(out: &Path, source: io::Error) -> PackError {
    match source.kind() {
        io::ErrorKind::WouldBlock => PackError::Busy { path: out.to_owned() },
        _ => PackError::Create { path: out.to_owned(), source },
    }
}

fn naming_error(out: &Path, error: NotNamed) -> PackError {
    let path = out.to_owned();
    match error {
        NotNamed::Exists => PackError::Exists { path },
        NotNamed::NoFile(what) => PackError::NoFile { path, what },
        NotNamed::Io(source) => PackError::Write { path, source },
    }
}

/// Reason why the work ended early.
enum Stop {
    Cancelled,
    /// A sample cannot be packed.
    Fault(u64, Fault),
    /// The pieces of this scan group need too many bytes; 0 stands for the markers.
    TooLarge(u8),
    Io(io::Error),
}

impl From<Untaken> for Stop {
    fn from(untaken: Untaken) -> Self {
        match untaken {
            Untaken::TooLarge(group) => Stop::TooLarge(group),
            Untaken::Io(error) => Stop::Io(error),
        }
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Stop::Io(error)
    }
}

/// Writer of samples and their index entries, in order. If samples lie in bundles, the index is written at the end.
struct Writer<'a> {
    source: &'a dyn Dataset,
    file: &'a File,
    plan: &'a PackPlan,
    records: SectionWriter<'a>,
    labels: SectionWriter<'a>,
    names: SectionWriter<'a>,
    classes: SectionWriter<'a>,
    bundling: Option<Bundling<'a>>,
    /// Offset of the next sample.
    data_end: u64,
    summary: PackSummary,
    progress: &'a mut dyn FnMut(PackProgress) -> ControlFlow<()>,
    state: PackProgress,
}

impl<'a> Writer<'a> {
    fn new(
        source: &'a dyn Dataset,
        file: &'a File,
        (plan, dealt): (&'a PackPlan, Option<&'a Dealt<'a>>),
        progress: &'a mut dyn FnMut(PackProgress) -> ControlFlow<()>,
    ) -> io::Result<Self> {
        let mut sections = plan.sections.iter();
        let mut section = || {
            let &(part, offset, length) = sections.next().expect("the plan has all sections");
            SectionWriter::new(file, part, offset, length)
        };
        let [records, labels, names, classes] = [section(), section(), section(), section()];
        let bundling = match (&plan.bundles, dealt) {
            (Some(shape), Some(dealt)) => Some(Bundling::new(dealt, shape, file, [section(), section(), section()])?),
            _ => None,
        };
        let samples_total = source.len();
        Ok(Self {
            source,
            file,
            plan,
            records,
            labels,
            names,
            classes,
            bundling,
            data_end: plan.data_offset,
            summary: PackSummary {
                samples: samples_total,
                source_bytes: plan.source_bytes,
                file_bytes: 0,
                identity: Identity::from_bytes([0; 32]),
                forms: BTreeMap::new(),
                kept: BTreeMap::new(),
                undecodable: Tally::default(),
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
                unreadable: 0,
            },
        })
    }

    fn take(&mut self, event: Event) -> Result<(), Stop> {
        if let Event::Chunk(mut chunk) = event {
            if let Some((index, fault)) = chunk.failed.take() {
                return Err(Stop::Fault(index, fault));
            }
            match &mut self.bundling {
                Some(bundling) => {
                    for (position, sample) in (chunk.first..).zip(&chunk.samples) {
                        self.data_end = bundling.take(position, sample, &chunk.bytes, self.data_end)?;
                    }
                }
                None => self.write(&chunk)?,
            }
            self.state.samples += chunk.samples.len() as u64;
            self.state.bytes += chunk.source_bytes;
            self.note(chunk);
        }
        if (self.progress)(self.state).is_break() { Err(Stop::Cancelled) } else { Ok(()) }
    }

    /// Writes the samples of a chunk and their entries in the index.
    fn write(&mut self, chunk: &Chunk) -> io::Result<()> {
        let alignment = chunk.samples.iter().map(|sample| sample.record.form.alignment()).max();
        let begin = self.data_end.next_multiple_of(alignment.unwrap_or(1));
        self.file.write_all_at(&chunk.bytes, begin)?;
        for (index, sample) in (chunk.first..).zip(&chunk.samples) {
            let record = IndexRecord { offset: begin + sample.record.offset, ..sample.record };
            self.record(index, &record)?;
            self.data_end = record.extent().end;
        }
        Ok(())
    }

    /// Appends a sample's entries to the index.
    fn record(&mut self, index: u64, sample: &IndexRecord) -> io::Result<()> {
        let name = self.source.name(index);
        let record = IndexRecord {
            name_offset: self.names.position(),
            name_length: name.len() as u32,
            name_crc32c: crc32c::crc32c(name.as_bytes()),
            ..*sample
        };
        self.records.append(&record.to_bytes())?;
        self.names.append(name.as_bytes())?;
        self.labels.append(&self.source.label(index).to_le_bytes())
    }

    /// Records a chunk's repaired and rejected samples for the summary.
    fn note(&mut self, chunk: Chunk) {
        for (place, sample) in (chunk.first..).zip(chunk.samples) {
            let index = self.bundling.as_ref().map_or(place, |bundling| bundling.dealt.index(place));
            self.tally(&sample);
            let PackedSample { record, pieces: _, note: Note { warnings, clamped, message, is_unreadable, .. } } =
                sample;
            let name = || self.source.name(index);
            match record.verdict {
                StoredVerdict::Intact => {}
                StoredVerdict::Repaired => {
                    self.state.repaired += 1;
                    if self.summary.repaired.len() < LISTED_MAX {
                        self.summary.repaired.push(RepairedSample { index, name: name(), warnings, clamped });
                    }
                }
                StoredVerdict::Rejected(reason) => {
                    self.state.rejected += 1;
                    self.state.unreadable += u64::from(is_unreadable);
                    // The two kinds have separate limits, so that damaged samples do not crowd out unreadable ones.
                    let PackProgress { rejected, unreadable, .. } = self.state;
                    let of_this_kind = if is_unreadable { unreadable } else { rejected - unreadable };
                    if of_this_kind <= LISTED_MAX as u64 {
                        let name = name();
                        self.summary.rejected.push(RejectedSample { index, name, reason, message, is_unreadable });
                    }
                }
            }
        }
    }

    /// Counts how a sample was stored.
    fn tally(&mut self, sample: &PackedSample) {
        let (PackedSample { record, note, .. }, stored) = (sample, sample.stored_bytes());
        let source = note.source_bytes;
        let summary = &mut self.summary;
        if matches!(record.verdict, StoredVerdict::Rejected(_)) {
            return summary.undecodable.add(source, stored);
        }
        if record.form == StoredForm::Kept {
            return summary.kept.entry(note.why_kept).or_default().add(source, stored);
        }
        let form = summary.forms.entry(record.form).or_default();
        let tally = if note.is_rewritten { &mut form.rewritten } else { &mut form.plain };
        tally.add(source, stored);
        if note.is_smaller {
            form.shrunk.add(source, stored);
        }
    }

    /// Returns how far the file has been written, as if the bundle that is gathered were written.
    fn reached(&self) -> Reached {
        let unwritten = self.bundling.as_ref().map_or(0, |bundling| bundling.unwritten);
        Reached { state: self.state, data_offset: self.plan.data_offset, data_end: self.data_end + unwritten }
    }

    /// Completes the index and writes the superblock, which makes the file a pack.
    fn finish(mut self) -> io::Result<PackSummary> {
        self.classes.append(&self.plan.classes)?;
        if let Some(bundling) = &mut self.bundling {
            let records = bundling.finish()?;
            (0..).zip(&records).try_for_each(|(index, record)| self.record(index, record))?;
        }
        let of_pieces = self.bundling.into_iter().flat_map(|bundling| bundling.sections);
        let written = [self.records, self.labels, self.names, self.classes].into_iter().chain(of_pieces);
        let written = written.map(SectionWriter::finish).collect::<io::Result<Vec<_>>>()?;
        self.summary.repaired.sort_unstable_by_key(|sample| sample.index);
        self.summary.rejected.sort_unstable_by_key(|sample| sample.index);
        let layout = PackLayout {
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
        if self.plan.least_bytes > layout.file_bytes {
            // Only truncation frees the space reserved behind the end.
            self.file.set_len(layout.file_bytes + 1)?;
        }
        self.file.set_len(layout.file_bytes)?;
        self.file.write_all_at(&layout.to_bytes(), 0)?;
        Ok(PackSummary {
            file_bytes: layout.file_bytes,
            identity: layout.identity,
            repaired_count: self.state.repaired,
            rejected_count: self.state.rejected,
            ..self.summary
        })
    }
}

/// Reads the file back and verifies it, from the disk rather than from memory if the system allows that.
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
