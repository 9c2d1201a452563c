//! Checking samples, and the bytes between them, on several threads.

use super::{Broken, Cancelled, Findings, Halt, Watch, check_zero};
use crate::Location;
use crate::pack::format::pieces;
use crate::pack::index::Index;
use crate::pack::record::{IndexRecord, StoredForm};
use crate::parallel;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

/// Samples that a thread takes at a time.
const CHUNK_SAMPLES: u64 = 64;
/// Interval between calls of the caller while nothing is ready.
const TICK: Duration = Duration::from_millis(100);

/// A thread's progress or finding.
enum Message {
    Checked { samples: u64, bytes: u64 },
    Found(Broken),
}

/// Checks all samples and counts them in `watch`.
pub(super) fn check_samples(
    index: &Index,
    threads: usize,
    findings: &mut Findings,
    watch: &mut Watch<'_>,
) -> Result<(), Cancelled> {
    let (next, stopped) = (AtomicU64::new(0), AtomicBool::new(false));
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        let checker = || {
            let (checker, next) = (Checker { index, stopped: &stopped, sender: sender.clone() }, &next);
            move || checker.run(next)
        };
        if parallel::spawn(scope, threads, checker).is_err() {
            // Without further threads, this one checks all samples.
            checker()();
        }
        drop(sender);
        loop {
            match receiver.recv_timeout(TICK) {
                Ok(Message::Found(broken)) => {
                    findings.add(broken);
                    continue;
                }
                Ok(Message::Checked { samples, bytes }) => {
                    watch.state.samples += samples;
                    watch.state.bytes += bytes;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            watch.tick().inspect_err(|Cancelled| stopped.store(true, Ordering::Relaxed))?;
        }
    })
}

/// Checks one sample, on this thread.
pub(super) fn check_sample(index: &Index, number: u64) -> Vec<Broken> {
    let (sender, receiver) = mpsc::channel();
    Checker { index, stopped: &AtomicBool::new(false), sender }.sample(number, None, &mut Vec::new());
    let found = |message| match message {
        Message::Found(broken) => Some(broken),
        Message::Checked { .. } => None,
    };
    receiver.iter().filter_map(found).collect()
}

/// Checksums of a sample's bytes.
struct Checksums {
    whole: u32,
    /// For a raw sample: the checksum of its detail, computed from its rows.
    groups: Option<u32>,
}

/// Checksum over the checksums of groups of bytes that come in pieces of any length.
struct GroupChecksums {
    group_bytes: u64,
    /// Bytes that the present group still lacks, and its checksum so far.
    missing: u64,
    group: u32,
    all: u32,
}

impl GroupChecksums {
    fn new(group_bytes: u64) -> Self {
        Self { group_bytes, missing: group_bytes, group: 0, all: 0 }
    }

    fn take(&mut self, mut piece: &[u8]) {
        while !piece.is_empty() {
            let (part, behind) = piece.split_at(self.missing.min(piece.len() as u64) as usize);
            self.group = crc32c::crc32c_append(self.group, part);
            self.missing -= part.len() as u64;
            if self.missing == 0 {
                self.end_group();
            }
            piece = behind;
        }
    }

    fn end_group(&mut self) {
        self.all = crc32c::crc32c_append(self.all, &self.group.to_le_bytes());
        (self.missing, self.group) = (self.group_bytes, 0);
    }

    fn finish(mut self) -> u32 {
        // The last group may be shorter.
        if self.missing < self.group_bytes {
            self.end_group();
        }
        self.all
    }
}

/// One thread's checker of samples.
struct Checker<'a> {
    index: &'a Index,
    stopped: &'a AtomicBool,
    sender: Sender<Message>,
}

impl Checker<'_> {
    fn run(&self, next: &AtomicU64) {
        let mut buf = Vec::new();
        let samples = self.index.layout.samples;
        while self.go_on().is_ok() {
            let first = next.fetch_add(CHUNK_SAMPLES, Ordering::Relaxed);
            if first >= samples {
                return;
            }
            let checked = self.chunk(first..samples.min(first + CHUNK_SAMPLES), &mut buf);
            if self.sender.send(checked).is_err() {
                return;
            }
        }
    }

    fn go_on(&self) -> Result<(), Cancelled> {
        if self.stopped.load(Ordering::Relaxed) { Err(Cancelled) } else { Ok(()) }
    }

    fn found(&self, broken: Broken) {
        // The receiver is gone only if the work was cancelled.
        let _ = self.sender.send(Message::Found(broken));
    }

    fn chunk(&self, chunk: Range<u64>, buf: &mut Vec<u8>) -> Message {
        let layout = &self.index.layout;
        // End of the sample before; unknown after a broken record.
        let mut free = match chunk.start.checked_sub(1) {
            None => Some(layout.data_offset),
            Some(before) => self.index.record(before).ok().map(|record| record.end()),
        };
        let last = chunk.end == layout.samples;
        let (mut samples, mut bytes) = (0, 0);
        for number in chunk {
            if self.go_on().is_err() {
                break;
            }
            let read;
            (free, read) = self.sample(number, free, buf);
            samples += 1;
            bytes += read;
        }
        if let (true, Some(free)) = (last, free) {
            self.zero(free..layout.data_offset + layout.data_bytes);
        }
        Message::Checked { samples, bytes }
    }

    /// Checks a sample and the padding before it; returns the sample's end, and how many of its bytes were read.
    fn sample(&self, number: u64, free: Option<u64>, buf: &mut Vec<u8>) -> (Option<u64>, u64) {
        let record = match self.index.record(number) {
            Ok(record) => record,
            Err(problem) => {
                self.found(Broken::Record { index: number, problem: problem.to_string() });
                return (None, 0);
            }
        };
        if let Err(problem) = self.index.name(&record) {
            self.found(Broken::Record { index: number, problem });
        }
        let name = || self.index.name_or_number(number, &record);
        let location = || self.index.location(&record);
        match free {
            Some(free) if record.offset < free => {
                self.found(Broken::Overlap { index: number, name: name(), location: location(), free });
            }
            Some(free) => self.zero(free..record.offset),
            None => {}
        }
        if let Err(error) = self.check_bytes(number, &record, buf) {
            let problem = format!("{error} (sample {})", name());
            let (offset, length) = (record.offset, record.end() - record.offset);
            self.found(Broken::Unreadable { offset, length, problem });
            return (Some(record.end()), 0);
        }
        (Some(record.end()), record.end() - record.offset)
    }

    /// Checks all checksums of a sample, unless the work is stopped.
    fn check_bytes(&self, index: u64, record: &IndexRecord, buf: &mut Vec<u8>) -> io::Result<()> {
        let name = || self.index.name_or_number(index, record);
        let location = |extent: &Range<u64>| Location {
            offset: extent.start,
            length: extent.end - extent.start,
            ..self.index.location(record)
        };
        let sample = record.offset..record.detail_offset();
        let Some(Checksums { whole: computed, groups }) = self.checksums(record, buf)? else { return Ok(()) };
        let stored = record.crc32c;
        if stored != computed {
            self.found(Broken::Sample { index, name: name(), location: location(&sample), stored, computed });
        } else if groups.is_some_and(|groups| groups != record.detail_crc32c) {
            let problem = "its checksums are not those of its rows".to_owned();
            self.found(Broken::Record { index, problem });
        }
        let detail = record.detail_offset()..record.end();
        let Some(computed) = self.checksum(detail.clone(), buf)? else { return Ok(()) };
        if record.detail_crc32c != computed {
            let (location, stored) = (location(&detail), record.detail_crc32c);
            self.found(Broken::Detail { index, name: name(), location, stored, computed });
        }
        Ok(())
    }

    /// Computes the checksums of a sample's bytes; returns `None` if the work has been stopped.
    fn checksums(&self, record: &IndexRecord, buf: &mut Vec<u8>) -> io::Result<Option<Checksums>> {
        if record.form != StoredForm::Raw {
            let whole = self.checksum(record.offset..record.detail_offset(), buf)?;
            return Ok(whole.map(|whole| Checksums { whole, groups: None }));
        }
        let (mut whole, mut groups) = (0, GroupChecksums::new(record.group_bytes()));
        for (offset, length) in pieces(record.offset..record.detail_offset()) {
            if self.go_on().is_err() {
                return Ok(None);
            }
            self.index.file.read_extent(offset, length, buf)?;
            whole = crc32c::crc32c_append(whole, buf);
            groups.take(buf);
        }
        Ok(Some(Checksums { whole, groups: Some(groups.finish()) }))
    }

    /// Computes the checksum of an extent; returns `None` if the work has been stopped.
    fn checksum(&self, extent: Range<u64>, buf: &mut Vec<u8>) -> io::Result<Option<u32>> {
        let mut computed = 0;
        for (offset, length) in pieces(extent) {
            if self.go_on().is_err() {
                return Ok(None);
            }
            self.index.file.read_extent(offset, length, buf)?;
            computed = crc32c::crc32c_append(computed, buf);
        }
        Ok(Some(computed))
    }

    fn zero(&self, extent: Range<u64>) {
        if let Err(Halt::Broken(broken)) = check_zero(self.index, extent, || self.go_on()) {
            self.found(broken);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn checksums_of_groups_do_not_depend_on_the_pieces(
            bytes in prop::collection::vec(any::<u8>(), 1..400),
            group in 1usize..100,
            piece in 1usize..100,
        ) {
            let checksums: Vec<u8> =
                bytes.chunks(group).flat_map(|group| crc32c::crc32c(group).to_le_bytes()).collect();
            let mut groups = GroupChecksums::new(group as u64);
            bytes.chunks(piece).for_each(|piece| groups.take(piece));
            prop_assert_eq!(groups.finish(), crc32c::crc32c(&checksums));
        }
    }
}
