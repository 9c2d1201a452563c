//! Reads and checks samples on several threads, and hands them over in order, with bounded memory.
//!
//! Threads work on chunks of neighbouring samples. They claim chunks in order, and a claim waits while the bytes
//! between claim and hand-over exceed a budget. The chunk that the consumer waits for is therefore always claimed
//! already, so the work cannot stall.

use super::options::{PackFormat, PackOptions};
use super::storing::{Fault, PackedSample, Storing};
use crate::{Dataset, Patience, SAMPLE_BYTES_MAX, parallel};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

/// Most bytes of a chunk, unless it is a single sample.
const CHUNK_BYTES: u64 = 1 << 20;
/// Most samples of a chunk.
const CHUNK_SAMPLES: u64 = 256;
/// Most samples of a chunk if the source knows an image's length only when it has read it.
const CHUNK_UNKNOWN: u64 = 4;
/// Bytes that may be between claim and hand-over: files and the pixels made from them. A single larger sample passes
/// alone.
const IN_FLIGHT_BYTES: u64 = 64 << 20;
/// Chunks per thread that may be between claim and hand-over.
const IN_FLIGHT_CHUNKS: usize = 8;
/// Interval between calls of the consumer while nothing is ready, so that it can stop the work.
const TICK: Duration = Duration::from_millis(100);

/// Neighbouring samples with their bytes one after the other.
pub(super) struct Chunk {
    pub(super) first: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) samples: Vec<PackedSample>,
    /// The sample after these at which the work has to end, and the reason.
    pub(super) failed: Option<(u64, Fault)>,
    /// Bytes that the source has listed for these samples.
    pub(super) source_bytes: u64,
    /// Bytes that count as in flight for this chunk.
    weight: u64,
}

/// An event for the consumer.
pub(super) enum Event {
    /// The next chunk, in order.
    Chunk(Chunk),
    /// Nothing is ready yet.
    Tick,
}

/// Prepares what is to be stored for all samples of `source` on `threads` threads, and calls `consume` with the chunks
/// in order, on the calling thread. Stops early if `consume` fails and returns its error; `consume` must fail at a
/// chunk that failed. Also fails if the system refuses all threads.
pub(super) fn store_all<E: From<io::Error>>(
    source: &dyn Dataset,
    threads: usize,
    options: &PackOptions,
    mut consume: impl FnMut(Event) -> Result<(), E>,
) -> Result<(), E> {
    let threads = threads.max(1);
    let claims = Claims::new(source, options.format, threads * IN_FLIGHT_CHUNKS);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        parallel::spawn(scope, threads, || {
            let (claims, sender) = (&claims, sender.clone());
            let storing = Storing::new(options, source.export().is_some());
            move || work(claims, storing, &sender)
        })?;
        drop(sender);
        // The workers stop however this function ends, even if `consume` panics.
        let _stop = StopOnDrop(&claims);
        let mut waiting: BTreeMap<u64, Chunk> = BTreeMap::new();
        let mut next = 0;
        while next < source.len() {
            match receiver.recv_timeout(TICK) {
                Ok(chunk) => drop(waiting.insert(chunk.first, chunk)),
                Err(RecvTimeoutError::Timeout) => consume(Event::Tick)?,
                Err(RecvTimeoutError::Disconnected) => panic!("a worker ended before its work was done"),
            }
            while let Some(chunk) = waiting.remove(&next) {
                next += chunk.samples.len() as u64;
                let weight = chunk.weight;
                consume(Event::Chunk(chunk))?;
                claims.release(weight, next);
            }
        }
        Ok(())
    })
}

/// Chunks that have been claimed. A chunk is claimed only when it fits, so a waiting chunk delays only later ones.
struct Claims<'s> {
    source: &'s dyn Dataset,
    chunk_samples: u64,
    chunks_max: usize,
    state: Mutex<ClaimState>,
    changed: Condvar,
}

#[derive(Default)]
struct ClaimState {
    /// First sample that has not been handed over.
    handed_over: u64,
    /// First sample that no planned chunk holds.
    next: u64,
    /// The chunk that is claimed next, and its weight.
    planned: Option<(Range<u64>, u64)>,
    chunks: usize,
    bytes: u64,
    stopped: bool,
}

impl<'s> Claims<'s> {
    fn new(source: &'s dyn Dataset, format: PackFormat, chunks_max: usize) -> Self {
        // The size of an image's pixels is known only when its file is read, so each image is a chunk of its own.
        let is_unknown = !source.is_empty() && source.location(0).length == 0 && !source.header_extent(0).is_empty();
        let chunk_samples = match (format.form.is_decoded(), is_unknown) {
            (true, _) => 1,
            (false, true) => CHUNK_UNKNOWN,
            (false, false) => CHUNK_SAMPLES,
        };
        Self { source, chunk_samples, chunks_max, state: Mutex::default(), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, ClaimState> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Claims the next chunk; returns it with its weight, or `None` if no chunk is left or the work has been stopped.
    fn claim(&self) -> Option<(Range<u64>, u64)> {
        let mut state = self.lock();
        loop {
            if state.stopped {
                return None;
            }
            if state.planned.is_none() {
                state.planned = self.plan(state.next);
            }
            let (chunk, weight) = state.planned.clone()?;
            let fits = state.chunks < self.chunks_max && state.bytes + weight <= IN_FLIGHT_BYTES;
            if fits || state.chunks == 0 {
                state.planned = None;
                state.next = chunk.end;
                state.chunks += 1;
                state.bytes += weight;
                return Some((chunk, weight));
            }
            state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    fn plan(&self, first: u64) -> Option<(Range<u64>, u64)> {
        let samples = self.source.len();
        // The source refuses a sample that exceeds the limit, so that sample weighs nothing.
        let bytes =
            |index| Some(self.source.location(index).length).filter(|&bytes| bytes <= SAMPLE_BYTES_MAX).unwrap_or(0);
        if first >= samples {
            return None;
        }
        let mut weight = bytes(first);
        let mut end = first + 1;
        while end < samples && end - first < self.chunk_samples {
            let with_next = weight + bytes(end);
            if with_next > CHUNK_BYTES {
                break;
            }
            weight = with_next;
            end += 1;
        }
        Some((first..end, weight))
    }

    /// Waits until the chunk of one sample may take `bytes` more. The chunk that is handed over next never waits.
    fn admit(&self, sample: u64, bytes: u64) {
        let waits = |state: &mut ClaimState| {
            !state.stopped && state.handed_over < sample && state.bytes.saturating_add(bytes) > IN_FLIGHT_BYTES
        };
        let state = self.changed.wait_while(self.lock(), waits);
        state.unwrap_or_else(|poisoned| poisoned.into_inner()).bytes += bytes;
    }

    fn release(&self, weight: u64, handed_over: u64) {
        let mut state = self.lock();
        state.handed_over = handed_over;
        state.chunks -= 1;
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

fn work(claims: &Claims<'_>, mut storing: Storing, sender: &Sender<Chunk>) {
    // If a worker panics, the others must not wait for a chunk that never comes.
    let stop = StopOnDrop(claims);
    let (mut sample, mut patience) = (Vec::new(), Patience::default());
    while let Some((chunk, weight)) = claims.claim() {
        let mut done = Chunk {
            first: chunk.start,
            bytes: Vec::new(),
            samples: Vec::new(),
            failed: None,
            source_bytes: weight,
            weight,
        };
        // If memory is refused here, it is asked for again sample by sample.
        let _ = done.bytes.try_reserve_exact(weight as usize);
        for index in chunk {
            if claims.is_stopped() {
                return;
            }
            let (start, mut admitted) = (done.bytes.len(), 0);
            // A further attempt at a sample asks again.
            let mut admit = |bytes: u64| {
                let more = bytes.saturating_sub(admitted);
                claims.admit(index, more);
                done.weight += more;
                admitted += more;
            };
            let mut failed = 0;
            let stored = loop {
                match storing.store((claims.source, index), &mut sample, &mut admit, &mut done.bytes) {
                    Err(Fault::Unavailable(error)) if patience.wait(failed, &error, &|| claims.is_stopped()) => {
                        done.bytes.truncate(start);
                        failed += 1;
                    }
                    stored => break stored,
                }
            };
            match stored {
                Ok(stored) => done.samples.push(stored),
                Err(fault) => {
                    done.failed = Some((index, fault));
                    break;
                }
            }
        }
        if sender.send(done).is_err() {
            return;
        }
    }
    std::mem::forget(stop);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::StoredForm;
    use crate::{Header, Identity, Location, ReadError};
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Two samples that are never read.
    struct Two;

    impl Dataset for Two {
        fn len(&self) -> u64 {
            2
        }

        fn classes(&self) -> &[String] {
            &[]
        }

        fn label(&self, _: u64) -> u32 {
            0
        }

        fn name(&self, index: u64) -> String {
            index.to_string()
        }

        fn location(&self, _: u64) -> Location {
            Location { file: "memory".into(), offset: 0, length: 10 }
        }

        fn header(&self, _: u64) -> Result<Header, ReadError> {
            unreachable!("only listed sizes are asked for")
        }

        fn read(&self, _: u64, _: &Header, _: u64, _: &mut [u8]) -> Result<(), ReadError> {
            unreachable!("only listed sizes are asked for")
        }

        fn identity(&self) -> Identity {
            Identity::from_bytes([0; 32])
        }

        fn kind(&self) -> &'static str {
            "two"
        }
    }

    #[test]
    fn an_image_that_grows_beyond_the_budget_waits_for_those_before_it() {
        let claims = Claims::new(&Two, PackFormat::of(StoredForm::Raw), 8);
        assert_eq!([claims.claim(), claims.claim(), claims.claim()], [Some((0..1, 10)), Some((1..2, 10)), None]);
        claims.admit(0, 2 * IN_FLIGHT_BYTES);
        let handed_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                claims.admit(1, 1);
                assert!(handed_over.load(Ordering::SeqCst), "it was admitted too early");
            });
            handed_over.store(true, Ordering::SeqCst);
            claims.release(10 + 2 * IN_FLIGHT_BYTES, 1);
        });
        // Stopping the work lets every waiting thread go.
        claims.stop();
        claims.admit(1, u64::MAX / 2);
    }
}
