//! The buffer of a batch while several threads fill it. Each row is handed out once. When the last row has been
//! returned, the buffer comes back with the records of all rows.

#![allow(unsafe_code)]

use crate::delivery::BatchBuffer;
use ddlp_csd::slot::SampleRecord;
use std::ops::Range;
use std::sync::Mutex;

/// A buffer whose rows are handed out to threads.
pub struct RowClaims {
    base: *mut u8,
    row_bytes: usize,
    state: Mutex<HandedOut>,
}

struct HandedOut {
    /// Rows that were handed out.
    taken: Vec<bool>,
    left: usize,
    /// Rows below it were handed out.
    next: usize,
    out: usize,
    closed: bool,
    buffer: Option<Box<dyn BatchBuffer>>,
    records: Vec<Option<SampleRecord>>,
}

// SAFETY: `base` points into the buffer that `state` owns, which nothing else uses (`BatchBuffer`). Threads reach it
// only through `RowsTaken`, whose ranges are disjoint, and the buffer is given back only when none of them is left.
unsafe impl Send for RowClaims {}
// SAFETY: as above; everything else is behind the mutex.
unsafe impl Sync for RowClaims {}

/// Rows that one thread may write. They must be returned by [`RowClaims::put_back`].
pub struct RowsTaken<'a> {
    claims: &'a RowClaims,
    range: Range<usize>,
    made: Vec<SampleRecord>,
}

/// State of a buffer after rows were returned.
pub enum PutBack {
    /// Other rows are still out, or not handed out yet.
    Pending,
    /// All rows were handed out and returned, with their records if all were made.
    Complete(Box<dyn BatchBuffer>, Option<Vec<SampleRecord>>),
    /// The claims were closed before all rows were handed out, and the buffer is back with its target.
    Closed,
}

impl RowClaims {
    /// Hands out `rows` rows of `row_bytes` bytes each of `buffer`.
    pub fn new(mut buffer: Box<dyn BatchBuffer>, rows: usize, row_bytes: usize) -> Self {
        let bytes = buffer.bytes_mut();
        assert!(rows.checked_mul(row_bytes).is_some_and(|all| all <= bytes.len()), "rows fit the buffer");
        Self {
            base: bytes.as_mut_ptr(),
            row_bytes,
            state: Mutex::new(HandedOut {
                taken: vec![false; rows],
                left: rows,
                next: 0,
                out: 0,
                closed: false,
                buffer: Some(buffer),
                records: vec![None; rows],
            }),
        }
    }

    /// Takes up to `most` rows that no thread has had yet, the first ones.
    pub fn take(&self, most: usize) -> Option<RowsTaken<'_>> {
        let mut state = self.state.lock().expect("no panic while the claims are locked");
        let free = state.taken[state.next..].iter().take(most.max(1)).take_while(|taken| !**taken).count();
        let range = state.next..state.next + free;
        self.hand_out(&mut state, range)
    }

    /// Takes these rows, unless the claims are closed.
    ///
    /// # Panics
    ///
    /// If a thread has had one of the rows.
    pub fn take_range(&self, range: Range<usize>) -> Option<RowsTaken<'_>> {
        self.hand_out(&mut self.state.lock().expect("no panic while the claims are locked"), range)
    }

    fn hand_out(&self, state: &mut HandedOut, range: Range<usize>) -> Option<RowsTaken<'_>> {
        if state.closed || range.is_empty() {
            return None;
        }
        for taken in &mut state.taken[range.clone()] {
            assert!(!std::mem::replace(taken, true), "a row is handed out once");
        }
        state.left -= range.len();
        state.out += range.len();
        while state.taken.get(state.next) == Some(&true) {
            state.next += 1;
        }
        Some(RowsTaken { claims: self, made: Vec::with_capacity(range.len()), range })
    }

    /// Returns whether no row is left to hand out.
    pub fn is_exhausted(&self) -> bool {
        let state = self.state.lock().expect("no panic while the claims are locked");
        state.closed || state.left == 0
    }

    /// Returns rows; the caller that returns the last ones gets the buffer.
    pub fn put_back(&self, taken: RowsTaken<'_>) -> PutBack {
        assert!(std::ptr::eq(taken.claims, self), "rows go back where they came from");
        let mut state = self.state.lock().expect("no panic while the claims are locked");
        state.out -= taken.range.len();
        state.records[taken.range].iter_mut().zip(taken.made).for_each(|(record, made)| *record = Some(made));
        if state.out > 0 || !(state.closed || state.left == 0) {
            return PutBack::Pending;
        }
        match state.buffer.take() {
            Some(_) if state.closed => PutBack::Closed,
            Some(buffer) => PutBack::Complete(buffer, std::mem::take(&mut state.records).into_iter().collect()),
            None => PutBack::Pending,
        }
    }

    /// Stops handing out rows. Returns true if no row is out, so that the buffer is back with its target.
    pub fn close(&self) -> bool {
        let mut state = self.state.lock().expect("no panic while the claims are locked");
        state.closed = true;
        state.out == 0 && state.buffer.take().is_some()
    }
}

impl RowsTaken<'_> {
    /// Returns the numbers of the rows.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// Makes the rows in their order, each with its number, until `make` returns `None`.
    pub fn make(&mut self, make: impl FnMut((usize, &mut [u8])) -> Option<SampleRecord>) {
        let bytes = self.range.len() * self.claims.row_bytes;
        // SAFETY: the rows `range` were handed out to this value alone, lie within the buffer (checked in `new`), and
        // the buffer is not given back before they are returned.
        let all = unsafe {
            std::slice::from_raw_parts_mut(self.claims.base.add(self.range.start * self.claims.row_bytes), bytes)
        };
        let rows = self.range.clone().zip(all.chunks_exact_mut(self.claims.row_bytes));
        self.made.extend(rows.map_while(make));
    }
}

#[cfg(test)]
mod tests;
