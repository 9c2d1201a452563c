//! Storing a sample: its verdict, and the choice of its form. The form itself does the rest.

use super::options::PackFormat;
use super::record::{IndexRecord, StoredVerdict};
use super::report::WhyKept;
use crate::forms::StoredForm;
use crate::{Dataset, ReadError, SAMPLE_BYTES_MAX, Stored, Unavailable};
use ddlp_pixels::{CorruptReason, Limits, PixelError, Preparer, Source, Verdict};
use std::error::Error;

/// Data to store for one sample.
pub(crate) struct StoredSample {
    /// The sample's index record, still without the name. Its offset counts within the bytes of its run.
    pub(crate) record: IndexRecord,
    pub(crate) note: Note,
}

/// Facts about a sample that the summary needs beyond the record.
#[derive(Default)]
pub(crate) struct Note {
    /// Bytes that the source returned.
    pub(crate) source_bytes: u64,
    /// Whether an intact file was rewritten to be stored in its form.
    pub(crate) is_rewritten: bool,
    /// Whether this packing shrank the image; the record also marks images that an earlier packing shrank.
    pub(crate) is_smaller: bool,
    /// Reason, for a kept sample.
    pub(crate) why_kept: WhyKept,
    /// For a repaired sample: number of the decoder's warnings, and coefficients out of range.
    pub(crate) warnings: u32,
    pub(crate) clamped: u32,
    /// For a rejected sample: the problem.
    pub(crate) message: String,
    /// Whether the sample is rejected because its bytes could not be read.
    pub(crate) is_unreadable: bool,
}

/// Reason why packing ends.
#[derive(Debug)]
pub(super) enum Fault {
    /// The source is a pack, and the bytes are not those that were packed.
    Damaged(String),
    /// The source cannot be read now, or memory is refused.
    Unavailable(Unavailable),
}

impl Fault {
    /// Returns the fault for an error at a sample's pixels. An image error means that the source is a damaged pack:
    /// images of other sources are stored as they are, or rejected.
    #[cold]
    pub(super) fn of_pixels(error: PixelError, source: &dyn Dataset, index: u64) -> Self {
        // The pixels may be wrong because the pack was replaced.
        if !matches!(error, PixelError::NoMemory { .. })
            && let Err(error) = source.check_damage()
        {
            return Self::Unavailable(error);
        }
        let (name, location) = (source.name(index), source.location(index));
        match error {
            PixelError::NoMemory { message: problem } => {
                Self::Unavailable(Unavailable::NoMemory { name, location, problem })
            }
            error => Self::Damaged(error.to_string()),
        }
    }
}

/// One worker's decoder, and the options for storing samples.
pub(super) struct Storing {
    preparer: Preparer,
    format: PackFormat,
    /// Whether the source is a pack. Its unreadable samples count as damaged: stored as rejected, they would be lost
    /// unnoticed.
    is_pack: bool,
}

impl Storing {
    pub(super) fn new(format: PackFormat, limits: Limits, is_pack: bool) -> Self {
        Self { preparer: Preparer::new(limits), format, is_pack }
    }

    /// Reads a sample into `buf`, checks it, and appends its stored form to `out`. Calls `admit` with the number of
    /// bytes that the sample will have, if it can exceed the number that the source lists. Fails if a sample of a pack
    /// cannot be packed again, the whole source cannot be read, or memory is refused.
    pub(super) fn store(
        &mut self,
        (source, index): (&dyn Dataset, u64),
        buf: &mut Vec<u8>,
        admit: &mut dyn FnMut(u64),
        out: &mut Vec<u8>,
    ) -> Result<StoredSample, Fault> {
        let stored = match source.stored(index, buf) {
            Ok(Stored::Source(sample)) => self.store_source(sample, admit, out),
            Ok(Stored::Rejected { bytes, reason }) => self.store_rejected(bytes, reason, out),
            Err(ReadError::Corrupt(error)) if self.is_pack => return Err(Fault::Damaged(message_of(&error))),
            Err(ReadError::Unavailable(error)) if self.is_pack || !error.is_of_file(&source.location(index).file) => {
                return Err(Fault::Unavailable(error));
            }
            Err(ReadError::Corrupt(error)) => {
                let is_unreadable = error.reason() == CorruptReason::Io;
                let rejected = StoredSample::rejected(out, &[], error.reason(), message_of(&error));
                rejected.map(|rejected| rejected.noting(|note| note.is_unreadable = is_unreadable))
            }
            Err(ReadError::Unavailable(error)) => {
                let rejected = StoredSample::rejected(out, &[], CorruptReason::Io, message_of(&error));
                rejected.map(|rejected| rejected.noting(|note| note.is_unreadable = true))
            }
        };
        stored.map_err(|error| Fault::of_pixels(error, source, index))
    }

    fn store_source(
        &mut self,
        source: Source<'_>,
        admit: &mut dyn FnMut(u64),
        out: &mut Vec<u8>,
    ) -> Result<StoredSample, PixelError> {
        let own_form = match source {
            Source::Encoded(file) => return self.store_file(file, admit, out),
            Source::Planar { .. } => Some(StoredForm::Planar),
            Source::Raw(_) => Some(StoredForm::Raw),
            _ => None,
        };
        let Self { preparer, format, .. } = self;
        let mut workspace = Workspace { preparer, format: *format, size: (0, 0), is_repaired: false, admit, out };
        match own_form.map(|form| form.store(source, &mut workspace)) {
            Some(Ok(stored)) => Ok(stored),
            Some(Err(NotStored::Failed(error))) => Err(error),
            Some(Err(NotStored::Kept(_))) | None => StoredSample::unsupported(out, &[]),
        }
    }

    /// Keeps the bytes of a sample that was rejected before. The index holds only the reason's code; decoding the bytes
    /// again may give a message.
    fn store_rejected(
        &mut self,
        bytes: &[u8],
        reason: CorruptReason,
        out: &mut Vec<u8>,
    ) -> Result<StoredSample, PixelError> {
        let message = match self.preparer.inspect(bytes) {
            Verdict::Rejected { reason: found, message } if found == reason => message,
            _ => reason.to_string(),
        };
        StoredSample::rejected(out, bytes, reason, message)
    }

    fn store_file(
        &mut self,
        file: &[u8],
        admit: &mut dyn FnMut(u64),
        out: &mut Vec<u8>,
    ) -> Result<StoredSample, PixelError> {
        let stored = match self.preparer.inspect(file) {
            Verdict::Intact => self.store_intact(file, false, admit, out)?,
            Verdict::Repaired { bytes, warnings, clamped } if bytes.len() as u64 <= SAMPLE_BYTES_MAX => {
                let mut stored = self.store_intact(&bytes, true, admit, out)?;
                stored.record.verdict = StoredVerdict::Repaired;
                stored.noting(|note| (note.warnings, note.clamped) = (warnings, clamped))
            }
            Verdict::Rejected { reason, message } => StoredSample::rejected(out, file, reason, message)?,
            Verdict::Undecided { message } => return Err(PixelError::NoMemory { message }),
            _ => StoredSample::unsupported(out, file)?,
        };
        Ok(stored.noting(|note| note.source_bytes = file.len() as u64))
    }

    /// Stores an intact file, or a repaired one, in the form that the options ask for, or keeps it.
    fn store_intact(
        &mut self,
        file: &[u8],
        is_repaired: bool,
        admit: &mut dyn FnMut(u64),
        out: &mut Vec<u8>,
    ) -> Result<StoredSample, PixelError> {
        let size = self.preparer.info(file).map_or((0, 0), |info| (info.width, info.height));
        let Self { preparer, format, .. } = self;
        let mut workspace = Workspace { preparer, format: *format, size, is_repaired, admit, out };
        match format.form.store(Source::Encoded(file), &mut workspace) {
            Ok(stored) => Ok(stored),
            Err(NotStored::Failed(error)) => Err(error),
            Err(NotStored::Kept(why_kept)) => {
                let kept = StoredSample::appended(out, file, StoredForm::Kept, size)?;
                Ok(kept.noting(|note| note.why_kept = why_kept))
            }
        }
    }
}

/// Workspace in which a form stores a sample.
pub(crate) struct Workspace<'s> {
    pub(crate) preparer: &'s mut Preparer,
    pub(crate) format: PackFormat,
    /// Width and height of a file's image, 0 where unknown.
    pub(crate) size: (u32, u32),
    /// Whether a file is a repaired one rather than the source's own.
    pub(crate) is_repaired: bool,
    /// Waits until the sample may take this many bytes.
    pub(crate) admit: &'s mut dyn FnMut(u64),
    /// Bytes of the chunk, to which the sample is appended.
    pub(crate) out: &'s mut Vec<u8>,
}

/// Reason why a sample is not stored in a form.
pub(crate) enum NotStored {
    /// The form cannot hold this file, which is kept.
    Kept(WhyKept),
    /// Memory is refused, or a sample of a pack is damaged.
    Failed(PixelError),
}

impl From<PixelError> for NotStored {
    fn from(error: PixelError) -> Self {
        Self::Failed(error)
    }
}

impl StoredSample {
    /// Returns the data for bytes that begin at `start` of their run.
    pub(crate) fn of(start: usize, bytes: &[u8], form: StoredForm, (width, height): (u32, u32)) -> Self {
        let record = IndexRecord {
            offset: start as u64,
            length: bytes.len() as u32,
            crc32c: crc32c::crc32c(bytes),
            width,
            height,
            form,
            verdict: StoredVerdict::Intact,
            name_offset: 0,
            name_length: 0,
            name_crc32c: 0,
            detail_length: 0,
            detail_crc32c: 0,
            orientation: 1,
            was_shrunk: false,
        };
        Self { record, note: Note { source_bytes: bytes.len() as u64, ..Note::default() } }
    }

    /// Appends bytes. Fails only if memory is refused.
    pub(crate) fn appended(
        out: &mut Vec<u8>,
        bytes: &[u8],
        form: StoredForm,
        size: (u32, u32),
    ) -> Result<Self, PixelError> {
        let start = out.len();
        reserve(out, bytes.len())?;
        out.extend_from_slice(bytes);
        Ok(Self::of(start, bytes, form, size))
    }

    /// Appends the bytes of a sample that does not decode. Fails only if memory is refused.
    pub(crate) fn rejected(
        out: &mut Vec<u8>,
        bytes: &[u8],
        reason: CorruptReason,
        message: String,
    ) -> Result<Self, PixelError> {
        let mut rejected = Self::appended(out, bytes, StoredForm::Kept, (0, 0))?;
        rejected.record.verdict = StoredVerdict::Rejected(reason);
        Ok(rejected.noting(|note| note.message = message))
    }

    fn unsupported(out: &mut Vec<u8>, bytes: &[u8]) -> Result<Self, PixelError> {
        let message = "it cannot be stored in this form".to_owned();
        Self::rejected(out, bytes, CorruptReason::Unsupported, message)
    }

    /// Records the detail, which the form puts next to the sample's bytes.
    pub(crate) fn with_detail(mut self, detail: &[u8]) -> Self {
        (self.record.detail_length, self.record.detail_crc32c) = (detail.len() as u32, crc32c::crc32c(detail));
        self
    }

    pub(crate) fn noting(mut self, change: impl FnOnce(&mut Note)) -> Self {
        change(&mut self.note);
        self
    }
}

/// Makes room for `more` bytes. Fails only if memory is refused.
pub(crate) fn reserve(out: &mut Vec<u8>, more: usize) -> Result<(), PixelError> {
    let refused = |_| PixelError::NoMemory { message: format!("{more} bytes for what is packed") };
    out.try_reserve(more).map_err(refused)
}

/// Formats an error with its cause.
pub(super) fn message_of(error: &dyn Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
