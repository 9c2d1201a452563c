//! A sample at its place in a dataset: the driver that waits for reads.

use super::SampleError;
use super::ahead::FetchedSample;
use super::bytes::BytesRead;
use super::fetch::{SampleFetch, Step};
use crate::forms::{FormNotes, Unusable};
use crate::pack::BlocksError;
use crate::{Corrupt, Dataset, Header, Location, ReadError, Unavailable};
use ddlp_pixels::{LargeTurn, Limits, PixelError, PlanMemory, SamplePlan, Source, large_turn};
use std::sync::LazyLock;
use std::{fmt, io, mem};

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

impl<D: Dataset + ?Sized> StoredAt<'_, D> {
    /// Begins with the sample.
    pub(super) fn begin(
        &self,
        fetch: &mut SampleFetch,
        limits: Option<Limits>,
        plan: &mut SamplePlan<'_>,
        count: &mut BytesRead,
    ) -> Result<(), ReadError> {
        let header = self.dataset.header(self.index)?;
        self.begin_with(header, fetch, limits, plan, count)
    }

    /// Begins with the sample, whose header was read.
    pub(super) fn begin_with(
        &self,
        header: Header,
        fetch: &mut SampleFetch,
        limits: Option<Limits>,
        plan: &mut SamplePlan<'_>,
        count: &mut BytesRead,
    ) -> Result<(), ReadError> {
        count.count(&self.dataset.header_extent(self.index));
        let bytes = self.name_pieces(fetch, &header, plan)?.unwrap_or(header.bytes.end - header.bytes.start);
        fetch.begin(header, limits, plan);
        if fetch.step() == Step::Read {
            count.count_sample(bytes);
        }
        Ok(())
    }

    /// Names the pieces of a sample in pieces, and returns how many bytes the sample has.
    fn name_pieces(
        &self,
        fetch: &mut SampleFetch,
        header: &Header,
        plan: &SamplePlan<'_>,
    ) -> Result<Option<u64>, ReadError> {
        if !header.form.is_in_pieces() {
            return Ok(None);
        }
        let fidelity = (!plan.is_whole()).then_some(plan.fidelity());
        self.dataset.pieces(self.index, header, fidelity, fetch.pieces()).map(Some)
    }

    /// Does what a sample needs until it can be rendered, or is. Puts a turn into `turn` before it reads the many bytes
    /// of a large image, unless there are no `limits`.
    pub(super) fn fetch(
        &self,
        sample: &mut FetchedSample,
        limits: Option<Limits>,
        plan: &mut SamplePlan<'_>,
        count: &mut BytesRead,
        turn: &mut Option<LargeTurn>,
    ) -> Result<(), SampleError> {
        loop {
            match sample.fetch.step() {
                Step::Begin => self.begin(&mut sample.fetch, limits, plan, count)?,
                Step::Read => {
                    // Pixels take more memory than a file.
                    if limits.is_some() && turn.is_none() && sample.fetch.header().form.is_pixels() {
                        *turn = large_turn(sample.fetch.wanted().bytes());
                    }
                    self.read(sample, count)?;
                    sample.came(plan);
                }
                Step::Check => {
                    // First, so that nobody fetches the damaged bytes from a cache during the check.
                    self.dataset.read_again(self.index);
                    self.dataset.check_damage().map_err(ReadError::from)?;
                    sample.fetch.checked(self.dataset.comes_over_network(), sample.memory.sample(), plan);
                }
                Step::Render | Step::Done(_) => return Ok(()),
                Step::Failed => return Err(self.failed(sample.fetch.take_problem())),
            }
        }
    }

    /// Reads the extents that are wanted.
    fn read(&self, sample: &mut FetchedSample, count: &mut BytesRead) -> Result<(), ReadError> {
        let &Self { dataset, index } = self;
        let FetchedSample { fetch, memory, .. } = sample;
        let (header, wanted) = (fetch.header(), fetch.wanted());
        let (memory, mut place) = match memory.behind(fetch.filled(), wanted.bytes(), fetch.spare()) {
            Ok(room) => room,
            Err(error) => {
                let (name, location, problem) = (dataset.name(index), dataset.location(index), error.to_string());
                return Err(Unavailable::NoMemory { name, location, problem }.into());
            }
        };
        if place.is_empty() && header.crc32c.is_none() {
            // An empty file may have been filled or removed since. Without a checksum, only a read finds that out.
            dataset.read(index, header, header.bytes.start, &mut [])?;
        }
        for extent in wanted.extents() {
            place.end = place.start + (extent.end - extent.start) as usize;
            dataset.read_within(index, header, extent.start, memory, place.clone())?;
            count.count(extent);
            place.start = place.end;
        }
        Ok(())
    }

    /// Returns the sample's error.
    #[cold]
    pub(super) fn failed(&self, problem: Unusable) -> SampleError {
        let &Self { dataset, index } = self;
        let (name, location) = (|| dataset.name(index), || dataset.location(index));
        let error: ReadError = match problem {
            Unusable::Pixels(error) => return error.into(),
            Unusable::OtherDecoder(decoder) => return SampleError::OtherDecoder(decoder),
            Unusable::NeedsFile => {
                let message = "the stored bytes are damaged, and this form has no file to decode instead".to_owned();
                return PixelError::Malformed { source: message.into() }.into();
            }
            Unusable::Unsteady(problem) => {
                let (what, path) = (format!("sample {} ({})", name(), location()), location().file);
                let source = io::Error::other(BlocksError::Momentary(format!("it {problem}").into()));
                Unavailable::Io { what, path, source }.into()
            }
            Unusable::Bytes { stored, computed } => {
                Corrupt::Checksum { name: name(), location: location(), stored, computed }.into()
            }
            Unusable::Detail { extent, stored, computed } => {
                let (offset, length) = (extent.start, extent.end - extent.start);
                let location = Location { offset, length, ..location() };
                Corrupt::Checksum { name: name(), location, stored, computed }.into()
            }
        };
        error.into()
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

    /// Reads and checks all of a sample with this header, without its detail if it is a file.
    fn whole<'b>(
        &self,
        header: Header,
        plan: &mut SamplePlan<'_>,
        memory: &'b mut Vec<u8>,
    ) -> Result<(SampleFetch, &'b [u8]), ReadError> {
        let mut sample = FetchedSample::in_memory(mem::take(memory));
        self.name_pieces(&mut sample.fetch, &header, plan)?;
        sample.fetch.begin(header, None, plan);
        let fetched = self.fetch(&mut sample, None, plan, &mut BytesRead::default(), &mut None);
        *memory = sample.memory.into_bytes();
        fetched.map_err(|error| self.unusable(error))?;
        Ok((sample.fetch, memory))
    }
}

/// The notes of forms that have not left any.
static NO_NOTES: LazyLock<FormNotes> = LazyLock::new(FormNotes::default);

/// Reads and checks the bytes of a sample, but not its detail.
pub(crate) fn file<'b>(
    dataset: &(impl Dataset + ?Sized),
    index: u64,
    header: Header,
    memory: &'b mut Vec<u8>,
) -> Result<&'b [u8], ReadError> {
    let plans = &mut PlanMemory::default();
    let (fetch, bytes) = StoredAt { dataset, index }.whole(header, &mut SamplePlan::whole(plans), memory)?;
    Ok(&bytes[..fetch.filled()])
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
    let (sample, plans) = (StoredAt { dataset, index }, &mut PlanMemory::default());
    let plan = &mut SamplePlan::whole(plans);
    let (fetch, bytes) = sample.whole(dataset.header(index)?, plan, memory)?;
    fetch.source(bytes, plan, &NO_NOTES).map_err(|error| sample.unusable(error.into()))
}
