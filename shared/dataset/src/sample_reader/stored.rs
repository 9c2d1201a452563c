//! A sample at its place in a dataset: reading what a plan names, and judging damage.

use super::SampleError;
use super::bytes::{BytesRead, SampleBytes};
use super::times::Watch;
use crate::forms::{Damage, FormNotes, Next, Unusable, check_bytes};
use crate::pack::BlocksError;
use crate::rereading::Rereading;
use crate::{Corrupt, Dataset, Header, Location, ReadError, Reads, Unavailable};
use ddlp_pixels::{Limits, PixelError, PlanMemory, Rendered, SamplePlan, Source, large_turn};
use std::sync::LazyLock;
use std::{fmt, io, mem, slice};

/// A sample of a dataset.
pub struct StoredAt<'d, D: Dataset + ?Sized> {
    /// The dataset.
    pub dataset: &'d D,
    /// Index of the sample.
    pub index: u64,
}

impl<D: Dataset + ?Sized> Clone for StoredAt<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: Dataset + ?Sized> Copy for StoredAt<'_, D> {}

impl<D: Dataset + ?Sized> fmt::Debug for StoredAt<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredAt").field("index", &self.index).finish_non_exhaustive()
    }
}

/// What is being read of a sample.
pub(super) struct Reading<'m, 'r> {
    pub(super) bytes: SampleBytes<'m>,
    pub(super) notes: &'r mut FormNotes,
    /// Extents to read next.
    pub(super) reads: &'r mut Reads,
    pub(super) read: &'r mut BytesRead,
    /// Earlier damaged reads of the sample.
    pub(super) rereading: Rereading,
    /// Number of samples that arrived damaged and were intact when they were read again.
    pub(super) healed: &'r mut u64,
}

/// Why the bytes that a plan names cannot be used.
enum Unread {
    /// The bytes are damaged.
    Damaged(Damage),
    /// The bytes are not enough: the whole file is needed.
    NeedsFile,
    Failed(SampleError),
}

impl Unread {
    /// Returns whether the bytes may not be those that were packed.
    fn is_damage(&self) -> bool {
        match self {
            Self::Damaged(_) | Self::NeedsFile => true,
            Self::Failed(error) => matches!(error, SampleError::Pixels(PixelError::Checksum { .. })),
        }
    }
}

impl From<ReadError> for Unread {
    fn from(error: ReadError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<PixelError> for Unread {
    fn from(error: PixelError) -> Self {
        Self::Failed(error.into())
    }
}

impl<D: Dataset + ?Sized> StoredAt<'_, D> {
    /// Returns the sample's header.
    pub(super) fn header(&self, read: &mut BytesRead) -> Result<Header, ReadError> {
        read.count(&self.dataset.header_extent(self.index));
        self.dataset.header(self.index)
    }

    /// Reads all that the plan needs, beginning with `reading.reads`, and checks it. Calls `before` with the number of
    /// bytes of each round of reads.
    fn read(
        &self,
        header: &Header,
        plan: &mut SamplePlan<'_>,
        reading: &mut Reading<'_, '_>,
        before: &mut impl FnMut(u64),
    ) -> Result<(), Unread> {
        let Reading { bytes, notes, reads, read, .. } = reading;
        loop {
            before(reads.bytes());
            bytes.append(self, header, reads.extents(), read)?;
            reads.clear();
            match header.form.next(header, bytes.bytes(), plan, notes, reads) {
                Ok(Next::Render) => return Ok(()),
                Ok(Next::Read) => {}
                Ok(Next::ReadFile) => return Err(Unread::NeedsFile),
                Err(Unusable::Damage(damage)) => return Err(Unread::Damaged(damage)),
                Err(Unusable::Pixels(error)) => return Err(error.into()),
            }
        }
    }

    /// Reads all that the plan needs, beginning with `reading.reads`, checks it, and passes it to `open`. Returns
    /// `None` if the whole file is needed instead, as `open` does. `first` puts the first extents to read into its
    /// second argument. Calls `before` with the number of bytes of each round. Reads damaged bytes from a network
    /// again, and judges them once the same bytes have arrived twice in a row.
    fn open<T>(
        &self,
        header: &Header,
        plan: &mut SamplePlan<'_>,
        reading: &mut Reading<'_, '_>,
        first: impl Fn(&mut SamplePlan<'_>, &mut Reads) -> Result<(), PixelError>,
        mut before: impl FnMut(u64),
        mut open: impl FnMut(&mut Reading<'_, '_>, &mut SamplePlan<'_>) -> Result<Option<T>, SampleError>,
    ) -> Result<Option<T>, SampleError> {
        let mut rereading = mem::take(&mut reading.rereading);
        loop {
            let error = match self.read(header, plan, reading, &mut before) {
                Ok(()) => match open(reading, plan) {
                    Ok(Some(opened)) => {
                        *reading.healed += u64::from(rereading.is_healed(reading.bytes.bytes()));
                        return Ok(Some(opened));
                    }
                    Ok(None) => Unread::NeedsFile,
                    Err(error) => Unread::Failed(error),
                },
                Err(error) => error,
            };
            if !(error.is_damage() && self.reads_again(&mut rereading, reading.bytes.bytes())?) {
                return match error {
                    Unread::Damaged(damage) => Err(self.damaged(header, damage).into()),
                    Unread::NeedsFile => Ok(None),
                    Unread::Failed(error) => Err(error),
                };
            }
            reading.bytes.clear();
            first(plan, reading.reads)?;
        }
    }

    /// Returns whether to read a sample again whose bytes arrived damaged, before it is judged.
    #[cold]
    fn reads_again(&self, rereading: &mut Rereading, bytes: &[u8]) -> Result<bool, ReadError> {
        let &Self { dataset, index } = self;
        if !dataset.comes_over_network() {
            return Ok(false);
        }
        // A replaced pack is not damage of this sample.
        dataset.check_damage()?;
        rereading.reads_again(crc32c::crc32c(bytes)).map_err(|problem| {
            let location = dataset.location(index);
            let what = format!("sample {} ({location})", dataset.name(index));
            let source = io::Error::other(BlocksError::Momentary(format!("it {problem}")));
            Unavailable::Io { what, path: location.file, source }.into()
        })
    }

    /// Reads what the plan names and hands it to `render`; reads the whole file if these bytes are not enough.
    pub(super) fn render(
        &self,
        mut reading: Reading<'_, '_>,
        limits: Limits,
        plan: &mut SamplePlan<'_>,
        watch: &mut Watch<'_>,
        mut render: impl FnMut(&Source<'_>, &mut SamplePlan<'_>) -> Result<Rendered, SampleError>,
    ) -> Result<Rendered, SampleError> {
        let header = self.header(reading.read)?;
        let first = |plan: &mut SamplePlan<'_>, reads: &mut Reads| first_reads(&header, limits, plan, reads);
        first(plan, reading.reads)?;
        reading.read.count_sample(&header);
        let form = header.form;
        // Pixels take more memory than a file. The memory of a large crop is freed before the turn ends.
        let mut turn = None;
        let take_turn = |bytes| {
            if turn.is_none() && !form.is_file() {
                turn = large_turn(bytes);
            }
        };
        let rendered = self.open(&header, plan, &mut reading, first, take_turn, |reading, plan| {
            watch.has_read();
            match render(&form.source(&header, reading.bytes.bytes(), plan, reading.notes)?, plan)? {
                Rendered::NeedsFile if form.is_file() => {
                    watch.has_prepared();
                    Ok(None)
                }
                rendered => Ok(Some(rendered)),
            }
        });
        if turn.is_some() {
            reading.bytes.free();
        }
        if let Some(rendered) = rendered? {
            return Ok(rendered);
        }
        let file = self.file(&header, reading.bytes, reading.read, reading.healed)?;
        watch.has_read();
        render(&Source::Encoded(file), plan)
    }

    /// Reads and checks a whole file, in place of all other bytes.
    fn file<'m>(
        &self,
        header: &Header,
        mut bytes: SampleBytes<'m>,
        read: &mut BytesRead,
        healed: &mut u64,
    ) -> Result<&'m [u8], ReadError> {
        let mut rereading = Rereading::default();
        loop {
            bytes.clear();
            bytes.append(self, header, slice::from_ref(&header.bytes), read)?;
            match check_bytes(header, bytes.bytes()) {
                Ok(()) => break,
                Err(_) if self.reads_again(&mut rereading, bytes.bytes())? => {}
                Err(damage) => return Err(self.damaged(header, damage)),
            }
        }
        *healed += u64::from(rereading.is_healed(bytes.bytes()));
        Ok(bytes.into_bytes())
    }

    /// Turns the reason why a whole sample cannot be opened into the sample's error.
    #[cold]
    fn unusable(&self, error: SampleError) -> ReadError {
        let &Self { dataset, index } = self;
        let source = match error {
            SampleError::Read(error) => return error,
            SampleError::Pixels(error) => error,
            error @ SampleError::OtherDecoder(_) => PixelError::Unsupported { message: error.to_string() },
        };
        let (name, location) = (dataset.name(index), dataset.location(index));
        match source {
            PixelError::NoMemory { message: problem } => Unavailable::NoMemory { name, location, problem }.into(),
            source => Corrupt::Pixels { name, location, source }.into(),
        }
    }

    /// Turns damage of a sample into the sample's error.
    #[cold]
    fn damaged(&self, header: &Header, damage: Damage) -> ReadError {
        let &Self { dataset, index } = self;
        if let Err(unavailable) = dataset.check_damage() {
            return unavailable.into();
        }
        let (name, location) = (dataset.name(index), dataset.location(index));
        match damage {
            Damage::Bytes { stored, computed } => Corrupt::Checksum { name, location, stored, computed }.into(),
            Damage::Detail { computed } => {
                let (offset, length) = (header.detail.start, header.detail_bytes() as u64);
                let location = Location { offset, length, ..location };
                Corrupt::Checksum { name, location, stored: header.detail_crc32c, computed }.into()
            }
        }
    }
}

/// Replaces the content of `reads` by the first extents that a plan needs of a sample.
pub(super) fn first_reads(
    header: &Header,
    limits: Limits,
    plan: &mut SamplePlan<'_>,
    reads: &mut Reads,
) -> Result<(), PixelError> {
    reads.clear();
    // Pixels are judged by their size before they are read. The size of a file's image lies in the file.
    let is_pixels = !header.form.is_file();
    if is_pixels {
        limits.check_pixels(header.size.0, header.size.1)?;
    }
    header.form.reads(header, plan, reads)?;
    if is_pixels {
        limits.check_memory(reads.bytes())?;
    }
    Ok(())
}

/// The notes of forms that have not left any.
static NO_NOTES: LazyLock<FormNotes> = LazyLock::new(FormNotes::default);

/// Reads and checks the bytes of a sample, but not its detail.
pub(crate) fn file<'b>(
    dataset: &(impl Dataset + ?Sized),
    index: u64,
    header: &Header,
    memory: &'b mut Vec<u8>,
) -> Result<&'b [u8], ReadError> {
    StoredAt { dataset, index }.file(header, SampleBytes::in_memory(memory), &mut BytesRead::default(), &mut 0)
}

/// Reads all of a sample, for [`Dataset::sample`].
pub(crate) fn whole<'b>(
    dataset: &'b (impl Dataset + ?Sized),
    index: u64,
    memory: &'b mut Vec<u8>,
) -> Result<Source<'b>, ReadError> {
    if let Some(source) = dataset.in_memory(index) {
        return Ok(source);
    }
    let header = dataset.header(index)?;
    if header.form.is_file() {
        return file(dataset, index, &header, memory).map(Source::Encoded);
    }
    let sample = StoredAt { dataset, index };
    let (mut plans, mut notes, mut reads) = (PlanMemory::default(), FormNotes::default(), Reads::default());
    let plan = &mut SamplePlan::whole(&mut plans);
    let bytes = SampleBytes::in_memory(memory);
    let (read, rereading, healed) = (&mut BytesRead::default(), Rereading::default(), &mut 0);
    let mut reading = Reading { bytes, notes: &mut notes, reads: &mut reads, read, rereading, healed };
    let unusable = |error: SampleError| sample.unusable(error);
    let first = |plan: &mut SamplePlan<'_>, reads: &mut Reads| {
        reads.clear();
        header.form.reads(&header, plan, reads)
    };
    first(plan, reading.reads).map_err(|error| unusable(error.into()))?;
    if sample.open(&header, plan, &mut reading, first, |_| (), |_, _| Ok(Some(()))).map_err(unusable)?.is_none() {
        let message = "a part of it is damaged, and there is no whole file".to_owned();
        return Err(unusable(PixelError::Malformed { message }.into()));
    }
    let source = header.form.source(&header, reading.bytes.into_bytes(), plan, &NO_NOTES);
    source.map_err(|error| unusable(error.into()))
}
