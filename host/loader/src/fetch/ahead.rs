//! Decides which sample is fetched next, which batch begins next, and which rows can be prepared. No threads, no clock,
//! no I/O.
//!
//! Samples are fetched batch by batch, in the order of the claims, but the awaited batch comes first. Two kinds of
//! batches are fetched even if all batches together reach the bound on bytes, until their own samples reach it, too: a
//! batch that has begun, since it occupies a buffer, and the awaited batch. Otherwise they could wait for memory that
//! is freed only after them. At most one batch of each kind has samples left to fetch, so the stage takes at most
//! [`BOUNDS_MAX`] times the bound. A critical batch may also be claimed and begun when no other batch may.

use super::Samples;
use crate::schedule::{BatchId, Room, Schedule};
use ddlp_csd::depth::Depth;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;

/// Expected bytes of the first samples. Later ones are expected to be as large as the average.
const FIRST_BYTES: u64 = 128 << 10;
/// Number of samples over which the average goes.
const AVERAGED: u64 = 16;

/// Largest memory of the stage as a multiple of the bound: one for all batches together, one for a batch that has
/// begun, one for the awaited batch.
pub(crate) const BOUNDS_MAX: u64 = 3;

/// Bounds of the look-ahead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AheadBounds {
    /// Bytes of samples that are in flight, or that were fetched and wait: of all batches, and of each batch that is
    /// fetched beyond that. One sample may have more.
    pub bytes: u64,
    /// Batches that are claimed and have not begun.
    pub batches: usize,
}

/// Names a sample that is being fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FetchTicket {
    pub id: BatchId,
    number: u64,
    /// Number of the claim: the batch may have been given up and claimed again.
    claim: u64,
    row: usize,
    pub sample_id: u64,
}

/// The batches of the CPU prong whose samples are fetched, each sample with what was fetched of it.
#[derive(Debug)]
pub(crate) struct FetchAhead<T> {
    bounds: AheadBounds,
    depth: Depth,
    ramp: Ramp,
    /// In the order of the claims. A batch leaves when its last sample is taken.
    batches: VecDeque<AheadBatch<T>>,
    claims: u64,
    /// Number of the last ticket.
    tickets: u64,
    /// Claims and rows that wait for the samples of these tickets, of those that had another row at first.
    moved: HashMap<u64, (u64, usize)>,
    /// Samples in flight, those of batches that were given up included.
    in_flight: u64,
    /// Whether a batch was given up that had samples in flight.
    has_given_up: bool,
    average_bytes: u64,
}

/// Ramp-up: the samples of one batch are fetched at first, and of one more for every `every` batches that the consumer
/// has got. No ramp if `every` is 0.
#[derive(Clone, Copy, Debug, Default)]
struct Ramp {
    every: u32,
    consumed: u32,
}

impl Ramp {
    fn batches(self) -> usize {
        self.consumed.checked_div(self.every).map_or(usize::MAX, |more| more as usize + 1)
    }
}

#[derive(Debug)]
struct AheadBatch<T> {
    id: BatchId,
    claim: u64,
    sample_ids: Samples,
    /// Batches of an epoch that have the same number here may exchange samples.
    among: Option<usize>,
    rows: Vec<RowState<T>>,
    has_begun: bool,
    /// Samples in flight.
    in_flight: u64,
    /// Bytes of samples that were fetched and wait.
    waiting_bytes: u64,
    /// Rows below it are in flight or further on.
    unfetched: usize,
    /// Rows below it have been taken.
    untaken: usize,
    taken: usize,
}

#[derive(Debug)]
enum RowState<T> {
    Unfetched,
    /// Has the number of the ticket.
    InFlight(u64),
    Fetched {
        bytes: u64,
        sample: T,
    },
    Taken,
}

impl<T> AheadBatch<T> {
    fn has_unfetched(&self) -> bool {
        self.unfetched < self.rows.len()
    }

    /// Returns the first row that can be prepared.
    fn first_fetched(&self) -> Option<usize> {
        let found = self.rows[self.untaken..].iter().position(|row| matches!(row, RowState::Fetched { .. }));
        found.map(|at| self.untaken + at)
    }

    /// Returns the bytes that are fetched and wait, and those that are probably in flight.
    fn bytes(&self, average_bytes: u64) -> u64 {
        self.waiting_bytes + self.in_flight * average_bytes
    }
}

impl<T> FetchAhead<T> {
    /// Creates a stage without batches.
    pub fn new(bounds: AheadBounds) -> Self {
        let (depth, ramp) = (Depth::fixed(usize::MAX), Ramp::default());
        Self {
            bounds,
            depth,
            ramp,
            batches: VecDeque::new(),
            claims: 0,
            tickets: 0,
            moved: HashMap::new(),
            in_flight: 0,
            has_given_up: false,
            average_bytes: FIRST_BYTES,
        }
    }

    /// Bounds the samples in flight.
    pub fn with_depth(self, depth: Depth) -> Self {
        Self { depth, ..self }
    }

    /// Expects this many bytes of each sample until the first ones have come.
    pub fn expecting(self, bytes: u64) -> Self {
        Self { average_bytes: bytes, ..self }
    }

    /// Begins with one batch, and fetches one more batch for every `every` batches that the consumer gets. 0 fetches
    /// all at once.
    pub fn with_ramp(self, every: u32) -> Self {
        Self { ramp: Ramp { every, consumed: 0 }, ..self }
    }

    /// Returns the bound on the samples in flight.
    pub fn depth_mut(&mut self) -> &mut Depth {
        &mut self.depth
    }

    /// Records that the consumer got a batch.
    pub fn consumed(&mut self) {
        self.ramp.consumed = self.ramp.consumed.saturating_add(1);
    }

    /// Returns the room for another claim when no sample is left to fetch; `None` if enough is claimed.
    pub fn claim_room(&self, schedule: &Schedule) -> Option<Room> {
        let mut ahead = self.batches.iter().filter(|batch| !batch.has_begun);
        let is_all_in_flight = !self.batches.iter().any(AheadBatch::has_unfetched);
        let is_few = ahead.clone().count() < self.bounds.batches && self.batches.len() < self.ramp.batches();
        if is_few && is_all_in_flight && self.has_room() {
            Some(Room::Any)
        } else if schedule.must_reserve() && !ahead.any(|batch| schedule.is_critical(batch.id)) {
            Some(Room::Critical)
        } else {
            None
        }
    }

    /// Adds a batch that was claimed. It has at least one sample, and may exchange samples with batches of its epoch
    /// that have the same number `among`.
    pub fn claimed(&mut self, id: BatchId, sample_ids: Samples, among: Option<usize>) {
        assert!(!sample_ids.is_empty() && !self.batches.iter().any(|batch| batch.id == id), "{id:?} is fetched once");
        self.claims += 1;
        let rows = (0..sample_ids.len()).map(|_| RowState::Unfetched).collect();
        let (claim, has_begun) = (self.claims, false);
        self.batches.push_back(AheadBatch {
            id,
            claim,
            sample_ids,
            among,
            rows,
            has_begun,
            in_flight: 0,
            waiting_bytes: 0,
            unfetched: 0,
            untaken: 0,
            taken: 0,
        });
    }

    /// Returns the sample to fetch next, which counts as in flight until [`Self::fetched`]. Returns `None` if there is
    /// no sample or no room.
    pub fn next(&mut self, schedule: &Schedule) -> Option<FetchTicket> {
        let has_room = self.has_room();
        if self.in_flight >= self.depth.limit() as u64 {
            if has_room {
                self.depth.reached();
            }
            return None;
        }
        let has_own_room = |batch: &AheadBatch<T>| self.fits(batch.bytes(self.average_bytes));
        let mut unfetched = self.batches.iter().enumerate().filter(|(_, batch)| batch.has_unfetched());
        let is_only_one = unfetched.clone().count() == 1;
        let in_turn = unfetched.find(|(_, batch)| has_room || (batch.has_begun && has_own_room(batch)));
        let awaited = if has_room && is_only_one {
            None
        } else {
            let awaited = self.batches.iter().enumerate().find(|(_, batch)| schedule.is_awaited(batch.id));
            awaited.filter(|(_, batch)| batch.has_unfetched() && (has_room || has_own_room(batch)))
        };
        let (at, _) = awaited.or(in_turn)?;
        let batch = &mut self.batches[at];
        let row = batch.unfetched;
        self.tickets += 1;
        let number = self.tickets;
        batch.rows[row] = RowState::InFlight(number);
        batch.unfetched += 1;
        batch.in_flight += 1;
        self.in_flight += 1;
        Some(FetchTicket { id: batch.id, number, claim: batch.claim, row, sample_id: batch.sample_ids.of(row) })
    }

    /// Records that a sample was fetched, or that fetching it failed: then preparing it finds out why. Gives the sample
    /// back if its batch was given up meanwhile.
    pub fn fetched(&mut self, ticket: FetchTicket, bytes: u64, sample: T) -> Option<T> {
        self.in_flight -= 1;
        let (claim, row) = self.moved.remove(&ticket.number).unwrap_or((ticket.claim, ticket.row));
        let Some(at) = self.batches.iter().position(|batch| batch.claim == claim) else {
            return Some(sample);
        };
        self.average_bytes = ((self.average_bytes * (AVERAGED - 1) + bytes) / AVERAGED).max(1);
        assert!(matches!(self.batches[at].rows[row], RowState::InFlight(_)), "a sample is fetched once");
        let (at, row) = self.oldest_row(at).map_or((at, row), |oldest| self.exchange((at, row), oldest));
        let batch = &mut self.batches[at];
        batch.rows[row] = RowState::Fetched { bytes, sample };
        batch.in_flight -= 1;
        batch.waiting_bytes += bytes;
        None
    }

    /// Returns the first row that waits for a sample in flight, of the batches before the one at `at` with which that
    /// one may exchange samples.
    fn oldest_row(&self, at: usize) -> Option<(usize, usize)> {
        let AheadBatch { id, among, .. } = &self.batches[at];
        let among = (*among)?;
        let older = self.batches.iter().enumerate().take(at);
        older.filter(|(_, older)| older.id.epoch == id.epoch && older.among == Some(among)).find_map(|(at, older)| {
            let is_in_flight = |row: &RowState<T>| matches!(row, RowState::InFlight(_));
            Some((at, older.rows[..older.unfetched].iter().position(is_in_flight).filter(|_| older.in_flight > 0)?))
        })
    }

    /// Lets the row `to`, whose sample is in flight, change samples with the row `from`. Returns `to`.
    fn exchange(&mut self, from: (usize, usize), to: (usize, usize)) -> (usize, usize) {
        let (giving, getting) = (&self.batches[from.0], &self.batches[to.0]);
        let RowState::InFlight(number) = getting.rows[to.1] else { panic!("only rows in flight are exchanged") };
        getting.sample_ids.exchange(to.1, &giving.sample_ids, from.1);
        self.moved.insert(number, (giving.claim, from.1));
        self.batches[from.0].rows[from.1] = RowState::InFlight(number);
        to
    }

    /// Returns the batch that begins next, if one of its rows can be prepared: a critical batch, or else the batch that
    /// was claimed first, unless `only_critical`.
    pub fn to_begin(&self, schedule: &Schedule, only_critical: bool) -> Option<BatchId> {
        let mut ahead = self.batches.iter().filter(|batch| !batch.has_begun);
        let first = ahead.clone().next().filter(|_| !only_critical);
        let can_begin = |batch: &&AheadBatch<T>| batch.first_fetched().is_some();
        let critical = ahead.find(|batch| can_begin(batch) && schedule.is_critical(batch.id));
        critical.or(first.filter(can_begin)).map(|batch| batch.id)
    }

    /// Records that a batch begins, and returns its samples.
    pub fn begin(&mut self, id: BatchId) -> Samples {
        let batch = self.batches.iter_mut().find(|batch| batch.id == id).expect("only a batch that is here begins");
        batch.has_begun = true;
        batch.sample_ids.clone()
    }

    /// Takes up to `most` neighbouring rows of a batch that has begun. Appends what was fetched to `samples`.
    pub fn take(&mut self, most: usize, samples: &mut Vec<T>) -> Option<(BatchId, Range<usize>)> {
        let mut begun = self.batches.iter().enumerate().filter(|(_, batch)| batch.has_begun);
        let (at, start) = begun.find_map(|(at, batch)| Some((at, batch.first_fetched()?)))?;
        let batch = &mut self.batches[at];
        let mut end = start;
        for row in batch.rows[start..].iter_mut().take(most.max(1)) {
            match std::mem::replace(row, RowState::Taken) {
                RowState::Fetched { bytes, sample } => {
                    batch.waiting_bytes -= bytes;
                    samples.push(sample);
                    end += 1;
                }
                other => {
                    *row = other;
                    break;
                }
            }
        }
        batch.taken += end - start;
        if batch.untaken == start {
            batch.untaken = end;
        }
        let id = batch.id;
        if batch.taken == batch.rows.len() {
            self.batches.remove(at);
        }
        Some((id, start..end))
    }

    /// Forgets a batch that was given up. What was fetched of it is lost.
    pub fn remove(&mut self, id: BatchId) {
        let Some(at) = self.batches.iter().position(|batch| batch.id == id) else { return };
        self.has_given_up |= self.batches[at].in_flight > 0;
        self.batches.remove(at);
    }

    /// Returns the samples in flight that no batch waits for any more, if a batch was given up since the last call.
    /// Fetching them may end; [`Self::fetched`] says so.
    pub fn take_given_up(&mut self, in_flight: impl Iterator<Item = FetchTicket>) -> Vec<FetchTicket> {
        if !std::mem::take(&mut self.has_given_up) {
            return Vec::new();
        }
        let claim = |ticket: &FetchTicket| self.moved.get(&ticket.number).map_or(ticket.claim, |(claim, _)| *claim);
        in_flight.filter(|ticket| !self.batches.iter().any(|batch| batch.claim == claim(ticket))).collect()
    }

    /// Returns whether the batch is claimed, but has not begun.
    pub fn will_begin(&self, id: BatchId) -> bool {
        self.batches.iter().any(|batch| batch.id == id && !batch.has_begun)
    }

    /// Returns the bytes of an average sample.
    pub fn average_bytes(&self) -> u64 {
        self.average_bytes
    }

    /// Returns the bytes of samples that were fetched and wait.
    pub fn waiting_bytes(&self) -> u64 {
        self.batches.iter().map(|batch| batch.waiting_bytes).sum()
    }

    /// Returns whether a thread should be woken to fetch: not for every sample that was taken while the bound is
    /// reached.
    pub fn has_work(&self, schedule: &Schedule) -> bool {
        if self.in_flight >= self.depth.limit() as u64 {
            return false;
        }
        let is_much_room = |bytes: u64| bytes <= self.bounds.bytes / 8 * 7;
        let has_much_room = is_much_room(self.bytes());
        let has_own_room = |batch: &AheadBatch<T>| batch.has_begun && is_much_room(batch.bytes(self.average_bytes));
        self.batches.iter().any(|batch| batch.has_unfetched() && (has_much_room || has_own_room(batch)))
            || (has_much_room && self.claim_room(schedule).is_some())
    }

    /// Returns whether another sample may be in flight.
    fn has_room(&self) -> bool {
        self.fits(self.bytes())
    }

    /// Returns whether another sample fits within the bound beside samples of `bytes`. One sample always does.
    fn fits(&self, bytes: u64) -> bool {
        bytes == 0 || bytes + self.average_bytes <= self.bounds.bytes
    }

    /// Returns the bytes that are fetched and wait, and those that are probably in flight.
    fn bytes(&self) -> u64 {
        self.waiting_bytes() + self.in_flight * self.average_bytes
    }
}

#[cfg(test)]
mod tests;
