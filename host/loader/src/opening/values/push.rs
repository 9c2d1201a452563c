//! Pushes a pack to a key-value server.
//!
//! Values never change: their keys name the pack. So a push sends only what is missing, and several pushes of the same
//! pack may run at the same time. The manifest is written last.

use super::super::push::{PushError, PushOptions, PushProgress, PushSummary};
use super::super::shown;
use super::address::ServerAddress;
use super::layout::{
    Content, HEAD_BYTES, Keys, Manifest, VALUE_BYTES_MAX, index_key, index_value, pushing_key, sample_value,
};
use super::server::{Query, Server};
use ddlp_dataset::Dataset;
use ddlp_dataset::pack::{Pack, verify_sample};
use redis::{Cmd, FromRedisValue, cmd, pipe};
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
/// Keys that are removed at a time.
const REMOVED_AT_ONCE: usize = 1000;
/// Longest time between two calls of `progress`.
const TICK: Duration = Duration::from_millis(100);
/// Times that a value is sent if it reads back differently.
const SENDINGS: u32 = 2;

/// A value to be there.
struct Wanted {
    key: String,
    bytes: Vec<u8>,
    /// Bytes of the sample; `None` for a chunk of the index.
    sample: Option<u64>,
}

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
    let address = ServerAddress::parse(url).map_err(|reason| PushError::Place { url: shown(url), reason })?;
    let failed = |reason| PushError::Store { url: shown(url), reason };
    let server = Server::new(address).map_err(failed)?;
    let keys = Keys::new(&server.address.name, &pack.identity());
    Push { pack, url, server, options, manifest: Manifest::of(pack), keys }.run(progress)
}

struct Push<'p> {
    pack: &'p Pack,
    url: &'p str,
    server: Server,
    options: &'p PushOptions,
    manifest: Manifest,
    keys: Keys,
}

impl Push<'_> {
    fn run(&self, progress: &mut dyn FnMut(PushProgress) -> ControlFlow<()>) -> Result<PushSummary, PushError> {
        let name = &self.server.address.name;
        let (index_key, pushing_key) = (index_key(name), pushing_key(name));
        let (there, pushed, memory) = self.look(&index_key, &pushing_key)?;
        let other = there.filter(|there| *there != self.manifest);
        if let Some(other) = other.as_ref().filter(|_| !self.options.force) {
            let (samples, identity) = (other.samples, other.identity().map(|identity| identity.to_string()));
            let what = format!("another pack with {samples} samples, identity {}", &identity.unwrap_or_default()[..12]);
            return Err(PushError::Exists { url: shown(self.url), what });
        }
        // What a push of yet another pack has left.
        let left = pushed.filter(|pushed| *pushed != self.manifest && Some(pushed) != other.as_ref());
        self.tell::<()>(cmd("SET").arg(&pushing_key).arg(self.manifest.to_bytes()))?;
        self.remove(left.as_ref())?;

        let done = self.send_samples(progress)?;
        let index = self.send_index()?;
        let still: Option<Vec<u8>> = self.tell(cmd("GET").arg(&pushing_key))?;
        let is_mine = |bytes: &Vec<u8>| *bytes == self.manifest.to_bytes();
        let finished: Option<Vec<u8>> = self.tell(cmd("GET").arg(&index_key))?;
        if !still.as_ref().is_some_and(is_mine) && !finished.as_ref().is_some_and(is_mine) {
            return Err(self.failed("another pack was pushed to this name meanwhile".to_owned()));
        }
        self.tell::<()>(cmd("SET").arg(&index_key).arg(self.manifest.to_bytes()))?;
        self.tell::<()>(cmd("DEL").arg(&pushing_key))?;
        self.remove(other.as_ref())?;
        Ok(PushSummary {
            samples: done.samples,
            sent: done.sent,
            bytes: done.bytes + index.bytes,
            sent_bytes: done.sent_bytes + index.sent_bytes,
            identity: self.pack.identity(),
            evicts: eviction(&memory),
        })
    }

    /// Asks what is under the name, what is being pushed there, and about the server's memory.
    fn look(
        &self,
        index_key: &str,
        pushing_key: &str,
    ) -> Result<(Option<Manifest>, Option<Manifest>, String), PushError> {
        let mut look = pipe();
        look.cmd("GET").arg(index_key).cmd("GET").arg(pushing_key);
        let found: (Option<Vec<u8>>, Option<Vec<u8>>) =
            self.server.first(&look).map_err(|reason| self.failed(reason))?;
        let parsed = |key, bytes: Option<Vec<u8>>| {
            let parsed = bytes.map(|bytes| Manifest::parse(key, &bytes)).transpose();
            parsed.map_err(|what| PushError::Exists { url: shown(self.url), what })
        };
        // A user without the right to ask gets no warning.
        let memory = self.server.first(cmd("INFO").arg("memory"));
        Ok((parsed(index_key, found.0)?, parsed(pushing_key, found.1)?, memory.unwrap_or_default()))
    }

    fn failed(&self, reason: String) -> PushError {
        PushError::Store { url: shown(self.url), reason }
    }

    /// Sends a command.
    fn tell<T: FromRedisValue + Send>(&self, command: &Cmd) -> Result<T, PushError> {
        self.ask(0, command)
    }

    /// Removes the values of another pack.
    fn remove(&self, other: Option<&Manifest>) -> Result<(), PushError> {
        let Some((other, keys)) = other.and_then(|other| Some((other, other.keys(&self.server.address.name)?))) else {
            return Ok(());
        };
        let mut contents = (0..other.samples).map(Content::Sample).chain((0..other.chunks()).map(Content::Index));
        loop {
            let some: Vec<String> = contents.by_ref().take(REMOVED_AT_ONCE).map(|content| keys.of(content)).collect();
            if some.is_empty() {
                return Ok(());
            }
            self.tell::<()>(cmd("UNLINK").arg(some))?;
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
                self.server.path.interrupt();
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
            let value = sample_value(self.pack, number, buffer)?;
            if value.len() as u64 > VALUE_BYTES_MAX {
                let name = self.pack.name(number);
                return Err(self.failed(format!("sample {name} has more than 512 MiB, which no value can have")));
            }
            bytes += value.len();
            wanted.push(Wanted { key: self.keys.of(Content::Sample(number)), bytes: value, sample: Some(number) });
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
            let bytes = index_value(&self.pack.identity(), number, &bytes);
            whole.add(&self.bring(&[Wanted { key: self.keys.of(Content::Index(number)), bytes, sample: None }])?);
        }
        Ok(whole)
    }

    /// Sends the values that are not there.
    fn bring(&self, wanted: &[Wanted]) -> Result<Done, PushError> {
        let mut look = pipe();
        for value in wanted {
            look.cmd("GETRANGE").arg(&value.key).arg(0).arg(HEAD_BYTES - 1).cmd("STRLEN").arg(&value.key);
        }
        let flat: Vec<redis::Value> = self.ask(0, &look)?;
        let pairs = flat.as_chunks().0.iter();
        let found = pairs.map(|[head, length]| -> redis::RedisResult<(Vec<u8>, u64)> {
            Ok((Vec::from_redis_value_ref(head)?, u64::from_redis_value_ref(length)?))
        });
        let found: Vec<_> = found.collect::<Result<_, _>>().map_err(|error| self.failed(error.to_string()))?;
        let is_there = |(value, (head, length)): (&Wanted, &(Vec<u8>, u64))| {
            *length == value.bytes.len() as u64 && **head == value.bytes[..HEAD_BYTES as usize]
        };
        let mut missing: Vec<&Wanted> =
            wanted.iter().zip(&found).filter(|&pair| !is_there(pair)).map(|(value, _)| value).collect();
        let mut done = Done::default();
        for value in wanted {
            done.bytes += value.bytes.len() as u64;
            done.samples += u64::from(value.sample.is_some());
        }
        for sending in 0.. {
            self.set(&missing)?;
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
                return Err(PushError::Differs { url: shown(self.url), what: format!("the value {}", first.key) });
            }
        }
        Ok(done)
    }

    fn set(&self, values: &[&Wanted]) -> Result<(), PushError> {
        if values.is_empty() {
            return Ok(());
        }
        let bytes = values.iter().map(|value| value.bytes.len()).sum();
        let mut set = pipe();
        for value in values {
            set.cmd("SET").arg(&value.key).arg(&value.bytes).ignore();
        }
        self.ask(bytes, &set)
    }

    /// Returns the values that read back differently.
    fn different<'w>(&self, wanted: &'w [Wanted]) -> Result<Vec<&'w Wanted>, PushError> {
        let bytes = wanted.iter().map(|value| value.bytes.len()).sum();
        let mut get = pipe();
        for value in wanted {
            get.cmd("GET").arg(&value.key);
        }
        let found: Vec<Option<Vec<u8>>> = self.ask(bytes, &get)?;
        let differs = |(value, found): &(&Wanted, Option<Vec<u8>>)| found.as_ref() != Some(&value.bytes);
        Ok(wanted.iter().zip(found).filter(differs).map(|(value, _)| value).collect())
    }

    fn ask<T: FromRedisValue + Send>(&self, bytes: usize, query: &impl Query) -> Result<T, PushError> {
        let answer = self.server.path.wait(bytes, self.server.ask(bytes, query));
        answer.map_err(|error| self.failed(error.to_string()))
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

/// Returns the rule by which a server evicts values, from what it says about its memory.
fn eviction(memory: &str) -> Option<String> {
    let value = |name| memory.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'));
    let has_limit = value("maxmemory").is_some_and(|bytes| bytes != "0");
    value("maxmemory_policy").filter(|policy| has_limit && *policy != "noeviction").map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::eviction;

    #[test]
    fn only_servers_with_a_limit_evict() {
        let said = |bytes, policy| format!("# Memory\r\nmaxmemory:{bytes}\r\nmaxmemory_policy:{policy}\r\n");
        assert_eq!(eviction(&said(1000, "allkeys-lru")).as_deref(), Some("allkeys-lru"));
        assert_eq!(eviction(&said(0, "allkeys-lru")), None);
        assert_eq!(eviction(&said(1000, "noeviction")), None);
        assert_eq!(eviction(""), None);
    }
}
