//! Fetching several samples at the same time, to be rendered later, maybe by other threads.

use super::bytes::ROOM_BYTES;
use super::stored::first_reads;
use super::{KEPT_BYTES, SampleReader, StoredAt};
use crate::extent::resize;
use crate::forms::{FormNotes, Next};
use crate::header::{Header, Reads};
use crate::{Dataset, ReadError};
use ddlp_pixels::{CompiledPipeline, Draw, Limits, SamplePlan, Source, is_large};
use std::ops::Range;

/// The bytes of a sample as its plan names them, read and checked by [`SampleReader::fetch`], to be rendered by
/// [`SampleReader::render`]. The memory is reused from sample to sample.
#[derive(Debug, Default)]
pub struct FetchedSample {
    memory: Vec<u8>,
    filled: usize,
    notes: FormNotes,
    /// What is still to be read.
    pending: Option<Pending>,
    /// The sample's header, if everything is there that rendering needs.
    header: Option<Header>,
}

/// A sample that is being read, one range at a time: the whole blocks around two ranges would overlap in memory.
#[derive(Debug)]
struct Pending {
    header: Header,
    reads: Reads,
    /// Number of the range that is read next.
    range: usize,
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

/// One of several reads at the same time ([`Dataset::read_many`]).
#[derive(Debug)]
pub struct ExtentRead<'r> {
    /// Index of the sample.
    pub index: u64,
    /// The sample's header.
    pub header: &'r Header,
    /// First byte to read, counted as the header counts them.
    pub offset: u64,
    /// The memory, behind whose `place` the read may write.
    pub memory: &'r mut [u8],
    /// The bytes of `memory` to fill.
    pub place: Range<usize>,
}

impl FetchedSample {
    /// Returns the bytes of memory that the sample takes.
    pub fn memory_bytes(&self) -> u64 {
        self.memory.capacity() as u64
    }

    /// Forgets the sample, and frees memory that is unusually large.
    pub fn clear(&mut self) {
        (self.pending, self.header, self.filled) = (None, None, 0);
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

    /// Returns the next range to read.
    fn range(&self) -> Option<Range<u64>> {
        let Pending { reads, range, .. } = self.pending.as_ref()?;
        reads.ranges().nth(*range)
    }

    /// Returns the next read of the sample, if one is left and there is memory for it.
    fn next_read(&mut self, index: u64) -> Option<ExtentRead<'_>> {
        let range = self.range();
        let length = range.as_ref().and_then(|range| usize::try_from(range.end - range.start).ok());
        let end = length.and_then(|length| (2 * ROOM_BYTES + self.filled).checked_add(length));
        // Never shortened: each byte of the memory is zeroed once.
        let has_memory = end.is_some_and(|end| self.memory.len() >= end || resize(&mut self.memory, end).is_ok());
        let (Some(Range { start: offset, .. }), Some(length), true) = (range, length, has_memory) else {
            self.pending = None;
            return None;
        };
        let start = ROOM_BYTES + self.filled;
        let header = &self.pending.as_ref()?.header;
        Some(ExtentRead { index, header, offset, memory: &mut self.memory, place: start..start + length })
    }

    /// Continues after the next range was read, and returns that range. Nothing is pending then if the sample is
    /// fetched, or cannot be.
    fn has_read(&mut self, plan: &mut SamplePlan<'_>) -> Option<Range<u64>> {
        let read = self.range()?;
        let Pending { header, reads, range } = self.pending.take()?;
        self.filled += (read.end - read.start) as usize;
        if range + 1 < reads.ranges().count() {
            self.pending = Some(Pending { header, reads, range: range + 1 });
            return Some(read);
        }
        let bytes = &self.memory[ROOM_BYTES..ROOM_BYTES + self.filled];
        match header.form.next(&header, bytes, plan, &mut self.notes) {
            Ok(Next::Render) => self.header = Some(header),
            Ok(Next::Read(reads)) => self.pending = Some(Pending { header, reads, range: 0 }),
            Ok(Next::ReadFile) | Err(_) => {}
        }
        Some(read)
    }
}

impl SampleReader {
    /// Reads what rendering these samples needs, with as many reads at the same time as there are samples. Leaves a
    /// sample empty if it lies in memory, if its pixels are large, or if a part of it is damaged. If the dataset cannot
    /// be read, also leaves empty the samples that have not been read yet. The caller prepares empty samples by
    /// [`prepare`](Self::prepare).
    pub fn fetch(
        &mut self,
        dataset: &dyn Dataset,
        limits: Limits,
        pipeline: &CompiledPipeline,
        samples: &mut [SampleToFetch],
    ) {
        let Self { plan: memory, read: count, .. } = self;
        samples.iter_mut().for_each(|sample| sample.fetched.clear());
        for SampleToFetch { index, draw, fetched } in &mut *samples {
            if dataset.in_memory(*index).is_some() {
                continue;
            }
            let header = match (StoredAt { dataset, index: *index }).header(count) {
                Ok(header) => header,
                Err(ReadError::Corrupt(_)) => continue,
                // The source has already waited: do not wait again for each sample.
                Err(ReadError::Unavailable(_)) => break,
            };
            let plan = &mut SamplePlan::crop(pipeline, *draw, memory);
            let reads = first_reads(&header, limits, plan).ok();
            // Large pixels take turns, from their read until they are rendered.
            let reads = reads.filter(|reads| header.form.is_file() || !is_large(reads.bytes()));
            fetched.pending = reads.map(|reads| Pending { header, reads, range: 0 });
        }
        loop {
            let mut reads: Vec<ExtentRead<'_>> = Vec::with_capacity(samples.len());
            for SampleToFetch { index, fetched, .. } in &mut *samples {
                reads.extend(fetched.next_read(*index));
            }
            if reads.is_empty() {
                return;
            }
            let is_read = dataset.read_many(&mut reads);
            for sample in samples.iter_mut().filter(|sample| sample.fetched.pending.is_some()) {
                if is_read {
                    let plan = &mut SamplePlan::crop(pipeline, sample.draw, memory);
                    sample.fetched.has_read(plan).iter().for_each(|range| count.count(range));
                } else {
                    sample.fetched.pending = None;
                }
            }
        }
    }
}
