//! Storing a sample: its verdict, and the choice of its form. The form itself does the rest.

use super::options::{PackFormat, PackOptions};
use super::record::{IndexRecord, StoredVerdict};
use super::report::WhyKept;
use crate::forms::{Holds, StoredForm, store_planes};
use crate::{Dataset, ReadError, SAMPLE_BYTES_MAX, Stored, Unavailable};
use ddlp_cause::with_causes;
use ddlp_pixels::{CorruptReason, Decoded, FormImage, PixelError, Preparer, ScanGroups, Source, Verdict};

/// Data to store for one sample.
pub(crate) struct PackedSample {
    /// The sample's index record, still without the name. Its offset counts within the bytes of the chunk.
    pub(crate) record: IndexRecord,
    /// The lengths of the pieces of a sample in pieces, which follow each other in the bytes of the chunk.
    pub(crate) pieces: Vec<u32>,
    pub(crate) note: Note,
}

impl PackedSample {
    /// Returns the number of bytes that the sample takes.
    pub(super) fn stored_bytes(&self) -> u64 {
        let of_pieces = self.pieces.iter().map(|&bytes| u64::from(bytes)).sum();
        self.record.total_bytes().max(of_pieces)
    }
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
            error => Self::Damaged(with_causes(&error)),
        }
    }
}

/// One worker's decoder, and the options for storing samples.
pub(super) struct Storing {
    preparer: Preparer,
    format: PackFormat,
    groups: ScanGroups,
    /// Whether the source is a pack. Its unreadable samples count as damaged: stored as rejected, they would be lost
    /// unnoticed.
    is_pack: bool,
}

/// Returns whether the error concerns this sample alone. Over a network, only one that nobody has put there does.
fn is_of_sample(error: &Unavailable, source: &dyn Dataset, index: u64) -> bool {
    match source.comes_over_network() {
        true => matches!(error, Unavailable::NoImage { .. }),
        false => error.is_of_file(&source.location(index).file),
    }
}

impl Storing {
    pub(super) fn new(options: &PackOptions, is_pack: bool) -> Self {
        let groups = options.groups.clone();
        Self { preparer: Preparer::new(options.limits), format: options.format, groups, is_pack }
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
    ) -> Result<PackedSample, Fault> {
        let stored = match source.stored(index, buf) {
            Ok(Stored::Source(sample)) => self.store_source(sample, admit, out),
            Ok(Stored::Rejected { bytes, reason }) => self.store_rejected(bytes, reason, out),
            Err(ReadError::Corrupt(error)) if self.is_pack => return Err(Fault::Damaged(with_causes(&error))),
            Err(ReadError::Unavailable(error)) if self.is_pack || !is_of_sample(&error, source, index) => {
                return Err(Fault::Unavailable(error));
            }
            Err(ReadError::Corrupt(error)) => {
                let is_unreadable = error.reason() == CorruptReason::Io;
                let rejected = PackedSample::rejected(out, &[], error.reason(), with_causes(&error));
                rejected.map(|rejected| rejected.noting(|note| note.is_unreadable = is_unreadable))
            }
            Err(ReadError::Unavailable(error)) => {
                let rejected = PackedSample::rejected(out, &[], CorruptReason::Io, with_causes(&error));
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
    ) -> Result<PackedSample, PixelError> {
        match source {
            Source::Encoded(file) | Source::Indexed { file, .. } => self.store_file(file, admit, out),
            Source::Planar { width, height, bytes } => store_planes((width, height), bytes, out),
            Source::Image(image) => self.store_image(image, admit, out),
            // A part of a file is not a whole sample.
            Source::Rows(_) | Source::Pieces { .. } => PackedSample::unsupported(out, &[]),
        }
    }

    /// Stores a sample of a pack whose form implements `FormDecoder`: in the form that the options ask for if that form
    /// holds pixels, otherwise in the sample's own form.
    fn store_image(
        &mut self,
        image: FormImage<'_>,
        admit: &mut dyn FnMut(u64),
        out: &mut Vec<u8>,
    ) -> Result<PackedSample, PixelError> {
        let (size, source_bytes, own) =
            ((image.width, image.height), image.bytes.len(), StoredForm::of_code(image.form));
        let store = |form: StoredForm| match form.holds() {
            Holds::Pixels(store) => Some((form, store)),
            _ => None,
        };
        let Some((form, store)) = store(self.format.form).or_else(|| own.and_then(store)) else {
            return PackedSample::unsupported(out, &[]);
        };
        if Some(form) != own {
            admit(pixel_bytes(size, self.format.max_side));
        }
        let stored = self.store_pixels(Source::Image(image), (form, store), out)?;
        let is_smaller = (stored.record.width, stored.record.height) != size;
        Ok(stored.noting(|note| (note.source_bytes, note.is_smaller) = (source_bytes as u64, is_smaller)))
    }

    /// Stores the pixels of a sample in a form of pixels. An error leaves `out` unchanged.
    fn store_pixels(
        &mut self,
        source: Source<'_>,
        (form, store): (StoredForm, StorePixels),
        out: &mut Vec<u8>,
    ) -> Result<PackedSample, PixelError> {
        let before = out.len();
        let start = before.next_multiple_of(form.alignment() as usize);
        reserve(out, start - before)?;
        out.resize(start, 0);
        let mut pixels = PixelsToStore { preparer: &mut self.preparer, source, max_side: self.format.max_side };
        let stored = store(&mut pixels, out).and_then(|stored| match (out.len() - start) as u64 {
            ..=SAMPLE_BYTES_MAX => Ok(stored),
            _ => {
                let IndexRecord { width, height, .. } = stored.record;
                Err(PixelError::TooManyPixels { width, height, limit: SAMPLE_BYTES_MAX / 3 })
            }
        });
        stored.inspect_err(|_| out.truncate(before))
    }

    /// Keeps the bytes of a sample that was rejected before. The index holds only the reason's code; decoding the bytes
    /// again may give a message.
    fn store_rejected(
        &mut self,
        bytes: &[u8],
        reason: CorruptReason,
        out: &mut Vec<u8>,
    ) -> Result<PackedSample, PixelError> {
        let message = match self.preparer.inspect(bytes) {
            Verdict::Rejected { reason: found, message } if found == reason => message,
            _ => reason.to_string(),
        };
        PackedSample::rejected(out, bytes, reason, message)
    }

    fn store_file(
        &mut self,
        file: &[u8],
        admit: &mut dyn FnMut(u64),
        out: &mut Vec<u8>,
    ) -> Result<PackedSample, PixelError> {
        let stored = match self.preparer.inspect(file) {
            Verdict::Intact => self.store_intact(file, false, admit, out)?,
            Verdict::Repaired { bytes, warnings, clamped } if bytes.len() as u64 <= SAMPLE_BYTES_MAX => {
                let mut stored = self.store_intact(&bytes, true, admit, out)?;
                stored.record.verdict = StoredVerdict::Repaired;
                stored.noting(|note| (note.warnings, note.clamped) = (warnings, clamped))
            }
            Verdict::Rejected { reason, message } => PackedSample::rejected(out, file, reason, message)?,
            Verdict::Undecided { message } => return Err(PixelError::NoMemory { message }),
            _ => PackedSample::unsupported(out, file)?,
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
    ) -> Result<PackedSample, PixelError> {
        let info = self.preparer.info(file).ok();
        let size = info.as_ref().map_or((0, 0), |info| (info.width, info.height));
        let PackFormat { form, max_side } = self.format;
        let stored = match form.holds() {
            Holds::Files(store) | Holds::Pieces(store) => {
                let Self { preparer, groups, .. } = self;
                store(file, &mut Workspace { preparer, groups, size, is_repaired, out })
            }
            Holds::Planes => Err(NotStored::Kept(WhyKept::AskedFor)),
            Holds::Pixels(store) => match info.and_then(|info| form.misfit(&info)) {
                Some(why) => Err(NotStored::Kept(WhyKept::Misfit(why))),
                None => {
                    admit(pixel_bytes(size, max_side));
                    let stored = self.store_pixels(Source::Encoded(file), (form, store), out);
                    stored.map_err(|error| match error.is_of_the_image() {
                        true => NotStored::Kept(WhyKept::NotDecoded(error.reason())),
                        false => NotStored::Failed(error),
                    })
                }
            },
        };
        match stored {
            Ok(stored) => {
                let was_shrunk = stored.record.was_shrunk;
                Ok(stored.noting(|note| note.is_smaller = was_shrunk))
            }
            Err(NotStored::Failed(error)) => Err(error),
            Err(NotStored::Kept(why_kept)) => {
                let kept = PackedSample::appended(out, file, StoredForm::Kept, size)?;
                Ok(kept.noting(|note| note.why_kept = why_kept))
            }
        }
    }
}

/// Returns an upper bound for the bytes of an image as 8-bit RGB.
fn pixel_bytes((width, height): (u32, u32), max_side: Option<u32>) -> u64 {
    let most = max_side.map_or(u64::MAX, |side| u64::from(side) * u64::from(side));
    (u64::from(width) * u64::from(height)).min(most).saturating_mul(3)
}

/// Appends the pixels of a sample to the bytes of the chunk, in a form of pixels.
pub(crate) type StorePixels = fn(&mut PixelsToStore<'_>, &mut Vec<u8>) -> Result<PackedSample, PixelError>;

/// Pixels that are to be stored.
pub(crate) struct PixelsToStore<'s> {
    preparer: &'s mut Preparer,
    source: Source<'s>,
    max_side: Option<u32>,
}

impl PixelsToStore<'_> {
    /// Decodes the pixels and appends them to `out`: rows of RGB, 8 bits, in the stored orientation. An error leaves
    /// `out` unchanged.
    pub(crate) fn decode(&mut self, out: &mut Vec<u8>) -> Result<Decoded, PixelError> {
        self.preparer.decode(self.source, self.max_side, out)
    }
}

/// Workspace in which a form stores a file.
pub(crate) struct Workspace<'s> {
    pub(crate) preparer: &'s mut Preparer,
    /// Scan groups of pieces.
    pub(crate) groups: &'s ScanGroups,
    /// Width and height of the file's image, 0 where unknown.
    pub(crate) size: (u32, u32),
    /// Whether the file is a repaired one rather than the source's own.
    pub(crate) is_repaired: bool,
    /// Bytes of the chunk, to which the sample is appended.
    pub(crate) out: &'s mut Vec<u8>,
}

/// Reason why a sample is not stored in a form.
pub(crate) enum NotStored {
    /// The form cannot hold this file, which is kept.
    Kept(WhyKept),
    /// Memory is refused.
    Failed(PixelError),
}

impl From<PixelError> for NotStored {
    fn from(error: PixelError) -> Self {
        Self::Failed(error)
    }
}

impl PackedSample {
    /// Returns the data for bytes that begin at `start` of the chunk.
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
        Self { record, pieces: Vec::new(), note: Note { source_bytes: bytes.len() as u64, ..Note::default() } }
    }

    /// Returns the data for the stored pixels of an image, which begin at `start` of the chunk.
    pub(crate) fn of_pixels(start: usize, bytes: &[u8], form: StoredForm, decoded: Decoded) -> Self {
        let mut stored = Self::of(start, bytes, form, (decoded.width, decoded.height));
        (stored.record.orientation, stored.record.was_shrunk) = (decoded.orientation, decoded.was_shrunk);
        stored
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
