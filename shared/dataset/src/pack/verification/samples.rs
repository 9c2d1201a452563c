//! Checking samples, and the bytes between them, on several threads.

use super::{Broken, Cancelled, Findings, Halt, Watch, check_zero};
use crate::extent::read_extent;
use crate::pack::format::pieces;
use crate::pack::index::Index;
use crate::pack::record::IndexRecord;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

/// Samples that a thread takes at a time.
const CHUNK_SAMPLES: u64 = 64;
/// How often the caller is called although nothing is ready.
const TICK: Duration = Duration::from_millis(100);

/// What a thread has checked, or found on the way.
enum Message {
    Checked { samples: u64, bytes: u64 },
    Found(Broken),
}

/// Checks all samples; `watch` has counted them then.
pub(super) fn check_samples(
    index: &Index,
    threads: usize,
    findings: &mut Findings,
    watch: &mut Watch<'_>,
) -> Result<(), Cancelled> {
    let (next, stopped) = (AtomicU64::new(0), AtomicBool::new(false));
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..threads {
            let checker = Checker { index, stopped: &stopped, sender: sender.clone() };
            let next = &next;
            scope.spawn(move || checker.run(next));
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

/// One thread that checks samples.
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
        // The receiver is gone only when the work has been cancelled.
        let _ = self.sender.send(Message::Found(broken));
    }

    fn chunk(&self, chunk: Range<u64>, buf: &mut Vec<u8>) -> Message {
        let layout = &self.index.layout;
        // Where the sample before ends; unknown behind a broken record.
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

    /// Checks a sample and the padding before it; says where it ends, and how many of its bytes were read.
    fn sample(&self, number: u64, free: Option<u64>, buf: &mut Vec<u8>) -> (Option<u64>, u64) {
        let record = match self.index.record(number) {
            Ok(record) => record,
            Err(problem) => {
                self.found(Broken::Record { index: number, problem });
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
        match self.checksum(&record, buf) {
            Ok(Some(computed)) if computed != record.crc32c => {
                let (name, location, stored) = (name(), location(), record.crc32c);
                self.found(Broken::Sample { index: number, name, location, stored, computed });
            }
            Ok(_) => {}
            Err(error) => {
                let problem = format!("{error} (sample {})", name());
                self.found(Broken::Unreadable { offset: record.offset, length: record.length.into(), problem });
                return (Some(record.end()), 0);
            }
        }
        (Some(record.end()), record.length.into())
    }

    /// Checksum of a sample's bytes, or nothing when the work has been stopped.
    fn checksum(&self, record: &IndexRecord, buf: &mut Vec<u8>) -> io::Result<Option<u32>> {
        let mut computed = 0;
        for (offset, length) in pieces(record.offset..record.end()) {
            if self.go_on().is_err() {
                return Ok(None);
            }
            read_extent(self.index.file.file(), offset, length, buf)?;
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
