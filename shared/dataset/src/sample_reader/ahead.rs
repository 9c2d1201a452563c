//! Fetching several samples at the same time, to be rendered later, maybe by other threads.

use super::bytes::{ROOM_BYTES, SampleMemory};
use super::fetch::{SampleFetch, Step};
use super::headers::{Found, Headers};
use super::{SampleReader, StoredAt};
use crate::forms::FormNotes;
use crate::{Dataset, ReadError, wait_for};
use ddlp_pixels::{CompiledPipeline, Draw, Fidelity, Limits, PixelError, SMALL_BYTES, SamplePlan, Source, is_large};

/// A sample as far as [`SampleReader::fetch`] has come with it; [`SampleReader::prepare`] does the rest. The memory is
/// reused from sample to sample.
#[derive(Debug, Default)]
pub struct FetchedSample {
    pub(super) fetch: SampleFetch,
    pub(super) memory: SampleMemory,
    notes: FormNotes,
    /// Whether the present round reads for the sample.
    pub(super) is_in_round: bool,
}

/// A sample to fetch.
#[derive(Debug)]
pub struct SampleToFetch {
    /// Index in the dataset.
    pub index: u64,
    /// The draw for the sample.
    pub draw: Draw,
    /// The fidelity with which the sample is read.
    pub fidelity: Fidelity,
    /// Memory for the sample, and then what was fetched of it.
    pub fetched: FetchedSample,
}

impl FetchedSample {
    /// Uses memory without room for whole blocks.
    pub(super) fn in_memory(bytes: Vec<u8>) -> Self {
        Self { memory: SampleMemory::without_room(bytes), ..Self::default() }
    }

    /// Returns the bytes of memory that the sample takes.
    pub fn memory_bytes(&self) -> u64 {
        self.memory.capacity() as u64
    }

    /// Returns the bytes of memory that [`SampleReader::start_fetch`] takes for a sample at most, if they are known
    /// without a read. A part of the sample may be enough, and takes less.
    pub fn memory_needed(dataset: &dyn Dataset, index: u64) -> Option<u64> {
        if !dataset.header_extent(index).is_empty() {
            return None;
        }
        let detail = dataset.header(index).map_or(0, |header| header.detail_bytes() as u64);
        let bytes = dataset.location(index).length.saturating_add(detail);
        Some(bytes.min(SMALL_BYTES) + 2 * ROOM_BYTES as u64)
    }

    /// Forgets the sample, and frees memory that is unusually large.
    pub fn clear(&mut self) {
        self.fetch.clear();
        self.memory.trim();
    }

    /// Judges the bytes that have been read.
    pub(super) fn came(&mut self, plan: &mut SamplePlan<'_>) {
        self.fetch.came(self.memory.sample_mut(), plan, &mut self.notes);
    }

    /// Opens the sample, whose bytes are all there.
    pub(super) fn source<'a>(&'a self, plan: &mut SamplePlan<'_>) -> Result<Source<'a>, PixelError> {
        self.fetch.source(self.memory.sample(), plan, &self.notes)
    }

    /// Makes room for the extents to read next, if a round may read them. A round reads no sample of more than 4 MiB:
    /// samples in flight together could exceed the look-ahead's bound, and large images are prepared one at a time.
    pub(super) fn join_round(&mut self) {
        let (filled, more) = (self.fetch.filled(), self.fetch.wanted().bytes());
        let is_small = more > 0 && !is_large((filled as u64).saturating_add(more));
        let is_read = self.fetch.step() == Step::Read && is_small;
        self.is_in_round = is_read && self.memory.behind(filled, more, self.fetch.spare()).is_ok();
    }
}

impl SampleReader {
    /// Reads what rendering these samples needs, in rounds: most samples need one or two. All reads of a round are made
    /// at the same time. Extents that lie close together are read as one ([`FetchDepth::join_gap`]), even if
    /// they are of several samples. Leaves the rest to [`prepare`](Self::prepare) if a sample lies in memory, if more
    /// than 4 MiB would be read, or if a part of it is damaged.
    ///
    /// # Errors
    ///
    /// If a read fails. The rest of some or all samples is then left, too.
    ///
    /// [`FetchDepth::join_gap`]: crate::FetchDepth::join_gap
    pub fn fetch(
        &mut self,
        dataset: &dyn Dataset,
        limits: Limits,
        pipeline: &CompiledPipeline,
        samples: &mut [SampleToFetch],
    ) -> Result<(), ReadError> {
        wait_for(self.start_fetch(dataset, limits, pipeline, samples))
    }

    /// Does what [`fetch`](Self::fetch) does, without a thread that waits if the dataset needs none
    /// ([`Dataset::start_reads`]).
    ///
    /// # Errors
    ///
    /// As [`fetch`](Self::fetch).
    pub async fn start_fetch(
        &mut self,
        dataset: &dyn Dataset,
        limits: Limits,
        pipeline: &CompiledPipeline,
        samples: &mut [SampleToFetch],
    ) -> Result<(), ReadError> {
        let Self { plan: memory, read: count, round, .. } = self;
        let mut fetched = Ok(());
        samples.iter_mut().for_each(|sample| sample.fetched.clear());
        let mut headers = Headers::read(dataset, samples).await?;
        for (number, SampleToFetch { index, draw, fidelity, fetched: sample }) in samples.iter_mut().enumerate() {
            if dataset.in_memory(*index).is_some() {
                continue;
            }
            let plan = &mut SamplePlan::crop(pipeline, *draw, memory).with_fidelity(*fidelity);
            let stored = StoredAt { dataset, index: *index };
            let begun = match headers.take(dataset, number, *index) {
                Found::Known => stored.begin(&mut sample.fetch, Some(limits), plan, count),
                Found::Read(header) => stored.begin_with(header, &mut sample.fetch, Some(limits), plan, count),
                Found::Unclear => continue,
            };
            match begun {
                Ok(()) | Err(ReadError::Corrupt(_)) => {}
                Err(error) => {
                    // The source has already waited: do not wait again for each sample.
                    fetched = Err(error);
                    break;
                }
            }
        }
        while round.plan(samples, dataset.fetch_depth().join_gap) {
            if let Err(error) = round.read(dataset, samples, count).await {
                fetched = Err(error);
                break;
            }
            for SampleToFetch { draw, fidelity, fetched: sample, .. } in &mut *samples {
                if sample.is_in_round {
                    sample.came(&mut SamplePlan::crop(pipeline, *draw, memory).with_fidelity(*fidelity));
                }
            }
        }
        round.clear();
        fetched
    }
}
