//! What is stored for a sample: its verdict, its form, its bytes and their detail.

use super::format::{GROUP_ROWS, RAW_ALIGNMENT};
use super::record::{StoredForm, StoredVerdict};
use super::report::{JpegForm, PackFormat, WhyKept};
use crate::{ReadError, SAMPLE_BYTES_MAX};
use ddlp_pixels::{CorruptReason, Decoded, Limits, PixelError, Preparer, RawImage, Source, Verdict};
use std::error::Error;

/// What is stored for one sample, and where in its run's bytes it lies.
pub(super) struct StoredSample {
    /// Where its bytes begin in those of its run.
    pub(super) start: u64,
    pub(super) length: u32,
    pub(super) crc32c: u32,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) form: StoredForm,
    pub(super) verdict: StoredVerdict,
    pub(super) detail_length: u32,
    pub(super) detail_crc32c: u32,
    pub(super) orientation: u8,
    pub(super) was_shrunk: bool,
    pub(super) note: Note,
}

/// What the summary says of a sample beyond its record.
pub(super) struct Note {
    /// Bytes that the source gave.
    pub(super) source_bytes: u64,
    /// Whether its file was rewritten though it is intact.
    pub(super) is_transcoded: bool,
    /// Whether it is stored smaller than the source has it.
    pub(super) is_shrunk: bool,
    pub(super) why_kept: Option<WhyKept>,
    pub(super) verdict: VerdictNote,
}

/// What the summary says of a sample that is not intact.
pub(super) enum VerdictNote {
    Intact,
    Repaired { warnings: u32, clamped: u32 },
    Rejected { message: String },
}

/// One worker's decoder, and what is asked of it.
pub(super) struct Storing {
    preparer: Preparer,
    format: PackFormat,
}

impl Storing {
    pub(super) fn new(format: PackFormat, limits: Limits) -> Self {
        Self { preparer: Preparer::new(limits), format }
    }

    /// Checks a sample and appends to `out` what is to be stored for it. `admit` is told how many bytes it will have where
    /// that is more than the source has listed.
    pub(super) fn store(
        &mut self,
        source: Result<Source<'_>, ReadError>,
        admit: &mut dyn FnMut(u64),
        out: &mut Vec<u8>,
    ) -> StoredSample {
        match source {
            Ok(Source::Encoded(file) | Source::Indexed { file, .. }) => self.store_file(file, admit, out),
            Ok(Source::Planar { width, height, bytes }) => {
                if planes_bytes(width, height) != Some(bytes.len() as u64) {
                    let message = format!("{} bytes are not three planes of {width} x {height}", bytes.len());
                    return StoredSample::rejected(out, bytes, CorruptReason::Malformed, message);
                }
                StoredSample::appended(out, bytes, StoredForm::Planar, (width, height))
            }
            Ok(source @ Source::Raw(image)) => {
                let (length, max_side) = (raw_bytes((image.width, image.height), None), self.max_side());
                match self.decoded(source, max_side, out) {
                    Ok(stored) => stored.noting(|note| note.source_bytes = length),
                    Err(error) => StoredSample::rejected(out, &[], error.reason(), error.to_string()),
                }
            }
            Ok(_) => {
                let message = "it cannot be stored in this form".to_owned();
                StoredSample::rejected(out, &[], CorruptReason::Unsupported, message)
            }
            Err(error) => StoredSample::rejected(out, &[], error.reason(), message_of(&error)),
        }
    }

    fn max_side(&self) -> Option<u32> {
        match self.format {
            PackFormat::Raw { max_side } => max_side,
            PackFormat::Encoded { .. } => None,
        }
    }

    fn store_file(&mut self, file: &[u8], admit: &mut dyn FnMut(u64), out: &mut Vec<u8>) -> StoredSample {
        let stored = match self.preparer.inspect(file) {
            Verdict::Intact => self.store_intact(file, true, admit, out),
            Verdict::Repaired { bytes, warnings, clamped } if bytes.len() as u64 <= SAMPLE_BYTES_MAX => {
                let stored = self.store_intact(&bytes, false, admit, out);
                let stored = StoredSample { verdict: StoredVerdict::Repaired, ..stored };
                stored.noting(|note| note.verdict = VerdictNote::Repaired { warnings, clamped })
            }
            Verdict::Rejected { reason, message } => StoredSample::rejected(out, file, reason, message),
            _ => {
                let message = "it cannot be stored in this form".to_owned();
                StoredSample::rejected(out, file, CorruptReason::Unsupported, message)
            }
        };
        stored.noting(|note| note.source_bytes = file.len() as u64)
    }

    /// Stores a file that is intact: the source's own, or one that was repaired.
    fn store_intact(
        &mut self,
        file: &[u8],
        is_own: bool,
        admit: &mut dyn FnMut(u64),
        out: &mut Vec<u8>,
    ) -> StoredSample {
        let size = self.preparer.info(file).map_or((0, 0), |info| (info.width, info.height));
        let why_kept = match self.format {
            PackFormat::Encoded { jpeg: JpegForm::Kept } => None,
            PackFormat::Encoded { jpeg: JpegForm::Indexed } if !is_own => Some(WhyKept::Repaired),
            PackFormat::Encoded { jpeg: JpegForm::Indexed } => match self.preparer.index(file) {
                Ok(indexed) => {
                    let (bytes, is_transcoded) =
                        (indexed.transcoded.as_deref().unwrap_or(file), indexed.transcoded.is_some());
                    let stored = StoredSample::appended(out, bytes, StoredForm::Indexed, size);
                    return stored
                        .with_detail(out, &indexed.checkpoints)
                        .noting(|note| note.is_transcoded = is_transcoded);
                }
                Err(why) => Some(WhyKept::NotIndexed(why)),
            },
            PackFormat::Raw { max_side } => {
                admit(raw_bytes(size, max_side));
                match self.decoded(Source::Encoded(file), max_side, out) {
                    Ok(stored) => return stored,
                    Err(error) => Some(WhyKept::NotDecoded(error.reason())),
                }
            }
        };
        StoredSample::appended(out, file, StoredForm::Kept, size).noting(|note| note.why_kept = why_kept)
    }

    /// Stores a sample's pixels.
    fn decoded(
        &mut self,
        source: Source<'_>,
        max_side: Option<u32>,
        out: &mut Vec<u8>,
    ) -> Result<StoredSample, PixelError> {
        let before = out.len();
        out.resize(before.next_multiple_of(RAW_ALIGNMENT as usize), 0);
        let start = out.len();
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
        let is_shrunk = before_this.map_or(was_shrunk, |before| before != (width, height));
        let pixels = &out[start..];
        let checksums = RawImage::checksums_of(pixels, width, GROUP_ROWS);
        let stored = StoredSample::of(start, pixels, StoredForm::Raw, (width, height));
        let stored = StoredSample { orientation, was_shrunk, ..stored.with_detail(out, &checksums) };
        Ok(stored.noting(|note| note.is_shrunk = is_shrunk))
    }
}

impl StoredSample {
    /// What is said of bytes that begin at `start` of their run.
    fn of(start: usize, bytes: &[u8], form: StoredForm, (width, height): (u32, u32)) -> Self {
        let note = Note {
            source_bytes: bytes.len() as u64,
            is_transcoded: false,
            is_shrunk: false,
            why_kept: None,
            verdict: VerdictNote::Intact,
        };
        Self {
            start: start as u64,
            length: bytes.len() as u32,
            crc32c: crc32c::crc32c(bytes),
            width,
            height,
            form,
            verdict: StoredVerdict::Intact,
            detail_length: 0,
            detail_crc32c: 0,
            orientation: 1,
            was_shrunk: false,
            note,
        }
    }

    fn appended(out: &mut Vec<u8>, bytes: &[u8], form: StoredForm, size: (u32, u32)) -> Self {
        let start = out.len();
        out.extend_from_slice(bytes);
        Self::of(start, bytes, form, size)
    }

    fn rejected(out: &mut Vec<u8>, bytes: &[u8], reason: CorruptReason, message: String) -> Self {
        let kept = Self::appended(out, bytes, StoredForm::Kept, (0, 0));
        let rejected = Self { verdict: StoredVerdict::Rejected(reason), ..kept };
        rejected.noting(|note| note.verdict = VerdictNote::Rejected { message })
    }

    /// Appends what the form needs beside the bytes that `out` ends with.
    fn with_detail(self, out: &mut Vec<u8>, detail: &[u8]) -> Self {
        out.extend_from_slice(detail);
        Self { detail_length: detail.len() as u32, detail_crc32c: crc32c::crc32c(detail), ..self }
    }

    fn noting(mut self, change: impl FnOnce(&mut Note)) -> Self {
        change(&mut self.note);
        self
    }
}

/// Bytes of an image uncompressed, at most.
fn raw_bytes((width, height): (u32, u32), max_side: Option<u32>) -> u64 {
    let most = max_side.map_or(u64::MAX, |side| u64::from(side) * u64::from(side));
    (u64::from(width) * u64::from(height)).min(most).saturating_mul(3)
}

fn planes_bytes(width: u32, height: u32) -> Option<u64> {
    u64::from(width).checked_mul(height.into())?.checked_mul(3)
}

/// An error with its cause.
fn message_of(error: &ReadError) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
