//! Pushes a pack to a key-value server.
//!
//! Values never change: their keys name the pack. So a push sends only what is missing, and several pushes of the same
//! pack may run at the same time. The manifest is written last.

use super::super::push::{PushError, PushOptions, PushProgress, PushSummary};
use super::super::shown;
use super::cassandra::{self, Cassandra};
use super::layout::{Key, Manifest, Value};
use super::redis::Redis;
use super::server::ValueServer;
use ddlp_dataset::Dataset;
use ddlp_dataset::pack::{Pack, verify_sample};
use futures_util::future::try_join_all;
use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// Samples that a thread sends at a time, and bytes after which it sends fewer.
const BATCH_SAMPLES: u64 = 16;
const BATCH_BYTES: usize = 8 << 20;
/// Threads, unless the options say otherwise: most of their time they wait for the server.
const THREADS: usize = 4;
/// Values that are removed at a time.
const REMOVED_AT_ONCE: usize = 256;
/// Longest time between two calls of `progress`.
const TICK: Duration = Duration::from_millis(100);
/// Times that a value is sent if it reads back differently.
const SENDINGS: u32 = 2;

/// What a batch has done.
#[derive(Default)]
struct Done {
    samples: u64,
    bytes: u64,
    sent: u64,
    sent_bytes: u64,
}

/// Pushes a pack.
pub fn push(
    pack: &Pack,
    url: &str,
    options: &PushOptions,
    progress: &mut dyn FnMut(PushProgress) -> ControlFlow<()>,
) -> Result<PushSummary, PushError> {
    if cassandra::is_url(url) {
        return Push::<Cassandra>::new(pack, url, options)?.run(progress);
    }
    Push::<Redis>::new(pack, url, options)?.run(progress)
}

struct Push<'p, S> {
    pack: &'p Pack,
    url: &'p str,
    server: S,
    options: &'p PushOptions,
    manifest: Manifest,
}

impl<'p, S: ValueServer> Push<'p, S> {
    fn new(pack: &'p Pack, url: &'p str, options: &'p PushOptions) -> Result<Self, PushError> {
        let server = S::new(url).map_err(|reason| PushError::Place { url: shown(url), reason })?;
        Ok(Self { pack, url, server, options, manifest: Manifest::of(pack) })
    }

    fn run(&self, progress: &mut dyn FnMut(PushProgress) -> ControlFlow<()>) -> Result<PushSummary, PushError> {
        let [there, pushed] = self.look()?;
        let other = there.filter(|there| *there != self.manifest);
        if let Some(other) = other.as_ref().filter(|_| !self.options.force) {
            let (samples, identity) = (other.samples, other.identity().map(|identity| identity.to_string()));
            let what = format!("another pack with {samples} samples, identity {}", &identity.unwrap_or_default()[..12]);
            return Err(PushError::Exists { url: shown(self.url), what });
        }
        let evicts = self.wait(0, self.server.prepare())?;
        // What a push of yet another pack has left.
        let left = pushed.filter(|pushed| *pushed != self.manifest && Some(pushed) != other.as_ref());
        let pushing = Value::manifest(Key::Pushing, &self.manifest);
        self.wait(pushing.bytes.len(), self.server.set(&pushing))?;
        self.remove(left.iter().flat_map(Manifest::keys))?;

        let done = self.send_samples(progress)?;
        let index = self.send_index()?;
        let [finished, still] = self.look()?;
        let is_mine = |manifest: &Manifest| *manifest == self.manifest;
        if !still.as_ref().is_some_and(is_mine) && !finished.as_ref().is_some_and(is_mine) {
            return Err(self.failed(S::WHY_NOT_KEPT.to_owned()));
        }
        self.set_manifest()?;
        self.remove([Key::Pushing].into_iter().chain(other.iter().flat_map(Manifest::keys)))?;
        Ok(PushSummary {
            samples: done.samples,
            sent: done.sent,
            bytes: done.bytes + index.bytes,
            sent_bytes: done.sent_bytes + index.sent_bytes,
            identity: self.pack.identity(),
            evicts,
        })
    }

    /// Asks what is under the name, and what is being pushed there.
    fn look(&self) -> Result<[Option<Manifest>; 2], PushError> {
        let [there, pushed] = self.server.look().map_err(|reason| self.failed(reason))?;
        let parsed = |key, bytes: Option<Vec<u8>>| {
            let parsed = bytes.map(|bytes| Manifest::parse(&self.server.describe(key), &bytes)).transpose();
            parsed.map_err(|what| PushError::Exists { url: shown(self.url), what })
        };
        Ok([parsed(Key::Manifest, there)?, parsed(Key::Pushing, pushed)?])
    }

    fn failed(&self, reason: String) -> PushError {
        PushError::Store { url: shown(self.url), reason }
    }

    /// Waits for requests for `bytes` bytes, or with as many.
    fn wait<T>(&self, bytes: usize, requests: impl Future<Output = io::Result<T>> + Send) -> Result<T, PushError> {
        self.server.path().wait(bytes, requests).map_err(|error| self.failed(error.to_string()))
    }

    /// Writes the manifest, and reads it back: a server may keep another one.
    fn set_manifest(&self) -> Result<(), PushError> {
        let value = Value::manifest(Key::Manifest, &self.manifest);
        let found = self.wait(value.bytes.len(), async {
            self.server.set(&value).await?;
            self.server.get(value.key, 0).await
        })?;
        if found.as_ref() == Some(&value.bytes) {
            return Ok(());
        }
        Err(self.failed(format!("what the dataset is was written, but does not read back: {}", S::WHY_NOT_KEPT)))
    }

    /// Removes values.
    fn remove(&self, mut keys: impl Iterator<Item = Key>) -> Result<(), PushError> {
        loop {
            let some: Vec<Key> = keys.by_ref().take(REMOVED_AT_ONCE).collect();
            if some.is_empty() {
                return Ok(());
            }
            self.wait(0, try_join_all(some.into_iter().map(|key| self.server.remove(key))))?;
        }
    }

    /// Sends all samples that are not there.
    fn send_samples(&self, progress: &mut dyn FnMut(PushProgress) -> ControlFlow<()>) -> Result<Done, PushError> {
        let threads = match self.options.threads {
            0 => THREADS,
            threads => threads,
        };
        let (next, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        let mut whole = Done::default();
        let (sender, batches) = channel();
        thread::scope(|scope| {
            for _ in 0..threads {
                let (sender, next, is_over) = (sender.clone(), &next, &is_over);
                let work = move || self.work(next, is_over, &sender);
                let begun = thread::Builder::new().name("ddlp-push".to_owned()).spawn_scoped(scope, work);
                if let Err(error) = begun {
                    is_over.store(true, Ordering::Relaxed);
                    return Err(self.failed(format!("the system refuses a thread: {error}")));
                }
            }
            drop(sender);
            let ended = loop {
                match batches.recv_timeout(TICK) {
                    Ok(Ok(done)) => whole.add(&done),
                    Ok(Err(error)) => break Err(error),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break Ok(()),
                }
                let Done { samples, bytes, sent, .. } = whole;
                let samples_total = self.manifest.samples;
                if progress(PushProgress { samples, samples_total, bytes, sent }).is_break() {
                    break Err(PushError::Cancelled);
                }
            };
            is_over.store(true, Ordering::Relaxed);
            if ended.is_err() {
                self.server.path().interrupt();
            }
            ended
        })?;
        Ok(whole)
    }

    /// Sends batches of samples until all have been taken.
    fn work(&self, next: &AtomicU64, is_over: &AtomicBool, done: &Sender<Result<Done, PushError>>) {
        let mut buffer = Vec::new();
        while !is_over.load(Ordering::Relaxed) {
            let first = next.fetch_add(BATCH_SAMPLES, Ordering::Relaxed);
            let numbers = first..(first + BATCH_SAMPLES).min(self.manifest.samples);
            if numbers.is_empty() {
                return;
            }
            let outcome = self.send_numbers(numbers, &mut buffer, is_over, done);
            if let Err(error) = outcome {
                // The receiver has gone if another thread failed before.
                let _ = done.send(Err(error));
                return;
            }
        }
    }

    fn send_numbers(
        &self,
        numbers: std::ops::Range<u64>,
        buffer: &mut Vec<u8>,
        is_over: &AtomicBool,
        done: &Sender<Result<Done, PushError>>,
    ) -> Result<(), PushError> {
        let (mut wanted, mut bytes, end) = (Vec::new(), 0, numbers.end);
        for number in numbers {
            if let Some(broken) = verify_sample(self.pack, number).into_iter().next() {
                return Err(PushError::Damaged(Box::new(broken)));
            }
            let value = Value::sample(self.pack, number, buffer)?;
            if value.parts().1.len() as u64 > S::CONTENT_BYTES_MAX {
                let (name, most) = (self.pack.name(number), S::CONTENT_BYTES_MAX.div_ceil(1 << 20));
                return Err(self.failed(format!("sample {name} has more than {most} MiB, which no value can have")));
            }
            bytes += value.bytes.len();
            wanted.push(value);
            if bytes >= BATCH_BYTES || number + 1 == end {
                if is_over.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let _ = done.send(Ok(self.bring(&std::mem::take(&mut wanted))?));
                bytes = 0;
            }
        }
        Ok(())
    }

    /// Sends the chunks of the index that are not there.
    fn send_index(&self) -> Result<Done, PushError> {
        let mut whole = Done::default();
        for number in 0..self.manifest.chunks() {
            let range = self.manifest.chunk(number);
            let mut bytes = vec![0; (range.end - range.start) as usize];
            let read = self.pack.read_bytes(range.start, &mut bytes);
            read.map_err(|error| self.failed(format!("the pack's index cannot be read: {error}")))?;
            whole.add(&self.bring(&[Value::chunk(&self.pack.identity(), number, &bytes)])?);
        }
        Ok(whole)
    }

    /// Sends the values that are not there.
    fn bring(&self, wanted: &[Value]) -> Result<Done, PushError> {
        let mut done = Done::default();
        for value in wanted {
            done.bytes += value.bytes.len() as u64;
            done.samples += u64::from(value.sample.is_some());
        }
        let found = self.wait(0, try_join_all(wanted.iter().map(|value| self.server.has(value))))?;
        let mut missing: Vec<&Value> =
            wanted.iter().zip(found).filter(|(_, is_there)| !is_there).map(|(value, _)| value).collect();
        for sending in 0.. {
            let bytes = missing.iter().map(|value| value.bytes.len()).sum();
            self.wait(bytes, try_join_all(missing.iter().map(|value| self.server.set(value))))?;
            for value in &missing {
                done.sent_bytes += value.bytes.len() as u64;
                done.sent += u64::from(value.sample.is_some());
            }
            if !self.options.verify {
                break;
            }
            missing = self.different(wanted)?;
            let Some(first) = missing.first() else { break };
            if sending + 1 == SENDINGS {
                let what = format!("the value {}", self.server.describe(first.key));
                return Err(PushError::Differs { url: shown(self.url), what });
            }
        }
        Ok(done)
    }

    /// Returns the values that read back differently.
    fn different<'w>(&self, wanted: &'w [Value]) -> Result<Vec<&'w Value>, PushError> {
        let bytes = wanted.iter().map(|value| value.bytes.len()).sum();
        let get = |value: &'w Value| self.server.get(value.key, value.parts().1.len());
        let found = self.wait(bytes, try_join_all(wanted.iter().map(get)))?;
        let differs = |(value, found): &(&Value, Option<Vec<u8>>)| found.as_ref() != Some(&value.bytes);
        Ok(wanted.iter().zip(found).filter(differs).map(|(value, _)| value).collect())
    }
}

impl Done {
    fn add(&mut self, other: &Done) {
        self.samples += other.samples;
        self.bytes += other.bytes;
        self.sent += other.sent;
        self.sent_bytes += other.sent_bytes;
    }
}
