//! Fetching several samples at the same time, to be rendered later, maybe by other threads.

use super::bytes::ROOM_BYTES;
use super::stored::first_reads;
use super::{BytesRead, KEPT_BYTES, SampleReader, StoredAt};
use crate::extent::resize;
use crate::forms::{FormNotes, Next, Unusable};
use crate::{Dataset, Header, ReadError, Reads};
use ddlp_pixels::{CompiledPipeline, Draw, Limits, SamplePlan, Source, is_large};

/// The bytes of a sample as its plan names them, read and checked by [`SampleReader::fetch`], to be rendered by
/// [`SampleReader::render`]. The memory is reused from sample to sample.
#[derive(Debug, Default)]
pub struct FetchedSample {
    /// The sample's bytes, with [`ROOM_BYTES`] before and after them.
    pub(super) memory: Vec<u8>,
    pub(super) filled: usize,
    notes: FormNotes,
    /// Extents to read next, of a sample that is `pending`.
    pub(super) reads: Reads,
    /// The header of a sample that is being read.
    pub(super) pending: Option<Header>,
    /// The sample's header, if everything is there that rendering needs.
    header: Option<Header>,
    /// Whether the sample was read as far as its form asked for it.
    has_come: bool,
}

/// A sample to fetch.
#[derive(Debug)]
pub struct SampleToFetch {
    /// Index in the dataset.
    pub index: u64,
    /// The draw for the sample.
    pub draw: Draw,
    /// Memory for the sample, and then what was fetched of it.
    pub fetched: FetchedSample,
}

impl FetchedSample {
    /// Returns the bytes of memory that the sample takes.
    pub fn memory_bytes(&self) -> u64 {
        self.memory.capacity() as u64
    }

    /// Returns the sample's bytes, if it was read as far as its form asked for it.
    pub(super) fn came(&self) -> Option<&[u8]> {
        self.has_come.then(|| self.bytes())
    }

    /// Forgets the sample, and frees memory that is unusually large.
    pub fn clear(&mut self) {
        (self.pending, self.header, self.filled, self.has_come) = (None, None, 0, false);
        if self.memory.capacity() > KEPT_BYTES {
            self.memory = Vec::new();
        }
    }

    /// Opens the sample, if everything was fetched that this takes.
    pub(super) fn source<'a>(&'a self, plan: &mut SamplePlan<'_>) -> Option<Source<'a>> {
        let header = self.header.as_ref()?;
        header.form.source(header, self.bytes(), plan, &self.notes).ok()
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[ROOM_BYTES..ROOM_BYTES + self.filled]
    }

    /// Makes room in memory for the extents to read next. Gives up a sample if nothing is to be read or memory is
    /// refused. Gives up a sample of which more than 4 MiB would be read: samples in flight together could exceed the
    /// look-ahead's bound, and large images are prepared one at a time.
    pub(super) fn make_room(&mut self) {
        let (more, all) = (self.reads.bytes(), (self.filled as u64).saturating_add(self.reads.bytes()));
        let is_small = more > 0 && !is_large(all);
        // Never shortened: each byte of the memory is zeroed once.
        let mut has_room = |end| self.memory.len() >= end || resize(&mut self.memory, end).is_ok();
        if !(is_small && has_room(2 * ROOM_BYTES + all as usize)) {
            self.pending = None;
        }
    }

    /// Continues after the extents were read. Leaves nothing pending once the sample is fetched or given up. Counts a
    /// fetched sample.
    fn has_read(&mut self, plan: &mut SamplePlan<'_>, count: &mut BytesRead) {
        let Some(header) = self.pending.take() else { return };
        let Self { memory, filled, notes, reads, .. } = self;
        *filled += reads.bytes() as usize;
        reads.clear();
        match header.form.next(&header, &memory[ROOM_BYTES..ROOM_BYTES + *filled], plan, notes, reads) {
            Ok(Next::Render) => {
                count.count_sample(&header);
                self.header = Some(header);
            }
            Ok(Next::Read) => self.pending = Some(header),
            Ok(Next::ReadFile) | Err(Unusable::Damage(_) | Unusable::Pixels(_)) => {}
        }
        self.has_come = self.pending.is_none();
    }
}

impl SampleReader {
    /// Reads what rendering these samples needs, in rounds: most samples need one or two. All reads of a round are made
    /// at the same time. Extents that lie close together are read as one ([`FetchDepth::join_gap`]), even if
    /// they are of several samples. Leaves a sample empty if it lies in memory, if more than 4 MiB would be read, or if
    /// a part of it is damaged: [`prepare`](Self::prepare) does everything then.
    ///
    /// # Errors
    ///
    /// If a read fails. Some or all samples then stay empty.
    ///
    /// [`FetchDepth::join_gap`]: crate::FetchDepth::join_gap
    pub fn fetch(
        &mut self,
        dataset: &dyn Dataset,
        limits: Limits,
        pipeline: &CompiledPipeline,
        samples: &mut [SampleToFetch],
    ) -> Result<(), ReadError> {
        let Self { plan: memory, read: count, round, .. } = self;
        let mut fetched = Ok(());
        samples.iter_mut().for_each(|sample| sample.fetched.clear());
        for SampleToFetch { index, draw, fetched: sample } in &mut *samples {
            if dataset.in_memory(*index).is_some() {
                continue;
            }
            let header = match (StoredAt { dataset, index: *index }).header(count) {
                Ok(header) => header,
                Err(ReadError::Corrupt(_)) => continue,
                Err(error) => {
                    // The source has already waited: do not wait again for each sample.
                    fetched = Err(error);
                    break;
                }
            };
            let plan = &mut SamplePlan::crop(pipeline, *draw, memory);
            let is_planned = first_reads(&header, limits, plan, &mut sample.reads).is_ok();
            if is_planned {
                sample.pending = Some(header);
            }
        }
        while round.plan(samples, dataset.fetch_depth().join_gap) {
            if let Err(error) = round.read(dataset, samples, count) {
                samples.iter_mut().for_each(|sample| sample.fetched.pending = None);
                fetched = Err(error);
            }
            for SampleToFetch { draw, fetched: sample, .. } in &mut *samples {
                sample.has_read(&mut SamplePlan::crop(pipeline, *draw, memory), count);
            }
        }
        round.clear();
        fetched
    }
}
