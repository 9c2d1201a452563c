//! A sample at its place in a dataset: reading what a plan names, and judging damage.

use super::SampleError;
use super::bytes::{BytesRead, SampleBytes};
use super::times::Watch;
use crate::forms::{Damage, FormNotes, Next, Unusable, check_bytes};
use crate::{Corrupt, Dataset, Location, ReadError, Unavailable};
use crate::{Header, Reads};
use ddlp_pixels::{Limits, PixelError, PlanMemory, Rendered, SamplePlan, Source, large_turn};
use std::fmt;
use std::slice;
use std::sync::LazyLock;

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
}

impl<D: Dataset + ?Sized> StoredAt<'_, D> {
    /// Returns the sample's header.
    pub(super) fn header(&self, read: &mut BytesRead) -> Result<Header, ReadError> {
        read.count(&self.dataset.header_extent(self.index));
        self.dataset.header(self.index)
    }

    /// Reads all that the plan needs, beginning with `reading.reads`, and checks it. Returns false if the whole file is
    /// needed instead. Calls `before` with the bytes of each round of reads.
    fn read(
        &self,
        header: &Header,
        plan: &mut SamplePlan<'_>,
        reading: &mut Reading<'_, '_>,
        mut before: impl FnMut(u64),
    ) -> Result<bool, SampleError> {
        let Reading { bytes, notes, reads, read } = reading;
        loop {
            before(reads.bytes());
            bytes.append(self, header, reads.extents(), read)?;
            reads.clear();
            match header.form.next(header, bytes.bytes(), plan, notes, reads) {
                Ok(Next::Render) => return Ok(true),
                Ok(Next::Read) => {}
                Ok(Next::ReadFile) => return Ok(false),
                Err(Unusable::Damage(damage)) => return Err(self.damaged(header, damage).into()),
                Err(Unusable::Pixels(error)) => return Err(error.into()),
            }
        }
    }

    /// Reads what the plan names and hands it to `render`; reads the whole file if these bytes are not enough.
    pub(super) fn render(
        &self,
        mut reading: Reading<'_, '_>,
        limits: Limits,
        plan: &mut SamplePlan<'_>,
        watch: &mut Watch<'_>,
        mut render: impl FnMut(Source<'_>, &mut SamplePlan<'_>) -> Result<Rendered, SampleError>,
    ) -> Result<Rendered, SampleError> {
        let header = self.header(reading.read)?;
        first_reads(&header, limits, plan, reading.reads)?;
        let form = header.form;
        // Pixels take more memory than a file. The memory of a large crop is freed before the turn ends.
        let mut turn = None;
        let take_turn = |bytes| {
            if turn.is_none() && !form.is_file() {
                turn = large_turn(bytes);
            }
        };
        if self.read(&header, plan, &mut reading, take_turn)? {
            watch.has_read();
            let rendered = render(form.source(&header, reading.bytes.bytes(), plan, reading.notes)?, plan);
            if turn.is_some() {
                reading.bytes.free();
            }
            match rendered? {
                Rendered::NeedsFile if form.is_file() => {}
                rendered => return Ok(rendered),
            }
            watch.has_prepared();
        }
        let file = self.file(&header, reading.bytes, reading.read)?;
        watch.has_read();
        render(Source::Encoded(file), plan)
    }

    /// Reads and checks a whole file, in place of all other bytes.
    fn file<'m>(
        &self,
        header: &Header,
        mut bytes: SampleBytes<'m>,
        read: &mut BytesRead,
    ) -> Result<&'m [u8], ReadError> {
        bytes.clear();
        bytes.append(self, header, slice::from_ref(&header.bytes), read)?;
        check_bytes(header, bytes.bytes()).map_err(|damage| self.damaged(header, damage))?;
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
    StoredAt { dataset, index }.file(header, SampleBytes::in_memory(memory), &mut BytesRead::default())
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
    let mut reading = Reading { bytes, notes: &mut notes, reads: &mut reads, read: &mut BytesRead::default() };
    let unusable = |error: SampleError| sample.unusable(error);
    header.form.reads(&header, plan, reading.reads).map_err(|error| unusable(error.into()))?;
    if !sample.read(&header, plan, &mut reading, |_| ()).map_err(unusable)? {
        let message = "a part of it is damaged, and there is no whole file".to_owned();
        return Err(unusable(PixelError::Malformed { message }.into()));
    }
    let source = header.form.source(&header, reading.bytes.into_bytes(), plan, &NO_NOTES);
    source.map_err(|error| unusable(error.into()))
}
