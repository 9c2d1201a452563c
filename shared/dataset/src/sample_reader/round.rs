//! One round of reads for several samples: extents that lie close together are joined to one read, which may serve
//! several samples.

use super::KEPT_BYTES;
use super::ahead::SampleToFetch;
use super::bytes::{BytesRead, ROOM_BYTES};
use crate::extent::resize;
use crate::{Dataset, Header, ReadError, Unavailable};
use std::mem;
use std::ops::Range;

/// Longest extent that is joined with others. Joined extents are copied from their read into the samples' memory: for
/// longer ones, that would cost more than another read.
const JOINED_BYTES_MAX: u64 = 32 << 10;

/// One of several reads at the same time ([`Dataset::read_many`]).
#[derive(Debug)]
pub struct ExtentRead<'r> {
    /// Index of the sample; of a read that serves several samples, one of them.
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

/// The reads of a round. The memory is reused from round to round.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// The pieces of all reads: those that a read serves are neighbours.
    pieces: Vec<Piece>,
    reads: Vec<RoundRead>,
    /// The bytes of reads that are copied from here, each with [`ROOM_BYTES`] before and after it.
    shared: Vec<u8>,
}

/// An extent of a sample.
#[derive(Debug)]
struct Piece {
    extent: Range<u64>,
    /// Number of the sample.
    sample: usize,
    /// Where the extent's bytes go in the sample's memory.
    place: Range<usize>,
    /// Whether the extent is the sample's longest one of this round.
    is_longest: bool,
}

/// A read.
#[derive(Debug)]
struct RoundRead {
    extent: Range<u64>,
    /// Number of bytes that belong to a piece.
    bytes_of_pieces: u64,
    /// The pieces that it serves.
    pieces: Range<usize>,
    /// Whether the read goes straight to its sample's memory. One read of each sample may: it may write behind its
    /// place, where the copied pieces go afterwards.
    is_direct: bool,
}

impl Piece {
    fn is_joined(&self) -> bool {
        self.extent.end - self.extent.start <= JOINED_BYTES_MAX
    }
}

impl RoundRead {
    fn bytes(&self) -> usize {
        (self.extent.end - self.extent.start) as usize
    }
}

impl Round {
    /// Plans the reads of the extents that the samples want. Joins extents with at most `join_gap` bytes between them.
    /// Returns false if there is nothing to read.
    pub(super) fn plan(&mut self, samples: &mut [SampleToFetch], join_gap: Option<u64>) -> bool {
        self.pieces.clear();
        for (sample, SampleToFetch { fetched, .. }) in samples.iter_mut().enumerate() {
            fetched.join_round();
            if !fetched.is_in_round {
                continue;
            }
            let (first, mut start) = (self.pieces.len(), ROOM_BYTES + fetched.fetch.filled());
            for extent in fetched.fetch.wanted().extents() {
                let end = start + (extent.end - extent.start) as usize;
                self.pieces.push(Piece { extent: extent.clone(), sample, place: start..end, is_longest: false });
                start = end;
            }
            if let Some(longest) = self.pieces[first..].iter_mut().max_by_key(|piece| piece.place.len()) {
                longest.is_longest = true;
            }
        }
        if join_gap.is_some() {
            self.pieces.sort_unstable_by_key(|piece| (piece.is_joined(), piece.extent.start));
        }
        self.join(join_gap);
        !self.reads.is_empty()
    }

    /// Joins pieces, which are sorted, to reads.
    fn join(&mut self, join_gap: Option<u64>) {
        self.reads.clear();
        for (number, piece) in self.pieces.iter().enumerate() {
            let last = self.reads.last_mut().zip(join_gap).filter(|(last, gap)| {
                let is_joined = piece.is_joined() && self.pieces[last.pieces.start].is_joined();
                is_joined && piece.extent.start <= last.extent.end.saturating_add(*gap)
            });
            match last {
                Some((last, _)) => {
                    let free = last.extent.end.max(piece.extent.start);
                    last.bytes_of_pieces += piece.extent.end.saturating_sub(free);
                    last.extent.end = last.extent.end.max(piece.extent.end);
                    last.pieces.end = number + 1;
                    last.is_direct = false;
                }
                None => {
                    let (extent, pieces, is_direct) = (piece.extent.clone(), number..number + 1, piece.is_longest);
                    let bytes_of_pieces = extent.end - extent.start;
                    self.reads.push(RoundRead { extent, bytes_of_pieces, pieces, is_direct });
                }
            }
        }
    }

    /// Makes the planned reads, all at the same time, and counts them.
    ///
    /// # Errors
    ///
    /// The error of a read that failed, or memory that the system refuses.
    pub(super) async fn read(
        &mut self,
        dataset: &dyn Dataset,
        samples: &mut [SampleToFetch],
        count: &mut BytesRead,
    ) -> Result<(), ReadError> {
        let Self { pieces, reads, shared, .. } = self;
        let copied = || reads.iter().filter(|read| !read.is_direct);
        let shared_bytes = copied().map(|read| read.bytes() + 2 * ROOM_BYTES).sum();
        if shared.len() < shared_bytes
            && let Err(error) = resize(shared, shared_bytes)
        {
            let index = samples[pieces[0].sample].index;
            let (name, location, problem) = (dataset.name(index), dataset.location(index), error.to_string());
            return Err(Unavailable::NoMemory { name, location, problem }.into());
        }
        let mut of_samples = Vec::with_capacity(samples.len());
        of_samples.extend(samples.iter_mut().map(|SampleToFetch { index, fetched, .. }| {
            (*index, fetched.fetch.header(), Some(fetched.memory.all_mut()))
        }));
        let (mut made, mut free) = (Vec::with_capacity(reads.len()), &mut shared[..]);
        for read in &*reads {
            let piece = &pieces[read.pieces.start];
            let (index, header, own) = &mut of_samples[piece.sample];
            let own = if read.is_direct { own.take() } else { None };
            let (memory, place) = match own {
                Some(own) => (own, piece.place.clone()),
                None => {
                    let (memory, behind) = mem::take(&mut free).split_at_mut(read.bytes() + 2 * ROOM_BYTES);
                    free = behind;
                    (memory, ROOM_BYTES..ROOM_BYTES + read.bytes())
                }
            };
            made.push(ExtentRead { index: *index, header, offset: read.extent.start, memory, place });
        }
        dataset.start_reads(made).await?;
        let mut at = 0;
        for read in copied() {
            let bytes = &shared[at + ROOM_BYTES..at + ROOM_BYTES + read.bytes()];
            at += read.bytes() + 2 * ROOM_BYTES;
            for Piece { extent, sample, place, .. } in &pieces[read.pieces.clone()] {
                let start = (extent.start - read.extent.start) as usize;
                let memory = samples[*sample].fetched.memory.all_mut();
                memory[place.clone()].copy_from_slice(&bytes[start..start + place.len()]);
            }
        }
        reads.iter().for_each(|read| count.count_read(&read.extent, read.bytes_of_pieces));
        Ok(())
    }

    /// Frees memory that is unusually large.
    pub(super) fn clear(&mut self) {
        if self.shared.capacity() > KEPT_BYTES {
            self.shared = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests;
