//! Reading and checking samples on several threads, handed over in order, with bounded memory.
//!
//! Samples are worked in runs of neighbours. Runs are claimed in order, and a claim waits while the bytes between claim and
//! hand-over exceed a budget. The run that the consumer waits for is therefore always claimed already, so this cannot stall.

use crate::pack::record::{StoredForm, StoredVerdict};
use crate::{Dataset, ReadError, SAMPLE_BYTES_MAX};
use ddlp_pixels::{CorruptReason, Limits, Preparer, Source, Verdict};
use std::collections::BTreeMap;
use std::error::Error;
use std::ops::Range;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

/// A run ends before it has more bytes than this, unless it is a single sample.
const RUN_BYTES: u64 = 1 << 20;
/// A run has at most this many samples.
const RUN_SAMPLES: u64 = 256;
/// Source bytes that may be between claim and hand-over. A single larger sample passes alone.
const IN_FLIGHT_BYTES: u64 = 64 << 20;
/// Runs per thread that may be between claim and hand-over.
const IN_FLIGHT_RUNS: usize = 8;
/// How often the consumer is called although nothing is ready, so that it can stop the work.
const TICK: Duration = Duration::from_millis(100);

/// What became of one sample.
pub(super) struct Inspected {
    pub(super) length: u32,
    pub(super) crc32c: u32,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) form: StoredForm,
    pub(super) verdict: StoredVerdict,
    pub(super) note: Note,
}

/// What the summary says of a sample beyond its record.
pub(super) enum Note {
    None,
    Repaired { warnings: u32, clamped: u32 },
    Rejected { message: String },
}

/// Neighbouring samples with their bytes one after the other.
pub(super) struct Run {
    pub(super) first: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) samples: Vec<Inspected>,
    /// Bytes that the source has listed for them.
    pub(super) source_bytes: u64,
}

/// What the consumer gets.
pub(super) enum Event {
    /// The next run, in order.
    Run(Run),
    /// Nothing yet.
    Tick,
}

/// Inspects all samples of `source` on `threads` threads and calls `consume` with the runs in order, on the calling thread.
/// An error of `consume` ends the work early and is returned.
pub(super) fn inspect_all<E>(
    source: &dyn Dataset,
    threads: usize,
    limits: Limits,
    mut consume: impl FnMut(Event) -> Result<(), E>,
) -> Result<(), E> {
    let threads = threads.max(1);
    let claims = Claims::new(source, threads * IN_FLIGHT_RUNS);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..threads {
            let (claims, sender) = (&claims, sender.clone());
            scope.spawn(move || work(claims, limits, &sender));
        }
        drop(sender);
        // However this ends, the workers stop: also when `consume` panics.
        let _stop = StopOnDrop(&claims);
        let mut waiting: BTreeMap<u64, Run> = BTreeMap::new();
        let mut next = 0;
        while next < source.len() {
            match receiver.recv_timeout(TICK) {
                Ok(run) => drop(waiting.insert(run.first, run)),
                Err(RecvTimeoutError::Timeout) => consume(Event::Tick)?,
                Err(RecvTimeoutError::Disconnected) => panic!("a worker ended before its work was done"),
            }
            while let Some(run) = waiting.remove(&next) {
                next += run.samples.len() as u64;
                let weight = run.source_bytes;
                consume(Event::Run(run))?;
                claims.release(weight);
            }
        }
        Ok(())
    })
}

/// Which runs have been given out. A run is given out only when it fits, so a run that waits holds nothing up but later ones.
struct Claims<'s> {
    source: &'s dyn Dataset,
    runs_max: usize,
    state: Mutex<ClaimState>,
    changed: Condvar,
}

#[derive(Default)]
struct ClaimState {
    /// First sample that no planned run holds.
    next: u64,
    /// The run that is given out next, and its bytes.
    planned: Option<(Range<u64>, u64)>,
    runs: usize,
    bytes: u64,
    stopped: bool,
}

impl<'s> Claims<'s> {
    fn new(source: &'s dyn Dataset, runs_max: usize) -> Self {
        Self { source, runs_max, state: Mutex::default(), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, ClaimState> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The next run and its bytes, or nothing when there is none or the work has been stopped.
    fn claim(&self) -> Option<(Range<u64>, u64)> {
        let mut state = self.lock();
        loop {
            if state.stopped {
                return None;
            }
            if state.planned.is_none() {
                state.planned = self.plan(state.next);
            }
            let (run, weight) = state.planned.clone()?;
            let fits = state.runs < self.runs_max && state.bytes + weight <= IN_FLIGHT_BYTES;
            if fits || state.runs == 0 {
                state.planned = None;
                state.next = run.end;
                state.runs += 1;
                state.bytes += weight;
                return Some((run, weight));
            }
            state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    fn plan(&self, first: u64) -> Option<(Range<u64>, u64)> {
        let samples = self.source.len();
        // What exceeds the limit is refused by the source, so it weighs nothing.
        let bytes =
            |index| Some(self.source.location(index).length).filter(|&bytes| bytes <= SAMPLE_BYTES_MAX).unwrap_or(0);
        if first >= samples {
            return None;
        }
        let mut weight = bytes(first);
        let mut end = first + 1;
        while end < samples && end - first < RUN_SAMPLES {
            let with_next = weight + bytes(end);
            if with_next > RUN_BYTES {
                break;
            }
            weight = with_next;
            end += 1;
        }
        Some((first..end, weight))
    }

    fn release(&self, weight: u64) {
        let mut state = self.lock();
        state.runs -= 1;
        state.bytes -= weight;
        drop(state);
        self.changed.notify_all();
    }

    fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }

    fn is_stopped(&self) -> bool {
        self.lock().stopped
    }
}

struct StopOnDrop<'c, 's>(&'c Claims<'s>);

impl Drop for StopOnDrop<'_, '_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

fn work(claims: &Claims<'_>, limits: Limits, sender: &Sender<Run>) {
    // A worker that panics must not leave the others waiting for a run that never comes.
    let stop = StopOnDrop(claims);
    let mut inspector = Inspector { preparer: Preparer::new(limits), sample: Vec::new() };
    while let Some((run, weight)) = claims.claim() {
        let mut done = Run {
            first: run.start,
            bytes: Vec::with_capacity(weight as usize),
            samples: Vec::new(),
            source_bytes: weight,
        };
        for index in run {
            if claims.is_stopped() {
                return;
            }
            let inspected = inspector.inspect(claims.source, index, &mut done.bytes);
            done.samples.push(inspected);
        }
        if sender.send(done).is_err() {
            return;
        }
    }
    std::mem::forget(stop);
}

/// One worker's decoder and buffer.
struct Inspector {
    preparer: Preparer,
    sample: Vec<u8>,
}

impl Inspector {
    /// Reads and checks a sample and appends to `out` the bytes that are to be stored for it.
    fn inspect(&mut self, source: &dyn Dataset, index: u64, out: &mut Vec<u8>) -> Inspected {
        let Self { preparer, sample } = self;
        match source.sample(index, sample) {
            Ok(Source::Encoded(file) | Source::Indexed { file, .. }) => inspect_encoded(preparer, file, out),
            Ok(Source::Planar { width, height, bytes }) => {
                if planes_bytes(width, height) != Some(bytes.len() as u64) {
                    let message = format!("{} bytes are not three planes of {width} x {height}", bytes.len());
                    return reject(bytes, out, CorruptReason::Malformed, message);
                }
                out.extend_from_slice(bytes);
                Inspected::intact(bytes, StoredForm::Planar, (width, height))
            }
            Ok(_) => reject(&[], out, CorruptReason::Unsupported, "it cannot be stored in this form".to_owned()),
            Err(error) => Inspected::rejected(&[], error.reason(), message_of(&error)),
        }
    }
}

fn inspect_encoded(preparer: &mut Preparer, file: &[u8], out: &mut Vec<u8>) -> Inspected {
    match preparer.inspect(file) {
        Verdict::Intact => {
            out.extend_from_slice(file);
            Inspected::intact(file, StoredForm::Kept, dimensions(preparer, file))
        }
        Verdict::Repaired { bytes, warnings, clamped } if bytes.len() as u64 <= SAMPLE_BYTES_MAX => {
            out.extend_from_slice(&bytes);
            let kept = Inspected::intact(&bytes, StoredForm::Kept, dimensions(preparer, &bytes));
            Inspected { verdict: StoredVerdict::Repaired, note: Note::Repaired { warnings, clamped }, ..kept }
        }
        Verdict::Rejected { reason, message } => reject(file, out, reason, message),
        _ => reject(file, out, CorruptReason::Unsupported, "it cannot be stored in this form".to_owned()),
    }
}

fn reject(bytes: &[u8], out: &mut Vec<u8>, reason: CorruptReason, message: String) -> Inspected {
    out.extend_from_slice(bytes);
    Inspected::rejected(bytes, reason, message)
}

fn dimensions(preparer: &mut Preparer, file: &[u8]) -> (u32, u32) {
    preparer.info(file).map_or((0, 0), |info| (info.width, info.height))
}

impl Inspected {
    fn intact(bytes: &[u8], form: StoredForm, (width, height): (u32, u32)) -> Self {
        let (length, crc32c) = (bytes.len() as u32, crc32c::crc32c(bytes));
        Self { length, crc32c, width, height, form, verdict: StoredVerdict::Intact, note: Note::None }
    }

    fn rejected(bytes: &[u8], reason: CorruptReason, message: String) -> Self {
        let kept = Self::intact(bytes, StoredForm::Kept, (0, 0));
        Self { verdict: StoredVerdict::Rejected(reason), note: Note::Rejected { message }, ..kept }
    }
}

fn planes_bytes(width: u32, height: u32) -> Option<u64> {
    u64::from(width).checked_mul(height.into())?.checked_mul(3)
}

/// An error with its cause.
fn message_of(error: &ReadError) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
