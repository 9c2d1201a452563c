//! Pushes a pack to a key-value server.
//!
//! Values never change: their keys name the pack. So a push sends only what is missing, and several pushes of the same
//! pack may run at the same time. The manifest is written last. A push of a share leaves a mark, and the push that
//! finds the marks of all shares writes the manifest. Marks of another session do not count: another pack had the name
//! in between, and its push has removed values. `numbers`: the samples that a push sends.
//!
//! A replica that becomes the master may lack values that were written last. So a push during which that happens asks
//! again for all of its values, and sends what is missing.

mod numbers;

use super::super::push::{PushError, PushOptions, PushPart, PushProgress, PushSummary, Share};
use super::super::shown;
use super::cassandra::{self, Cassandra};
use super::layout::{Key, Manifest, Value};
use super::redis::Redis;
use super::server::ValueServer;
use ddlp_dataset::Dataset;
use ddlp_dataset::pack::{Pack, verify_sample};
use futures_util::future::try_join_all;
use numbers::Numbers;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// Samples that a thread sends at a time, and bytes after which it sends fewer.
const BATCH_SAMPLES: u64 = 16;
const BATCH_BYTES: usize = 8 << 20;
/// Threads, unless the options say otherwise: most of their time they wait for the server.
const THREADS: usize = 4;
/// Values that are removed, or asked for, at a time.
const ASKED_AT_ONCE: usize = 256;
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
    numbers: Numbers,
}

impl<'p, S: ValueServer> Push<'p, S> {
    fn new(pack: &'p Pack, url: &'p str, options: &'p PushOptions) -> Result<Self, PushError> {
        let server = S::new(url).map_err(|reason| PushError::Place { url: shown(url), reason })?;
        let manifest = Manifest::of(pack);
        let numbers = Numbers::of(&options.part, manifest.samples);
        Ok(Self { pack, url, server, options, manifest, numbers })
    }

    /// Pushes until no other server takes the place of one. The summary says what was sent the last time.
    fn run(&self, progress: &mut dyn FnMut(PushProgress) -> ControlFlow<()>) -> Result<PushSummary, PushError> {
        loop {
            let replaced = self.server.replaced();
            match self.run_once(progress) {
                Err(PushError::Cancelled) => return Err(PushError::Cancelled),
                _ if self.server.replaced() != replaced => {}
                pushed => return pushed,
            }
        }
    }

    fn run_once(&self, progress: &mut dyn FnMut(PushProgress) -> ControlFlow<()>) -> Result<PushSummary, PushError> {
        let [there, pushed] = self.look()?;
        let other = there.filter(|there| !self.is_mine(there));
        if let Some(other) = other.as_ref().filter(|_| !self.options.force) {
            let (samples, identity) = (other.samples, other.identity().map(|identity| identity.to_string()));
            let what = format!("another pack with {samples} samples, identity {}", &identity.unwrap_or_default()[..12]);
            return Err(PushError::Exists { url: shown(self.url), what });
        }
        let evicts = self.wait(0, self.server.prepare())?;
        let (mut done, missing_shares) = match self.options.part {
            PushPart::All | PushPart::Share(_) | PushPart::Begin => {
                self.take_and_send(pushed, other.as_ref(), progress)?
            }
            PushPart::Samples(_) | PushPart::End => {
                self.look_again()?;
                (self.send_samples(progress)?, Vec::new())
            }
        };
        if missing_shares.is_empty() && !matches!(self.options.part, PushPart::Begin | PushPart::Samples(_)) {
            done.add(&self.finish()?);
        }
        let Done { samples, sent, bytes, sent_bytes } = done;
        Ok(PushSummary { samples, sent, bytes, sent_bytes, identity: self.pack.identity(), evicts, missing_shares })
    }

    /// Takes the name for this pack, and sends the samples. `pushed` is what a push that has not ended was pushing,
    /// `other` what is there. Returns the shares that are not there yet.
    fn take_and_send(
        &self,
        mut pushed: Option<Manifest>,
        other: Option<&Manifest>,
        progress: &mut dyn FnMut(PushProgress) -> ControlFlow<()>,
    ) -> Result<(Done, Vec<u32>), PushError> {
        loop {
            let session = self.begin(pushed, other)?;
            let done = self.send_samples(progress)?;
            match self.session()? {
                None => return Ok((done, Vec::new())),
                Some(now) if now == session => {
                    let missing = self.share().map_or(Ok(Vec::new()), |share| self.mark(share, session))?;
                    return Ok((done, missing));
                }
                // The name was taken for another pack and then for this one again: samples may have been removed.
                Some(_) => [_, pushed] = self.look()?,
            }
        }
    }

    /// Takes the name for this pack. Returns the session.
    fn begin(&self, pushed: Option<Manifest>, other: Option<&Manifest>) -> Result<u64, PushError> {
        let (same, left): (Vec<_>, Vec<_>) = pushed.into_iter().partition(|pushed| self.is_mine(pushed));
        let shares = same.first().map_or(0, |same| same.shares).max(self.share().map_or(0, |share| share.of.into()));
        let session = same.first().map_or_else(drawn, |same| same.session);
        let pushing = self.manifest.pushing(shares, session);
        if same.first() != Some(&pushing) {
            let value = Value::manifest(Key::Pushing, &pushing);
            self.wait(value.bytes.len(), self.server.set(&value))?;
        }
        // Another machine may have drawn a number at the same moment.
        let session = self.session()?.unwrap_or_default();
        for left in left {
            // What is there is served until this pack is. Its marks have served their purpose.
            match other.is_some_and(|other| other.is_of(&left)) {
                true => self.remove(left.marks())?,
                false => self.remove(left.keys())?,
            }
        }
        Ok(session)
    }

    /// Returns the session in which this pack is being pushed; `None` if it is there. Fails if another pack was pushed
    /// to the name meanwhile.
    fn session(&self) -> Result<Option<u64>, PushError> {
        let [there, pushed] = self.look()?.map(|found| found.filter(|found| self.is_mine(found)));
        match (there, pushed) {
            (Some(_), _) => Ok(None),
            (None, Some(pushed)) => Ok(Some(pushed.session)),
            (None, None) => Err(self.failed(S::WHY_NOT_KEPT.to_owned())),
        }
    }

    fn is_mine(&self, manifest: &Manifest) -> bool {
        manifest.is_of(&self.manifest)
    }

    fn share(&self) -> Option<Share> {
        match self.options.part {
            PushPart::Share(share) => Some(share),
            _ => None,
        }
    }

    /// Notes that all samples of a share are there. Returns the shares that are not there yet.
    fn mark(&self, share: Share, session: u64) -> Result<Vec<u32>, PushError> {
        let mark = |number| Value::share(&self.pack.identity(), Share { number, ..share }, session);
        self.wait(0, self.server.set(&mark(share.number)))?;
        let mut missing = Vec::new();
        let all: Vec<u32> = (0..share.of).collect();
        for some in all.chunks(ASKED_AT_ONCE) {
            let marks: Vec<Value> = some.iter().map(|number| mark(*number)).collect();
            let found = self.wait(0, try_join_all(marks.iter().map(|mark| self.server.has(mark))))?;
            missing.extend(some.iter().zip(found).filter(|(_, is_there)| !is_there).map(|(number, _)| *number));
        }
        // Another push may have ended meanwhile, and removed the marks.
        let is_finished = !missing.is_empty() && self.session()?.is_none();
        Ok(if is_finished { Vec::new() } else { missing })
    }

    /// Sends the index, and makes the dataset one that can be opened. Removes what is not needed any more.
    fn finish(&self) -> Result<Done, PushError> {
        let index = self.send_index()?;
        let there = self.look_again()?;
        if !there.as_ref().is_some_and(|there| self.is_mine(there)) {
            self.set_manifest()?;
        }
        let [_, pushed] = self.look()?;
        let of_pushed = pushed.filter(|pushed| self.is_mine(pushed)).map_or(0, |pushed| pushed.shares);
        let shares = of_pushed.max(self.share().map_or(0, |share| share.of.into()));
        let marks = self.manifest.pushing(shares, 0).marks();
        let other = there.filter(|there| !self.is_mine(there));
        self.remove([Key::Pushing].into_iter().chain(marks).chain(other.iter().flat_map(Manifest::keys)))?;
        Ok(index)
    }

    /// Asks what is under the name. Fails if another pack was pushed to the name meanwhile.
    fn look_again(&self) -> Result<Option<Manifest>, PushError> {
        let [there, pushed] = self.look()?;
        if [&there, &pushed].into_iter().flatten().any(|found| self.is_mine(found)) {
            return Ok(there);
        }
        Err(self.failed(S::WHY_NOT_KEPT.to_owned()))
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
        if found.as_ref() != Some(&value.bytes) {
            let what = "what the dataset is was written, but does not read back";
            return Err(self.failed(format!("{what}: {}", S::WHY_NOT_KEPT)));
        }
        // Between the last look and the writing, another pack may have been pushed whole, and the values removed.
        if self.wait(0, self.server.has(&self.index_chunk(0)?))? {
            return Ok(());
        }
        self.wait(0, self.server.remove(Key::Manifest))?;
        Err(self.failed(S::WHY_NOT_KEPT.to_owned()))
    }

    /// Removes values, as long as the name is this pack's.
    fn remove(&self, mut keys: impl Iterator<Item = Key>) -> Result<(), PushError> {
        loop {
            let some: Vec<Key> = keys.by_ref().take(ASKED_AT_ONCE).collect();
            if some.is_empty() {
                return Ok(());
            }
            self.look_again()?;
            self.wait(0, try_join_all(some.into_iter().map(|key| self.server.remove(key))))?;
        }
    }

    /// Sends the samples that are not there.
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
                let samples_total = self.numbers.len();
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
            let places = first..(first + BATCH_SAMPLES).min(self.numbers.len());
            if places.is_empty() {
                return;
            }
            let outcome = self.send_places(places, &mut buffer, is_over, done);
            if let Err(error) = outcome {
                // The receiver has gone if another thread failed before.
                let _ = done.send(Err(error));
                return;
            }
        }
    }

    fn send_places(
        &self,
        places: Range<u64>,
        buffer: &mut Vec<u8>,
        is_over: &AtomicBool,
        done: &Sender<Result<Done, PushError>>,
    ) -> Result<(), PushError> {
        let (mut wanted, mut bytes, end) = (Vec::new(), 0, places.end);
        for place in places {
            let number = self.numbers.at(place);
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
            if bytes >= BATCH_BYTES || place + 1 == end {
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
            whole.add(&self.bring(&[self.index_chunk(number)?])?);
        }
        Ok(whole)
    }

    fn index_chunk(&self, number: u64) -> Result<Value, PushError> {
        let range = self.manifest.chunk(number);
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let read = self.pack.read_bytes(range.start, &mut bytes);
        read.map_err(|error| self.failed(format!("the pack's index cannot be read: {error}")))?;
        Ok(Value::chunk(&self.pack.identity(), number, &bytes))
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

/// Draws the number of a session.
fn drawn() -> u64 {
    RandomState::new().build_hasher().finish().max(1)
}

impl Done {
    fn add(&mut self, other: &Done) {
        self.samples += other.samples;
        self.bytes += other.bytes;
        self.sent += other.sent;
        self.sent_bytes += other.sent_bytes;
    }
}
