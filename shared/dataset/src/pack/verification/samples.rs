//! Checking samples, and the bytes between them, on several threads.

use super::{Broken, Cancelled, Findings, Halt, VerifyWatch, check_zero};
use crate::pack::bundles::{BundleIndex, check_record};
use crate::pack::format::pieces;
use crate::pack::index::Index;
use crate::pack::record::IndexRecord;
use crate::parallel;
use crate::{Location, Piece};
use ddlp_cause::with_causes;
use ddlp_pixels::{Limits, Preparer};
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
    (index, bundles): (&Index, Option<&BundleIndex>),
    threads: usize,
    findings: &mut Findings,
    watch: &mut VerifyWatch<'_>,
) -> Result<(), Cancelled> {
    let (next, stopped) = (AtomicU64::new(0), AtomicBool::new(false));
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        let checker = || {
            let (checker, next) = (Checker { index, bundles, stopped: &stopped, sender: sender.clone() }, &next);
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
pub(super) fn check_sample(index: &Index, bundles: Option<&BundleIndex>, number: u64) -> Vec<Broken> {
    let (sender, receiver) = mpsc::channel();
    Checker { index, bundles, stopped: &AtomicBool::new(false), sender }.sample(number, None, &mut Vec::new());
    let found = |message| match message {
        Message::Found(broken) => Some(broken),
        Message::Checked { .. } => None,
    };
    receiver.iter().filter_map(found).collect()
}

/// One thread's checker of samples.
struct Checker<'a> {
    index: &'a Index,
    bundles: Option<&'a BundleIndex>,
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
        // Where bundles are, the samples before and behind are others.
        let mut free = match chunk.start.checked_sub(1) {
            _ if self.bundles.is_some() => None,
            None => Some(layout.data_offset),
            Some(before) => self.index.record(before).ok().map(|record| record.extent().end),
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
        if let Err(problem) = self.index.name(&record).unwrap_or_else(|error| Err(with_causes(&error))) {
            self.found(Broken::Record { index: number, problem });
        }
        let name = || self.index.name_or_number(number, &record);
        let location = || self.index.location(record.bytes());
        let extent = record.extent();
        if let Err(problem) = check_record(self.bundles, number, &record) {
            self.found(Broken::Record { index: number, problem });
            return (None, 0);
        }
        match free {
            Some(free) if extent.start < free => {
                self.found(Broken::Overlap { index: number, name: name(), location: location(), free });
            }
            Some(free) => self.zero(free..extent.start),
            None => {}
        }
        let (checked, bytes) = match self.bundles.filter(|_| record.form.is_in_pieces()) {
            Some(bundles) => (self.check_pieces(number, &record, bundles), bundles.sample_bytes(number)),
            None => (self.check_bytes(number, &record, buf), record.total_bytes()),
        };
        let end = Some(extent.end).filter(|_| self.bundles.is_none());
        if let Err(error) = checked {
            let problem = format!("{} (sample {})", with_causes(&error), name());
            self.found(Broken::Unreadable { offset: extent.start, length: bytes, problem });
            return (end, 0);
        }
        (end, bytes)
    }

    /// Checks the checksums of a sample's pieces, and that they join to a file with an image of the recorded size,
    /// unless the work is stopped.
    fn check_pieces(&self, index: u64, record: &IndexRecord, bundles: &BundleIndex) -> io::Result<()> {
        let (mut file, mut piece, mut is_intact) = (Vec::new(), Vec::new(), true);
        let mut markers = 0;
        for Piece { extent, crc32c: stored } in bundles.pieces(index) {
            let from = file.len();
            let each = |part: &[u8]| file.extend_from_slice(part);
            let Some(computed) = self.checksum(extent.clone(), &mut piece, each)? else { return Ok(()) };
            markers = file.len() - from;
            if stored != computed {
                let (name, location) = (self.index.name_or_number(index, record), self.index.location(extent));
                self.found(Broken::Sample { index, name, location, stored, computed });
                is_intact = false;
            }
        }
        if !is_intact {
            return Ok(());
        }
        let groups = file.len() - markers;
        let file = ddlp_pixels::pieces::join(&file[..groups], &file[groups..]);
        let problem = match Preparer::new(Limits::default()).info(&file) {
            Ok(info)
                if (info.width, info.height, info.orientation) == (record.width, record.height, record.orientation) =>
            {
                return Ok(());
            }
            Ok(info) => {
                format!("its pieces are an image of {} x {}, orientation {}", info.width, info.height, info.orientation)
            }
            Err(error) if error.is_of_the_image() => format!("its pieces are no image: {}", with_causes(&error)),
            Err(error) => return Err(io::Error::other(error)),
        };
        self.found(Broken::Record { index, problem });
        Ok(())
    }

    /// Checks all checksums of a sample, unless the work is stopped.
    fn check_bytes(&self, index: u64, record: &IndexRecord, buf: &mut Vec<u8>) -> io::Result<()> {
        let name = || self.index.name_or_number(index, record);
        let location = |extent: Range<u64>| Location {
            offset: extent.start,
            length: extent.end - extent.start,
            ..self.index.location(record.bytes())
        };
        let mut detail_check = record.form.detail_check(record);
        let each = |piece: &[u8]| {
            if let Some(check) = &mut detail_check {
                check.take(piece);
            }
        };
        let Some(computed) = self.checksum(record.bytes(), buf, each)? else { return Ok(()) };
        let stored = record.crc32c;
        if stored != computed {
            self.found(Broken::Sample { index, name: name(), location: location(record.bytes()), stored, computed });
        } else if let Some(Err(problem)) = detail_check.map(|check| check.finish()) {
            self.found(Broken::Record { index, problem });
        }
        let Some(computed) = self.checksum(record.detail(), buf, |_| ())? else { return Ok(()) };
        if record.detail_crc32c != computed {
            let (location, stored) = (location(record.detail()), record.detail_crc32c);
            self.found(Broken::Detail { index, form: record.form, name: name(), location, stored, computed });
        }
        Ok(())
    }

    /// Computes the checksum of an extent, whose pieces it passes to `each`; returns `None` if the work has been
    /// stopped.
    fn checksum(&self, extent: Range<u64>, buf: &mut Vec<u8>, mut each: impl FnMut(&[u8])) -> io::Result<Option<u32>> {
        let mut computed = 0;
        for (offset, length) in pieces(extent) {
            if self.go_on().is_err() {
                return Ok(None);
            }
            self.index.file.read_extent(offset, length, buf)?;
            computed = crc32c::crc32c_append(computed, buf);
            each(buf);
        }
        Ok(Some(computed))
    }

    fn zero(&self, extent: Range<u64>) {
        if let Err(Halt::Broken(broken)) = check_zero(self.index, extent, || self.go_on()) {
            self.found(broken);
        }
    }
}
