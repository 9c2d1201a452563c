//! Which operations are ordered: by their stream, by events, or by a host that waited in between.
//!
//! Two operations of different streams that access the same bytes, one of them to write, need such an order. That they
//! happen to run in the right order is not enough, so each run finds a missing event, whatever the seed.

use std::collections::BTreeMap;
use std::ops::Range;

/// How many operations of each stream have surely run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Clock(BTreeMap<u64, u64>);

impl Clock {
    /// Learns what another one knows.
    pub fn join(&mut self, other: &Self) {
        for (&stream, &count) in &other.0 {
            let known = self.0.entry(stream).or_default();
            *known = (*known).max(count);
        }
    }

    /// Counts an operation of a stream, and returns its number.
    pub fn advance(&mut self, stream: u64) -> u64 {
        let count = self.0.entry(stream).or_default();
        *count += 1;
        *count
    }

    pub fn count(&self, stream: u64) -> u64 {
        self.0.get(&stream).copied().unwrap_or(0)
    }
}

/// Access of an operation to bytes of an allocation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Access {
    pub bytes: Range<u64>,
    pub stream: u64,
    /// Number of the operation in its stream.
    pub number: u64,
    pub writes: bool,
}

/// What operations did to an allocation, as far as it still matters.
#[derive(Debug, Default)]
pub(crate) struct Accesses(Vec<Access>);

/// Accesses that an allocation remembers. Older ones are forgotten.
const ACCESSES_MAX: usize = 256;

impl Accesses {
    /// Adds the access of an operation that knows this clock. Returns an earlier access that conflicts with it.
    pub fn add(&mut self, access: Access, clock: &Clock) -> Option<Access> {
        let conflicts = |before: &&Access| {
            let overlaps = before.bytes.start < access.bytes.end && access.bytes.start < before.bytes.end;
            let is_ordered = before.stream == access.stream || before.number <= clock.count(before.stream);
            overlaps && !is_ordered && (before.writes || access.writes)
        };
        let conflict = self.0.iter().find(conflicts).cloned();
        // An access makes those unimportant that it covers, and after which it surely came.
        self.0.retain(|before| {
            let is_covered = access.bytes.start <= before.bytes.start && before.bytes.end <= access.bytes.end;
            let is_ordered = before.stream == access.stream || access.writes;
            !(is_covered && is_ordered && (access.writes || !before.writes))
        });
        if self.0.len() == ACCESSES_MAX {
            self.0.remove(0);
        }
        self.0.push(access);
        conflict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(stream: u64, number: u64, bytes: Range<u64>, writes: bool) -> Access {
        Access { bytes, stream, number, writes }
    }

    #[test]
    fn a_read_needs_an_order_after_another_streams_write() {
        let mut accesses = Accesses::default();
        let write = access(1, 1, 0..10, true);
        assert_eq!(accesses.add(write.clone(), &Clock::default()), None);
        assert_eq!(accesses.add(access(2, 1, 10..20, false), &Clock::default()), None, "other bytes");
        assert_eq!(accesses.add(access(2, 2, 5..6, false), &Clock::default()), Some(write));
        let mut clock = Clock::default();
        clock.advance(1);
        assert_eq!(accesses.add(access(2, 3, 5..6, false), &clock), None);
    }

    #[test]
    fn a_write_needs_an_order_after_another_streams_read() {
        let mut accesses = Accesses::default();
        let read = access(1, 1, 0..10, false);
        assert_eq!(accesses.add(read.clone(), &Clock::default()), None);
        assert_eq!(accesses.add(access(2, 1, 0..10, false), &Clock::default()), None, "two reads");
        assert_eq!(accesses.add(access(3, 1, 9..12, true), &Clock::default()), Some(read));
    }
}
