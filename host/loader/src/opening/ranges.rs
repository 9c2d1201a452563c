//! A pack in an object store or on a web server, read by ranges over HTTP.
//!
//! Each read asks for its bytes on the condition that the object is still the one that was opened. A failure that may
//! pass is tried again until nothing has been answered for a minute. `address`: what URLs are taken, and the client for
//! each. `failure`: which failures may pass. `push`: puts a pack into a
//! store. `thread`: the thread that moves the bytes.

mod address;
mod failure;
pub(super) mod push;
mod thread;

use super::clock::PathClock;
use address::StoreAddress;
pub(super) use address::is_url;
use ddlp_dataset::pack::{Blocks, BlocksError, BlocksRead};
use ddlp_dataset::{FetchDepth, Reading, Requests, Silence, Silences, wait_for};
use ddlp_driver::{Backoff, BackoffLimits};
use failure::Failure;
use futures_util::future::try_join_all;
use futures_util::{Stream, StreamExt};
use nix::sys::resource::{Resource, getrlimit};
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore, RetryConfig};
use std::fmt;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use thread::RequestThread;
use tokio::sync::watch;

/// Longest time of one request for few bytes.
const READ_WITHIN: Duration = Duration::from_secs(10);
/// A long request may take a second more for each of these bytes.
const BYTES_A_SECOND: u64 = 1 << 20;
/// Pauses between attempts of a read.
const PAUSES: BackoffLimits =
    BackoffLimits { first: Duration::from_millis(100), cap: Duration::from_secs(5), attempts_max: u32::MAX };
/// Number of attempts to open an object: a mistaken address shall be told soon.
const OPENING_ATTEMPTS: u32 = 4;
/// Threads that fetch, and the samples that each asks for at the same time, where other reads need a thread.
const FETCH: (usize, usize) = (4, 16);
/// Most samples in flight. Each one may need a connection of its own.
const AT_ONCE_MAX: usize = 1024;
/// Part of the files that this process may open which connections may take.
const CONNECTIONS_SHARE: usize = 2;
/// Extents with at most this many bytes between them are asked for as one.
const JOIN_GAP: u64 = 4096;

/// An object that is read by ranges.
pub(super) struct RangeBlocks {
    thread: RequestThread,
    store: Box<dyn ObjectStore>,
    address: StoreAddress,
    /// What was opened.
    meta: ObjectMeta,
    clock: Mutex<PathClock>,
    /// The last failure since an answer.
    failure: Mutex<Option<String>>,
    /// Number of times that all waits were interrupted.
    interrupts: watch::Sender<u64>,
    /// Seeds of the pauses' jitter.
    reads: AtomicU64,
    requests: Mutex<Requests>,
}

impl RangeBlocks {
    /// Opens the object at a URL. The error says what to do.
    pub fn open(url: &str) -> Result<Self, String> {
        let address = StoreAddress::parse(url)?;
        let thread = RequestThread::start().map_err(|error| format!("no thread for requests: {error}"))?;
        let store = address.store(RetryConfig { max_retries: 0, ..RetryConfig::default() })?;
        let opened = wait_for(thread.serve(open(&*store, &address)));
        let meta = opened.map_err(|failure| match failure.may_pass {
            true => format!("{failure}; check the address, and that the server runs"),
            false => failure.to_string(),
        })?;
        let (clock, (interrupts, _)) = (Mutex::new(PathClock::new(Instant::now())), watch::channel(0));
        let (failure, reads, requests) = (Mutex::default(), AtomicU64::new(0), Mutex::default());
        Ok(Self { thread, store, address, meta, clock, failure, interrupts, reads, requests })
    }

    fn clock(&self) -> MutexGuard<'_, PathClock> {
        self.clock.lock().expect("no panic while the clock is locked")
    }

    fn last_failure(&self) -> MutexGuard<'_, Option<String>> {
        self.failure.lock().expect("no panic while the failure is locked")
    }

    fn count(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().expect("no panic while the counts are locked")
    }

    /// Makes reads whose bytes may take the time `allowed`, until they end or are interrupted.
    fn make<'r>(
        &'r self,
        allowed: Duration,
        reads: impl Future<Output = io::Result<()>> + Send + 'r,
    ) -> impl Future<Output = io::Result<()>> + Send + 'r {
        self.thread.serve(async move {
            let (mut interrupts, mut reads) = (self.interrupts.subscribe(), pin!(reads));
            let _waiting = Waiting::begin(&self.clock, allowed);
            tokio::select! {
                outcome = &mut reads => outcome,
                // Another run may read the same dataset: it tries again.
                _ = interrupts.changed() => Err(io::Error::from_raw_os_error(libc::EINTR)),
            }
        })
    }

    /// Fills `out` with the bytes from `offset` on. Tries again after failures that may pass.
    async fn read_range(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut pauses = Backoff::new(PAUSES, self.reads.fetch_add(1, Ordering::Relaxed));
        loop {
            let left = self.clock().left(Instant::now());
            if left.is_zero() {
                self.clock().give_up(Instant::now());
                return Err(self.no_answer());
            }
            let limit = left.min(READ_WITHIN + allowed(out.len()));
            let (begun, in_flight) = (Instant::now(), InFlight::begin(&self.requests));
            let attempt = tokio::time::timeout(limit, self.attempt(offset, out)).await;
            drop(in_flight);
            let failure = match attempt.unwrap_or_else(|_| Err(Failure::slow(limit))) {
                Ok(()) => {
                    self.clock().answered(Instant::now());
                    self.count().answered(begun.elapsed(), out.len() as u64);
                    *self.last_failure() = None;
                    return Ok(());
                }
                Err(failure) if failure.may_pass => failure,
                Err(failure) => return Err(io::Error::other(BlocksError::Lasting(failure.to_string()))),
            };
            tracing::debug!(%failure, "a request failed, and is made again");
            self.count().retry(failure.pushes_back);
            let pause = pauses.next_delay().unwrap_or(PAUSES.cap).max(failure.pause.unwrap_or_default());
            *self.last_failure() = Some(failure.to_string());
            tokio::time::sleep(pause.min(left)).await;
        }
    }

    /// Asks once for the bytes from `offset` on.
    async fn attempt(&self, offset: u64, out: &mut [u8]) -> Result<(), Failure> {
        let options = GetOptions {
            range: Some(GetRange::Bounded(offset..offset + out.len() as u64)),
            ..unchanged(&self.meta, GetOptions::default())
        };
        let answer = self
            .store
            .get_opts(&self.address.path, options)
            .await
            .map_err(|error| Failure::of(&error, || self.address.help(&error)))?;
        let (was, is) = (&self.meta, &answer.meta);
        if is.size != was.size || (is.e_tag.is_some() && was.e_tag.is_some() && is.e_tag != was.e_tag) {
            return Err(Failure::changed());
        }
        fill(out, answer.into_stream()).await
    }

    /// Returns the error of a read when nothing has been answered for too long.
    fn no_answer(&self) -> io::Error {
        let failure = self.last_failure().as_ref().map(|last| format!(" (last failure: {last})")).unwrap_or_default();
        let seconds = self.clock().patience().as_secs();
        let what = format!(
            "{} has not answered for {seconds} s{failure}; check that the server runs and that the network is up",
            self.address
        );
        io::Error::new(io::ErrorKind::TimedOut, what)
    }
}

impl Blocks for RangeBlocks {
    fn len_bytes(&self) -> u64 {
        self.meta.size
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        wait_for(self.make(allowed(out.len()), self.read_range(offset, out)))
    }

    fn read_many(&self, reads: &mut [BlocksRead<'_>]) -> io::Result<()> {
        let mut started = Vec::with_capacity(reads.len());
        for BlocksRead { offset, memory, place } in reads {
            started.push(BlocksRead { offset: *offset, memory, place: place.clone() });
        }
        wait_for(self.start_reads(started))
    }

    fn start_reads<'r>(&'r self, reads: Vec<BlocksRead<'r>>) -> Reading<'r, io::Error> {
        let bytes = reads.iter().map(|read| read.place.len()).sum();
        let asked = reads.into_iter().filter(|read| !read.place.is_empty());
        let all = asked.map(|read| self.read_range(read.offset, &mut read.memory[read.place]));
        let all = all.collect::<Vec<_>>();
        Box::pin(self.make(allowed(bytes), async { try_join_all(all).await.map(drop) }))
    }

    fn requests(&self) -> Option<Requests> {
        Some(*self.count())
    }

    fn fetch_depth(&self) -> FetchDepth {
        let (threads, samples) = FETCH;
        let files =
            getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| usize::try_from(soft).unwrap_or(usize::MAX));
        let at_once = Some((files / CONNECTIONS_SHARE).clamp(threads * samples, AT_ONCE_MAX));
        FetchDepth { threads, samples, join_gap: Some(JOIN_GAP), at_once }
    }

    /// Each read names the object that was opened, so that no other one can be read.
    fn session(&self) -> u64 {
        0
    }

    fn interrupt(&self) {
        self.clock().forget_giving_up();
        self.interrupts.send_modify(|count| *count += 1);
    }

    fn silences(&self) -> Silences {
        let (clock, now) = (self.clock(), Instant::now());
        let silence = |lasts| Silence {
            holder: self.address.to_string(),
            lasts,
            patience: clock.patience(),
            failure: self.last_failure().clone(),
        };
        Silences { total: clock.total(now), now: clock.lasts(now).map(silence) }
    }
}

impl fmt::Debug for RangeBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangeBlocks").field("address", &self.address.to_string()).finish_non_exhaustive()
    }
}

/// Reads that wait, on the clock of their path. Their end, even by being dropped, is recorded.
struct Waiting<'c>(&'c Mutex<PathClock>);

impl<'c> Waiting<'c> {
    fn begin(clock: &'c Mutex<PathClock>, allowed: Duration) -> Self {
        clock.lock().expect("no panic while the clock is locked").begin(Instant::now(), allowed);
        Self(clock)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.lock().expect("no panic while the clock is locked").end(Instant::now());
    }
}

/// A request that counts as in flight until it is dropped.
struct InFlight<'c>(&'c Mutex<Requests>);

impl<'c> InFlight<'c> {
    fn begin(requests: &'c Mutex<Requests>) -> Self {
        requests.lock().expect("no panic while the counts are locked").in_flight += 1;
        Self(requests)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.lock().expect("no panic while the counts are locked").in_flight -= 1;
    }
}

/// Asks what the object is, and whether the server answers for ranges.
async fn open(store: &dyn ObjectStore, address: &StoreAddress) -> Result<ObjectMeta, Failure> {
    let mut pauses = Backoff::new(PAUSES, 0);
    let mut attempts = 0;
    loop {
        let options = GetOptions { range: Some(GetRange::Bounded(0..1)), ..GetOptions::default() };
        let asked = tokio::time::timeout(READ_WITHIN, store.get_opts(&address.path, options)).await;
        let failure = match asked {
            Ok(Ok(answer)) => return Ok(answer.meta),
            Ok(Err(error)) => Failure::of(&error, || address.help(&error)),
            Err(_) => Failure::slow(READ_WITHIN),
        };
        attempts += 1;
        if !failure.may_pass || attempts == OPENING_ATTEMPTS {
            return Err(failure);
        }
        tokio::time::sleep(pauses.next_delay().unwrap_or(PAUSES.cap)).await;
    }
}

/// Returns `options` on the condition that the object is still the one with this `meta`.
fn unchanged(meta: &ObjectMeta, options: GetOptions) -> GetOptions {
    match &meta.e_tag {
        // A weak tag never matches as a condition (RFC 9110, section 13.1.1); the answer's tag is compared instead.
        Some(tag) if !tag.starts_with("W/") => GetOptions { if_match: Some(tag.clone()), ..options },
        _ => GetOptions { if_unmodified_since: Some(meta.last_modified), ..options },
    }
}

/// Returns how long bytes may take on a slow path, beyond the time of a small read.
fn allowed(bytes: usize) -> Duration {
    Duration::from_secs(bytes as u64 / BYTES_A_SECOND)
}

/// Fills `out` with an answer's bytes.
async fn fill<B: AsRef<[u8]>>(
    out: &mut [u8],
    bytes: impl Stream<Item = object_store::Result<B>>,
) -> Result<(), Failure> {
    let (mut bytes, mut filled) = (pin!(bytes), 0);
    while let Some(part) = bytes.next().await {
        let part = part.map_err(|error| Failure::of(&error, || "the answer broke off".to_owned()))?;
        let part = part.as_ref();
        let place =
            out.get_mut(filled..filled + part.len()).ok_or_else(|| Failure::wrong("more bytes than asked for"))?;
        place.copy_from_slice(part);
        filled += part.len();
    }
    if filled < out.len() {
        return Err(Failure::wrong("fewer bytes than asked for"));
    }
    Ok(())
}
