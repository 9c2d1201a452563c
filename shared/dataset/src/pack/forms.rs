//! The stored representation of a sample: its verdict, its form, its bytes and their detail.

use super::format::{GROUP_ROWS, RAW_ALIGNMENT};
use super::record::{IndexRecord, StoredForm, StoredVerdict};
use super::report::{JpegForm, PackFormat, WhyKept};
use crate::{Dataset, ReadError, SAMPLE_BYTES_MAX, Stored, Unavailable};
use ddlp_pixels::{CorruptReason, Decoded, Limits, PixelError, Preparer, RawImage, Source, Verdict};
use std::error::Error;
use std::io;

/// Data to store for one sample.
pub(super) struct StoredSample {
    /// The sample's index record, still without the name. Its offset counts within the bytes of its run.
    pub(super) record: IndexRecord,
    pub(super) note: Note,
}

/// Facts about a sample that the summary needs beyond the record.
#[derive(Default)]
pub(super) struct Note {
    /// Bytes that the source returned.
    pub(super) source_bytes: u64,
    /// Whether an intact file was rewritten.
    pub(super) is_transcoded: bool,
    /// Whether this packing shrank the image; the record also marks images that an earlier packing shrank.
    pub(super) is_smaller: bool,
    /// Reason, for a kept sample.
    pub(super) why_kept: WhyKept,
    /// For a repaired sample: number of the decoder's warnings, and coefficients out of range.
    pub(super) warnings: u32,
    pub(super) clamped: u32,
    /// For a rejected sample: the problem.
    pub(super) message: String,
    /// Whether the sample is rejected because its bytes could not be read.
    pub(super) is_unreadable: bool,
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
    /// Returns the fault for an error at a sample's pixels. Errors of the image are those of a pack's samples: other
    /// sources' images are stored as they are, or rejected.
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
            PixelError::Io { message, os_error } => {
                let source = os_error.map_or_else(|| io::Error::other(message), io::Error::from_raw_os_error);
                let what = format!("sample {name} ({location})");
                Self::Unavailable(Unavailable::Io { what, path: location.file, source })
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
        match source {
            Source::Encoded(file) | Source::Indexed { file, .. } => self.store_file(file, admit, out),
            Source::Planar { width, height, bytes } => {
                if planes_bytes(width, height) != Some(bytes.len() as u64) {
                    let message = format!("{} bytes are not three planes of {width} x {height}", bytes.len());
                    return StoredSample::rejected(out, bytes, CorruptReason::Malformed, message);
                }
                StoredSample::appended(out, bytes, StoredForm::Planar, (width, height))
            }
            // Only packs have raw samples.
            source @ Source::Raw(image) => {
                let (length, max_side) = (raw_bytes((image.width, image.height), None), self.max_side());
                let stored = self.decoded(source, max_side, out)?;
                Ok(stored.noting(|note| note.source_bytes = length))
            }
            _ => {
                let message = "it cannot be stored in this form".to_owned();
                StoredSample::rejected(out, &[], CorruptReason::Unsupported, message)
            }
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

    fn max_side(&self) -> Option<u32> {
        match self.format {
            PackFormat::Raw { max_side } => max_side,
            PackFormat::Encoded { .. } => None,
        }
    }

    fn store_file(
        &mut self,
        file: &[u8],
        admit: &mut dyn FnMut(u64),
        out: &mut Vec<u8>,
    ) -> Result<StoredSample, PixelError> {
        let stored = match self.preparer.inspect(file) {
            Verdict::Intact => self.store_intact(file, true, admit, out)?,
            Verdict::Repaired { bytes, warnings, clamped } if bytes.len() as u64 <= SAMPLE_BYTES_MAX => {
                let mut stored = self.store_intact(&bytes, false, admit, out)?;
                stored.record.verdict = StoredVerdict::Repaired;
                stored.noting(|note| (note.warnings, note.clamped) = (warnings, clamped))
            }
            Verdict::Rejected { reason, message } => StoredSample::rejected(out, file, reason, message)?,
            Verdict::Undecided { message } => return Err(PixelError::NoMemory { message }),
            _ => {
                let message = "it cannot be stored in this form".to_owned();
                StoredSample::rejected(out, file, CorruptReason::Unsupported, message)?
            }
        };
        Ok(stored.noting(|note| note.source_bytes = file.len() as u64))
    }

    /// Stores an intact file: the source's own, or a repaired one.
    fn store_intact(
        &mut self,
        file: &[u8],
        is_own: bool,
        admit: &mut dyn FnMut(u64),
        out: &mut Vec<u8>,
    ) -> Result<StoredSample, PixelError> {
        let size = self.preparer.info(file).map_or((0, 0), |info| (info.width, info.height));
        let why_kept = match self.format {
            PackFormat::Encoded { jpeg: JpegForm::Kept } => WhyKept::AskedFor,
            PackFormat::Encoded { jpeg: JpegForm::Indexed } if !is_own => WhyKept::Repaired,
            PackFormat::Encoded { jpeg: JpegForm::Indexed } => match self.preparer.index(file) {
                Ok(indexed) => {
                    let (bytes, is_transcoded) =
                        (indexed.transcoded.as_deref().unwrap_or(file), indexed.transcoded.is_some());
                    let stored = StoredSample::appended(out, bytes, StoredForm::Indexed, size)?;
                    let stored = stored.with_detail(out, &indexed.checkpoints)?;
                    return Ok(stored.noting(|note| note.is_transcoded = is_transcoded));
                }
                Err(why) => WhyKept::NotIndexed(why),
            },
            PackFormat::Raw { max_side } => {
                admit(raw_bytes(size, max_side));
                match self.decoded(Source::Encoded(file), max_side, out) {
                    Ok(stored) => return Ok(stored),
                    Err(error) if !error.is_of_the_image() => return Err(error),
                    Err(error) => WhyKept::NotDecoded(error.reason()),
                }
            }
        };
        Ok(StoredSample::appended(out, file, StoredForm::Kept, size)?.noting(|note| note.why_kept = why_kept))
    }

    /// Stores a sample's pixels.
    fn decoded(
        &mut self,
        source: Source<'_>,
        max_side: Option<u32>,
        out: &mut Vec<u8>,
    ) -> Result<StoredSample, PixelError> {
        let before = out.len();
        let start = before.next_multiple_of(RAW_ALIGNMENT as usize);
        reserve(out, start - before)?;
        out.resize(start, 0);
        let before_this = match source {
            Source::Raw(image) => Some((image.width, image.height)),
            _ => None,
        };
        let decoded = self.preparer.decode(source, max_side, out);
        let length = (out.len() - start) as u64;
        let decoded = match decoded {
            Ok(decoded) if length <= SAMPLE_BYTES_MAX => decoded,
            outcome => {
                out.truncate(before);
                let Decoded { width, height, .. } = outcome?;
                return Err(PixelError::TooManyPixels { width, height, limit: SAMPLE_BYTES_MAX / 3 });
            }
        };
        let Decoded { width, height, orientation, was_shrunk, .. } = decoded;
        let is_smaller = before_this.map_or(was_shrunk, |before| before != (width, height));
        let pixels = &out[start..];
        let checksums = RawImage::checksums_of(pixels, width, GROUP_ROWS);
        let stored = StoredSample::of(start, pixels, StoredForm::Raw, (width, height));
        let mut stored = stored.with_detail(out, &checksums)?;
        (stored.record.orientation, stored.record.was_shrunk) = (orientation, was_shrunk);
        Ok(stored.noting(|note| note.is_smaller = is_smaller))
    }
}

impl StoredSample {
    /// Returns the data for bytes that begin at `start` of their run.
    fn of(start: usize, bytes: &[u8], form: StoredForm, (width, height): (u32, u32)) -> Self {
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
    fn appended(out: &mut Vec<u8>, bytes: &[u8], form: StoredForm, size: (u32, u32)) -> Result<Self, PixelError> {
        let start = out.len();
        reserve(out, bytes.len())?;
        out.extend_from_slice(bytes);
        Ok(Self::of(start, bytes, form, size))
    }

    fn rejected(out: &mut Vec<u8>, bytes: &[u8], reason: CorruptReason, message: String) -> Result<Self, PixelError> {
        let mut rejected = Self::appended(out, bytes, StoredForm::Kept, (0, 0))?;
        rejected.record.verdict = StoredVerdict::Rejected(reason);
        Ok(rejected.noting(|note| note.message = message))
    }

    /// Appends the form's detail behind the sample's bytes, with which `out` ends. Fails only if memory is refused.
    fn with_detail(mut self, out: &mut Vec<u8>, detail: &[u8]) -> Result<Self, PixelError> {
        reserve(out, detail.len())?;
        out.extend_from_slice(detail);
        (self.record.detail_length, self.record.detail_crc32c) = (detail.len() as u32, crc32c::crc32c(detail));
        Ok(self)
    }

    fn noting(mut self, change: impl FnOnce(&mut Note)) -> Self {
        change(&mut self.note);
        self
    }
}

/// Makes room for `more` bytes. Fails only if memory is refused.
fn reserve(out: &mut Vec<u8>, more: usize) -> Result<(), PixelError> {
    let refused = |_| PixelError::NoMemory { message: format!("{more} bytes for what is packed") };
    out.try_reserve(more).map_err(refused)
}

/// Returns an upper bound for the bytes of an image as raw pixels.
fn raw_bytes((width, height): (u32, u32), max_side: Option<u32>) -> u64 {
    let most = max_side.map_or(u64::MAX, |side| u64::from(side) * u64::from(side));
    (u64::from(width) * u64::from(height)).min(most).saturating_mul(3)
}

fn planes_bytes(width: u32, height: u32) -> Option<u64> {
    u64::from(width).checked_mul(height.into())?.checked_mul(3)
}

/// Formats an error with its cause.
pub(super) fn message_of(error: &dyn Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
